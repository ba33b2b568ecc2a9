"""Waterfalls between results of the command line: from the first of them to each of the others."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from calculon.apps.cli.estimated import Estimated
from calculon.apps.report.result import Result
from calculon.errors import Problem, SpecError

if TYPE_CHECKING:
    from calculon.apps.report.pictures.falls import Fall

LEAST = 2
"""Results that there are at least: a plan of one's own, and a better one."""


def waterfall_of(mine: Result, best: Result) -> dict[str, Any] | None:
    """Return the waterfall between two results as plain data; None where they are no plans of the same question."""
    from calculon.planner.waterfall import waterfall

    if not (isinstance(mine, Estimated) and isinstance(best, Estimated)):
        return None
    try:
        return waterfall(mine.estimate, best.estimate).to_dict()
    except SpecError:
        return None


def falls(arguments: argparse.Namespace) -> "list[Fall]":
    """Return what ``calculon plot waterfall`` draws: a waterfall from the first result to each of the others.

    Raises
    ------
    SpecError
        For fewer than two results, for results that cannot be estimated again, and for other models or systems.
    """
    from calculon.apps.cli.results import asked_results
    from calculon.planner.waterfall import waterfall

    results = asked_results(arguments)
    if len(results) < LEAST:
        wanted = f"{LEAST} results or more: a plan, and what it becomes"
        raise SpecError("plot", Problem("", wanted, str(len(results))))
    known = [one for one in results if isinstance(one, Estimated)]
    for one in results:
        if one not in known:
            wanted = "an execution whose model and system are known"
            hint = "give APP,EXE,SYS, or for the files of searches --model and --system"
            raise SpecError(one.label, Problem("", wanted, "statistics alone", hint))
    mine, *others = known
    pairs = ((best, waterfall(mine.estimate, best.estimate).to_dict()) for best in others)
    return [fall_of(mine, best, told) for best, told in pairs]


def fall_of(mine: Result, best: Result, told: dict[str, Any]) -> "Fall":
    """Return a waterfall between two results with what its picture says beside."""
    from calculon.apps.report.pictures.falls import Fall
    from calculon.apps.report.waterfall_section import digits_of_differences

    title = best.title if mine.title == best.title else f"{mine.title}, to {best.title}"
    return Fall(
        waterfall=told,
        names=(mine.label, best.label),
        title=f"{title}: one change at a time",
        terms=mine.terms,
        digits=digits_of_differences((mine.digits, best.digits)),
        capacity=None if best.capacities is None else best.capacities[0],
    )


def comparable(results: Sequence[Result]) -> list[tuple[Result, dict[str, Any]]]:
    """Return the results to which there is a waterfall from the first, each with it."""
    mine, *others = results
    found = ((best, waterfall_of(mine, best)) for best in others)
    return [(best, told) for best, told in found if told is not None and told["steps"]]
