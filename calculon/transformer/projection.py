"""The two forms of a tensor-parallel product: beside its collective in tiles, or after and before it."""

from collections.abc import Iterator

import numpy as np

from calculon.layers import Flags, Layer, When, gather, linear, overlapped_linear, reduce
from calculon.transformer.shape import BlockShape


def column_linear(name: str, shape: BlockShape, width: int, flags: Flags) -> Layer:
    """Overlapped linear whose output of `width` is split and whose input is gathered."""
    m, n, k = shape.tokens, np.array(float(shape.model.hidden)), shape.split(width)
    saved, grad = shape.edition.overlapped_saved("gather", shape.choice, m, n, k, shape.tensor_par)
    return overlapped_linear(
        name,
        "gather",
        m,
        n,
        k,
        saved=saved,
        grad=grad,
        dtype_bytes=shape.choice.dtype_bytes,
        flags=flags,
    )


def row_linear(name: str, shape: BlockShape, width: int, flags: Flags) -> Layer:
    """Overlapped linear whose input of `width` is split and whose output is reduced."""
    m, n, k = shape.tokens, shape.split(width), np.array(float(shape.model.hidden))
    saved, grad = shape.edition.overlapped_saved("reduce", shape.choice, m, n, k, shape.tensor_par)
    return overlapped_linear(
        name,
        "reduce",
        m,
        n,
        k,
        saved=saved,
        grad=grad,
        dtype_bytes=shape.choice.dtype_bytes,
        flags=flags,
    )


def gather_inputs(name: str, shape: BlockShape, *, regather: str) -> Layer:
    """Operator `f` before column-split products."""
    return gather(
        name,
        shape.activation,
        shape.tensor_par,
        sequence_parallel=shape.choice.sequence_parallel,
        dtype_bytes=shape.choice.dtype_bytes,
        flags=Flags(recommunicate=regather),
    )


def output_layers(prefix: str, product: str, shape: BlockShape, width: int) -> Iterator[Layer]:
    """Row-split product of `width` and its reduction, in either form."""
    if shape.choice.tensor_par_overlap != "none":
        flags = Flags(recompute=When.RECOMPUTE_ALL, recommunicate=When.RECOMPUTE_ALL)
        yield row_linear(f"{prefix}_{product}_RS", shape, width, flags)
        return
    yield linear(
        f"{prefix}_{product}",
        shape.tokens,
        shape.split(width),
        shape.model.hidden,
        dtype_bytes=shape.choice.dtype_bytes,
        flags=Flags(recompute=When.RECOMPUTE_ALL),
    )
    yield reduce(
        f"{prefix}_G",
        shape.activation,
        shape.tensor_par,
        sequence_parallel=shape.choice.sequence_parallel,
        dtype_bytes=shape.choice.dtype_bytes,
        flags=Flags(recommunicate=When.RECOMPUTE_ALL, drops_activation=When.ALWAYS),
    )
