"""A transformer block: attention, then MLP (Shoeybi 2019, figure 3; Korthikanti 2022, figure 5), or both at once."""

from collections.abc import Iterator

from calculon.architecture.attention import attention_layers
from calculon.architecture.fusion import fused
from calculon.architecture.layers import Layer
from calculon.architecture.linear import linear_layers
from calculon.architecture.mlp import mlp_layers
from calculon.architecture.parallel_block import parallel_layers
from calculon.architecture.shape import BlockShape

LETTERS = {"M": attention_layers, "*": attention_layers, "-": mlp_layers, "E": mlp_layers}
"""Layers of the parts that ``layer_pattern`` names, each with its norm and residual connection."""

PARTS = {"attention": attention_layers, "mlp": mlp_layers, "linear": linear_layers}
"""Layers of the parts that a block can be reduced to."""


@fused
def block_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield the layers of one block, or of the part of it that the model has, in order of execution.

    The blocks of the model are all alike; kinds of a model whose blocks differ are models of their own.
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
