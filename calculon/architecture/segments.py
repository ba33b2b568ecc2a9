"""Segments of a model: embedding, kinds of block, LM head, and multi-token prediction (MTP) modules.

A segment states its layers, its number of occurrences and its place. Everything else follows: costs, memory and
gradients are sums over the segments of a pipeline stage; parameters and model FLOP are sums over all segments.

A new kind of block is a new segment in :mod:`calculon.architecture.segments`, with a generator of its layers. The kinds
of a stage follow from its place in the model (:mod:`calculon.plan.stage_kinds`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from calculon.architecture.block import block_layers
from calculon.architecture.fusion import fused
from calculon.architecture.layer import COLUMN_INPUT, ROW_OUTPUT, Number
from calculon.architecture.layers import (
    RECOMPUTED,
    Flags,
    Layer,
    When,
    communication,
    cross_entropy,
    dropout,
    fork,
    lookup,
    positions,
    tensor_collective,
)
from calculon.architecture.layers.vocabulary import FLOAT_BYTES
from calculon.architecture.projection import (
    DROPPED,
    SENT,
    border_collective,
    converted,
    project,
    with_copy,
)
from calculon.architecture.residual import SHARED, residual_norm
from calculon.architecture.shape import BlockShape, Sizes
from calculon.base.frozen import dataclass
from calculon.declarations.execution import Execution
from calculon.declarations.fields import optional_defaults, spec_fields
from calculon.declarations.hybrid_fields import OF_LINEAR, OF_SOFTMAX
from calculon.declarations.model import OF_EXPERTS, Model
from calculon.declarations.scope_choices import LayoutChoice
from calculon.editions import CORRECTED

# Kinds of the blocks of a model, and the kind of each block.
#
# Each kind is a model with equal blocks: all with experts or all with an MLP; all with linear attention, all with a
# sliding window, or neither. For models whose blocks are partial (``layer_pattern``), all blocks of a kind are the same
# part. So there are at most four kinds.

PART_NAMES = {"M": "linear attention", "*": "attention", "-": "MLP", "E": "experts"}
"""Names of the partial blocks of a ``layer_pattern`` in lists."""


@dataclass(frozen=True, slots=True)
class BlockKind:
    """Kind of block, by attention and feed-forward part: a generator of its layers.

    Attributes:
        experts: True if it has experts, for models with MoE and dense blocks; None if all blocks are equal in this.
        window: True if its attention has a sliding window, likewise.
        linear: True if its attention is linear, likewise.
        letter: Letter of the partial block, for models with a ``layer_pattern``.
    """

    experts: bool | None = None
    window: bool | None = None
    linear: bool | None = None
    letter: str = ""

    @property
    def name(self) -> str:
        """Name in lists."""
        if self.letter:
            return PART_NAMES[self.letter]
        found = []
        if self.experts is not None:
            found.append("experts" if self.experts else "dense")
        if self.window is not None:
            found.append("window" if self.window else "full attention")
        if self.linear is not None:
            found.append("linear attention" if self.linear else "full attention")
        return ", ".join(found)

    def __call__(self, shape: BlockShape) -> Iterable[Layer]:
        """Yield the layers of a block of this kind, given the shape of the whole model."""
        return block_layers(replace(shape, model=model_of_kind(shape.model, self)))


_WINDOWS = ("sliding_window", "full_attention_every", "chunked_window")

_EXPERTS = ("num_experts", *OF_EXPERTS)
_LACKED = {
    "M": (*OF_SOFTMAX, *_EXPERTS, "mlp_bias"),
    "*": (*OF_LINEAR, *_EXPERTS, "mlp_bias"),
    "-": (*OF_LINEAR, *OF_SOFTMAX, *_EXPERTS),
    "E": (*OF_LINEAR, *OF_SOFTMAX, "mlp_bias"),
}
"""Fields without meaning for a partial block of a ``layer_pattern``."""


@lru_cache(maxsize=256)
def model_of_kind(model: Model, kind: BlockKind) -> Model:
    """Return the model whose blocks are all of one kind."""
    defaults = optional_defaults(Model)
    if kind.letter:
        changes = {name: defaults[name] for name in _LACKED[kind.letter]}
        pattern = kind.letter * model.num_blocks
        return replace(model, layer_pattern=pattern, mtp_layers=0, **changes)
    left_out: list[str] = []
    if kind.experts is not None:
        left_out += ["first_k_dense", "moe_layer_freq"]
        left_out += ["mlp_bias"] if kind.experts else ["num_experts", *OF_EXPERTS]
    if kind.window is not None:
        left_out += ["full_attention_every"] if kind.window else _WINDOWS
    if kind.linear is not None:
        left_out += ["full_attention_every", *(OF_SOFTMAX if kind.linear else OF_LINEAR)]
    return replace(model, **{name: defaults[name] for name in left_out})


@lru_cache(maxsize=256)
def kinds_by_block(model: Model) -> tuple[BlockKind, ...]:
    """Return the kind of each block, from the first to the last; empty if all are equal.

    Blocks with and without a sliding window are distinguished only in MoE models. In dense models all blocks have the
    mean keys per query (:func:`~calculon.architecture.attention.mean_keys`), which gives the same result if stages have
    whole groups.
    """
    if model.in_parts:
        letters = model.layer_pattern
        return tuple(BlockKind(letter=one) for one in letters) if len({*letters}) > 1 else ()
    experts, windows = model.mixes_kinds, model.mixes_windows and model.has_experts
    linear = model.mixes_linear
    if not (experts or windows or linear):
        return ()
    return tuple(
        BlockKind(
            model.expert_block(number) if experts else None,
            model.windowed_block(number) if windows else None,
            model.linear_block(number) if linear else None,
        )
        for number in range(model.num_blocks)
    )


# Embedding, and LM head with the loss: segments of the first and the last pipeline stage in addition to blocks.
#
# Source: Shoeybi et al., *Megatron-LM*, arXiv 1909.08053, section 3: tensor parallelism divides the vocabulary, and the
# loss sums over ranks instead of gathering the logits.

SUMS = ("Max", "Sum", "Target")
"""All-reduces per token over a divided vocabulary: largest logit, sum of exponentials, logit of the target."""

LOGITS = "Head_Logits"
"""Product whose weights a model may share with its embedding."""


_DROPPED = Flags(drops_activation=When.ALWAYS)


@fused
def embedding_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield lookup, learned positions, reduction over the divided vocabulary, norm and dropout."""
    model, dtype_bytes = shape.model, shape.dtype_bytes
    rows = shape.vocab_rows
    yield lookup("Embedding", shape.tokens, model.hidden, rows, dtype_bytes=dtype_bytes)
    summed = border_collective("Embedding_G", ROW_OUTPUT, shape, _DROPPED, dtype_bytes=dtype_bytes)
    yield from with_copy(summed, shape)
    if model.positions:
        yield positions(
            "Embedding_Positions",
            shape.residual,
            model.positions,
            model.hidden,
            dtype_bytes=dtype_bytes,
        )
    if model.embedding_norm:
        yield residual_norm("Embedding", shape, flags=Flags())
    if model.dropout:
        yield dropout(
            "Embedding_DropOut",
            shape.residual,
            grad_bytes=shape.edition.dropout_grad_bytes(dtype_bytes),
            dtype_bytes=dtype_bytes,
            flags=Flags(),
        )


