"""A chain of linear layers, each with its activation."""

from collections.abc import Iterator

from calculon.architecture.layers import Flags, Layer, When, linear
from calculon.architecture.mlp import activation_layer
from calculon.architecture.projection import converted, gather_inputs, gathered
from calculon.architecture.shape import BlockShape


def linear_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield one square product, split by columns, its activation, and what hands the output to the next one.

    Alone, a product has no partner that is split by rows. Megatron copies its input to all ranks, all-reduces their
    gradients, and gathers its output (``ColumnParallelLinear`` with ``gather_output``); the all-gather form reduces and
    scatters the gradient where the output of the layer before was gathered.
    """
    hidden, columns = shape.model.hidden, shape.split(shape.model.hidden)
    bias = columns if shape.model.mlp_bias else None
    if shape.narrow:
        yield converted(
            "Linear_Cast",
            shape,
            shape.activation,
            columns,
            hidden * columns + (bias or 0),
            source=shape.dtype_bytes,
        )
    if not shape.choice.gathers_outputs:
        yield gather_inputs("Linear_F", shape, regather=When.NEVER, gathered=When.ALWAYS)
    yield linear(
        "Linear_Product",
        shape.tokens,
        hidden,
        columns,
        bias=bias,
        widths=shape.widths,
        flags=Flags(recompute=When.RECOMPUTE_ALL),
    )
    yield activation_layer(shape, "Linear")
    summed = shape.choice.gathers_outputs
    yield gathered("Linear_Gather", shape, shape.activation, summed=summed)
