"""Transformer block: attention, then MLP (Shoeybi 2019, figure 3; Korthikanti 2022, figure 5), or both in parallel."""

from collections.abc import Iterator

from calculon.architecture.attention import attention_layers, core_layers, projection_width
from calculon.architecture.fusion import fused
from calculon.architecture.layers import Layer, When
from calculon.architecture.mlp import activation_layer, linear_layers, mlp_layers
from calculon.architecture.projection import input_layers, output_layers
from calculon.architecture.residual import entry_layers, exit_layers
from calculon.architecture.shape import BlockShape

# Blocks whose attention and MLP read the same input in parallel.
#
# Source: Wang and Komatsuzaki, *GPT-J*, 2021; Chowdhery et al., *PaLM*, arXiv 2204.02311, section 2: the input products
# of both halves are one product, and so are their output products, with one reduction for both.


def parallel_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield norm (or two), one input product, attention and activation, one output product and residual sum."""
    model = shape.model
    yield from entry_layers("Block", shape, norms=max(1, model.norms))
    attention = projection_width(shape)
    inner = shape.mlp_products * shape.split(model.feedforward)
    yield from input_layers(
        "Block",
        "In",
        shape,
        attention + inner,
        bias=attention * model.qkv_bias + inner * model.mlp_bias,
        regather=When.REGATHER_ATTENTION,
        gathered=When.GATHERED_ATTENTION,
    )
    yield from core_layers(shape)
    yield activation_layer(shape)
    read = shape.attention_width + model.feedforward
    bias = model.hidden * (model.out_bias + model.mlp_bias)
    yield from output_layers("Block", "Out", shape, read, bias=bias, outer=True)
    yield from exit_layers("Block", shape)


LETTERS = {"M": attention_layers, "*": attention_layers, "-": mlp_layers, "E": mlp_layers}
"""Layers of the partial blocks in ``layer_pattern``, each with its norm and residual connection."""

PARTS = {"attention": attention_layers, "mlp": mlp_layers, "linear": linear_layers}
"""Layers of the parts to which a block can be reduced."""


@fused
def block_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield the layers of one block, or of the part of it that the model has, in order of execution.

    All blocks of the model are equal; each kind of block of other models is a separate model.
    """
    if shape.model.in_parts:
        yield from LETTERS[shape.model.layer_pattern[0]](shape)
    elif (part := shape.model.part) in PARTS:
        yield from PARTS[part](shape)
    elif shape.model.parallel_attention:
        yield from parallel_layers(shape)
    else:
        yield from attention_layers(shape)
        yield from mlp_layers(shape)