@fused
def head_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield final norm, gathered input, logits, and the loss with its sums over the ranks."""
    model, result = shape.model, shape.widths.result
    columns = shape.vocab_rows
    yield residual_norm("Head", shape, flags=Flags())
    yield from with_copy(border_collective("Head_F", COLUMN_INPUT, shape, _DROPPED), shape)
    bias = columns * model.head_bias
    yield from converted("Head_Cast", shape, model.hidden, columns, bias)
    logits = project(LOGITS, shape, model.hidden, columns, bias, Flags())
    yield logits._replace(activation_grad=0.0)  # the loss counts this gradient
    yield cross_entropy(
        "Head_Loss",
        shape.tokens * columns,
        impl=shape.choice.ce_impl,
        dtype_bytes=result,
    )
    for name in SUMS:
        yield communication(
            f"Head_{name}",
            "tp",
            shape.tokens,
            shape.tensor_par,
            forward="all_reduce",
            backward=None,
            dtype_bytes=FLOAT_BYTES,
            flags=Flags(),
        )


# Layers of a multi-token prediction (MTP) module before its block.
#
# The module combines the hidden state of each token with the embedding of the next token: both are normalized,
# concatenated, and multiplied by a matrix that is twice as high as wide. A block follows, then the head of the model.
# Source: DeepSeek-V3, arXiv 2412.19437, section 2.2.
#
# Tensor parallelism divides the product by columns and gathers its complete output; with sequence parallelism each rank
# then takes its own tokens. Source: Megatron-LM, ``core/transformer/multi_token_prediction.py``,
# ``MultiTokenPredictionLayer._concat_embeddings``.


def joined_with(
    *blocks: Callable[[BlockShape], Iterable[Layer]],
) -> Callable[[BlockShape], Iterator[Layer]]:
    """Return a generator of the layers of an MTP module: combination of inputs, then its block or partial blocks."""

    def layers(shape: BlockShape) -> Iterator[Layer]:
        yield from joining_layers(shape)
        for block in blocks:
            yield from block(shape)

    return layers


@fused
def joining_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield norms of hidden state and embedding, their concatenation, the product of both, and its gathered output.

    The LM head reads the hidden state, too. The product saves its input like the products of the MLP.
    """
    model, result = shape.model, shape.widths.result
    again = When.RECOMPUTE_NORM
    yield fork("Mtp_Fork", shape.residual, 2, dtype_bytes=shape.dtype_bytes, flags=RECOMPUTED)
    yield residual_norm("Mtp_Hidden", shape, flags=SHARED._replace(recompute=again))
    yield residual_norm("Mtp_Embedding", shape, flags=RECOMPUTED._replace(recompute=again))
    moved = 2 * shape.dtype_bytes * (2 * shape.residual)
    yield Layer(
        name="Mtp_Concat",
        kernel="cast",
        flops=(0.0, 0.0, 0.0),
        accessed=(moved, moved, 0.0),
        inputs=2 * shape.residual,
        flags=Flags(recompute=again),
    )
    both, columns = 2 * model.hidden, shape.split(model.hidden)
    yield from converted("Mtp_Product_Cast", shape, both, columns, 0, side="gather")
    narrow = shape.widths.operand < result
    gathered = tensor_collective(
        "Mtp_F",
        COLUMN_INPUT,
        2 * shape.activation,
        shape.tensor_par,
        sequence_parallel=shape.choice.sequence_parallel,
        dtype_bytes=result,
        gathered_bytes=shape.widths.operand if narrow else None,
        flags=Flags(recommunicate=When.REGATHER_MLP, drops_activation=When.GATHERED_MLP),
    )
    yield from with_copy(gathered, shape)
    flags = RECOMPUTED._replace(drops_activation=DROPPED[When.REGATHER_MLP])
    yield project("Mtp_Product", shape, both, columns, 0, flags)
    yield communication(
        "Mtp_Gather",
        "tp",
        shape.activation,
        shape.tensor_par,
        forward="all_gather",
        backward="all_gather" if shape.choice.sequence_parallel else None,
        dtype_bytes=result,
        flags=SENT,
    )


