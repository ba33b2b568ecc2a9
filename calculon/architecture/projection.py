"""The two forms of a tensor-parallel product: beside its collective in tiles, or after and before it."""

from collections.abc import Iterator

import numpy as np

from calculon.architecture.layer import Number
from calculon.architecture.layers import (
    Flags,
    Layer,
    When,
    added_bias,
    cast,
    collect,
    gather,
    linear,
    overlapped_linear,
    reduce,
)
from calculon.architecture.shape import BlockShape
from calculon.units import Elements


def column_linear(
    name: str,
    shape: BlockShape,
    k: Elements,
    flags: Flags,
    *,
    bias: Number | None,
    outer: bool = False,
) -> Layer:
    """Overlapped linear whose input is gathered, and whose output has `k` columns on this rank."""
    m, n = shape.tokens, np.array(float(shape.model.hidden))
    return overlapped_linear(
        name,
        "gather",
        m,
        n,
        k,
        bias=bias,
        outer=outer,
        space=shape.edition.overlapped_space("gather", shape.choice, m, n, k, shape.tensor_par),
        widths=shape.widths,
        flags=flags,
    )


def row_linear(
    name: str,
    shape: BlockShape,
    width: int,
    flags: Flags,
    *,
    bias: Number | None,
    outer: bool = False,
) -> Layer:
    """Overlapped linear whose input of `width` is split and whose output is reduced."""
    m, n, k = shape.tokens, shape.split(width), np.array(float(shape.model.hidden))
    return overlapped_linear(
        name,
        "reduce",
        m,
        n,
        k,
        bias=bias,
        outer=outer,
        space=shape.edition.overlapped_space("reduce", shape.choice, m, n, k, shape.tensor_par),
        widths=shape.widths,
        flags=flags,
    )


def gather_inputs(name: str, shape: BlockShape, *, regather: str, gathered: str) -> Layer:
    """Operator `f` before column-split products; its split input is stored where it is gathered again."""
    return gather(
        name,
        shape.activation,
        shape.tensor_par,
        sequence_parallel=shape.choice.sequence_parallel,
        outer=regather == When.REGATHER_ATTENTION,
        dtype_bytes=shape.widths.result,
        flags=Flags(recommunicate=regather, drops_activation=gathered),
    )


def converted(
    name: str,
    shape: BlockShape,
    inputs: Elements,
    columns: Number,
    weights: Number,
    *,
    source: int,
    joined: bool = True,
) -> Layer:
    """Convert what a product with weights reads, where it is stored wider than it is multiplied.

    Parameters
    ----------
    inputs : array
        Elements of its input.
    columns, weights : array or float
        Columns of its output, and weights with bias.
    source : int
        Bytes per element of its input as it comes.
    joined : bool
        Whether the kernel that makes its input can convert it.
    """
    return cast(
        name,
        weights,
        inputs,
        shape.tokens * columns,
        widths=shape.widths,
        source=source,
        alone=not (joined and shape.choice.fuses),
        flags=Flags(recompute=When.RECOMPUTE_ALL),
    )


def output_layers(
    prefix: str,
    product: str,
    shape: BlockShape,
    width: int,
    *,
    bias: int | None,
    outer: bool = False,
) -> Iterator[Layer]:
    """Row-split product of `width` and its reduction, in either form; or split by columns, both sides gathered."""
    if shape.choice.gathers_outputs:
        yield from _gathered_output(prefix, product, shape, width, bias=bias)
        return
    if shape.narrow:
        yield converted(
            f"{prefix}_{product}_Cast",
            shape,
            shape.tokens * shape.split(width),
            shape.model.hidden,
            shape.split(width) * shape.model.hidden + (bias or 0),
            source=shape.widths.result,
            joined=product != "MLP",
        )
    if shape.overlapped:
        flags = Flags(recompute=When.RECOMPUTE_ALL, recommunicate=When.RECOMPUTE_ALL)
        yield row_linear(f"{prefix}_{product}_RS", shape, width, flags, bias=bias, outer=outer)
        yield from _late_bias(prefix, shape, bias)
        return
    yield linear(
        f"{prefix}_{product}",
        shape.tokens,
        shape.split(width),
        shape.model.hidden,
        bias=bias,
        widths=shape.widths,
        flags=Flags(recompute=When.RECOMPUTE_ALL),
    )
    yield reduce(
        f"{prefix}_G",
        shape.activation,
        shape.tensor_par,
        sequence_parallel=shape.choice.sequence_parallel,
        outer=outer,
        dtype_bytes=shape.widths.result,
        flags=Flags(recommunicate=When.RECOMPUTE_ALL, drops_activation=When.ALWAYS),
    )
    yield from _late_bias(prefix, shape, bias)


def _late_bias(prefix: str, shape: BlockShape, bias: int | None) -> Iterator[Layer]:
    """Add the bias of a row-split product to the sum over the ranks, in a pass over it.

    Weights and their gradient stay with the product. Where an elementwise operator of the residual region follows,
    fusion may join the two.
    """
    if not bias or not shape.choice.bias_after_reduce:
        return
    elements = np.where(shape.tensor_par > 1, shape.residual, 0.0)
    yield added_bias(
        f"{prefix}_BiasAdd",
        elements,
        followed=shape.whole,
        dtype_bytes=shape.widths.result,
        flags=Flags(recompute=When.RECOMPUTE_ALL),
    )


def gathered(name: str, shape: BlockShape, elements: Elements, *, summed: bool = True) -> Layer:
    """Gather the columns of a product for readers that are split as well, or whose gradients are whole."""
    return collect(
        name,
        elements,
        shape.tensor_par,
        summed=summed,
        dtype_bytes=shape.widths.result,
        flags=Flags(recommunicate=When.RECOMPUTE_ALL, drops_activation=When.ALWAYS),
    )


def _gathered_output(
    prefix: str, product: str, shape: BlockShape, width: int, *, bias: int | None
) -> Iterator[Layer]:
    """Column-split product of a gathered input of `width`, and its gathered output.

    Each gather has the reduce-scatter of the same tensor as its backward pass: readers are split, and each has only a
    part of the gradient (Shoeybi 2019, section 3, splits every other product by rows to save them).
    """
    columns = shape.split(shape.model.hidden)
    own = None if bias is None else shape.split(bias)
    inputs = shape.tokens * width
    yield gathered(f"{prefix}_{product}_Gather", shape, inputs)
    if shape.narrow:
        yield converted(
            f"{prefix}_{product}_Cast",
            shape,
            inputs,
            columns,
            width * columns + (0.0 if own is None else own),
            source=shape.widths.result,
            joined=False,
        )
    yield linear(
        f"{prefix}_{product}",
        shape.tokens,
        width,
        columns,
        bias=own,
        widths=shape.widths,
        flags=Flags(recompute=When.RECOMPUTE_ALL),
    )
    yield gathered(f"{prefix}_Gather", shape, shape.activation)
