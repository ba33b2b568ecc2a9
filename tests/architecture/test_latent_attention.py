"""Multi-head latent attention: its products, what it gathers and keeps, and what it contradicts."""

from dataclasses import replace

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.architecture.attention import attention_layers
from calculon.architecture.latent_attention import replicated_weights
from calculon.architecture.parameters import model_flops_per_token, parameter_count
from calculon.base.errors import SpecError
from calculon.cost.layer_cost import LayerTable, stored_activations
from calculon.declarations.model import LATENT_WIDTHS, Model
from calculon.editions import CORRECTED
from tests.architecture.layers_by_name import B, T, shape_of
from tests.helpers import CORRECTED_FLASH, block_choice

DEEPSEEK = Model(
    hidden=7168,
    feedforward=18432,
    seq_size=4096,
    attn_heads=128,
    attn_size=192,
    num_blocks=4,
    norm="rmsnorm",
    activation="swiglu",
    dropout=False,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
)
"""The attention of DeepSeek-V3, arXiv 2412.19437, section 4.2, without its experts."""
H, A, RQ, RKV, DN, DR, DV, DK, S = 7168, 128, 1536, 512, 128, 64, 128, 192, 4096.0
TOKENS = B * S
SPLIT = {"tensor_par_comm_type": "rs_ag"}


def _table(model=DEEPSEEK, **changes):
    changes = {"datatype": "bfloat16", "attn_impl": "flash"} | changes
    return LayerTable(attention_layers(shape_of(model, **changes)), len(T))


def _layers(model=DEEPSEEK, **changes):
    return {
        layer.name.removeprefix("AttnBlock_"): layer for layer in _table(model, **changes).layers
    }


def test_a_block_of_deepseek_v3_has_the_weights_of_its_attention():
    """187,107,328 with the norms of latents: DeepSeek-V2, arXiv 2405.04434, section 2.1, with the widths of V3."""
    queries = H * RQ + RQ + RQ * A * DK
    keys_values = H * (RKV + DR) + RKV + RKV * A * (DN + DV)
    assert queries + keys_values + A * DV * H == 187_107_328
    assert parameter_count(replace(DEEPSEEK, part="attention", num_blocks=1)) == 187_107_328
    whole = replace(DEEPSEEK, part="attention", num_blocks=1, q_lora_rank=0)
    assert parameter_count(whole) == H * A * DK + keys_values + A * DV * H


@pytest.mark.parametrize("split", [False, True])
def test_projections_down_are_of_the_tokens_of_a_rank_and_those_up_of_its_heads(split):
    layers = _layers(**SPLIT if split else {})
    own = TOKENS / T if split else TOKENS
    for name, (m, n, k) in {
        "Query_Down": (own, H, RQ),
        "Query_Up": (TOKENS, RQ, A * DK / T),
        "KV_Down": (own, H, RKV + DR),
        "KV_Up": (TOKENS, RKV, A * (DN + DV) / T),
        "MLP": (TOKENS, A * DV / T, H),
    }.items():
        product = layers[name].product
        for found, expected in zip((product.m, product.n, product.k), (m, n, k), strict=True):
            np.testing.assert_array_equal(found + 0 * T, expected + 0 * T)
        np.testing.assert_array_equal(layers[name].flops[0], 2 * m * n * k)


def test_latents_are_gathered_and_not_the_stream():
    layers = _layers(**SPLIT)
    assert "F" not in layers
    for name, width in (("Query_F", RQ), ("KV_F", RKV + DR)):
        message = 2 * TOKENS * width * (T > 1)
        np.testing.assert_array_equal(layers[name].collective.message, message)
        assert layers[name].collective.operations == ("all_gather", "reduce_scatter") or (
            layers[name].collective.split_operations == ("all_gather", "reduce_scatter")
        )
    without = _layers(replace(DEEPSEEK, q_lora_rank=0), **SPLIT)
    np.testing.assert_array_equal(without["F"].collective.message, 2 * TOKENS * H * (T > 1))
    assert "Query_F" not in without


@pytest.mark.parametrize("latent_queries", [True, False])
@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_what_a_token_keeps(latent_queries, split, again):
    """Norm in and out, latents in and out, q, k, v, o, and a 4-byte statistic per query and head.

    Inputs that are gathered again are kept as the share of a rank (Megatron-LM), and whole otherwise.
    """
    model = DEEPSEEK if latent_queries else replace(DEEPSEEK, q_lora_rank=0)
    again = again and split
    form = SPLIT if split else {}
    chosen = {"edition": "corrected", "datatype": "bfloat16", "attn_impl": "flash"}
    choice = block_choice(training=True, seq_par_ag_redo=again, **chosen, **form)
    kept = stored_activations(_table(model, **form), choice, CORRECTED)
    found = kept.sum(axis=0) / TOKENS
    ranks = T if split else 1.0
    gathered = ranks if again else 1.0  # what becomes of the inputs of products of gathered tensors
    elements = 2 * H / ranks + (RKV + DR) / ranks + RKV / gathered
    elements += RQ / ranks + RQ / gathered if latent_queries else 0.0
    if not latent_queries and split and not again:
        elements += H  # the stream gathered, beside the share
    expected = 2 * (elements + (2 * A * DK + 2 * A * DV) / T) + 4 * A / T
    parallel = T > 1 if again else T > 0  # nothing is gathered by one rank alone
    np.testing.assert_allclose(found[parallel], expected[parallel], rtol=1e-12)


def test_fused_attention_has_two_widths():
    flash = _layers()["Flash"]
    keys = (S + 1) / 2
    np.testing.assert_allclose(flash.flops[0], 2 * TOKENS * keys * A / T * (DK + DV))
    np.testing.assert_allclose(flash.flops[1], 2.5 * flash.flops[0])
    np.testing.assert_array_equal(flash.output_bytes, 2 * TOKENS * A / T * DV)
    assert (flash.head_width, flash.value_width) == (DK, DV)


