"""How queries of a part of a sequence come to the keys and values of all of it.

A group of `c` ranks has `T` tokens of the same sequences each, with keys and values of ``kv`` elements per token:

- ``p2p``: keys and values go round a ring in ``c - 1`` steps; in the backward pass they do again, and their gradients,
  which every rank adds to, in `c` steps until they are home (Transformer Engine, which begins with the part that
  came last, needs one less);
- ``all_gather``: every rank gathers all keys and values, in the backward pass again, and gradients of all of them are
  reduced and scattered; kept are its own;
- ``a2a``: an exchange gives each rank all tokens of its share of the heads, and another one its tokens of the output;
  the backward pass exchanges gradients the other way;
- ``a2a_p2p``: that inside of groups of neighbours, and a ring between these, of all their tokens of some heads.

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
"""Bytes of an element of what is added up over parts of the keys: outputs, and gradients of keys and values."""

RING = "AttnBlock_KV_Ring"
"""Layer that hands keys and values on, beside attention to those that are there."""

_EXCHANGED = Flags(recommunicate=When.RECOMPUTE_ATTENTION, drops_activation=When.ALWAYS)
"""What core attention exchanges: again where that is computed again; the core keeps what it reads of it."""


class CoreShare(NamedTuple):
    """What one rank computes of attention over whole sequences.

    Attributes:
        ranks: Ranks that split the heads: those of tensor parallelism, and of the exchange of heads.
        queries: Tokens of each sequence whose outputs it computes; `tokens` are those of all sequences.
        heads, key_value_heads: Heads of queries, and of keys and values.
        key_tokens: Tokens whose keys and values it reads.
    """

    ranks: Count
    queries: Count
    tokens: Count
    heads: Count
    key_value_heads: Count
    key_tokens: Count

    @classmethod
    def of(cls, shape: BlockShape) -> "CoreShare":
        """Return the share of one rank: of the heads where they are exchanged, else of the queries."""
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
    """Yield what brings keys and values to queries, or queries to keys and values."""
    if not (shape.sizes.context_par > 1).any():
        return
    if shape.choice.cp_comm in HEAD_EXCHANGES:
        yield _heads_of_inputs(shape)
    if shape.choice.cp_comm == "all_gather":
        yield from _gathered(shape)
    if shape.choice.cp_comm in RINGS:
        yield _handed_on(shape)


def layers_after_core(shape: BlockShape) -> Iterator[Layer]:
    """Yield what adds partial outputs up, and what brings outputs back to their tokens."""
    if not (shape.sizes.context_par > 1).any():
        return
    if shape.choice.cp_comm in RINGS:
        yield _summed(shape)
    if shape.choice.cp_comm in HEAD_EXCHANGES:
        outputs = shape.tokens * shape.split(shape.model.attn_heads) * shape.model.value_size
        yield _of_heads("AttnBlock_Heads_Out", shape, outputs, kept=shape.choice.flash)


def ring(shape: BlockShape, mean_keys: MeanKeys) -> Ring | None:
    """Return the steps of attention where keys and values go round a ring; None where they do not."""
    choice = shape.choice
    if choice.cp_comm not in RINGS or not (shape.sizes.context_par > 1).any():
        return None
    steps = shape.document, _ring_ranks(shape), choice.cp_balance
    return ring_of(shape.model, *steps, mean_keys, skips=choice.cp_skip)


def busiest_share(shape: BlockShape, mean_keys: MeanKeys) -> Fraction:
    """Return the work of attention of the busiest rank over the mean: 1 where ranks have all tokens of some heads.

    In a ring every document of a packed sequence is split over all ranks; of those whose keys are gathered, a rank has
    what is in its part of the sequence. Source: Transformer Engine, ``context_parallel.py``, format *thd*; Llama Team,
    arXiv 2407.21783, section 3.3.2.
    """
    choice, parts = shape.choice, shape.sizes.context_par
    if choice.cp_comm not in BETWEEN_PARTS or not (parts > 1).any():
        return np.ones(1)
    ranks, length = _ring_ranks(shape), shape.document
    if choice.cp_comm == "all_gather":
        ranks = np.maximum(ranks * length / shape.workload.keys, 1.0)
    return imbalance(shape.model, length, ranks, choice.cp_balance, mean_keys)


def _ring_ranks(shape: BlockShape) -> Count:
    """Ranks, or groups that exchange heads, that have different parts of a sequence."""
    return shape.sizes.context_par / shape.sizes.exchanging(shape.choice.cp_comm)


def _parts_sent(shape: BlockShape) -> Count:
    """Parts of other ranks that come to a rank in a ring."""
    choice, ranks = shape.choice, _ring_ranks(shape)
    length, skips = shape.document, choice.cp_skip
    return parts_sent(shape.model, length, ranks, choice.cp_balance, skips=skips)


def _key_value_width(shape: BlockShape) -> Elements:
    """Elements of keys and values of a token on one rank, which has a share of the heads."""
    model, share = shape.model, CoreShare.of(shape)
    return share.key_value_heads * (model.attn_size + model.value_size)


def _gathered(shape: BlockShape) -> Iterator[Layer]:
    """Gather keys and values in both passes, and reduce the gradients of all of them.

    They are whole while a block is computed, gradients with sums in 4 bytes.
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
    """Hand keys and values on to a neighbour, in the backward pass their gradients, too.

    One buffer is read while the next is filled. Outputs are added up over the steps, with the logarithm of the sum of
    each query and head.
    """
    parts, share, size = _ring_ranks(shape), CoreShare.of(shape), shape.widths.result
    sent = _parts_sent(shape)
    several = sent > 0
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
    """Add partial outputs up, in the backward pass partial gradients of queries, keys and values.

    The first part becomes a sum in 4 bytes, to which each other one is added in a pass of its own, and the sum is
    converted back. Outputs are scaled by their share of the sum of exponentials: an exponential, two products and a sum
    for each element. Source: Liu et al., *Ring Attention*, arXiv 2310.01889, section 3; sums in 4 bytes:
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

    Key and value heads that are fewer than the ranks are sent to all ranks that compute with them.
    """
    model, share = shape.model, CoreShare.of(shape)
    queries = shape.tokens * shape.split(model.attn_heads) * model.attn_size
    both = model.attn_size + model.value_size
    return _of_heads(
        "AttnBlock_Heads_In", shape, queries + share.tokens * share.key_value_heads * both
    )


def _of_heads(name: str, shape: BlockShape, elements: Elements, *, kept: bool = False) -> Layer:
    """Exchange tokens of all heads for heads of all tokens: what a rank has of either.

    Outputs of fused attention are kept as they were before the exchange, too, so that the backward pass need not repeat
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
