"""Layers by name, for three sizes at once."""

import numpy as np

from calculon.architecture.block import block_layers
from calculon.architecture.shape import BlockShape
from calculon.declarations.model import Model
from calculon.editions import CORRECTED
from tests.helpers import layout_choice, sizes

SMALL = Model(hidden=48, feedforward=120, seq_size=20, attn_heads=4, attn_size=10, num_blocks=3)
"""A model whose heads are together narrower than its residual stream."""

T, B = np.array([1.0, 2.0, 4.0]), np.array([3.0, 1.0, 2.0])
"""Degrees of tensor parallelism, and sequences of a microbatch."""


def shape_of(model, columns=None, edition=CORRECTED, **changes):
    """Return the shape of a block for some columns, or for the sizes above."""
    columns = sizes(tensor_par=T, microbatch_size=B) if columns is None else columns
    return BlockShape.of(model, layout_choice(edition=edition.name, **changes), columns, edition)


def layers_of(model, make=block_layers, columns=None, *, edition=CORRECTED, prefix="", **changes):
    """Return the layers that a function makes of a shape, by name without a prefix."""
    layers = make(shape_of(model, columns, edition, **changes))
    return {layer.name.removeprefix(prefix): layer for layer in layers}