LayerGenerator = Callable[[BlockShape], Iterable[Layer]]
"""Function that yields the layers of a segment in order of execution."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Part of a model that occurs a number of times.

    Attributes:
        place: On the first pipeline stage, spread over all stages, or on the last.
    """

    name: str
    layers: LayerGenerator
    count: int
    place: Literal["first", "spread", "last"] = "spread"


EMBEDDING = Segment("embedding", embedding_layers, 1, "first")
HEAD = Segment("head", head_layers, 1, "last")


@lru_cache(maxsize=256)
def segments(model: Model) -> tuple[Segment, ...]:
    """Return the segments of a model, from input to output."""
    blocks = [Segment("block", block_layers, model.num_blocks)]
    if numbers := Counter(kinds_by_block(model)):  # a Counter keeps the order of first occurrence
        blocks = [Segment(kind.name, kind, count) for kind, count in numbers.items()]
    return (EMBEDDING, *blocks, HEAD) if model.vocab else tuple(blocks)


def kinds_of_block(model: Model) -> tuple[Segment, ...]:
    """Return the segments that are spread over the stages; their counts add up to ``num_blocks``."""
    result = tuple(one for one in segments(model) if one.place == "spread")
    assert sum(kind.count for kind in result) == model.num_blocks
    return result


@lru_cache(maxsize=256)
def prediction_module(model: Model) -> Segment | None:
    """Return the layers of MTP modules in addition to embedding and LM head; None without modules.

    These are the combination of inputs, and a block of the kind of the last one. Source: Megatron-LM,
    ``core/models/gpt/gpt_layer_specs.py``, ``get_gpt_mtp_block_spec`` (``layer_specs[-1]``). With partial blocks it is
    attention, and then the last kind of MLP or experts (Nemotron 3, ``mtp_hybrid_override_pattern``).
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
    """Yield the kinds of block, each with the labels of its layers in lists; no labels if there is one kind."""
    kinds = kinds_of_block(model)
    for kind in kinds:
        yield kind, {"kind": kind.name, "blocks": kind.count} if len(kinds) > 1 else {}


@dataclass(frozen=True, slots=True)
class Totals:
    """Sizes of a segment on one rank, independent of hardware and parallelism.

    Attributes:
        parameters: Weights, biases and gains.
        active: Parameters that one token uses: only its own experts.
        matrices: Weights of matrices by which a token is multiplied, without the router (Megatron-LM, ``training.py``,
            ``num_floating_point_operations``).
        scores: FLOP per query and key of products with the score matrix of attention.
        states: FLOP per token of states of linear attention, as counted for MFU.
    """

    parameters: int
    active: int
    matrices: int
    scores: int
    states: float = 0.0


@lru_cache(maxsize=256)
def totals(model: Model, segment: Segment) -> Totals:
    """Return the sums over the layers of one segment on a single rank, with attention over the whole sequence."""
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
    # Products with all-zero weights are products of two activations, in attention.
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
    """Return the sums over all segments; a table that embedding and head share counts once as parameters."""
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
    """Return the sums over MTP modules; embedding and head belong to the model, and only their work repeats.

    Source: DeepSeek-V3, arXiv 2412.19437, section 2.2: a module has its own projection and block. It has three norms:
    of both inputs, and before the head.
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
    """Return the weights of a product by which one token is multiplied, without biases."""
    assert layer.product is not None
    batch, _, n, k = layer.product
    return round(_whole(batch) * _whole(n) * _whole(k) * layer.active)


def _whole(value: Number) -> int:
    """Return a size on one rank as an integer."""
    return int(np.asarray(value, float).max())


_PLAIN: dict[str, Any] = dict.fromkeys(LayoutChoice.__dataclass_fields__, False) | {
    field.name: field.default if field.declaration.optional else field.values[0]
    for field in spec_fields(Execution)
    if field.name in LayoutChoice.__dataclass_fields__
}
ONE_RANK = LayoutChoice(**_PLAIN | {"edition": CORRECTED.name, "datatype": "float16"})
"""Layout that leaves every layer of a model whole: defaults, in the edition that supports all fields of models."""
