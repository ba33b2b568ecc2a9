"""A transformer block: attention, then MLP (Shoeybi 2019, figure 3; Korthikanti 2022, figure 5)."""

from collections.abc import Iterator

from calculon.edition import Edition
from calculon.layers import Layer
from calculon.plan.choice import Choice, Sizes
from calculon.spec.model import Model
from calculon.transformer.attention import attention_layers
from calculon.transformer.mlp import mlp_layers
from calculon.transformer.shape import BlockShape


def block_layers(model: Model, choice: Choice, sizes: Sizes, edition: Edition) -> Iterator[Layer]:
    """Yield the layers of one block in order of execution.

    Parameters
    ----------
    model : Model
        Shape of the transformer.
    choice : Choice
        What decides which layers there are.
    sizes : Sizes
        What decides how big they are: columns of shape ``(blocks,)``.
    edition : Edition
        Which edition of the model to follow.
    """
    shape = BlockShape.of(model, choice, sizes, edition)
    yield from attention_layers(shape)
    yield from mlp_layers(shape)
