"""What ranks with parts of the same sequences have and exchange: sizes and bytes by their formulas."""

from dataclasses import replace

import numpy as np
import pytest

import calculon
from calculon.architecture.block import block_layers
from calculon.architecture.segments import EMBEDDING, HEAD
from calculon.declarations.plan_words import expert_replicas
from tests.architecture.layers_by_name import layers_of
from tests.helpers import PLAIN, sizes

H, F, S, A, G, D, V = 256, 512, 64, 8, 4, 32, 1000
MODEL = calculon.Model(
    hidden=H,
    feedforward=F,
    seq_size=S,
    attn_heads=A,
    attn_size=D,
    num_blocks=4,
    kv_heads=G,
    activation="swiglu",
    norm="rmsnorm",
    rotary=1.0,
    vocab=V,
)
LATENT = replace(
    MODEL,
    kv_heads=0,
    rotary=0.0,
    kv_lora_rank=32,
    qk_nope_head_dim=24,
    qk_rope_head_dim=8,
    v_head_dim=16,
)
C, T, B = np.array([1.0, 2.0, 4.0]), np.array([2.0, 2.0, 1.0]), np.array([1.0, 2.0, 3.0])
TOKENS = B * S / C
"""Tokens of a rank."""

BETA = 2
"""Bytes of an element."""

WIDTHS = {"plain": (MODEL, G * 2 * D, A * D, A * D), "latent": (LATENT, A * 48, A * D, A * 16)}
"""Models, and what their tokens have: of keys and values, of queries, of outputs."""


def _columns(**numbers):
    columns = sizes(tensor_par=T, microbatch_size=B)
    further = columns.further | {"context_par": C, "context_par_net": np.zeros(3, int)}
    return replace(columns, further=further, **numbers)


WHOLE = replace(_columns(), further=sizes(tensor_par=T).further)
"""The same sizes without parts."""


def _layers(model=MODEL, segment=block_layers, columns=None, **changes):
    columns = _columns() if columns is None else columns
    return layers_of(model, segment, columns, attn_impl="flash", **changes)


def _sent(layer, backward=False):
    """Bytes that a rank sends to others in a pass."""
    collective = layer.collective
    operation = collective.operations[backward]
    message = collective.times(backward=backward) * collective.message
    return {"p2p": 1, None: 0}.get(operation, (C - 1) / C) * message


@pytest.mark.parametrize("name", WIDTHS)
def test_keys_and_values_are_gathered_in_both_passes_and_their_gradients_reduced(name):
    model, keys_values, _, _ = WIDTHS[name]
    layers = _layers(model, cp_comm="all_gather")
    gather, again = layers["AttnBlock_KV_Gather"], layers["AttnBlock_KV_Regather"]
    part = (C - 1) * TOKENS * keys_values / T * BETA
    np.testing.assert_allclose(_sent(gather), part)
    np.testing.assert_allclose(_sent(gather, backward=True) + _sent(again, backward=True), 2 * part)
    assert again.collective.operations == (None, "all_gather")
    np.testing.assert_array_equal(_sent(again), 0)


@pytest.mark.parametrize("name", WIDTHS)
def test_a_ring_sends_parts_c_minus_one_times_and_their_gradients_home(name):
    model, keys_values, _, _ = WIDTHS[name]
    ring = _layers(model, cp_comm="p2p")["AttnBlock_KV_Ring"]
    part = np.where(C > 1, TOKENS * keys_values / T * BETA, 0)
    np.testing.assert_allclose(_sent(ring), (C - 1) * part)
    np.testing.assert_allclose(_sent(ring, backward=True), (2 * C - 1) * part)


@pytest.mark.parametrize("name", WIDTHS)
def test_heads_are_exchanged_before_and_after_attention_alike_in_both_passes(name):
    model, keys_values, queries, outputs = WIDTHS[name]
    columns = replace(_columns(), tensor_par=np.ones(3))
    layers = _layers(model, columns=columns, cp_comm="a2a")
    there, back = layers["AttnBlock_Heads_In"], layers["AttnBlock_Heads_Out"]
    for backward in (False, True):
        moved = _sent(there, backward) + _sent(back, backward)
        wanted = TOKENS * (queries + keys_values + outputs) * BETA * (C - 1) / C
        np.testing.assert_allclose(moved, wanted)


def test_key_heads_that_are_fewer_than_ranks_are_sent_to_all_of_them():
    """Of 4 ranks of a tensor group of 2, each has one of 4 heads, for the tokens of all 4."""
    columns = replace(_columns(), tensor_par=np.full(3, 2.0))
    layers = _layers(columns=columns, cp_comm="a2a", cp_kv_replicate=True)
    elements = layers["AttnBlock_Heads_In"].collective.message / BETA
    own = np.maximum(G / 2 / C, 1)
    np.testing.assert_allclose(elements[1:], (TOKENS * (A / 2 * D + C * own * 2 * D))[1:])


@pytest.mark.parametrize("comm", ["p2p", "all_gather", "a2a"])
def test_arithmetic_of_a_rank_is_its_part_however_it_is_exchanged(comm):
    whole, parts = _layers(columns=WHOLE), _layers(cp_comm=comm)
    skipped = {"AttnBlock_Flash"} if comm == "p2p" else set()  # which has steps of its own
    for name in whole.keys() - skipped:
        np.testing.assert_allclose(parts[name].flops[0], whole[name].flops[0] / C, err_msg=name)
        np.testing.assert_allclose(parts[name].weights, whole[name].weights, err_msg=name)
        saved = parts[name].activation * np.ones(3)
        np.testing.assert_allclose(saved, whole[name].activation / C, err_msg=name)


@pytest.mark.parametrize("segment", [EMBEDDING, HEAD], ids=["embedding", "head"])
def test_embedding_head_and_loss_have_the_tokens_of_a_rank(segment):
    whole = _layers(segment=segment.layers, columns=WHOLE)
    parts = _layers(segment=segment.layers)
    for name, layer in whole.items():
        np.testing.assert_allclose(parts[name].outputs, layer.outputs / C, err_msg=name)
        np.testing.assert_array_equal(parts[name].weights, layer.weights)


def test_a_group_of_one_exchanges_nothing_and_has_no_further_layer():
    assert not [name for name in _layers(columns=WHOLE) if "KV_" in name or "Heads" in name]


def test_gathered_keys_and_their_gradients_are_whole_while_a_block_is_computed_and_not_kept():
    gather = _layers(cp_comm="all_gather")["AttnBlock_KV_Gather"]
    every = np.where(C > 1, C * TOKENS * 2 * G * D / T, 0)
    np.testing.assert_allclose(gather.activation, BETA * every)
    np.testing.assert_allclose(gather.activation_grad, 4 * every)
    assert gather.flags.drops_activation == "always"


def test_a_ring_has_two_buffers_and_sums_in_four_bytes():
    ring = _layers(cp_comm="p2p")["AttnBlock_KV_Ring"]
    buffers = 2 * BETA * TOKENS * 2 * G * D / T
    sums = 4 * TOKENS * A / T * (D + 1)
    np.testing.assert_allclose(ring.activation, np.where(C > 1, buffers + sums, 0))
    assert ring.flags.drops_activation == "always"


def test_pages_count_replicas_of_experts_over_parts_of_sequences():
    parts = {"tensor_par": 2, "context_par": 2, "data_par": 2}
    assert expert_replicas(PLAIN | parts | {"expert_par": 2, "expert_tensor_par": 1}) == 8 // 2
