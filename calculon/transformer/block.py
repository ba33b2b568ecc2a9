"""A transformer block: attention, then MLP (Shoeybi 2019, figure 3; Korthikanti 2022, figure 5), or both at once."""

from collections.abc import Iterator

from calculon.layers import Layer
from calculon.transformer.attention import attention_layers
from calculon.transformer.fusion import fuse
from calculon.transformer.mlp import mlp_layers
from calculon.transformer.parallel_block import parallel_layers
from calculon.transformer.shape import BlockShape


def block_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield the layers of one block in order of execution; their sizes are columns."""
    if shape.model.parallel_attention:
        yield from fuse(parallel_layers(shape), shape)
        return
    yield from fuse(attention_layers(shape), shape)
    yield from fuse(mlp_layers(shape), shape)
