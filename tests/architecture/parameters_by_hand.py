"""Parameters of a model, as the twin counts them by hand."""

from calculon.declarations.model import Model
from tests.twin import fields, figures


def counted(model: Model) -> int:
    """Count the parameters of a model of any fields."""
    return figures.parameters(fields.Model(**model.to_dict()))


def block_parameters(model: Model) -> int:
    """Count the parameters of one block of a model whose blocks are alike."""
    return figures.block_parameters(fields.Model(**model.to_dict()))


def norm_parameters(model: Model) -> int:
    """Count the parameters of one norm of the residual stream."""
    return figures.norm_parameters(fields.Model(**model.to_dict()))
