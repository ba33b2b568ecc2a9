"""A transformer block: attention, then MLP (Shoeybi 2019, figure 3; Korthikanti 2022, figure 5), or both at once."""

from collections.abc import Iterator

from calculon.architecture.attention import attention_layers
from calculon.architecture.fusion import fuse
from calculon.architecture.layers import Layer
from calculon.architecture.linear import linear_layers
from calculon.architecture.mlp import mlp_layers
from calculon.architecture.parallel_block import parallel_layers
from calculon.architecture.shape import BlockShape

PARTS = {"attention": attention_layers, "mlp": mlp_layers, "linear": linear_layers}
"""Layers of the parts that a block can be reduced to."""


def block_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield the layers of one block, or of the part of it that the model has, in order of execution."""
    if (part := shape.model.part) in PARTS:
        yield from fuse(PARTS[part](shape), shape)
        return
    if shape.model.parallel_attention:
        yield from fuse(parallel_layers(shape), shape)
        return
    yield from fuse(attention_layers(shape), shape)
    yield from fuse(mlp_layers(shape), shape)
