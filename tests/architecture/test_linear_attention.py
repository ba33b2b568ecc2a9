"""Linear attention in blocks, patterns of parts, and what all of it has together."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.architecture.parameters import model_flops_per_token, module_count, parameter_count
from calculon.architecture.segments import kinds_by_block, model_of_kind
from calculon.base.errors import SpecError
from calculon.declarations.model import Model
from tests import helpers
from tests.architecture.layers_by_name import B, T, layers_of
from tests.architecture.parameters_by_hand import block_parameters, counted
from tests.cases import for_each

PLAIN = Model(
    hidden=64,
    feedforward=96,
    seq_size=256,
    attn_heads=8,
    attn_size=16,
    num_blocks=8,
    activation="swiglu",
    norm="rmsnorm",
    dropout=False,
    vocab=512,
)
DELTA = {
    "linear_attention": "gated_delta",
    "linear_key_heads": 4,
    "linear_value_heads": 8,
    "linear_key_dim": 12,
    "linear_value_dim": 20,
    "linear_conv": 3,
}
MAMBA = {
    "linear_attention": "mamba2",
    "ssm_heads": 8,
    "ssm_head_dim": 10,
    "ssm_state": 24,
    "ssm_groups": 2,
    "ssm_conv": 3,
    "ssm_chunk": 32,
}
LIGHTNING = {"linear_attention": "lightning"}
KINDS = {"DeltaBlock": DELTA, "MambaBlock": MAMBA, "LightningBlock": LIGHTNING}
TOKENS = B * 256.0


# -- layers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "fields"), KINDS.items())
def test_a_block_has_its_parameters_on_one_rank_and_a_share_of_the_products_on_each(name, fields):
    model = replace(PLAIN, **fields)
    layers = [layer for key, layer in layers_of(model).items() if key.startswith(name)]
    own = sum(np.broadcast_to(layer.weights, 3) for layer in layers)
    assert own[0] == block_parameters(model) - (3 * 96 + 1) * 64  # without MLP and its norm
    products = [layer.product for layer in layers if layer.product is not None]
    assert len(products) == 2
    for _, m, n, k in products:
        assert np.all(m == TOKENS)
        assert np.all((n * k)[0] == (T * n * k)[:2])  # there are two groups


def test_the_gated_delta_rule_by_hand():
    """Forward 8 FLOP per element of the state, and products of a chunk of 64 tokens; inverse of a chunk is kept."""
    layers = layers_of(replace(PLAIN, **DELTA))
    state, heads, keys, values, chunk = layers["DeltaBlock_State"], 8 / T, 12, 20, 64
    flops = heads * (8 * keys * values + chunk * (5 * keys + 3 * values))
    read = 2 * (4 / T) * keys + heads * values + 2 * heads
    assert np.allclose(state.flops[0], TOKENS * flops)
    assert np.allclose(state.activation, 2 * TOKENS * (read + heads * chunk))
    between = heads * (keys * values / chunk + keys + 2 * values + chunk)
    assert np.allclose(
        state.accessed[0], 2 * TOKENS * (read + heads * values) + 2 * TOKENS * 2 * between
    )
    convolved = layers["DeltaBlock_Conv"]
    assert np.allclose(convolved.inputs, TOKENS * (2 * 4 * keys + 8 * values) / T)
    assert layers["DeltaBlock_Norm"].weights == values


def test_mamba_2_by_hand():
    """Two products with the state and two in a chunk; groups that are fewer than ranks are copied."""
    state = layers_of(replace(PLAIN, **MAMBA))["MambaBlock_State"]
    inner, groups, n, chunk = 80 / T, np.ceil(2 / T), 24, 32
    flops = 4 * inner * n + 2 * chunk * (groups * n + inner)
    assert np.allclose(state.flops[0], TOKENS * flops)
    assert np.allclose(state.activation, TOKENS * (2 + 4) * 8 / T)
    assert np.allclose(state.weights, 3 * 8 / T)
    copied = layers_of(replace(PLAIN, **MAMBA | {"ssm_groups": 1}))
    assert np.allclose(copied["MambaBlock_Conv"].weights, (3 + 1) * (80 / T + 2 * 24))


def test_lightning_attention_by_hand():
    layers = layers_of(replace(PLAIN, **LIGHTNING))
    state, heads, size, chunk = layers["LightningBlock_State"], 8 / T, 16, 64
    assert np.allclose(state.flops[0], TOKENS * heads * (4 * size**2 + 2 * chunk * size))
    assert np.allclose(state.accessed[0], 2 * TOKENS * 4 * heads * size)
    assert np.allclose(state.activation, 2 * TOKENS * 3 * heads * size)


def test_chunks_are_no_longer_than_sequences():
    short = replace(PLAIN, seq_size=16, **LIGHTNING)
    state = layers_of(short)["LightningBlock_State"]
    assert np.allclose(state.flops[0], 16 * B * (8 / T) * (4 * 16**2 + 2 * 16 * 16))


# -- kinds ------------------------------------------------------------------------------------------------------------


def test_the_last_block_of_each_group_has_softmax():
    model = replace(PLAIN, **DELTA, full_attention_every=4, kv_heads=2, qk_norm="head")
    assert [i for i in range(8) if not model.linear_block(i)] == [3, 7]
    names = Counter(kind.name for kind in kinds_by_block(model))
    assert names == {"linear attention": 6, "full attention": 2}
    linear, full = (model_of_kind(model, kind) for kind in dict.fromkeys(kinds_by_block(model)))
    assert (linear.has_softmax, linear.kv_heads, full.has_linear) == (False, 0, False)
    assert parameter_count(model) == counted(model)


def test_parts_of_a_pattern_add_up():
    experts = {"num_experts": 4, "experts_per_token": 2, "shared_feedforward": 32}
    model = replace(PLAIN, **MAMBA, **experts, layer_pattern="ME*-M-ME")
    assert parameter_count(model) == counted(model)
    names = Counter(kind.name for kind in kinds_by_block(model))
    assert names == {"linear attention": 3, "experts": 2, "MLP": 2, "attention": 1}


EXECUTION = helpers.PLAIN | {
    "num_procs": 8,
    "tensor_par": 2,
    "data_par": 4,
    "batch_size": 16,
    "microbatch_size": 2,
    "edition": "corrected",
    "attn_impl": "flash",
}
"""On a system that states no launches, which wait for each other block by block."""


def _stats(model, **changes):
    return calculon.estimate(model, EXECUTION | changes, "a100_80g").stats


ALONE = {"num_procs": 2, "data_par": 1}
"""No replicas, which add gradients up block by block."""


@for_each(("letter", "fields"), [("*", {}), *(("M", fields) for fields in KINDS.values())])
def test_a_pattern_of_both_parts_in_turn_is_the_periodic_form(letter, fields):
    """A block is attention and then an MLP, each with a norm: two letters."""
    block = replace(PLAIN, num_blocks=4, **fields)
    parts = replace(block, num_blocks=8, layer_pattern=f"{letter}-" * 4)
    assert parameter_count(parts) == parameter_count(block)
    one, other = _stats(block, **ALONE), _stats(parts, **ALONE)
    for name in ("total_time", "weight_space", "mfu", "hfu", "model_flops_per_token"):
        assert other[name] == pytest.approx(one[name], rel=1e-12), name


def test_a_part_may_have_no_collective_of_tensor_parallelism():
    """Experts alone reduce nothing that tensor parallelism splits, where each rank sends its own tokens."""
    experts = {"num_experts": 4, "experts_per_token": 2}
    model = replace(PLAIN, **experts, layer_pattern="*E" * 4)
    found = _stats(model, expert_par=2, expert_tensor_par=1, tensor_par_comm_type="rs_ag")
    assert found["total_time"] > 0


def test_a_module_after_a_pattern_is_attention_and_the_last_mlp_or_experts():
    """Source: Nemotron 3, ``mtp_hybrid_override_pattern: *E``."""
    model = replace(PLAIN, **MAMBA, layer_pattern="M-M-M*M-", mtp_layers=1)
    attention, mlp, norms = 4 * 64 * 8 * 16, 3 * 64 * 96, (2 + 3) * 64
    assert module_count(model) == attention + mlp + 2 * 64**2 + norms


# -- model FLOP -------------------------------------------------------------------------------------------------------


def test_states_count_by_the_convention_of_megatron():
    """Source: Megatron-LM, ``training.py``, ``num_floating_point_operations``."""
    plain = replace(PLAIN, vocab=0)
    mlp = 3 * 64 * 96
    found = {
        name: float(model_flops_per_token(replace(plain, **fields), training=False)) / 8 - 2 * mlp
        for name, fields in KINDS.items()
    }
    keys, values = 4 * 12, 8 * 20
    delta = 2 * 64 * (2 * keys + 3 * values + 2 * 8)
    assert found["DeltaBlock"] == delta + 2 * 3 * (2 * keys + values) + 8 * 8 * 12 * 20
    assert found["MambaBlock"] == 2 * 64 * (3 * 80 + 2 * 2 * 24 + 8) + 7 * 80 * 24
    assert found["LightningBlock"] == 2 * 5 * 64 * 128 + 4 * 8 * 16**2


def test_nemotron_h_56b_has_the_model_flop_of_its_sources():
    """340.2 GFLOP per token of 8,192: Megatron-LM's formula; NVIDIA's recipe states 1 % more (2.816e15 a sequence)."""
    model = inputs.model("nemotron-h-56B")
    found = float(model_flops_per_token(model, training=True, causal=True))
    assert found / 1e9 == pytest.approx(340.2, abs=0.05)
    assert found * 8192 == pytest.approx(2.816e15, rel=0.011)


# -- recomputation, context parallelism -------------------------------------------------------------------------------


def test_the_norm_after_the_state_is_computed_again_and_its_output_not_kept():
    model = replace(PLAIN, **DELTA)
    plain, again = _stats(model), _stats(model, recompute_modules="gdn_norm_out")
    freed = plain["block_act_storage_space"] - again["block_act_storage_space"]
    assert freed == 2 * (2 * 256) * (8 * 20 / 2)  # bytes, tokens, width of a rank
    assert again["recompute_time"] > plain["recompute_time"] == 0


def test_heads_are_exchanged_for_parts_of_sequences():
    """What the input product makes goes there, what the state gives comes back; forward and backward."""
    model = replace(PLAIN, **LIGHTNING)
    columns = helpers.sizes(tensor_par=T, microbatch_size=B)
    columns = replace(columns, further={**columns.further, "context_par": np.full(3, 2.0)})
    sent = {
        name: one
        for name, one in layers_of(model, columns=columns).items()
        if one.collective is not None and one.collective.axis == "cp"
    }
    width = {"LightningBlock_Heads_In": 4 * 128, "LightningBlock_Heads_Out": 128}
    assert set(sent) == set(width)
    for name, columns_of_rank in width.items():
        collective = sent[name].collective
        assert collective.operations == ("all_to_all", "all_to_all")
        assert np.allclose(collective.message, 2 * TOKENS / 2 * columns_of_rank / T)


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_contradictions_are_named():
    for changes, field, wanted in [
        ({"linear_key_heads": 2}, "linear_key_heads", "0, since linear_attention is none"),
        ({"linear_attention": "mamba2"}, "ssm_heads", "at least 1"),
        (DELTA | {"linear_value_heads": 6}, "linear_value_heads", "a multiple of linear_key_heads"),
        (MAMBA | {"ssm_groups": 3}, "ssm_groups", "a divisor of ssm_heads=8"),
        (DELTA | {"causal": False}, "causal", "true"),
        (DELTA | {"parallel_attention": True}, "parallel_attention", "false"),
        (DELTA | {"full_attention_every": 1}, "full_attention_every", "from 2 to num_blocks=8"),
        (DELTA | {"rotary": 1.0}, "rotary", "no block has attention with softmax"),
        (
            DELTA | {"full_attention_every": 2, "sliding_window": 8},
            "sliding_window",
            "0, since linear_attention",
        ),
        ({"layer_pattern": "*-"}, "layer_pattern", "a letter for each of num_blocks=8"),
        ({"layer_pattern": "*-*-*-*x"}, "layer_pattern", "letters of M"),
        ({"layer_pattern": "M-M-M-M-"}, "linear_attention", "a kind of it"),
        (MAMBA | {"layer_pattern": "*-*-*-*-"}, "linear_attention", "none"),
        ({"layer_pattern": "*E*E*E*E"}, "num_experts", "at least 1"),
        ({"layer_pattern": "*-*-*-*-", "norms": 4}, "norms", "2, since layer_pattern"),
        (
            MAMBA | {"layer_pattern": "M-M-M-M-", "mtp_layers": 1},
            "mtp_layers",
            "0, since layer_pattern has no letter",
        ),
    ]:
        with pytest.raises(SpecError, match=wanted) as caught:
            replace(PLAIN, **changes)
        assert field in [problem.field for problem in caught.value.problems], (changes, field)
