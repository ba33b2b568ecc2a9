"""The MLP half of a block (section 3.3)."""

from collections.abc import Iterator

import numpy as np

from calculon.architecture.layers import Flags, Layer, When, activation, linear
from calculon.architecture.projection import column_linear, converted, gather_inputs, output_layers
from calculon.architecture.residual import entry_layers, exit_layers
from calculon.architecture.shape import BlockShape


def mlp_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield norm, first product (with the gate's, if there is one), activation, second product and residual sum.

    An MLP alone has neither norm, nor dropout, nor residual connection.
    """
    model = shape.model
    if shape.whole:
        yield from entry_layers("MlpBlock", shape)
    width = shape.mlp_products * shape.split(model.feedforward)
    bias = width if model.mlp_bias else None
    if shape.narrow:
        yield converted(
            "MlpBlock_Mlp1_Cast",
            shape,
            shape.activation,
            width,
            model.hidden * width + width * model.mlp_bias,
            source=shape.dtype_bytes,
        )
    if shape.overlapped:
        flags = Flags(
            recompute=When.RECOMPUTE_ALL,
            recommunicate=When.REGATHER_MLP,
            drops_activation=When.REGATHER_MLP,
        )
        yield column_linear("MlpBlock_Mlp1_AG", shape, width, flags, bias=bias)
    else:
        if not shape.choice.gathers_outputs:
            yield gather_inputs(
                "MlpBlock_F", shape, regather=When.REGATHER_MLP, gathered=When.GATHERED_MLP
            )
        yield linear(
            "MlpBlock_Mlp1",
            shape.tokens,
            model.hidden,
            width,
            bias=bias,
            widths=shape.widths,
            flags=Flags(recompute=When.RECOMPUTE_ALL, drops_activation=When.REGATHER_MLP),
        )
    yield activation_layer(shape)
    out_bias = model.hidden if model.mlp_bias else None
    yield from output_layers(
        "MlpBlock", "Mlp2", shape, model.feedforward, bias=out_bias, outer=True
    )
    if shape.whole:
        yield from exit_layers("MlpBlock", shape)


ACTIVATIONS = {"gelu": "GeLU", "relu": "ReLU", "squared_relu": "ReLU2", "swiglu": "SwiGLU"}
ACTIVATIONS["geglu"] = "GeGLU"


def activation_layer(shape: BlockShape, prefix: str = "MlpBlock") -> Layer:
    """Return the activation between the products of the MLP."""
    model = shape.model
    return activation(
        f"{prefix}_{ACTIVATIONS[model.activation]}",
        model.activation,
        np.floor(model.feedforward * shape.tokens / shape.tensor_par),
        fused=shape.choice.fused_activation,
        input_grad=shape.edition.writes_input_gradients,
        dtype_bytes=shape.widths.result,
        flags=Flags(recompute=When.RECOMPUTE_ALL),
    )
