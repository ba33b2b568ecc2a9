"""A model as a list of segments: embedding, one or more kinds of block, LM head, modules that predict further tokens.

A segment says which layers it has, how many of it there are and where they are. All else follows: costs, memory and
gradients are sums over the segments of a pipeline stage; parameters and model FLOP are sums over those of the model.

A further kind of block is one more of :mod:`calculon.architecture.block_kinds`, with a generator of its layers. Which
kinds a stage has follows from where it lies (:mod:`calculon.plan.stage_kinds`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from calculon.architecture.block import block_layers
from calculon.architecture.block_kinds import BlockKind, kinds_by_block
from calculon.architecture.embedding_and_head import embedding_layers, head_layers
from calculon.architecture.layer import Number
from calculon.architecture.layer_sizes import Sizes
from calculon.architecture.layers import Layer
from calculon.architecture.multi_token import joined_with
from calculon.architecture.shape import BlockShape
from calculon.base.frozen import dataclass
from calculon.declarations.execution import Execution
from calculon.declarations.fields import spec_fields
from calculon.declarations.model import Model
from calculon.declarations.scope_choices import LayoutChoice
from calculon.editions import CORRECTED

LayerGenerator = Callable[[BlockShape], Iterable[Layer]]
"""Yields the layers of a segment in order of execution."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a model that occurs a number of times.

    Attributes:
        place: On the first pipeline stage, spread over all of them, or on the last.
    """

    name: str
    layers: LayerGenerator
    count: int
    place: Literal["first", "spread", "last"] = "spread"


EMBEDDING = Segment("embedding", embedding_layers, 1, "first")
HEAD = Segment("head", head_layers, 1, "last")


@lru_cache(maxsize=256)
def segments(model: Model) -> tuple[Segment, ...]:
    """Return the segments of a model, from its input to its output."""
    blocks = [Segment("block", block_layers, model.num_blocks)]
    if numbers := Counter(kinds_by_block(model)):  # in the order in which they first occur
        blocks = [Segment(kind.name, kind, count) for kind, count in numbers.items()]
    return (EMBEDDING, *blocks, HEAD) if model.vocab else tuple(blocks)


def kinds_of_block(model: Model) -> tuple[Segment, ...]:
    """Return the segments that are spread over the stages; their counts add up to ``num_blocks``."""
    found = tuple(one for one in segments(model) if one.place == "spread")
    assert sum(kind.count for kind in found) == model.num_blocks
    return found


@lru_cache(maxsize=256)
def prediction_module(model: Model) -> Segment | None:
    """Return what modules that predict a further token have beside embedding and LM head; None where there are none.

    That is a block of the kind of the last one, and what joins its input. Source: Megatron-LM,
    ``core/models/gpt/gpt_layer_specs.py``, ``get_gpt_mtp_block_spec`` (``layer_specs[-1]``). Of a pattern of parts it
    is attention, and then the last kind of MLP or experts (Nemotron 3, ``mtp_hybrid_override_pattern``).
    """
    if not model.mtp_layers:
        return None
    kinds = kinds_by_block(model)
    blocks: list[LayerGenerator] = [kinds[-1] if kinds else block_layers]
    if model.in_parts:
        second = max("-E", key=model.layer_pattern.rfind)
        blocks = [BlockKind(letter="*"), BlockKind(letter=second)]
    return Segment("mtp", joined_with(*blocks), model.mtp_layers, "last")


def listed_kinds(model: Model) -> Iterator[tuple[Segment, dict[str, Any]]]:
    """Yield the kinds of block, each with the labels of its layers in lists: none where there is one kind."""
    kinds = kinds_of_block(model)
    for kind in kinds:
        yield kind, {"kind": kind.name, "blocks": kind.count} if len(kinds) > 1 else {}


@dataclass(frozen=True, slots=True)
class Totals:
    """Sizes of a segment on one rank, whatever runs it.

    Attributes:
        parameters: Weights, biases and gains.
        active: Those that one token passes: of experts only its own.
        matrices: Those of matrices that a token is multiplied with; the router is not counted (Megatron-LM,
            ``training.py``, ``num_floating_point_operations``).
        scores: FLOP per query and key of products with the score matrix of attention.
        states: FLOP per token of states of linear attention, as MFU counts them.
    """

    parameters: int
    active: int
    matrices: int
    scores: int
    states: float = 0.0


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
    weighted = [layer for layer in products if np.all(layer.weights) and layer.kernel != "router"]
    scores = [layer.flops[0] for layer in products if not np.all(layer.weights)]
    used = [round(_whole(layer.weights) * layer.active) for layer in layers]
    return Totals(
        parameters=sum(_whole(layer.weights) for layer in layers),
        active=sum(used),
        matrices=sum(_of_token(layer) for layer in weighted),
        scores=sum(_whole(flops) // model.seq_size**2 for flops in scores),
        states=sum(layer.counted for layer in layers),
    )


@lru_cache(maxsize=256)
def model_totals(model: Model) -> Totals:
    """Add up all segments of a model; a table that embedding and head share is one parameter each, multiplied once."""
    found = [(segment.count, totals(model, segment)) for segment in segments(model)]
    shared = model.vocab * model.hidden if model.tied else 0
    return Totals(
        parameters=sum(count * one.parameters for count, one in found) - shared,
        active=sum(count * one.active for count, one in found) - shared,
        matrices=sum(count * one.matrices for count, one in found),
        scores=sum(count * one.scores for count, one in found),
        states=sum(count * one.states for count, one in found),
    )


@lru_cache(maxsize=256)
def module_totals(model: Model) -> Totals:
    """Add up the modules that predict further tokens; embedding and head, which are the model's, only work again.

    Source: DeepSeek-V3, arXiv 2412.19437, section 2.2: a module has a projection and a block of its own. The norms are
    those of both inputs and the one before the head.
    """
    module = prediction_module(model)
    if module is None:
        return Totals(parameters=0, active=0, matrices=0, scores=0)
    own, head, count = totals(model, module), totals(model, HEAD), model.mtp_layers
    norm = head.parameters - model.vocab * (model.hidden + model.head_bias)
    return Totals(
        parameters=count * (own.parameters + norm),
        active=count * (own.active + norm),
        matrices=count * (own.matrices + head.matrices),
        scores=count * own.scores,
        states=count * own.states,
    )


def _of_token(layer: Layer) -> int:
    """Return the weights of a product that one token is multiplied with, biases apart."""
    assert layer.product is not None
    batch, _, n, k = layer.product
    return round(_whole(batch) * _whole(n) * _whole(k) * layer.active)


def _whole(value: Number) -> int:
    """Return the whole number that a size of one rank is."""
    return int(np.asarray(value, float).max())


_PLAIN: dict[str, Any] = dict.fromkeys(LayoutChoice.__dataclass_fields__, False) | {
    field.name: field.default if field.declaration.optional else field.values[0]
    for field in spec_fields(Execution)
    if field.name in LayoutChoice.__dataclass_fields__
}
ONE_RANK = LayoutChoice(**_PLAIN | {"edition": CORRECTED.name, "datatype": "float16"})
"""A layout that leaves every layer of a model whole: defaults, in the edition that knows all fields of models."""
