"""The attention half of a block: projections, and attention over the sequence, with the score matrix or fused.

Source: Vaswani et al., *Attention is all you need*, arXiv 1706.03762, section 3.2; split by heads over tensor
parallelism: Shoeybi et al., *Megatron-LM*, arXiv 1909.08053, section 3 (sections 3.1 and 3.2 of the published model).
"""

from collections.abc import Iterator

import numpy as np

from calculon.architecture.layers import (
    Flags,
    Layer,
    When,
    batched_matmul,
    dropout,
    flash_attention,
    fork,
    norm,
    rotary,
    softmax,
)
from calculon.architecture.projection import (
    column_parallel_linear,
    converted,
    gathered_input,
    input_layers,
    output_layers,
    project,
)
from calculon.architecture.residual import SHARED, entry_layers, exit_layers
from calculon.architecture.shape import BlockShape
from calculon.architecture.workload import sequence_lengths
from calculon.spec.model import Model
from calculon.units import Count, Elements

_REGATHER, _GATHERED = When.REGATHER_ATTENTION, When.GATHERED_ATTENTION


def attention_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield norm, projections, attention over the sequence, output product, dropout and residual sum.

    Attention alone has neither norm, nor dropout after it, nor residual connection.
    """
    model, choice = shape.model, shape.choice
    if shape.whole:
        yield from entry_layers("AttnBlock", shape)
    fuses = choice.fusion != "published"
    if shape.edition.fuses_projections(choice) if shape.overlapped else fuses:
        width = projection_width(shape)
        bias = width * model.qkv_bias
        yield from input_layers(
            "AttnBlock",
            "QKV",
            shape,
            width,
            bias=bias,
            regather=_REGATHER,
            gathered=_GATHERED,
            recompute=When.RECOMPUTE_OPERATORS,
            repeated=shape.key_value_width / width,
        )
    else:
        yield from _separate_projections(shape)
    yield from core_layers(shape)
    bias_out = model.hidden * model.out_bias
    again = When.RECOMPUTE_STREAM
    yield from output_layers(
        "AttnBlock", "MLP", shape, shape.attention_width, bias=bias_out, recompute=again
    )
    if shape.whole:
        yield from exit_layers("AttnBlock", shape, recompute=again)


def projection_width(shape: BlockShape) -> Elements:
    """Width of query, key and value projection on one rank."""
    return shape.split(shape.attention_width) + 2 * shape.key_value_width


def _separate_projections(shape: BlockShape) -> Iterator[Layer]:
    """Project the gathered input to query, key and value one by one; overlapped, only the query's product is."""
    query, key_value = shape.split(shape.attention_width), shape.key_value_width
    width, hidden, biased = projection_width(shape), shape.model.hidden, shape.model.qkv_bias
    bias = width * biased
    yield from converted(
        "AttnBlock_QKV_Cast", shape, hidden, width, bias, normed=True, side="gather"
    )
    name, users = ("KV_Fork", 2) if shape.overlapped else ("Multihead_Fork", 3)
    if shape.overlapped:
        yield column_parallel_linear(
            "AttnBlock_Query_AG", shape, query, bias=query * biased, regather=_REGATHER
        )
    else:
        yield from gathered_input("AttnBlock_F", shape, regather=_REGATHER, gathered=_GATHERED)
    yield fork(
        f"AttnBlock_{name}",
        shape.activation,
        users,
        dtype_bytes=shape.widths.operand,
        flags=Flags(recompute=_REGATHER, drops_activation=When.DROPPED_ATTENTION),
    )
    if not shape.overlapped:
        yield project("AttnBlock_Query", shape, hidden, query, query * biased, SHARED)
    again = SHARED._replace(recompute=When.RECOMPUTE_OPERATORS)
    for name, flags in (("AttnBlock_Key", again), ("AttnBlock_Value", SHARED)):
        yield project(name, shape, hidden, key_value, key_value * biased, flags)


