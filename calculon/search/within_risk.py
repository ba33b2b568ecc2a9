"""Searches limited to executions with an acceptable risk of running out of memory."""

import re
from collections.abc import Callable

from calculon.declarations.statistics import FITS, within_risk
from calculon.search.search_result import SearchResult

LEAST_RISK = 1e-3
"""Risk that is tried after a risk of 0."""


def search_within_risk(search: Callable[[str | None], SearchResult], risk: float) -> SearchResult:
    """Search executions within a risk; if there are none, triple the risk until some are found.

    Args:
        search: Search function that takes a condition on the risk as text, or None for any risk.
        risk: Probability of running out of memory.
    """
    while True:
        found = search(within_risk(risk) if risk < 1 else None)
        # If nothing fits at any risk, a higher limit cannot help.
        if len(found) or risk >= 1 or not found.counts.good:
            return found
        risk = max(LEAST_RISK, 3 * risk)


def states_risk(where: str | None) -> bool:
    """Return True if a condition reads the probability of fitting.

    >>> states_risk("fits > 0.8 and total_time < 60"), states_risk("total_time < 60")
    (True, False)
    """
    return where is not None and re.search(rf"\b{FITS}\b", where) is not None


def both(first: str | None, second: str | None) -> str | None:
    """Return the conjunction of two conditions; None is no condition.

    >>> both("total_time < 60", "fits >= 0.9"), both(None, "fits >= 0.9")
    ('(total_time < 60) and (fits >= 0.9)', 'fits >= 0.9')
    """
    if first is None or second is None:
        return first or second
    return f"({first}) and ({second})"
