"""MLP half of a block, and chains of linear layers."""

from collections.abc import Iterator

import numpy as np

from calculon.architecture.experts import expert_layers, router_layer
from calculon.architecture.layers import Flags, Layer, When, activation
from calculon.architecture.layers.elementwise import ACTIVATIONS
from calculon.architecture.projection import (
    converted,
    gathered_input,
    gathered_output,
    input_layers,
    output_layers,
    project,
)
from calculon.architecture.residual import entry_layers, exit_layers
from calculon.architecture.shape import BlockShape


def mlp_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield norm, first product (with the gate's, if there is one), activation, second product and residual sum.

    A block that consists of an MLP only has no norm, no dropout, and no residual connection. With several experts each
    of them is such an MLP; with one expert the router has no choice.
    """
    model = shape.model
    if shape.whole_block:
        yield from entry_layers("MlpBlock", shape, drops=When.DROPS_STREAM)
    if model.num_experts > 1:
        yield from expert_layers(shape)
    else:
        yield from _products(shape)
    if shape.whole_block:
        yield from exit_layers("MlpBlock", shape)


def _products(shape: BlockShape) -> Iterator[Layer]:
    """Yield both products and the activation between them, after the router of a single expert."""
    model = shape.model
    if model.num_experts:
        yield router_layer(shape)
    width = shape.mlp_products * shape.split(model.inner_width)
    biased = model.expert_bias if model.num_experts else model.mlp_bias
    yield from input_layers(
        "MlpBlock",
        "Mlp1",
        shape,
        width,
        bias=width * biased,
        regather=When.REGATHER_MLP,
        gathered=When.GATHERED_MLP,
        recompute=When.RECOMPUTE_GATED if shape.mlp_products > 1 else When.RECOMPUTE_MLP,
        repeated=1 / shape.mlp_products,
    )
    yield activation_layer(shape)
    bias = model.hidden * biased
    yield from output_layers(
        "MlpBlock",
        "Mlp2",
        shape,
        model.inner_width,
        bias=bias,
        outer=True,
        recompute=When.RECOMPUTE_MLP,
        drops=When.RECOMPUTE_ACTIVATION,
    )


def activation_layer(shape: BlockShape, prefix: str = "MlpBlock") -> Layer:
    """Return the activation between the products of the MLP."""
    model = shape.model
    layer = activation(
        f"{prefix}_{ACTIVATIONS[model.activation]}",
        model.activation,
        np.floor(model.inner_width * shape.tokens / shape.tensor_par),
        fused=shape.choice.fused_activation,
        input_grad=shape.edition.writes_input_gradients,
        dtype_bytes=shape.widths.result,
        flags=Flags(recompute=When.RECOMPUTE_ACTIVATION, drops_activation=When.DROPS_HIDDEN),
    )
    if shape.mlp_products == 1:
        return layer
    # If the second of its two inputs is recomputed by operator, only the first is saved.
    return layer._replace(remade=np.maximum(layer.activation - layer.output_bytes, 0.0))


# Chains of linear layers, each with an activation.


def linear_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield one square column-parallel product, its activation, and the collective for the next product.

    A single product has no row-parallel partner. Megatron copies its input to all ranks, all-reduces the gradients, and
    gathers the output (``ColumnParallelLinear`` with ``gather_output``). The all-gather form reduce-scatters the
    gradient at the gather of the previous layer's output.
    """
    hidden, columns = shape.model.hidden, shape.split(shape.model.hidden)
    bias = columns * shape.model.mlp_bias
    yield from converted("Linear_Cast", shape, hidden, columns, bias)
    yield from gathered_input("Linear_F", shape, regather=When.NEVER, gathered=When.ALWAYS)
    yield project("Linear_Product", shape, hidden, columns, bias)
    yield activation_layer(shape, "Linear")
    summed = shape.choice.gathers_outputs
    yield gathered_output("Linear_Gather", shape, shape.activation, summed=summed)
