"""Models whose blocks differ: which block is of which kind, and what all of them have together."""

from dataclasses import replace

import pytest

import calculon
from calculon import inputs
from calculon.architecture.attention import mean_keys
from calculon.architecture.parameters import model_flops_per_token, parameter_count
from calculon.architecture.segments import kinds_by_block, kinds_of_block, model_of_kind
from calculon.base.errors import SpecError
from tests.architecture.parameters_by_hand import block_parameters

DEEPSEEK_V3 = replace(
    inputs.model("deepseek-v3"), mtp_layers=0, router_groups=0, router_group_topk=0
)
MAVERICK = replace(
    inputs.model("llama4-maverick"), sliding_window=0, chunked_window=False, full_attention_every=0
)
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


def test_parameters_and_arithmetic_are_sums_over_the_kinds():
    model = replace(SMALL, first_k_dense=1, moe_layer_freq=3)
    dense, experts = (model_of_kind(model, kind) for kind in dict.fromkeys(kinds_by_block(model)))
    assert (dense.has_experts, experts.has_experts, experts.mixes_kinds) == (False, True, False)
    assert parameter_count(model) == 6 * block_parameters(dense) + 2 * block_parameters(experts)
    whole, of_dense, of_experts = (
        model_flops_per_token(one, training=True) for one in (model, dense, experts)
    )
    assert float(whole) == float(6 * of_dense + 2 * of_experts) / 8


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


def test_windows_that_restart_are_sequences_of_their_own():
    for length, window in [(8192, 2048), (8192, 3000), (100, 100), (100, 300)]:
        for causal in [True, False]:
            model = replace(MAVERICK, sliding_window=window, chunked_window=True, causal=causal)
            starts = range(0, length, window)
            sizes = [min(window, length - start) for start in starts]
            pairs = sum(n * (n + 1) / 2 if causal else n * n for n in sizes)
            found = float(mean_keys(model, length))
            assert found == pytest.approx(pairs / length, rel=1e-14), (length, window)


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
        ({"chunked_window": True}, "chunked_window", "since sliding_window is 0"),
    ],
)
def test_a_pattern_that_can_have_no_effect_is_an_error(changes, field, wanted):
    with pytest.raises(SpecError, match=wanted) as caught:
        replace(SMALL, **changes)
    assert [problem.field for problem in caught.value.problems] == [field]


def test_layers_are_listed_by_kind():
    degrees = {"tensor_par": 1, "pipeline_par": 1, "data_par": 1, "num_procs": 1}
    execution = degrees | {"batch_size": 1, "preset": "megatron-lm"}
    found = calculon.estimate(SMALL, execution, "h100_80g_sxm", layers=True).layers
    kinds = {(layer["kind"], layer["blocks"]) for layer in found}
    assert kinds == {("dense", 3), ("experts", 5)}
    routers = [layer for layer in found if layer["name"] == "MlpBlock_Router"]
    assert [layer["kind"] for layer in routers] == ["experts"]