def test_eager_attention_has_two_widths():
    layers = _layers(attn_impl="eager")
    for name, width in (("Multihead_Key_Query", DK), ("Multihead_Attn", DV)):
        np.testing.assert_array_equal(layers[name].flops[0], 2 * B * A / T * S * S * width)


def test_a_part_of_each_head_is_turned_and_keys_are_joined():
    layers = _layers()
    turned = TOKENS * (A / T + 1) * DR
    np.testing.assert_array_equal(layers["Rotary"].flops[0], 6 * turned)
    moved = 2 * TOKENS * (A / T * DN + DR + A / T * DK)
    for phase in range(2):
        np.testing.assert_array_equal(layers["Key_Join"].accessed[phase], moved)
    np.testing.assert_array_equal(layers["Key_Join"].flops[1], TOKENS * A / T * DR)


@pytest.mark.parametrize("rank", [0, 1536])
def test_weights_that_every_rank_has_are_those_of_the_projections_down_and_their_norms(rank):
    model = replace(DEEPSEEK, q_lora_rank=rank)
    expected = H * rank + rank + H * (RKV + DR) + RKV
    assert replicated_weights(model) == expected
    own = [layer for layer in _table(model).layers if layer.replicated]
    np.testing.assert_array_equal(sum(layer.weights for layer in own) + 0 * T, expected + 0 * T)


RUN = CORRECTED_FLASH | {
    "num_procs": 16,
    "tensor_par": 8,
    "data_par": 2,
    "batch_size": 16,
    "activation_recompute": "full",
}


def test_gradients_of_latents_are_reduced_once_a_step_where_sequences_are_split():
    """Per block one all-reduce of what is whole on all ranks, in the type that replicas reduce."""

    def linked(**changes):
        found = calculon.estimate(DEEPSEEK, RUN | changes, "h100_80g_sxm").stats
        return found["tp_comm_link_time"]

    one, two = linked(**SPLIT), linked(**SPLIT, batch_size=32)
    again, narrow = 2 * one - two, linked(**SPLIT, grad_comm_dtype="float32")
    system, message = inputs.system("h100_80g_sxm"), 2.0 * replicated_weights(DEEPSEEK)

    def time(size):
        ranks = np.array(8.0)
        return 4 * float(system.fabric.time(np.array(0), "all_reduce", np.array(size), ranks))

    assert again == pytest.approx(time(message), rel=1e-6)
    assert narrow - one == pytest.approx(time(2 * message) - time(message), rel=1e-6)
    assert 2 * linked() == pytest.approx(linked(batch_size=32), rel=1e-12)  # no part is paid once


def test_their_bytes_count_among_those_of_tensor_parallel_groups():
    def moved(batch_size):
        execution = RUN | SPLIT | {"batch_size": batch_size}
        groups = calculon.estimate(DEEPSEEK, execution, "h100_80g_sxm").groups
        return next(group.bytes for group in groups if group.kind == "tensor")

    fabric, message = inputs.system("h100_80g_sxm").fabric, 2.0 * replicated_weights(DEEPSEEK)
    each = fabric.volume(np.array(0), "all_reduce", np.array(message), np.array(8.0))
    assert 2 * moved(16)[0] - moved(32)[0] == pytest.approx(4 * float(each), rel=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_model_flop_are_six_per_weight_of_a_matrix_and_the_scores(causal):
    keys = (S + 1) / 2 if causal else S
    norms = 4 * (RQ + RKV + 2 * H)
    products = 6 * (parameter_count(DEEPSEEK) - norms)
    scores = 3 * 2 * 4 * A * (DK + DV) * keys
    found = model_flops_per_token(DEEPSEEK, training=True, causal=causal)
    assert found == pytest.approx(products + scores, rel=1e-14)


WIDER = ("q_lora_rank", "kv_lora_rank", *LATENT_WIDTHS)


def test_a_contradiction_is_named():
    for changes, field, expected in [
        ({"kv_lora_rank": 0, "q_lora_rank": 8}, "q_lora_rank", "0, since kv_lora_rank is 0"),
        ({"kv_lora_rank": 0, "v_head_dim": 8}, "v_head_dim", "0, since kv_lora_rank is 0"),
        ({"v_head_dim": 0}, "v_head_dim", "at least 1, since kv_lora_rank=512"),
        ({"qk_rope_head_dim": 0}, "qk_rope_head_dim", "at least 1"),
        ({"attn_size": 128}, "attn_size", "= 192, the width of a query head"),
        ({"kv_heads": 8}, "kv_heads", "0, since kv_lora_rank=512"),
        ({"qk_norm": "head"}, "qk_norm", "none, since"),
        ({"rotary": 0.5}, "rotary", "0.0, since"),
        ({"qkv_bias": True}, "qkv_bias", "false, since"),
        ({"parallel_attention": True, "norms": 1}, "parallel_attention", "false, since"),
        ({"attention_gate": True}, "attention_gate", "false, since kv_lora_rank=512"),
    ]:
        fields = DEEPSEEK.to_dict()
        if changes.get("kv_lora_rank") == 0:
            fields = {name: value for name, value in fields.items() if name not in WIDER}
        with pytest.raises(SpecError, match=f"{field}: expected .*{expected}"):
            Model(**fields | changes)


def test_windows_combine_with_latents():
    windowed = _layers(replace(DEEPSEEK, sliding_window=512))["Flash"]
    assert windowed.keys == pytest.approx(512 - 512 * 511 / (2 * S))
