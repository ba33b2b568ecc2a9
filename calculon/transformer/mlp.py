"""The MLP half of a block (section 3.3)."""

from collections.abc import Iterator

import numpy as np

from calculon.layers import Flags, Layer, When, gelu, linear
from calculon.transformer.projection import column_linear, gather_inputs, output_layers
from calculon.transformer.residual import entry_layers, exit_layers
from calculon.transformer.shape import BlockShape


def mlp_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield norm, first product, GeLU, second product, dropout and residual sum."""
    choice, model = shape.choice, shape.model
    yield from entry_layers("MlpBlock", shape)
    if choice.tensor_par_overlap != "none":
        flags = Flags(recompute=When.RECOMPUTE_ALL, recommunicate=When.REGATHER_MLP)
        yield column_linear("MlpBlock_Mlp1_AG", shape, model.feedforward, flags)
    else:
        yield gather_inputs("MlpBlock_F", shape, regather=When.REGATHER_MLP)
        yield linear(
            "MlpBlock_Mlp1",
            shape.tokens,
            model.hidden,
            shape.split(model.feedforward),
            dtype_bytes=choice.dtype_bytes,
            flags=Flags(recompute=When.RECOMPUTE_ALL, drops_activation=When.REGATHER_MLP),
        )
    yield gelu(
        "MlpBlock_GeLU",
        np.floor(model.feedforward * shape.tokens / shape.tensor_par),
        fused=choice.fused_activation,
        dtype_bytes=choice.dtype_bytes,
        flags=Flags(recompute=When.RECOMPUTE_ALL),
    )
    yield from output_layers("MlpBlock", "Mlp2", shape, model.feedforward)
    yield from exit_layers("MlpBlock", shape)
