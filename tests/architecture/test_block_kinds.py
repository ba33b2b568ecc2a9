"""Models whose blocks differ: which block is of which kind, and what all of them have together."""

from dataclasses import replace

import pytest
from tests.architecture.parameters_by_hand import block_parameters, counted_by_hand

import calculon
from calculon.architecture.attention import mean_keys
from calculon.architecture.block_kinds import kinds_by_block, model_of_kind
from calculon.architecture.model_flops import model_flops_per_token
from calculon.architecture.parameters import active_count, parameter_count
from calculon.architecture.segments import kinds_of_block
from calculon.errors import SpecError
from calculon.spec.model import Model

DEEPSEEK_V3 = Model(
    hidden=7168,
    feedforward=18432,
    seq_size=4096,
    attn_heads=128,
    attn_size=192,
    num_blocks=61,
    activation="swiglu",
    norm="rmsnorm",
    dropout=False,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    num_experts=256,
    experts_per_token=8,
    expert_feedforward=2048,
    shared_feedforward=2048,
    first_k_dense=3,
    router_bias=True,
    vocab=129280,
)
"""Source: DeepSeek-V3, arXiv 2412.19437, section 4.2, and its ``config.json``."""

MAVERICK = Model(
    hidden=5120,
    feedforward=16384,
    seq_size=8192,
    attn_heads=40,
    attn_size=128,
    num_blocks=48,
    kv_heads=8,
    activation="swiglu",
    norm="rmsnorm",
    dropout=False,
    rotary=1.0,
    num_experts=128,
    expert_feedforward=8192,
    shared_feedforward=8192,
    moe_layer_freq=2,
    vocab=202048,
)
"""Source: Llama 4 Maverick, ``config.json`` (``text_config``)."""

SMALL = replace(
    DEEPSEEK_V3,
    hidden=64,
    feedforward=96,
    num_blocks=8,
    vocab=0,
    num_experts=4,
    experts_per_token=2,
    expert_feedforward=32,
    shared_feedforward=32,
)


def test_the_last_block_of_each_group_after_the_leading_dense_ones_has_the_experts():
    for leading, every, experts in [
        (0, 1, [0, 1, 2, 3, 4, 5, 6, 7]),
        (3, 1, [3, 4, 5, 6, 7]),
        (0, 2, [1, 3, 5, 7]),
        (0, 3, [2, 5]),
        (1, 3, [3, 6]),
        (7, 1, [7]),
        (0, 8, [7]),
    ]:
        model = replace(SMALL, first_k_dense=leading, moe_layer_freq=every)
        assert [i for i in range(8) if model.expert_block(i)] == experts, (leading, every)
        kinds = kinds_by_block(model)
        assert [i for i, kind in enumerate(kinds) if kind.experts] == experts or not kinds, (
            leading,
            every,
        )
        assert {kind.name: kind.count for kind in kinds_of_block(model)} == (
            {"dense": 8 - len(experts), "experts": len(experts)} if kinds else {"block": 8}
        ), (leading, every)


@pytest.mark.parametrize(
    ("model", "total", "active"),
    [(DEEPSEEK_V3, 671_026_419_200, 37.552), (MAVERICK, 400_711_848_960, 17.185)],
    ids=["DeepSeek-V3", "Llama 4 Maverick"],
)
def test_totals_are_exact(model, total, active):
    assert parameter_count(model) == counted_by_hand(model) == total
    assert active_count(model) / 1e9 == pytest.approx(active, abs=5e-4)


def test_parameters_and_arithmetic_are_sums_over_the_kinds():
    model = replace(SMALL, first_k_dense=1, moe_layer_freq=3)
    dense, experts = (model_of_kind(model, kind) for kind in dict.fromkeys(kinds_by_block(model)))
    assert (dense.has_experts, experts.has_experts, experts.mixes_kinds) == (False, True, False)
    assert parameter_count(model) == 6 * block_parameters(dense) + 2 * block_parameters(experts)
    whole, of_dense, of_experts = (
        model_flops_per_token(one, training=True) for one in (model, dense, experts)
    )
    assert float(whole) == float(6 * of_dense + 2 * of_experts) / 8


