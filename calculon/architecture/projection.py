"""Column- and row-parallel projections (tensor and sequence parallelism): products with weights, and their collectives.

Tensor parallelism all-reduces full activations. Sequence parallelism splits activations between the products along the
sequence, and replaces each all-reduce by a reduce-scatter and an all-gather. A product overlaps with its collective in
tiles, or they run one after the other. Sources: Shoeybi et al., *Megatron-LM*, arXiv 1909.08053, section 3; Korthikanti
et al., arXiv 2205.05198, section 4.2.2.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from calculon.architecture.layer import COLUMN_INPUT, ROW_OUTPUT, Number, TensorOperator
from calculon.architecture.layers import (
    RECOMPUTED,
    Converted,
    Flags,
    Layer,
    When,
    added_bias,
    cast,
    cast_to_recipe,
    communication,
    linear,
    overlapped_linear,
    tensor_collective,
)
from calculon.architecture.shape import BlockShape
from calculon.base.units import Count, Elements
from calculon.editions.edition import Side

# Products with weights on the vector engine: multiplication of every input by every weight, then sums.


def multiplied(layers: Iterable[Layer], form: str) -> Iterator[Layer]:
    """Yield layers with their products in the form of the execution field ``matmul_impl``.

    Products of two activations (in attention) are unchanged.
    """
    for layer in layers:
        if layer.kernel != "product" or form == "gemm":
            yield layer
        elif form == "mul_sum":
            yield from _two_operators(layer)
        else:
            yield layer._replace(kernel="mul_sum_fused")


def _two_operators(layer: Layer) -> Iterator[Layer]:
    """Yield multiplication and sum of ``(m, n) x (n, k)``, each with half of the FLOP of each pass.

    The forward sum is over `n`; the input gradient sums over `k`, the weight gradient over `m`. The ``m n k`` single
    products are in memory between both, but are not saved for the backward pass, which reads the operands again.
    """
    product = layer.product
    assert product is not None
    elements = product.m * product.n * product.k
    # Single products have the type of the results.
    single = layer.output_bytes / layer.outputs * elements
    results = (layer.output_bytes, layer.activation, layer.weight_bytes)
    forward, inputs, weights = layer.flops
    halves = (forward / 2, inputs / 2, weights / 2)
    # What remains without the results is the traffic of both operands.
    operands = [moved - result for moved, result in zip(layer.accessed, results, strict=True)]
    yield layer._replace(
        kernel="mul_sum",
        flops=halves,
        accessed=(operands[0] + single, operands[1] + single, operands[2] + single),
    )
    yield Layer(
        name=f"{layer.name}_Sum",
        kernel="mul_sum",
        flops=halves,
        accessed=(single + results[0], single + results[1], single + results[2]),
        inputs=elements,
        outputs=layer.outputs,
        output_bytes=layer.output_bytes,
        activation=single,
        flags=Flags(recompute=layer.flags.recompute, drops_activation=When.ALWAYS),
    )


SENT = Flags(recommunicate=When.RECOMPUTE_ALL, drops_activation=When.ALWAYS)
"""Flags of a collective of an output, which its reader saves."""

_CONVERTED = Flags(recompute=When.RECOMPUTE_OPERATORS, drops_activation=When.REMAKES)
"""Flags of a conversion, which recomputation by operator repeats, too: it does not save copies of weights."""

REDUCTION_PIECES = 4
"""Number of products into which a product is cut to overlap with its reduction, with user buffers.

