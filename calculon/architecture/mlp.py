"""The MLP half of a block (section 3.3)."""

from collections.abc import Iterator

import numpy as np

from calculon.architecture.layers import Flags, Layer, When, activation
from calculon.architecture.projection import input_layers, output_layers
from calculon.architecture.residual import entry_layers, exit_layers
from calculon.architecture.shape import BlockShape


def mlp_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield norm, first product (with the gate's, if there is one), activation, second product and residual sum.

    An MLP alone has neither norm, nor dropout, nor residual connection.
    """
    model = shape.model
    if shape.whole:
        yield from entry_layers("MlpBlock", shape, drops=When.DROPS_STREAM)
    width = shape.mlp_products * shape.split(model.feedforward)
    yield from input_layers(
        "MlpBlock",
        "Mlp1",
        shape,
        width,
        bias=width * model.mlp_bias,
        regather=When.REGATHER_MLP,
        gathered=When.GATHERED_MLP,
        recompute=When.RECOMPUTE_GATED if shape.mlp_products > 1 else When.RECOMPUTE_MLP,
        repeated=1 / shape.mlp_products,
    )
    yield activation_layer(shape)
    bias = model.hidden * model.mlp_bias
    yield from output_layers(
        "MlpBlock",
        "Mlp2",
        shape,
        model.feedforward,
        bias=bias,
        outer=True,
        recompute=When.RECOMPUTE_MLP,
        drops=When.RECOMPUTE_ACTIVATION,
    )
    if shape.whole:
        yield from exit_layers("MlpBlock", shape)


ACTIVATIONS = {
    "gelu": "GeLU",
    "relu": "ReLU",
    "squared_relu": "ReLU2",
    "swiglu": "SwiGLU",
    "geglu": "GeGLU",
}
"""Names of activations in the list of layers."""


def activation_layer(shape: BlockShape, prefix: str = "MlpBlock") -> Layer:
    """Return the activation between the products of the MLP."""
    model = shape.model
    layer = activation(
        f"{prefix}_{ACTIVATIONS[model.activation]}",
        model.activation,
        np.floor(model.feedforward * shape.tokens / shape.tensor_par),
        fused=shape.choice.fused_activation,
        input_grad=shape.edition.writes_input_gradients,
        dtype_bytes=shape.widths.result,
        flags=Flags(recompute=When.RECOMPUTE_ACTIVATION, drops_activation=When.DROPS_HIDDEN),
    )
    if shape.mlp_products == 1:
        return layer
    # of its two inputs the second product makes one
    return layer._replace(remade=np.maximum(layer.activation - layer.output_bytes, 0.0))
