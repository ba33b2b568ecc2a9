"""How blocks are laid out over pipeline stages, and how microbatches go through them."""

from typing import Any

import numpy as np

from calculon.plan.plan import code
from calculon.records import record
from calculon.spec.model import Model
from calculon.units import Array, Count

STAGE_FIELDS = (
    "pp_schedule",
    "pp_layout",
    "first_stage_blocks",
    "last_stage_blocks",
    "p2p_overlap",
)
"""Fields of an execution that this is about; 0 and false are their defaults, also as codes."""

_GPIPE, _ZERO_BUBBLE = code("pp_schedule", "gpipe"), code("pp_schedule", "zb_h1")
_BALANCED = code("pp_layout", "balanced")


@record
class Stages:
    """The pipeline of executions, where some of them state a schedule, a layout or overlap.

    Attributes
    ----------
    stated : array of bool
        The schedule or the layout is not the published one.
    uneven : array of bool
        The layout is not the published one: stages have whole blocks each, and any may be the slowest.
    gpipe, zero_bubble : array of bool
        The schedule; 1F1B where it is neither.
    overlap : array of bool
        Transfers between stages happen beside their passes.
    first, last : array
        Blocks of the first and of the last stage; both all of them where there is one stage.
    low, high, more : array
        Blocks of the stages between them: `more` have `high`, the others `low`.
    """

    stated: Array
    uneven: Array
    gpipe: Array
    zero_bubble: Array
    overlap: Array
    first: Count
    last: Count
    low: Count
    high: Count
    more: Count

    @classmethod
    def of(
        cls, columns: Any, pipeline_par: Count, recompute_all: Array, model: Model
    ) -> "Stages | None":
        """Return the pipeline of executions whose fields are attributes; None where all are as published."""
        if not any(np.count_nonzero(getattr(columns, name)) for name in STAGE_FIELDS):
            return None
        balanced = columns.pp_layout == _BALANCED
        given = columns.first_stage_blocks, columns.last_stage_blocks
        uneven = balanced | (given[0] > 0) | (given[1] > 0)
        gpipe, zero_bubble = (columns.pp_schedule == c for c in (_GPIPE, _ZERO_BUBBLE))
        first, last = _outer(balanced, given, pipeline_par, recompute_all, model)
        between = np.maximum(pipeline_par - 2, 1)
        rest = np.where(pipeline_par > 2, model.num_blocks - first - last, 0)
        low = np.floor(rest / between)
        more = rest - low * between
        return cls(
            stated=uneven | gpipe | zero_bubble,
            uneven=uneven,
            gpipe=gpipe,
            zero_bubble=zero_bubble,
            overlap=columns.p2p_overlap,
            first=first,
            last=last,
            low=low,
            high=low + (more > 0),
            more=more,
        )

    def mean(self, pipeline_par: Count) -> Count:
        """Blocks of a stage, the mean."""
        between = np.where(pipeline_par > 2, self.low * (pipeline_par - 2) + self.more, 0.0)
        outer = np.where(pipeline_par > 1, self.first + self.last, self.last)
        found: Count = (outer + between) / pipeline_par
        return found

    @property
    def largest(self) -> Count:
        """Blocks of the stage that has most."""
        found: Count = np.maximum(np.maximum(self.first, self.last), self.high)
        return found


def head_blocks(model: Model) -> float:
    """Return how many blocks the output head is worth, by the weights of its products.

    >>> from calculon import inputs
    >>> round(head_blocks(inputs.model("llama3-8B")), 2)
    2.41
    """
    heads = 2 * model.attn_heads + 2 * model.key_value_heads
    attention = model.hidden * model.attn_size * heads
    mlp = (3 if model.gated else 2) * model.hidden * model.feedforward
    return model.vocab * model.hidden / (attention + mlp)


def _outer(
    balanced: Array,
    given: tuple[Count, Count],
    pipeline_par: Count,
    recompute_all: Array,
    model: Model,
) -> tuple[Count, Count]:
    """Return blocks of the first and of the last stage.

    What is not stated is shared evenly among the other stages, of which the first is one that has least: it holds most
    microbatches. Full recomputation computes each block's products four times where the head's are computed thrice.
    """
    total = float(model.num_blocks)
    others = np.maximum(pipeline_par - 1, 1)
    head = head_blocks(model) * np.where(recompute_all, 3 / 4, 1.0)
    first, last = (np.asarray(blocks, float) for blocks in given)
    uniform = np.ceil(total / pipeline_par)
    after_first = np.where(first > 0, np.floor((total - first) / others), uniform)
    even = np.where(balanced, _balanced(total, pipeline_par, head), after_first)
    last = np.where(last > 0, last, even)
    first = np.where(first > 0, first, np.floor((total - last) / others))
    piped = pipeline_par > 1
    return np.where(piped, first, total), np.where(piped, last, total)


def _balanced(total: float, pipeline_par: Count, head: Array) -> Count:
    """Return the blocks of the last stage that minimise the largest stage, where the head counts as so many.

    Of those with the same largest stage it is the most: the other stages, which hold more microbatches, have less.
    """
    others = np.maximum(pipeline_par - 1, 1)
    most = np.maximum(total - others, 1)
    even = np.floor((total + head) / pipeline_par - head)

    def largest(last: Count) -> Count:
        found: Count = np.maximum(np.ceil((total - last) / others), last + head)
        return found

    one, other = (np.clip(even + more, 1, most) for more in (0, 1))
    best = np.where(largest(one) <= largest(other), one, other)
    found: Count = np.clip(np.floor(largest(best) - head), best, most)
    return found
