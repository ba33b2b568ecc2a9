"""A chain of linear layers, each with its activation."""

from collections.abc import Iterator

from calculon.architecture.layers import Layer, When
from calculon.architecture.mlp import activation_layer
from calculon.architecture.projection import converted, gathered_input, gathered_output, project
from calculon.architecture.shape import BlockShape


def linear_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield one square column-parallel product, its activation, and the collective for the next one.

    Alone, a product has no row-parallel partner. Megatron copies its input to all ranks, all-reduces their gradients,
    and gathers its output (``ColumnParallelLinear`` with ``gather_output``); the all-gather form reduces and scatters
    the gradient where the output of the layer before was gathered.
    """
    hidden, columns = shape.model.hidden, shape.split(shape.model.hidden)
    bias = columns * shape.model.mlp_bias
    yield from converted("Linear_Cast", shape, hidden, columns, bias)
    yield from gathered_input("Linear_F", shape, regather=When.NEVER, gathered=When.ALWAYS)
    yield project("Linear_Product", shape, hidden, columns, bias)
    yield activation_layer(shape, "Linear")
    summed = shape.choice.gathers_outputs
    yield gathered_output("Linear_Gather", shape, shape.activation, summed=summed)
