"""Comparison of named results."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.documents.result import Result
from calculon.documents.settings import settings_changes
from calculon.documents.waterfalls import Estimated, comparable

if TYPE_CHECKING:
    from calculon.documents.comparison import Comparison


def compared(results: Sequence[Result], dialect: str = "") -> "Comparison":
    """Compare results with the first.

    Args:
        results: The results.
        dialect: Launcher in whose settings differences are expressed; by default the launcher of the first launch file.

    Raises:
        SpecError: For fewer than two results, for more results than letters, and as :func:`settings_changes`.
    """
    from calculon.documents.comparison import MOST, Comparison

    if not 2 <= len(results) <= MOST:
        wanted = f"2 to {MOST} results to compare"
        raise SpecError("compare", Problem("", wanted, str(len(results))))
    ways = {results.index(best): text for best, text in comparable(results)}
    number, changes = settings_changes(results, dialect)
    return Comparison(results, orders_of(results), ways, number, changes)


def orders_of(results: Sequence[Result]) -> dict[int, dict[str, Any]]:
    """Return, by the number of a result, the confidence that the first is faster, if their times share their errors.

    Times share errors for one model on one system under one preset. Results without intervals are left out.
    """
    from calculon.documents.comparison import machine

    first = results[0]
    alike = [
        i
        for i, one in enumerate(results[1:], start=1)
        if first.interval and one.interval and machine(one) == machine(first)
    ]
    if not alike:
        return {}
    from calculon.estimate.comparison_confidence import NEEDED, orders, orders_of_stats
    from calculon.plan.plan import Plan

    several = [first, *(results[i] for i in alike)]
    # Estimates can compare their exact parts; results from files only have statistics.
    known = [one.estimate for one in several if isinstance(one, Estimated)]
    if len(known) == len(several):
        plans = Plan.from_records([one.execution for one in known])
        stats = {name: np.array([one.value(name) for one in several]) for name in NEEDED}
        found = orders(known[0].model, known[0].system, plans, stats)
    else:
        found = orders_of_stats([one.stats for one in several])
    return {i: order.to_dict() for i, order in zip(alike, found[1:], strict=True)}


def labeled(found: Sequence[Result], *, several_editions: bool = False) -> list[Result]:
    """Give each result a name: its own label, or else the parts that distinguish it from other unlabeled results.

    Args:
        found: The results.
        several_editions: The last part of each is its edition, because each was requested in several editions.
    """
    unnamed = [one.parts for one in found if not one.label]
    mixed = len(unnamed) < len(found)  # next to labeled results, an edition alone is unclear
    shared = set() if several_editions and mixed else _shared(unnamed)
    named = []
    for one in found:
        parts = [part for i, part in enumerate(one.parts) if i not in shared] or one.parts
        named.append(replace(one, label=one.label or ", ".join(parts)))
    return named


def _shared(names: Sequence[tuple[str, ...]]) -> set[int]:
    """Return the positions of parts that all names have in common."""
    if len(names) < 2 or len(set(map(len, names))) > 1:
        return set()
    return {i for i, parts in enumerate(zip(*names, strict=True)) if len(set(parts)) == 1}
