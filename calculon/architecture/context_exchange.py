"""Context parallelism: exchange of keys and values, or of heads, between ranks with parts of a sequence.

A group of `c` ranks has `T` tokens of the same sequences each, with keys and values of ``kv`` elements per token:

- ``p2p``: keys and values are passed around a ring in ``c - 1`` steps (ring attention). The backward pass does so, too,
  and passes their gradients around, to which every rank adds, in `c` steps until they return to their rank
  (Transformer Engine, which starts with the last received part, needs one step less);
- ``all_gather``: every rank gathers all keys and values, again in the backward pass, and reduce-scatters their
  gradients; it stores only its own part;
- ``a2a``: an all-to-all gives each rank all tokens for a share of the heads, and another one returns the outputs of its
  own tokens (DeepSpeed Ulysses); the backward pass exchanges gradients in the opposite direction;
- ``a2a_p2p``: an all-to-all within groups of neighbors, and a ring between these groups.

Sources: Liu et al., *Ring Attention*, arXiv 2310.01889, section 3; Llama Team, arXiv 2407.21783, section 3.3.2
(all-gather); Jacobs et al., *DeepSpeed Ulysses*, arXiv 2309.14509, section 3.1; Transformer Engine,
``pytorch/attention/dot_product_attention/context_parallel.py``, ``AttnFuncWithCPAndKVP2P``,
``AttnFuncWithCPAndKVAllGather`` and ``AttnFuncWithCPAndQKVOA2A``.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from calculon.architecture.layers import Flags, Layer, When, communication
from calculon.architecture.layers.matmul import STATISTIC_BYTES
from calculon.architecture.ring_attention import (
    MeanKeys,
    Ring,
    imbalance,
    parts_sent,
    ring_of,
)
from calculon.architecture.shape import BlockShape
from calculon.base.units import Count, Elements, Fraction
from calculon.declarations.named_values import BETWEEN_PARTS, HEAD_EXCHANGES, RINGS

AXIS = "cp"

SUM_BYTES = 4
"""Bytes of an element that is summed over parts of the keys: outputs, and gradients of keys and values."""

RING = "AttnBlock_KV_Ring"
"""Name of the layer that sends keys and values to the next rank while attention to the current ones runs."""

_EXCHANGED = Flags(recommunicate=When.RECOMPUTE_ATTENTION, drops_activation=When.ALWAYS)
"""Flags of exchanges for core attention: repeated if attention is recomputed; the core saves its inputs itself."""


class CoreShare(NamedTuple):
    """Share of one rank in the attention over whole sequences.

    Attributes:
        ranks: Ranks that divide the heads: tensor-parallel ranks, times ranks that exchange heads.
        queries: Tokens of each sequence whose outputs the rank computes; `tokens` is for all sequences.
        heads, key_value_heads: Query heads, and key and value heads.
        key_tokens: Tokens whose keys and values the rank reads.
    """

    ranks: Count
    queries: Count
    tokens: Count
    heads: Count
    key_value_heads: Count
    key_tokens: Count

    @classmethod
    def of(cls, shape: BlockShape) -> "CoreShare":
        """Return the share of one rank: a share of the heads if they are exchanged, else of the queries."""
        work, ranks = shape.workload, shape.tensor_par
        queries, tokens = work.queries, shape.tokens
        if shape.choice.cp_comm in HEAD_EXCHANGES:
            near = shape.sizes.exchanging(shape.choice.cp_comm)
            ranks, queries, tokens = ranks * near, queries * near, tokens * near
        return cls(
            ranks=ranks,
            queries=queries,
            tokens=tokens,
            heads=np.floor(shape.model.attn_heads / ranks),
            key_value_heads=shape.edition.key_value_heads(shape.model, shape.choice, ranks),
            key_tokens=work.sequences * work.keys,
        )


def layers_before_core(shape: BlockShape) -> Iterator[Layer]:
    """Yield the layers that bring keys and values to queries, or exchange heads."""
    if not (shape.sizes.context_par > 1).any():
        return
    if shape.choice.cp_comm in HEAD_EXCHANGES:
        yield _heads_of_inputs(shape)
    if shape.choice.cp_comm == "all_gather":
        yield from _gathered(shape)
    if shape.choice.cp_comm in RINGS:
        yield _handed_on(shape)


def layers_after_core(shape: BlockShape) -> Iterator[Layer]:
    """Yield the layers that sum partial outputs, and that return outputs to their tokens."""
    if not (shape.sizes.context_par > 1).any():
        return
    if shape.choice.cp_comm in RINGS:
        yield _summed(shape)
    if shape.choice.cp_comm in HEAD_EXCHANGES:
        outputs = shape.tokens * shape.split(shape.model.attn_heads) * shape.model.value_size
        yield _of_heads("AttnBlock_Heads_Out", shape, outputs, kept=shape.choice.flash)


def ring(shape: BlockShape, mean_keys: MeanKeys) -> Ring | None:
    """Return the steps of ring attention; None without a ring."""
    choice = shape.choice
    if choice.cp_comm not in RINGS or not (shape.sizes.context_par > 1).any():
        return None
    steps = shape.document, _ring_ranks(shape), choice.cp_balance
    return ring_of(shape.model, *steps, mean_keys, skips=choice.cp_skip)


def busiest_share(shape: BlockShape, mean_keys: MeanKeys) -> Fraction:
    """Return the attention work of the busiest rank over the mean: 1 if ranks have all tokens of some heads.

    In a ring, every document of a packed sequence is divided over all ranks. With gathered keys, a rank has the
    documents in its part of the sequence. Source: Transformer Engine, ``context_parallel.py``, format *thd*; Llama
    Team, arXiv 2407.21783, section 3.3.2.
    """
    choice, parts = shape.choice, shape.sizes.context_par
    if choice.cp_comm not in BETWEEN_PARTS or not (parts > 1).any():
        return np.ones(1)
    ranks, length = _ring_ranks(shape), shape.document
    if choice.cp_comm == "all_gather":
        ranks = np.maximum(ranks * length / shape.workload.keys, 1.0)
    return imbalance(shape.model, length, ranks, choice.cp_balance, mean_keys)


def _ring_ranks(shape: BlockShape) -> Count:
    """Return the number of ranks, or of groups that exchange heads, with different parts of a sequence."""
    return shape.sizes.context_par / shape.sizes.exchanging(shape.choice.cp_comm)


def _parts_sent(shape: BlockShape) -> Count:
    """Return the number of parts that a rank receives from other ranks in a ring."""
    choice, ranks = shape.choice, _ring_ranks(shape)
    length, skips = shape.document, choice.cp_skip
    return parts_sent(shape.model, length, ranks, choice.cp_balance, skips=skips)


def _key_value_width(shape: BlockShape) -> Elements:
    """Return the elements of keys and values per token on one rank, which has a share of the heads."""
    model, share = shape.model, CoreShare.of(shape)
    return share.key_value_heads * (model.attn_size + model.value_size)


def _gathered(shape: BlockShape) -> Iterator[Layer]:
    """Gather keys and values in both passes, and reduce-scatter their gradients.

    The gathered tensors exist while a block is computed; gradients are summed in 4 bytes.
    """
    parts, size = shape.sizes.context_par, shape.widths.result
    elements = shape.tokens * parts * _key_value_width(shape)
    layer = communication(
        "AttnBlock_KV_Gather",
        AXIS,
        elements,
        parts,
        forward="all_gather",
        backward="reduce_scatter",
        saved=elements,
        dtype_bytes=size,
        flags=_EXCHANGED,
    )
    yield layer._replace(activation_grad=layer.activation_grad / size * SUM_BYTES)
    yield communication(
        "AttnBlock_KV_Regather",
        AXIS,
        elements,
        parts,
        forward=None,
        backward="all_gather",
        dtype_bytes=size,
        flags=_EXCHANGED,
    )._replace(activation_grad=0.0)


def _handed_on(shape: BlockShape) -> Layer:
    """Return the ring layer, which sends keys and values to the next rank, and their gradients in the backward pass.

    Buffers are doubled: one is read while the next is filled. Outputs are accumulated over the steps, with the
    log-sum-exp of each query and head.
    """
    parts, share, size = _ring_ranks(shape), CoreShare.of(shape), shape.widths.result
    sent = _parts_sent(shape)
    several = sent > 0  # without other parts there are no buffers and no sums
    elements = np.where(several, share.tokens * _key_value_width(shape), 0.0)
    heads = share.tokens * share.heads
    sums = heads * (SUM_BYTES * shape.model.value_size + STATISTIC_BYTES)
    steps = sent, np.where(several, 2 * sent + 1, 0.0)
    layer = communication(
        RING,
        AXIS,
        elements,
        parts,
        forward="p2p",
        backward="p2p",
        dtype_bytes=size,
        flags=_EXCHANGED,
    )
    assert layer.collective is not None
    message = layer.collective.message
    group = "ring" if shape.choice.cp_comm in HEAD_EXCHANGES else ""
    return layer._replace(
        inputs=elements,
        accessed=(2 * steps[0] * message, 2 * steps[1] * message, 0.0),
        activation=np.where(several, 2 * message + sums, 0.0),
        activation_grad=0.0,
        collective=layer.collective._replace(steps=steps, group=group),
    )


def _summed(shape: BlockShape) -> Layer:
    """Return the layer that sums partial outputs, and in the backward pass partial gradients of queries, keys, values.

    The first part becomes a sum in 4 bytes, to which each other part is added by a separate kernel, and the sum is
    converted back. Outputs are rescaled by their share of the sum of exponentials, with an exponential, two products
    and a sum per element. Source: Liu et al., *Ring Attention*, arXiv 2310.01889, section 3; sums in 4 bytes:
    zhuzilin/ring-flash-attention, ``utils.py``, ``update_out_and_lse``, and PyTorch,
    ``torch/distributed/tensor/experimental/_attention.py``, ``convert_to_f32``.
    """
    model, share, size = shape.model, CoreShare.of(shape), shape.widths.result
    others = _parts_sent(shape)
    several = others > 0
    outputs = share.tokens * share.heads * model.value_size
    gradients = share.tokens * (share.heads * model.attn_size + _key_value_width(shape))
    passes = 2 * (size + SUM_BYTES) + others * (size + 2 * SUM_BYTES)
    outputs, gradients = (np.where(several, elements, 0.0) for elements in (outputs, gradients))
    return Layer(
        name="AttnBlock_Ring_Sums",
        kernel="add",
        flops=(4 * others * outputs, others * gradients, 0.0),
        accessed=(passes * outputs, passes * gradients, 0.0),
        inputs=outputs,
        outputs=outputs,
        output_bytes=size * outputs,
        flags=Flags(recompute=When.RECOMPUTE_ATTENTION),
        rounds=2 + others,
    )


def _heads_of_inputs(shape: BlockShape) -> Layer:
    """Exchange queries, keys and values for all tokens of some heads.

    If there are fewer key and value heads than ranks, a head is sent to all ranks that compute with it.
    """
    model, share = shape.model, CoreShare.of(shape)
    queries = shape.tokens * shape.split(model.attn_heads) * model.attn_size
    both = model.attn_size + model.value_size
    return _of_heads(
        "AttnBlock_Heads_In", shape, queries + share.tokens * share.key_value_heads * both
    )


def _of_heads(name: str, shape: BlockShape, elements: Elements, *, kept: bool = False) -> Layer:
    """Return the all-to-all from tokens of all heads to heads of all tokens, or back; `elements` are per rank.

    Fused attention also keeps its outputs as they were before the exchange, so that the backward pass need not repeat
    it. Source: Transformer Engine 2.8, ``AttnFuncWithCPAndQKVOA2A``.
    """
    layer = communication(
        name,
        AXIS,
        elements,
        shape.sizes.exchanging(shape.choice.cp_comm),
        forward="all_to_all",
        backward="all_to_all",
        saved=elements if kept else 0.0,
        dtype_bytes=shape.widths.result,
        flags=_EXCHANGED._replace(drops_activation=When.RECOMPUTE_ATTENTION),
    )
    assert layer.collective is not None
    group = "heads" if shape.choice.cp_comm == "a2a_p2p" else ""
    collective = layer.collective._replace(group=group)
    return layer._replace(activation_grad=0.0, collective=collective)