def core_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield the layers between projections: norms and positions of queries and keys, then attention."""
    model = shape.model
    turned = shape.tokens * (shape.split(shape.attention_width) + shape.key_value_width)
    again = Flags(recompute=When.RECOMPUTE_OPERATORS)
    if model.qk_norm != "none":
        per_head = model.qk_norm == "head"
        heads = 1 if per_head else model.attn_heads
        yield norm(
            "AttnBlock_QK_Norm",
            model.norm,
            turned,
            2 * model.attn_size if per_head else (heads + model.key_value_heads) * model.attn_size,
            gain_only=True,
            input_grad=shape.edition.writes_input_gradients,
            dtype_bytes=shape.widths.result,
            stored_bytes=shape.widths.stored,
            flags=again,
        )
    if model.rotary:
        yield rotary(
            "AttnBlock_Rotary",
            turned * model.rotary,
            dtype_bytes=shape.widths.result,
            flags=again,
        )
    yield from (_flash(shape) if shape.choice.flash else _eager(shape))


def mean_keys(model: Model, seq_length: Count | int = 0) -> Count:
    """Keys that a query attends to, on average over a sequence (0: of the model's own length) and over the blocks.

    A causal query sees itself and earlier tokens: ``(s + 1) / 2`` keys; a window of `w` tokens cuts that to
    ``w - w (w - 1) / (2 s)``.

    >>> model = Model(hidden=8, feedforward=8, seq_size=4, attn_heads=1, attn_size=8, num_blocks=2)
    >>> mean_keys(model, np.array([4.0, 8.0]))
    array([2.5, 4.5])
    """
    length, window = sequence_lengths(model, np.asarray(seq_length)), model.sliding_window
    whole = (length + 1) / 2 if model.causal else length
    if not window:
        return whole
    cut = window - window * (window - 1) / (2 * length) if model.causal else window
    every = model.full_attention_every
    full = model.num_blocks // every if every else 0
    mean = (full * whole + (model.num_blocks - full) * cut) / model.num_blocks
    return np.where(window < length, mean, whole)


def _flash(shape: BlockShape) -> Iterator[Layer]:
    """Run one kernel, which knows the mask; its dropout needs no stored mask."""
    model = shape.model
    heads = shape.edition.key_value_heads(model, shape.choice, shape.tensor_par)
    layer = flash_attention(
        "AttnBlock_Flash",
        shape.tokens,
        shape.split(model.attn_heads),
        heads,
        model.attn_size,
        keys=mean_keys(model, shape.workload.keys),
        causal=model.causal,
        dtype_bytes=shape.widths.result,
        flags=Flags(recompute=When.RECOMPUTE_ATTENTION),
    )
    # of queries, keys and values the second product makes the keys
    yield layer._replace(remade=shape.widths.result * shape.tokens * heads * model.attn_size)


def _eager(shape: BlockShape) -> Iterator[Layer]:
    """Write the score matrix: its product, softmax, dropout and weighted values.

    Selective recomputation computes this again. Source: Korthikanti et al., arXiv 2205.05198, section 5.
    """
    model, dtype_bytes, again = shape.model, shape.widths.result, When.RECOMPUTE_ATTENTION
    work, attn_size = shape.workload, float(model.attn_size)
    products = np.floor(work.sequences * model.attn_heads / shape.tensor_par)
    key_value_heads = shape.edition.key_value_heads(model, shape.choice, shape.tensor_par)
    key_values = np.floor(work.sequences * key_value_heads)
    scores = shape.split(model.attn_heads) * work.queries * work.keys * work.sequences
    input_grad = shape.edition.writes_input_gradients
    drops = again if model.dropout else When.NEVER
    softmax_flags = Flags(recompute=again, drops_output=again)
    if not model.dropout:
        softmax_flags = softmax_flags._replace(drops_activation=When.ALWAYS, shares_activation=True)
    yield batched_matmul(
        "AttnBlock_Multihead_Key_Query",
        products,
        work.queries,
        attn_size,
        work.keys,
        shared=key_values,
        input_grad=input_grad,
        dtype_bytes=dtype_bytes,
        flags=Flags(recompute=again, drops_output=drops),
    )
    yield softmax(
        "AttnBlock_Multihead_SoftMax",
        scores,
        input_grad=input_grad,
        dtype_bytes=dtype_bytes,
        flags=softmax_flags,
    )
    if model.dropout:
        yield dropout(
            "AttnBlock_Multihead_DropOut",
            scores,
            grad_bytes=shape.edition.dropout_grad_bytes(dtype_bytes),
            dtype_bytes=dtype_bytes,
            flags=Flags(recompute=again, drops_activation=again),
        )
    yield batched_matmul(
        "AttnBlock_Multihead_Attn",
        products,
        work.queries,
        work.keys,
        attn_size,
        shared=key_values,
        input_grad=input_grad,
        dtype_bytes=dtype_bytes,
        flags=Flags(recompute=When.RECOMPUTE_VALUES),
    )
