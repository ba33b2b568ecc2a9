"""A block whose attention and MLP read the same input side by side.

Source: Wang and Komatsuzaki, *GPT-J*, 2021; Chowdhery et al., *PaLM*, arXiv 2204.02311, section 2: the products of both
halves that read the input are one, and so are those that write the output, with one reduction for both.
"""

from collections.abc import Iterator

from calculon.architecture.attention import core_layers
from calculon.architecture.layers import Flags, Layer, When, linear
from calculon.architecture.mlp import activation_layer
from calculon.architecture.projection import column_linear, converted, gather_inputs, output_layers
from calculon.architecture.residual import entry_layers, exit_layers
from calculon.architecture.shape import BlockShape


def parallel_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield norm (or two), one input product, attention and activation, one output product and residual sum."""
    model = shape.model
    yield from entry_layers("Block", shape, norms=max(1, model.norms))
    attention = shape.split(shape.attention_width) + 2 * shape.key_value_width
    inner = shape.mlp_products * shape.split(model.feedforward)
    width = attention + inner
    bias = attention * model.qkv_bias + inner * model.mlp_bias
    if shape.narrow:
        yield converted(
            "Block_In_Cast",
            shape,
            shape.activation,
            width,
            model.hidden * width + bias,
            source=shape.dtype_bytes,
        )
    if shape.overlapped:
        flags = Flags(
            recompute=When.RECOMPUTE_ALL,
            recommunicate=When.REGATHER_ATTENTION,
            drops_activation=When.REGATHER_ATTENTION,
        )
        yield column_linear("Block_In_AG", shape, width, flags, bias=bias, outer=True)
    else:
        if not shape.choice.gathers_outputs:
            yield gather_inputs(
                "Block_F", shape, regather=When.REGATHER_ATTENTION, gathered=When.GATHERED_ATTENTION
            )
        yield linear(
            "Block_In",
            shape.tokens,
            model.hidden,
            width,
            bias=bias,
            widths=shape.widths,
            flags=Flags(recompute=When.RECOMPUTE_ALL, drops_activation=When.REGATHER_ATTENTION),
        )
    yield from core_layers(shape)
    yield activation_layer(shape)
    read = shape.attention_width + model.feedforward
    bias = model.hidden * (model.out_bias + model.mlp_bias)
    yield from output_layers("Block", "Out", shape, read, bias=bias, outer=True)
    yield from exit_layers("Block", shape)