def test_a_pattern_without_dense_blocks_is_one_kind():
    plain = replace(SMALL, first_k_dense=0)
    assert kinds_by_block(plain) == ()
    assert [kind.name for kind in kinds_of_block(plain)] == ["block"]


def test_windows_beside_experts_are_kinds_of_their_own():
    model = replace(MAVERICK, num_blocks=8, sliding_window=8192 // 4, full_attention_every=4)
    names = [kind.name for kind in kinds_by_block(model)]
    window, full = "experts, window", "experts, full attention"
    assert names == ["dense, window", window, "dense, window", full] * 2
    counts = {kind.name: kind.count for kind in kinds_of_block(model)}
    assert counts == {"dense, window": 4, window: 2, full: 2}
    keys = {kind: float(mean_keys(model_of_kind(model, kind))) for kind in kinds_by_block(model)}
    assert sum(keys[kind] for kind in kinds_by_block(model)) / 8 == float(mean_keys(model))
    assert kinds_by_block(replace(model, moe_layer_freq=1, full_attention_every=0)) == ()
    assert (
        kinds_by_block(
            replace(
                model, num_experts=0, shared_feedforward=0, moe_layer_freq=1, expert_feedforward=0
            )
        )
        == ()
    )


def test_windows_that_restart_are_sequences_of_their_own():
    for length, window in [(8192, 2048), (8192, 3000), (100, 100), (100, 300)]:
        for causal in [True, False]:
            model = replace(MAVERICK, sliding_window=window, chunked_window=True, causal=causal)
            starts = range(0, length, window)
            sizes = [min(window, length - start) for start in starts]
            pairs = sum(n * (n + 1) / 2 if causal else n * n for n in sizes)
            found = float(mean_keys(model, length))
            assert found == pytest.approx(pairs / length, rel=1e-14), (length, window)


def test_windows_that_restart_need_a_window():
    with pytest.raises(SpecError, match="since sliding_window is 0"):
        replace(MAVERICK, chunked_window=True)


def test_dense_blocks_have_the_bias_of_the_mlp():
    model = replace(SMALL, mlp_bias=True)
    assert parameter_count(model) - parameter_count(SMALL) == 3 * (2 * 96 + 64)


@pytest.mark.parametrize(
    ("changes", "field", "wanted"),
    [
        ({"first_k_dense": 8}, "first_k_dense", "less than num_blocks=8, since the blocks after"),
        ({"moe_layer_freq": 6}, "moe_layer_freq", "at most num_blocks - first_k_dense = 5"),
        ({"moe_layer_freq": 0}, "moe_layer_freq", "at least 1"),
        ({"first_k_dense": 0, "mlp_bias": True}, "mlp_bias", "since experts take the place"),
    ],
)
def test_a_pattern_that_can_have_no_effect_is_an_error(changes, field, wanted):
    with pytest.raises(SpecError, match=wanted) as caught:
        replace(SMALL, **changes)
    assert [problem.field for problem in caught.value.problems] == [field]


@pytest.mark.parametrize("field", ["first_k_dense", "moe_layer_freq"])
def test_without_experts_there_is_no_pattern(field):
    with pytest.raises(SpecError, match="since num_experts is 0"):
        Model(
            hidden=8,
            feedforward=8,
            seq_size=8,
            attn_heads=1,
            attn_size=8,
            num_blocks=4,
            **{field: 2},
        )


def test_layers_are_listed_by_kind():
    degrees = {"tensor_par": 1, "pipeline_par": 1, "data_par": 1, "num_procs": 1}
    execution = degrees | {"batch_size": 1, "preset": "megatron-lm"}
    found = calculon.estimate(SMALL, execution, "h100_80g_sxm", layers=True).layers
    kinds = {(layer["kind"], layer["blocks"]) for layer in found}
    assert kinds == {("dense", 3), ("experts", 5)}
    routers = [layer for layer in found if layer["name"] == "MlpBlock_Router"]
    assert [layer["kind"] for layer in routers] == ["experts"]
