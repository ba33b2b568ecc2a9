"""Lines about whole runs in search commands: prediction intervals, assumptions, and missed limits."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calculon.base.units import between
from calculon.declarations.run_figures import RUN_FIGURES
from calculon.declarations.statistics import BOUNDS
from calculon.render.digits import Digits

if TYPE_CHECKING:
    from calculon.render.document import Styled
    from calculon.search.space import Space
    from calculon.search.training_runs import TrainingRuns

_TOLD = ("days", "usd")
"""Figures whose interval is reported."""


def assumed_of_run(runs: "Sequence[TrainingRuns]") -> "Styled":
    """Return the campaign defaults of some searches and the price on each system, with their sources.

    Values that differ between campaigns are listed for each of them.
    """
    from calculon.campaign.assumed import assumed_defaults
    from calculon.documents.run_defaults import defaults_line
    from calculon.render.document import dim

    # dict.fromkeys removes duplicates and keeps the order.
    machines = list(dict.fromkeys(one.system.name for one in runs))
    campaigns = {id(one.campaign): one.campaign for one in runs}
    rows = {
        (row["field"], str(row["value"])): row
        for campaign in campaigns.values()
        for row in assumed_defaults(campaign, machines)
    }
    several = len(machines) > 1
    pairs = {(id(one.campaign), id(one.system)): one for one in runs}
    prices = {}
    for one in pairs.values():
        if (price := one.price) is not None:
            name = one.system.name if several else ""
            prices[name, str(price)] = {**price, "system": name}
    return dim(defaults_line(rows.values(), prices.values()))


def interval_of_run(execution: Mapping[str, Any], stats: Mapping[str, Any]) -> str:
    """Return the intervals of a run's days and dollars that follow from its step time's interval; empty if unknown.

    >>> interval_of_run(
    ...     {"num_procs": 8},
    ...     {"total_time": 1.0, "total_time_low": 0.9, "total_time_high": 1.2, "days": 100.0, "usd": None},
    ... )
    '90 % interval of the first: 90 to 120 d'
    """
    total, (low, high) = stats["total_time"], map(stats.get, BOUNDS)
    if low is None or high is None:
        return ""
    digits = Digits.within(total, low, high)
    parts = []
    for name in _TOLD:
        if (value := stats.get(name)) is not None:
            ends = (digits.rate(value * end / total, like=value) for end in (low, high))
            parts.append(f"{between(*ends)} {RUN_FIGURES[name].unit.symbol}")
    return f"90 % interval of the first: {', '.join(parts)}" if parts else ""


def missed(space: "Space", good: int) -> Iterator[str]:
    """Report by how much the best run of a space misses each limit of its campaign.

    Args:
        space: Search space of whole runs, none of which meets all limits.
        good: Number of feasible executions in it.
    """
    from calculon.campaign.limits import LIMITED, limits
    from calculon.search.driver import run as search
    from calculon.search.objective import Objective
    from calculon.search.ranking import Best

    campaign, procs = space.campaign, f"{space.num_procs:,} processors"
    stated = {n: f for n, f in LIMITED.items() if campaign and getattr(campaign, n) is not None}
    if campaign is None or not good or not stated:
        return
    alone = 0
    for name, figure in stated.items():
        least = search(space, Best(Objective.parse(f"{figure}:min", whole_runs=True), 1))
        (_, stats), *_ = least.winners()
        (limit,) = (one for one in limits(campaign, stats) if one.field == name)
        alone += limit.met
        if not limit.met:
            yield f"On {procs} the best run in {figure} misses {limit.in_words}"
    if alone == len(stated) > 1:
        yield f"On {procs} every limit is met by some run, but no run meets all of them"
