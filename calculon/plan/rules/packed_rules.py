"""What packed sequences need: attention whose kernel knows where documents begin, and documents that can be unequal."""

from typing import Any

import numpy as np

from calculon.base.errors import Problem
from calculon.base.units import Array
from calculon.plan.rules.rule import Request, Requests, Rule, expected

_WHOLE = 100
"""Percent of a sequence that its only document has."""


def _several(r: Requests) -> Any:
    return r.plan.packed_percent < _WHOLE


def _largest(packed_percent: Any, parts: Any) -> Any:
    """Return the largest imbalance, in percent: all sequences of the slowest rank are one document each.

    Where ranks have parts of sequences and documents stay whole (`parts` above 1), it may have the last of them, which
    sees ``(2 c - 1) / c`` times the mean (Megatron-LM, ``--cp-comm-type all_gather``).
    """
    return _WHOLE * _WHOLE * (2 * parts - 1) // (parts * packed_percent)


def _parts(r: Requests) -> Array:
    """Parts of sequences whose documents stay whole: rings split each document, and exchanges of heads gather it."""
    gathers = r.plan.is_choice("cp_comm", "all_gather")
    return np.where(gathers, np.asarray(r.plan.context_par, np.int64), 1)


def _explain_largest(one: Request) -> Problem:
    e = one.execution
    parts = e.context_par if e.cp_comm == "all_gather" else 1
    factor = f" x (2 x {parts} - 1) / {parts}" if parts > 1 else ""
    wanted = (
        f"at most 100 x 100 / packed_percent{factor} = {_largest(e.packed_percent, parts)}, where every sequence of "
        "the slowest rank is one document"
    )
    return Problem("pack_imbalance_percent", wanted, str(e.pack_imbalance_percent))


PACKED_RULES = (
    Rule(
        "packed_needs_attention",
        lambda r: ~_several(r) | np.array(r.model.has_softmax),
        expected("packed_percent", "100, since {model.name} has no attention with softmax"),
        ("packed_percent",),
    ),
    Rule(
        "packed_needs_flash",
        lambda r: ~_several(r) | r.plan.is_choice("attn_impl", "flash"),
        expected(
            "packed_percent",
            "100, unless attn_impl is flash",
            "eager attention computes and stores the scores of whole sequences, between documents too",
        ),
        ("packed_percent",),
    ),
    Rule(
        "pack_imbalance_needs_documents",
        lambda r: _several(r) | (r.plan.pack_imbalance_percent == _WHOLE),
        expected(
            "pack_imbalance_percent",
            "100, unless packed_percent is below 100",
            "sequences of one document each are the same work",
        ),
        ("pack_imbalance_percent",),
    ),
    Rule(
        "pack_imbalance_largest",
        lambda r: r.plan.pack_imbalance_percent <= _largest(r.plan.packed_percent, _parts(r)),
        _explain_largest,
        ("pack_imbalance_percent",),
    ),
)
"""Requirements of packed sequences, in the order of checking."""
