"""Searches of executions whose risk of running out of memory is acceptable."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from calculon.base.errors import Problem, SpecError
from calculon.declarations.named_values import CORRECTED, PUBLISHED
from calculon.declarations.spellings import probability
from calculon.declarations.statistics import FITS, RISK, within_risk
from calculon.search.search_result import SearchResult

LEAST_RISK = 1e-3
"""Risk that is tried after one of 0."""


def search_within_risk(search: Callable[[str | None], SearchResult], risk: float) -> SearchResult:
    """Search executions within a risk; if there are none, within three times the risk, and so on.

    Args:
        search: Searches under a condition on the risk, as text; None is any risk.
        risk: Probability of running out of memory.
    """
    while True:
        found = search(within_risk(risk) if risk < 1 else None)
        if len(found) or risk >= 1 or not found.counts.good:
            return found
        risk = max(LEAST_RISK, 3 * risk)


def search_preferring(
    search: Callable[[str | None], SearchResult], risk: float | None
) -> SearchResult:
    """Search executions, those within a risk first; the best whatever its risk is then known as ``riskier``.

    Args:
        search: As in :func:`search_within_risk`.
        risk: Probability of running out of memory; None is any.
    """
    found = search(None)
    if risk is None or not len(found) or not (found.evaluation[FITS] < 1 - risk).any():
        return found
    within, best = search_within_risk(search, risk), int(found.numbers[0])
    return within if best == within.numbers[0] else replace(within, riskier=best)


def read_risk(risk: float | str) -> float:
    """Return a risk as a probability: a number, of which 1 accepts any risk, or a text.

    >>> read_risk("10%"), read_risk(0.25), read_risk(1)
    (0.1, 0.25, 1.0)
    """
    any_risk = risk == 1 and not isinstance(risk, str)
    return 1.0 if any_risk else probability(str(risk), "risk")


def preferred_risk(
    risk: float | str | None, edition: str, pareto: Sequence[str] | None, where: str | None
) -> float | None:
    """Return the risk that a search accepts first: the stated one, or that of recommended plans; None for any.

    Raises:
        SpecError: For no probability, and for a risk in an edition without risks.
    """
    if risk is None:
        return RISK if prefers_fitting(edition, pareto, where) else None
    if edition == PUBLISHED:
        hint = f"add edition={CORRECTED!r}"
        raise SpecError(
            "search", Problem("risk", f"edition {CORRECTED}", f"edition {edition}", hint)
        )
    return read_risk(risk)


def prefers_fitting(edition: str, pareto: Sequence[str] | None, where: str | None) -> bool:
    """Return whether a search prefers executions with little risk of running out of memory if no risk is stated."""
    return edition != PUBLISHED and not pareto and not states_risk(where)


def states_risk(where: str | None) -> bool:
    """Return whether a condition reads the probability of fitting.

    >>> states_risk("fits > 0.8 and total_time < 60"), states_risk("total_time < 60")
    (True, False)
    """
    return where is not None and re.search(rf"\b{FITS}\b", where) is not None


def both(first: str | None, second: str | None) -> str | None:
    """Return the condition that two conditions hold; None is no condition.

    >>> both("total_time < 60", "fits >= 0.9"), both(None, "fits >= 0.9")
    ('(total_time < 60) and (fits >= 0.9)', 'fits >= 0.9')
    """
    if first is None or second is None:
        return first or second
    return f"({first}) and ({second})"
