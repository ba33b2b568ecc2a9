"""A model as a list of segments: embedding, one or more kinds of block, LM head.

A segment says which layers it has, how many of it there are and where they are. All else follows: costs, memory and
gradients are sums over the segments of a pipeline stage; parameters and model FLOP are sums over those of the model.

A further kind of block is one more row of :func:`segments`, with a generator of its layers. Kinds of block are spread
over the stages in proportion to their numbers: a block of a stage costs the mean of the kinds. This is exact where
every chunk of a stage has the kinds in the proportion of the model, as patterns that repeat within a chunk have.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from calculon.architecture.block import block_layers
from calculon.architecture.embedding_and_head import embedding_layers, head_layers
from calculon.architecture.layer import Number
from calculon.architecture.layer_sizes import Sizes
from calculon.architecture.layers import Layer
from calculon.architecture.shape import BlockShape
from calculon.editions import CORRECTED
from calculon.frozen import dataclass
from calculon.spec.execution import Execution
from calculon.spec.fields import optional_defaults
from calculon.spec.model import Model
from calculon.spec.scope_choices import LayoutChoice

LayerGenerator = Callable[[BlockShape], Iterable[Layer]]
"""Yields the layers of a segment in order of execution."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a model that occurs a number of times.

    Attributes
    ----------
    place : {"first", "spread", "last"}
        On the first pipeline stage, spread over all of them, or on the last.
    """

    name: str
    layers: LayerGenerator
    count: int
    place: Literal["first", "spread", "last"] = "spread"


EMBEDDING = Segment("embedding", embedding_layers, 1, "first")
HEAD = Segment("head", head_layers, 1, "last")


def segments(model: Model) -> tuple[Segment, ...]:
    """Return the segments of a model, from its input to its output; those that it has none of are left out."""
    blocks = (Segment("block", block_layers, model.num_blocks),)
    every = (EMBEDDING, *blocks, HEAD) if model.vocab else blocks
    return tuple(one for one in every if one.count)


def kinds_of_block(model: Model) -> tuple[Segment, ...]:
    """Return the segments that are spread over the stages; their counts add up to ``num_blocks``."""
    found = tuple(one for one in segments(model) if one.place == "spread")
    assert sum(kind.count for kind in found) == model.num_blocks
    return found


def listed_kinds(model: Model) -> Iterator[tuple[Segment, dict[str, Any]]]:
    """Yield the kinds of block, each with the labels of its layers in lists: none where there is one kind."""
    kinds = kinds_of_block(model)
    for kind in kinds:
        yield kind, {"kind": kind.name, "blocks": kind.count} if len(kinds) > 1 else {}


@dataclass(frozen=True, slots=True)
class Totals:
    """Sizes of a segment on one rank, whatever runs it.

    Attributes
    ----------
    parameters : int
        Weights, biases and gains.
    matrices : int
        Those of matrices that tokens are multiplied with.
    scores : int
        FLOP per query and key of products with the score matrix of attention.
    """

    parameters: int
    matrices: int
    scores: int


@lru_cache(maxsize=256)
def totals(model: Model, segment: Segment) -> Totals:
    """Add up the layers of one segment as a single rank has them, attention over the whole sequence."""
    one = np.ones(1)
    sizes = Sizes(
        tensor_par=one,
        microbatch_size=one,
        tensor_par_net=np.zeros(1, np.int64),
        vocab_pad_multiple=one,
        seq_length=np.zeros(1),
    )
    layers = list(segment.layers(BlockShape.of(model, ONE_RANK, sizes, CORRECTED)))
    products = [layer for layer in layers if layer.product is not None]
    weighted = [layer.product for layer in products if np.all(layer.weights) and layer.product]
    scores = [layer.flops[0] for layer in products if not np.all(layer.weights)]
    return Totals(
        parameters=sum(_whole(layer.weights) for layer in layers),
        matrices=sum(_whole(product.n) * _whole(product.k) for product in weighted),
        scores=sum(_whole(flops) // model.seq_size**2 for flops in scores),
    )


@lru_cache(maxsize=256)
def model_totals(model: Model) -> Totals:
    """Add up all segments of a model; a table that embedding and head share is one parameter each, multiplied once."""
    found = [(segment.count, totals(model, segment)) for segment in segments(model)]
    shared = model.vocab * model.hidden if model.tied else 0
    return Totals(
        parameters=sum(count * one.parameters for count, one in found) - shared,
        matrices=sum(count * one.matrices for count, one in found),
        scores=sum(count * one.scores for count, one in found),
    )


def _whole(value: Number) -> int:
    """Return the whole number that a size of one rank is."""
    return int(np.asarray(value, float).max())


_PLAIN: dict[str, Any] = {
    name: optional_defaults(Execution).get(name, False)
    for name in LayoutChoice.__dataclass_fields__
}
ONE_RANK = LayoutChoice(
    **_PLAIN | {"edition": CORRECTED.name, "datatype": "float16", "attention_type": "multihead"}
)
"""A layout that leaves every layer of a model whole: defaults, in the edition that knows all fields of models."""
