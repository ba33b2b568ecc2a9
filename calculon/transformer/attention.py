"""The attention half of a block (sections 3.1 and 3.2)."""

from collections.abc import Iterator

import numpy as np

from calculon.layers import Flags, Layer, When, batched_matmul, dropout, fork, linear, softmax
from calculon.transformer.projection import column_linear, gather_inputs, output_layers
from calculon.transformer.residual import SHARED, entry_layers, exit_layers
from calculon.transformer.shape import BlockShape


def attention_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield norm, projections, attention over the sequence, output product, dropout and residual sum."""
    model = shape.model
    yield from entry_layers("AttnBlock", shape)
    if shape.choice.tensor_par_overlap != "none":
        yield from _overlapped_projections(shape)
    else:
        yield from _projections(shape)
    yield from _core(shape)
    yield from output_layers("AttnBlock", "MLP", shape, model.attn_heads * model.attn_size)
    yield from exit_layers("AttnBlock", shape)


def _projections(shape: BlockShape) -> Iterator[Layer]:
    """Gathered input, forked to query, key and value."""
    model, choice = shape.model, shape.choice
    key_value = shape.edition.key_value_width(model, choice, shape.tensor_par)
    yield gather_inputs("AttnBlock_F", shape, regather=When.REGATHER_ATTENTION)
    yield _input_fork("AttnBlock_Multihead_Fork", shape, 3)
    yield _projection("AttnBlock_Query", shape, shape.split(model.attn_heads * model.attn_size))
    key = _projection("AttnBlock_Key", shape, key_value)
    yield key
    yield key._replace(name="AttnBlock_Value")


def _overlapped_projections(shape: BlockShape) -> Iterator[Layer]:
    """One overlapped product for query, key and value; multiquery keeps the last two apart."""
    model, choice = shape.model, shape.choice
    width = model.attn_heads * model.attn_size
    flags = Flags(recompute=When.RECOMPUTE_ALL, recommunicate=When.REGATHER_ATTENTION)
    if choice.attention_type == "multihead":
        yield column_linear("AttnBlock_QKV_AG", shape, 3 * width, flags)
        return
    key_value = shape.edition.key_value_width(model, choice, shape.tensor_par)
    yield column_linear("AttnBlock_Query_AG", shape, width, flags)
    yield _input_fork("AttnBlock_KV_Fork", shape, 2)
    key = _projection("AttnBlock_Key", shape, key_value)
    yield key
    yield key._replace(name="AttnBlock_Value")


def _input_fork(name: str, shape: BlockShape, users: int) -> Layer:
    """Hand the gathered input to its projections; gathered again, it is not stored."""
    return fork(
        name,
        shape.activation,
        users,
        dtype_bytes=shape.choice.dtype_bytes,
        flags=Flags(recompute=When.REGATHER_ATTENTION, drops_activation=When.REGATHER_ATTENTION),
    )


def _projection(
    name: str, shape: BlockShape, width: "np.typing.NDArray[np.float64] | int"
) -> Layer:
    """Project the forked input, whose buffer it shares."""
    return linear(
        name,
        shape.tokens,
        shape.model.hidden,
        width,
        dtype_bytes=shape.choice.dtype_bytes,
        flags=SHARED,
    )


def _core(shape: BlockShape) -> Iterator[Layer]:
    """Scores, softmax, dropout and weighted values: what selective recompute computes again."""
    model, choice = shape.model, shape.choice
    dtype_bytes, again = choice.dtype_bytes, When.RECOMPUTE_ATTENTION
    seq_size, attn_size = float(model.seq_size), float(model.attn_size)
    products = np.floor(shape.microbatch_size * model.attn_heads / shape.tensor_par)
    scores = shape.split(model.attn_heads) * seq_size * seq_size * shape.microbatch_size
    not_stored = Flags(recompute=again, drops_output=again)
    yield batched_matmul(
        "AttnBlock_Multihead_Key_Query",
        products,
        seq_size,
        attn_size,
        seq_size,
        dtype_bytes=dtype_bytes,
        flags=not_stored,
    )
    yield softmax("AttnBlock_Multihead_SoftMax", scores, dtype_bytes=dtype_bytes, flags=not_stored)
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
        seq_size,
        seq_size,
        attn_size,
        dtype_bytes=dtype_bytes,
        flags=Flags(recompute=When.RECOMPUTE_ALL),
    )
