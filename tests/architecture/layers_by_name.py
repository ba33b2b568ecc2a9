"""Layers by name, for three sizes at once, and parameters as the twin counts them."""

import numpy as np

from calculon.architecture.block import block_layers
from calculon.architecture.shape import BlockShape
from calculon.editions import CORRECTED
from calculon.spec.model import Model
from tests.helpers import layout_choice, sizes
from tests.twin import fields, figures

TENSOR, BATCH = np.array([1.0, 2.0, 4.0]), np.array([3.0, 1.0, 2.0])
"""Degrees of tensor parallelism, and sequences of a microbatch."""


def shape_of(model, columns=None, edition=CORRECTED, **changes):
    """Return the shape of a block for some columns, or for the sizes above."""
    columns = sizes(tensor_par=TENSOR, microbatch_size=BATCH) if columns is None else columns
    return BlockShape.of(model, layout_choice(edition=edition.name, **changes), columns, edition)


def layers_of(model, make=block_layers, columns=None, *, edition=CORRECTED, prefix="", **changes):
    """Return the layers that a function makes of a shape, by name without a prefix."""
    layers = make(shape_of(model, columns, edition, **changes))
    return {layer.name.removeprefix(prefix): layer for layer in layers}


def counted(model: Model) -> int:
    """Count the parameters of a model of any fields."""
    return figures.parameters(fields.Model(**model.to_dict()))


def block_parameters(model: Model) -> int:
    """Count the parameters of one block of a model whose blocks are alike."""
    return figures.block_parameters(fields.Model(**model.to_dict()))


def norm_parameters(model: Model) -> int:
    """Count the parameters of one norm of the residual stream."""
    return figures.norm_parameters(fields.Model(**model.to_dict()))
