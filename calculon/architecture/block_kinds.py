"""Kinds of the blocks of a model, and which block is of which kind.

A kind is a model itself, of equal blocks: with experts in each or with an MLP in each; with linear attention, a sliding
window, or neither in each. Or, of a model whose blocks are parts (``layer_pattern``), the same part in each. So there
are four kinds at most.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from calculon.architecture.block import block_layers
from calculon.architecture.layers import Layer
from calculon.architecture.shape import BlockShape
from calculon.base.frozen import dataclass
from calculon.declarations.fields import optional_defaults
from calculon.declarations.hybrid_fields import OF_LINEAR, OF_SOFTMAX
from calculon.declarations.model import OF_EXPERTS, Model

PART_NAMES = {"M": "linear attention", "*": "attention", "-": "MLP", "E": "experts"}
"""How lists call parts of a ``layer_pattern``."""


@dataclass(frozen=True, slots=True)
class BlockKind:
    """A kind of block, attention part and feed-forward part: a generator of its layers.

    Attributes:
        experts: Whether it has experts, where the model has blocks with and without; None where all are alike.
        window: Whether its attention has a sliding window, likewise.
        linear: Whether its attention is linear, likewise.
        letter: Which part of a block it is, where blocks are parts.
    """

    experts: bool | None = None
    window: bool | None = None
    linear: bool | None = None
    letter: str = ""

    @property
    def name(self) -> str:
        """How lists call it."""
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
        """Yield the layers of a block of this kind in a shape of the whole model."""
        return block_layers(replace(shape, model=model_of_kind(shape.model, self)))


_WINDOWS = ("sliding_window", "full_attention_every", "chunked_window")

_EXPERTS = ("num_experts", *OF_EXPERTS)
_LACKED = {
    "M": (*OF_SOFTMAX, *_EXPERTS, "mlp_bias"),
    "*": (*OF_LINEAR, *_EXPERTS, "mlp_bias"),
    "-": (*OF_LINEAR, *OF_SOFTMAX, *_EXPERTS),
    "E": (*OF_LINEAR, *OF_SOFTMAX, "mlp_bias"),
}
"""Fields that say nothing of a part of a ``layer_pattern``."""


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
    """Return the kind of each block, from the first to the last; empty where all are alike.

    Blocks with and without a sliding window are told apart beside experts. Without experts all have the mean keys of a
    query (:func:`~calculon.architecture.attention.mean_keys`), which is the same where stages have whole groups.
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
