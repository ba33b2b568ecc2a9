"""The attention half of a block (sections 3.1 and 3.2)."""

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
    linear,
    norm,
    rotary,
    softmax,
)
from calculon.architecture.projection import column_linear, converted, gather_inputs, output_layers
from calculon.architecture.residual import SHARED, entry_layers, exit_layers
from calculon.architecture.shape import BlockShape
from calculon.architecture.workload import sequence_lengths
from calculon.spec.model import Model
from calculon.units import Count, Elements

_ALL = Flags(recompute=When.RECOMPUTE_ALL)


def attention_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield norm, projections, attention over the sequence, output product, dropout and residual sum.

    Attention alone has neither norm, nor dropout after it, nor residual connection.
    """
    if shape.whole:
        yield from entry_layers("AttnBlock", shape)
    if shape.narrow:
        width = shape.split(shape.attention_width) + 2 * shape.key_value_width
        yield converted(
            "AttnBlock_QKV_Cast",
            shape,
            shape.activation,
            width,
            shape.model.hidden * width + width * shape.model.qkv_bias,
            source=shape.dtype_bytes,
        )
    if shape.overlapped:
        yield from _overlapped_projections(shape)
    else:
        yield from _projections(shape)
    yield from core_layers(shape)
    bias = shape.model.hidden if shape.model.out_bias else None
    yield from output_layers("AttnBlock", "MLP", shape, shape.attention_width, bias=bias)
    if shape.whole:
        yield from exit_layers("AttnBlock", shape)


def _projections(shape: BlockShape) -> Iterator[Layer]:
    """Gathered input, forked to query, key and value."""
    if not shape.choice.gathers_outputs:
        yield gather_inputs(
            "AttnBlock_F", shape, regather=When.REGATHER_ATTENTION, gathered=When.GATHERED_ATTENTION
        )
    if shape.choice.fusion != "published":
        yield _whole_projection(shape)
        return
    yield _input_fork("AttnBlock_Multihead_Fork", shape, 3)
    yield _projection("AttnBlock_Query", shape, shape.split(shape.attention_width))
    key = _projection("AttnBlock_Key", shape, shape.key_value_width)
    yield key
    yield key._replace(name="AttnBlock_Value")


def _overlapped_projections(shape: BlockShape) -> Iterator[Layer]:
    """One overlapped product for query, key and value, or one for the query and two beside it."""
    flags = Flags(
        recompute=When.RECOMPUTE_ALL,
        recommunicate=When.REGATHER_ATTENTION,
        drops_activation=When.REGATHER_ATTENTION,
    )
    width, biased = shape.split(shape.attention_width), shape.model.qkv_bias
    if shape.edition.fuses_projections(shape.choice):
        whole = width + 2 * shape.key_value_width
        bias = whole if biased else None
        yield column_linear("AttnBlock_QKV_AG", shape, whole, flags, bias=bias, outer=True)
        return
    yield column_linear(
        "AttnBlock_Query_AG", shape, width, flags, bias=width if biased else None, outer=True
    )
    yield _input_fork("AttnBlock_KV_Fork", shape, 2)
    key = _projection("AttnBlock_Key", shape, shape.key_value_width)
    yield key
    yield key._replace(name="AttnBlock_Value")


def _input_fork(name: str, shape: BlockShape, users: int) -> Layer:
    """Hand the gathered input to its projections; gathered again, it is not stored."""
    return fork(
        name,
        shape.activation,
        users,
        dtype_bytes=shape.widths.operand,
        flags=Flags(recompute=When.REGATHER_ATTENTION, drops_activation=When.REGATHER_ATTENTION),
    )


def _whole_projection(shape: BlockShape) -> Layer:
    """Project to query, key and value in one product."""
    width = shape.split(shape.attention_width) + 2 * shape.key_value_width
    return linear(
        "AttnBlock_QKV",
        shape.tokens,
        shape.model.hidden,
        width,
        bias=width if shape.model.qkv_bias else None,
        widths=shape.widths,
        flags=Flags(recompute=When.RECOMPUTE_ALL, drops_activation=When.REGATHER_ATTENTION),
    )


def _projection(name: str, shape: BlockShape, width: Elements | int) -> Layer:
    """Project the forked input, whose buffer it shares."""
    return linear(
        name,
        shape.tokens,
        shape.model.hidden,
        width,
        bias=width if shape.model.qkv_bias else None,
        widths=shape.widths,
        flags=SHARED,
    )


def core_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield what is between projections: norms and positions of queries and keys, then attention."""
    model = shape.model
    turned = shape.tokens * (shape.split(shape.attention_width) + shape.key_value_width)
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
            flags=_ALL,
        )
    if model.rotary:
        yield rotary(
            "AttnBlock_Rotary", turned * model.rotary, dtype_bytes=shape.widths.result, flags=_ALL
        )
    yield from (_flash(shape) if shape.choice.flash else _eager(shape))


def mean_keys(model: Model, seq_length: Count | int = 0) -> Count:
    """Keys that a query attends to, on average over a sequence (0: of the model's own length) and over the blocks.

    A causal query sees itself and what came before: ``(s + 1) / 2`` keys; a window of `w` tokens cuts that to
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
    """One kernel, which knows the mask; its dropout needs no stored mask."""
    model = shape.model
    yield flash_attention(
        "AttnBlock_Flash",
        shape.tokens,
        shape.split(model.attn_heads),
        shape.edition.key_value_heads(model, shape.choice, shape.tensor_par),
        model.attn_size,
        keys=mean_keys(model, shape.workload.keys),
        dtype_bytes=shape.widths.result,
        flags=Flags(recompute=When.RECOMPUTE_ATTENTION),
    )


def _eager(shape: BlockShape) -> Iterator[Layer]:
    """Scores, softmax, dropout and weighted values: what selective recompute computes again."""
    model, dtype_bytes, again = shape.model, shape.widths.result, When.RECOMPUTE_ATTENTION
    work, attn_size = shape.workload, float(model.attn_size)
    products = np.floor(work.sequences * model.attn_heads / shape.tensor_par)
    key_value_heads = shape.edition.key_value_heads(model, shape.choice, shape.tensor_par)
    key_values = np.floor(work.sequences * key_value_heads)
    scores = shape.split(model.attn_heads) * work.queries * work.keys * work.sequences
    input_grad = shape.edition.writes_input_gradients
    drops = again if model.dropout else When.NEVER
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
        flags=Flags(recompute=again, drops_output=again)
        if model.dropout
        else Flags(
            recompute=again,
            drops_output=again,
            drops_activation=When.ALWAYS,
            shares_activation=True,
        ),
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
