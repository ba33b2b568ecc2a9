"""Searches limited to executions with an acceptable risk of running out of memory."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calculon.base.errors import Problem, SpecError
from calculon.declarations.named_values import CORRECTED, PUBLISHED
from calculon.declarations.spellings import probability
from calculon.declarations.statistics import FITS, RISK, within_risk

if TYPE_CHECKING:  # the options of searches read this module, and need no search
    from calculon.search.search_result import SearchResult

MIN_RISK = 1e-3
"""Risk that is tried after a risk of 0."""


def search_within_risk(
    search: "Callable[[str | None], SearchResult]", risk: float
) -> "SearchResult":
    """Search executions within a risk; if there are none, triple the risk until some are found.

    Args:
        search: Search function that takes a condition on the risk as text, or None for any risk.
        risk: Probability of running out of memory.
    """
    while True:
        result = search(within_risk(risk) if risk < 1 else None)
        # If nothing fits at any risk, a higher limit cannot help.
        if len(result) or risk >= 1 or not result.counts.good:
            return result
        risk = max(MIN_RISK, 3 * risk)


def search_preferring(
    search: "Callable[[str | None], SearchResult]", risk: float | None
) -> "SearchResult":
    """Search executions, preferably within a risk; ``riskier`` of the result is the best execution at any risk.

    Args:
        search: As in :func:`search_within_risk`.
        risk: Probability of running out of memory; None for any.
    """
    # Search without a limit first: in most cases the best plan is safe, and one search is enough.
    result = search(None)
    if risk is None or not len(result) or not (result.evaluation[FITS] < 1 - risk).any():
        return result
    within, best = search_within_risk(search, risk), int(result.numbers[0])
    return within if best == within.numbers[0] else replace(within, riskier=best)


def read_risk(risk: float | str) -> float:
    """Return a risk as a probability, from a number (1 accepts any risk) or a text.

    >>> read_risk("10%"), read_risk(0.25), read_risk(1)
    (0.1, 0.25, 1.0)
    """
    any_risk = risk == 1 and not isinstance(risk, str)
    return 1.0 if any_risk else probability(str(risk), "risk")


def preferred_risk(
    risk: float | str | None, edition: str, pareto: Sequence[str] | None, where: str | None
) -> float | None:
    """Return the risk limit that a search tries first: the stated one, or the limit of recommended plans; None for any.

    Raises:
        SpecError: For an invalid probability, and for a risk in an edition without risks.
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
    """Return True if a search prefers executions with little risk of running out of memory if no risk is stated."""
    return edition != PUBLISHED and not pareto and not states_risk(where)


def states_risk(where: str | None) -> bool:
    """Return True if a condition reads the probability of fitting.

    >>> states_risk("fits > 0.8 and total_time < 60"), states_risk("total_time < 60")
    (True, False)
    """
    return where is not None and re.search(rf"\b{FITS}\b", where) is not None


def joined_conditions(first: str | None, second: str | None) -> str | None:
    """Return the conjunction of two conditions; None is no condition.

    >>> joined_conditions("total_time < 60", "fits >= 0.9"), joined_conditions(None, "fits >= 0.9")
    ('(total_time < 60) and (fits >= 0.9)', 'fits >= 0.9')
    """
    if first is None or second is None:
        return first or second
    return f"({first}) and ({second})"