Source: Transformer Engine 1 and 2, ``pytorch/module/base.py``, ``initialize_ub``: ``num_splits`` of method *pipeline*.
"""


def reduction_pieces(tensor_par: Count) -> Count:
    """Return the number of products into which a product is cut to overlap with its reduction, with user buffers."""
    return np.where(tensor_par > 1, REDUCTION_PIECES, 1)


DROPPED = {
    When.REGATHER_ATTENTION: When.DROPPED_ATTENTION,
    When.REGATHER_MLP: When.DROPPED_MLP,
    When.REGATHER_SHARED: When.DROPPED_SHARED,
    When.NEVER: When.NEVER,
}
"""Conditions under which the gathered input of products is dropped, by the conditions of its repeated gather."""


def project(
    name: str,
    shape: BlockShape,
    n: Elements | int,
    k: Elements | int,
    bias: Number,
    flags: Flags = RECOMPUTED,
    repeated: Number = 1.0,
) -> Layer:
    """Return the product of the tokens with ``(n, k)`` weights of this rank; `bias` columns have a bias."""
    layer = linear(name, shape.tokens, n, k, bias=bias, widths=shape.widths, flags=flags)
    return layer._replace(repeated=repeated)


def overlapped_projection(
    name: str,
    side: Side,
    shape: BlockShape,
    n: Elements | int,
    k: Elements | int,
    bias: Number,
    flags: Flags,
    *,
    outer: bool,
) -> Layer:
    """Return a product as :func:`project` that overlaps with its all-gather (input) or reduce-scatter (output)."""
    m, n, k = shape.tokens, np.asarray(n, float), np.asarray(k, float)
    operator = COLUMN_INPUT if side == "gather" else ROW_OUTPUT
    return overlapped_linear(
        name,
        operator,
        m,
        n,
        k,
        bias=bias,
        outer=outer,
        space=shape.edition.overlapped_space(side, shape.choice, m, n, k, shape.tensor_par),
        tiles=_tiles(operator, shape),
        widths=shape.widths,
        layouts=shape.gathered_layouts,
        flags=flags,
    )


def _tiles(operator: TensorOperator, shape: BlockShape) -> tuple[Number, Number, Number] | None:
    """Return the number of products in each pass: the number of peers if the pass has a collective.

    Weight gradients are a single product. Source: Wang et al., ASPLOS 2023, doi:10.1145/3567955.3567959, section 5: the
    loop over shards of the decomposed product. With user buffers see :func:`~calculon.cost.tensor.user_buffers`.
    """
    if not shape.edition.times_tiles:
        return None
    if shape.choice.tp_user_buffers:
        column = operator == COLUMN_INPUT
        forward = shape.tensor_par if column else reduction_pieces(shape.tensor_par)
        return forward, 1.0 if column else shape.tensor_par, 1.0
    operations = operator.split if shape.choice.sequence_parallel else operator.whole
    fw, agrad = (shape.tensor_par if operation else 1.0 for operation in operations)
    return fw, agrad, 1.0


def border_collective(
    name: str,
    operator: TensorOperator,
    shape: BlockShape,
    flags: Flags,
    *,
    outer: bool = False,
    dtype_bytes: int | None = None,
) -> Layer:
    """Return operator *f* or *g*, by default in the width of results; gathers use the width of operands if narrower.

    Inputs are gathered in one layout, and in the other when the gather is repeated. Gradients are gathered in both
    layouts, if they differ. Source: Transformer Engine, ``pytorch/module/layernorm_linear.py`` and ``linear.py``, and
    torchao, ``float8/float8_tensor_parallel.py``: 8-bit inputs and output gradients are converted before the gather.
    """
    narrow = dtype_bytes is None and shape.widths.operand < shape.widths.result
    layouts = shape.gathered_layouts if operator == ROW_OUTPUT else 1
    return tensor_collective(
        name,
        operator,
        shape.activation,
        shape.tensor_par,
        sequence_parallel=shape.choice.sequence_parallel,
        outer=outer,
        dtype_bytes=dtype_bytes or shape.widths.result,
        gathered_bytes=layouts * shape.widths.operand if narrow else None,
        flags=flags,
    )


def with_copy(collective: Layer, shape: BlockShape) -> Iterator[Layer]:
    """Yield a collective of divided sequences, and a copy of the whole tensor if one is needed.

    Collectives work along the slowest dimension only. A tensor that is divided along another dimension is copied after
    a gather, and before a reduction. Source: PyTorch, ``torch/distributed/_functional_collectives.py``; two such copies
    took 0.18 ms, compared with 3 ms of an MLP of 8,192 tokens (pytorch/torchtitan#437).
    """
    yield collective
    if shape.choice.seq_par_copies:
        moved = 2 * collective.output_bytes
        yield Layer(
            name=f"{collective.name}_Copy",
            kernel="cast",
            flops=(0.0, 0.0, 0.0),
            accessed=(moved, moved, 0.0),
            inputs=collective.outputs,
            flags=Flags(recompute=collective.flags.recommunicate),
        )


def input_layers(
    prefix: str,
    product: str,
    shape: BlockShape,
    width: Elements,
    *,
    bias: Number,
    regather: str,
    gathered: str,
    recompute: str = When.RECOMPUTE_ALL,
    repeated: Number = 1.0,
    outer: bool | None = None,
) -> Iterator[Layer]:
    """Yield the gather of the input and its product with `width` columns on this rank, `bias` of them with a bias.

    Args:
        regather, gathered: Conditions under which the gather is repeated in the backward pass, and under which the
            gathered input is saved.
        recompute: Condition under which the product is recomputed.
        repeated: Fraction of the product that recomputation by operator repeats.
        outer: True for the first gather of a block; by default for attention.
    """
    if outer is None:
        outer = regather == When.REGATHER_ATTENTION
    name, hidden = f"{prefix}_{product}", shape.model.hidden
    yield from converted(f"{name}_Cast", shape, hidden, width, bias, normed=True, side="gather")
    if shape.overlapped:
        yield column_parallel_linear(
            f"{name}_AG",
            shape,
            width,
            bias=bias,
            regather=regather,
            recompute=recompute,
            repeated=repeated,
            outer=outer,
        )
    else:
        collective = f"{prefix}_F"
        yield from gathered_input(
            collective, shape, regather=regather, gathered=gathered, outer=outer
        )
        flags = Flags(recompute=recompute, drops_activation=DROPPED[regather])
        yield project(name, shape, hidden, width, bias, flags, repeated)


def column_parallel_linear(
    name: str,
    shape: BlockShape,
    width: Elements,
    *,
    bias: Number,
    regather: str,
    recompute: str = When.RECOMPUTE_ALL,
    repeated: Number = 1.0,
    outer: bool | None = None,
) -> Layer:
    """Return a linear layer that overlaps with the gather of its input; the output has `width` columns on this rank."""
    flags = Flags(
        recompute=recompute,
        recommunicate=regather,
        drops_activation=DROPPED[regather],
        drops_shard=When.RECOMPUTE_NORM,
    )
    if outer is None:
        outer = regather == When.REGATHER_ATTENTION
    layer = overlapped_projection(
        name, "gather", shape, shape.model.hidden, width, bias, flags, outer=outer
    )
    return layer._replace(repeated=repeated)


def gathered_input(
    name: str, shape: BlockShape, *, regather: str, gathered: str, outer: bool | None = None
) -> Iterator[Layer]:
    """Yield operator *f* before column-parallel products; if the gather is repeated, only the rank's share is saved.

    If outputs are gathered, inputs are complete already.
    """
    if not shape.choice.gathers_outputs:
        flags = Flags(recommunicate=regather, drops_activation=gathered)
        if outer is None:
            outer = regather == When.REGATHER_ATTENTION
        collective = border_collective(name, COLUMN_INPUT, shape, flags, outer=outer)
        yield from with_copy(collective, shape)


def converted(
    name: str,
    shape: BlockShape,
    n: Elements | int,
    k: Elements | int,
    bias: Number,
    *,
    source: int | None = None,
    joined: bool = True,
    normed: bool = False,
    side: Side | None = None,
    rows: Count | None = None,
    copies: Number = 1.0,
    loop: Number = 1.0,
) -> Iterator[Layer]:
    """Convert the operands of a product ``(tokens, n) x (n, k)`` that are stored wider than they are multiplied.

    Args:
        bias, source: Columns with a bias; bytes per element of the unconverted input, by default of the residual
            stream.
        joined: True if the kernel that creates the input can convert it (except to 8 bits).
        normed: True if that kernel is a norm, which can write 8 bits.
        side: Collective of the input (gather) or of the output (reduce), if any; conversion precedes a gather.
        rows, copies: Number of rows, if different from the tokens; number of weights of this shape.
        loop: Number of kernels for each conversion of rows.
    """
    if not shape.narrow:
        return
    choice, source = shape.choice, shape.dtype_bytes if source is None else source
    rows = shape.tokens if rows is None else rows
    weights, inputs, outputs = copies * (n * k + bias), rows * n, rows * k
    alone = not (joined and choice.fuses)
    if shape.recipe is not None:
        layer = cast_to_recipe(
            name,
            weights,
            _converted_tensor(inputs, source, side == "gather", shape),
            _converted_tensor(outputs, shape.widths.result, side == "reduce", shape),
            widths=shape.widths,
            recipe=shape.recipe,
            normed=normed and choice.fusion in shape.recipe.joined,
            restored=alone,
            flags=_CONVERTED,
        )
    else:
        layer = cast(
            name,
            weights,
            inputs,
            outputs,
            widths=shape.widths,
            source=source,
            alone=alone,
            flags=_CONVERTED,
        )
    yield layer._replace(loop=loop)


def _converted_tensor(
    elements: Elements, source: int, border: bool, shape: BlockShape
) -> Converted:
    """Return a tensor to convert; at a `border` of tensor parallelism with sequence parallelism, ranks have shares."""
    gathered = border and shape.choice.sequence_parallel
    return Converted(
        elements, elements / shape.tensor_par if gathered else elements, source, gathered
    )


def output_layers(
    prefix: str,
    product: str,
    shape: BlockShape,
    width: int,
    *,
    bias: int,
    outer: bool = False,
    joined: bool = True,
    recompute: str = When.RECOMPUTE_ALL,
    drops: str = When.NEVER,
) -> Iterator[Layer]:
    """Yield a row-parallel product of an input of `width` and its reduction; or a column-parallel one, both gathered.

    `bias` is the number of columns of the whole output with a bias. `recompute` is the condition for their
    recomputation, `drops` the condition under which their input is recomputed instead of saved; `joined` is True if the
    kernel that creates the input can convert it.
    """
    if shape.choice.gathers_outputs:
        yield from _column_parallel_output(prefix, product, shape, width, bias=bias)
        return
    name, hidden, rows = f"{prefix}_{product}", shape.model.hidden, shape.split(width)
    yield from converted(
        f"{name}_Cast",
        shape,
        rows,
        hidden,
        bias,
        source=shape.widths.result,
        joined=joined,
        side="reduce",
    )
    if shape.overlapped:
        flags = Flags(
            recompute=recompute, recommunicate=recompute, drops_activation=drops, drops_shard=drops
        )
        yield overlapped_projection(
            f"{name}_RS", "reduce", shape, rows, hidden, bias, flags, outer=outer
        )
    else:
        flags = Flags(recompute=recompute, drops_activation=drops)
        yield project(name, shape, rows, hidden, bias, flags)
        sent = SENT._replace(recommunicate=recompute)
        collective = border_collective(f"{prefix}_G", ROW_OUTPUT, shape, sent, outer=outer)
        yield from with_copy(collective, shape)
    if bias and shape.choice.bias_after_reduce:
        # The bias is added after the reduction; its weights and their gradient belong to the product.
        yield added_bias(
            f"{prefix}_BiasAdd",
            np.where(shape.tensor_par > 1, shape.residual, 0.0),
            followed=shape.whole_block,
            dtype_bytes=shape.widths.result,
            flags=Flags(recompute=recompute),
        )


def gathered_output(
    name: str, shape: BlockShape, elements: Elements, *, summed: bool = True
) -> Layer:
    """Return the gather of a product's columns, so that every rank has all `elements`.

    If the returned gradient is `summed` over ranks (because readers are divided), it is reduce-scattered. Otherwise
    every rank has the complete gradient, and takes its slice.
    """
    layer = communication(
        name,
        "tp",
        elements,
        shape.tensor_par,
        forward="all_gather",
        backward="reduce_scatter" if summed else None,
        saved=elements / shape.tensor_par,
        dtype_bytes=shape.widths.result,
        flags=SENT,
    )
    return layer._replace(activation_grad=layer.output_bytes)


def _column_parallel_output(
    prefix: str, product: str, shape: BlockShape, width: int, *, bias: int
) -> Iterator[Layer]:
    """Yield a column-parallel product of a gathered input of `width`, and its gathered output.

    The backward pass of each gather is a reduce-scatter of the same tensor: readers are divided, and each has a part of
    the gradient (Shoeybi 2019, section 3, avoids both by dividing every other product by rows).
    """
    name, columns, own = f"{prefix}_{product}", shape.split(shape.model.hidden), shape.split(bias)
    yield gathered_output(f"{name}_Gather", shape, shape.tokens * width)
    yield from converted(
        f"{name}_Cast", shape, width, columns, own, source=shape.widths.result, joined=False
    )
    yield project(name, shape, width, columns, own)
    yield gathered_output(f"{prefix}_Gather", shape, shape.activation)
