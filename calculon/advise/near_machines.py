"""Best plans on slightly different machines, from two searches instead of one search per machine.

A better machine is never slower: higher rates, shorter times and larger memories increase no plan's time. Therefore,
the time of a plan on a worse machine is at least its time on the given machine, and its time on any better machine is
at least its time on the machine that combines all improvements. Plans whose lower bound exceeds the best known time on
a machine cannot be its best plans; the remaining ones are few enough to be evaluated on all machines.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from calculon.advise.elasticities import RATES, TIMES
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.statistics import FITS
from calculon.estimate.what_if import Change, what_if
from calculon.hardware.figures import figures_of, with_figures
from calculon.hardware.system import System
from calculon.plan.plan import Plan
from calculon.search.conditions import Condition
from calculon.search.driver import run
from calculon.search.objective import Objective
from calculon.search.ranking import Best
from calculon.search.space import Space

SIZES = ("GiB",)
"""Units of parameters that let more plans fit when they grow, without changing any time."""

MAX_PLANS = 8_192
"""Maximum number of plans evaluated on each machine; with more candidates, a search per machine is as fast."""

ROWS = 16_384
"""Pairs of plan and machine evaluated at once: each takes about two kilobytes, the block about 32 MB."""

SLACK = 2e-3
"""Relative tolerance for violations of the law that a better machine is never slower."""

TIME = Objective.parse("total_time")


def memory_condition(least: float) -> Condition | None:
    """Return the condition that executions fit in memory with at least a probability; None for 0."""
    return Condition.parse(f"{FITS} >= {least!r}") if least > 0 else None


SpaceOf = Callable[[System], Space]
"""Function that returns the search space on a machine, with the same numbering of executions on each."""


@dataclass(frozen=True, slots=True)
class BestPlan:
    """Best plan on a machine.

    Attributes:
        score: Negative time in seconds.
        number: Number of the plan in the space.
    """

    score: float
    number: int


@dataclass(frozen=True, slots=True)
class _Listed:
    """Plans whose time on a machine is at most a limit.

    Attributes:
        numbers, times, switches (shape (plans,)): Numbers of the plans, their times on this machine (ascending), and
            their numbers of enabled switches.
        limit: Lower bound in seconds of the time of all other plans.
    """

    numbers: Array
    times: Array
    switches: Array
    limit: float


def change_key(change: Change) -> Hashable:
    """Return a hashable key of a change."""
    return tuple(sorted(change.items()))


def best_of_each(
    searched: SpaceOf,
    system: System,
    changes: Sequence[Change],
    times: Sequence[float],
    least: float = 0.0,
) -> dict[Hashable, BestPlan | None]:
    """Return the best plan, by the time of a step, on a system and on variants with each change.

    Args:
        searched: Function that returns the search space on a system.
        system: System whose parameters change.
        changes: New values of one parameter each, in the units of the file; the first change is empty.
        times: Time in seconds of a known plan with each change, NaN if it cannot run there; slower plans are of no
            interest.
        least: Lowest acceptable probability of fitting in memory.

    Returns:
        Best plan by :func:`change_key`; None if none is faster than the known plan. Changes are omitted if the law does
        not apply to them, or if the two searches do not determine their best plan.
    """
    known = dict(zip(map(change_key, changes), times, strict=True))
    worse, better = _sides(system, changes)
    space = searched(system)
    result: dict[Hashable, BestPlan | None] = {}
    for side, there in ((worse, system), (better, _best_machine(system, better))):
        if not side:
            continue
        limits = {change_key(one): known[change_key(one)] for one in side}
        most = max((one for one in limits.values() if math.isfinite(one)), default=math.inf)
        listed = _listed(searched(there), most, least)
        result |= _best_of_listed(space, system, side, listed, limits, least)
    return result


def _sides(system: System, changes: Sequence[Change]) -> tuple[list[Change], list[Change]]:
    """Return the changes that do not improve a system, and the changes that improve it; counts are in neither."""
    figures = figures_of(system)
    worse: list[Change] = []
    better: list[Change] = []
    for change in changes:
        signs = set()
        for path, value in change.items():
            one = figures[path]
            sign = {**dict.fromkeys((*RATES, *SIZES), 1), **dict.fromkeys(TIMES, -1)}.get(one.unit)
            # A value of 0 may disable a part, which the law does not cover.
            signs.add(None if sign is None or value == 0 else sign * (value - one.value) > 0)
        if signs <= {False}:
            worse.append(change)
        elif signs == {True}:
            better.append(change)
    return worse, better


def _best_machine(system: System, better: Sequence[Change]) -> System:
    """Return the system with all improvements at once."""
    figures = figures_of(system)
    together: dict[str, float] = {}
    for change in better:
        for path, value in change.items():
            # Several changes may improve the same parameter: the best value bounds them all.
            further = max if figures[path].unit not in TIMES else min
            together[path] = further(value, together.get(path, value))
    return with_figures(system, together) if together else system


def _listed(space: Space, limit: float, least: float) -> _Listed:
    """Return the plans of a space up to a time limit, restricted to the fastest ones if there are many."""
    # More memory raises the probability of fitting: the list has the candidates of every machine that is not better.
    ranking = Best(TIME, MAX_PLANS, memory_condition(least))
    # Scores are negative times: the search may skip everything slower than the known plan.
    ranking.threshold = -limit * (1 + SLACK)
    found = run(space, ranking)
    numbers, times = found.numbers, -found.scores[0]
    # If the list is full, slower plans may be missing: it is complete only up to its last time.
    complete = limit if len(numbers) < MAX_PLANS else float(times[-1]) * (1 - SLACK)
    return _Listed(numbers, times, space.switches_on(numbers), complete)


def _best_of_listed(
    space: Space,
    system: System,
    changes: Sequence[Change],
    listed: _Listed,
    known: Mapping[Hashable, float],
    least: float,
) -> dict[Hashable, BestPlan | None]:
    """Return the best listed plan on each changed system, if no other plan can be better."""
    plan = space.plan(listed.numbers)
    limits = [known[change_key(one)] for one in changes]
    limits = [one if math.isfinite(one) else math.inf for one in limits]
    if len(plan):  # the fastest plan here is rarely slow on a similar machine: a tight first limit
        fastest = [np.zeros(1, np.int64)] * len(changes)
        firsts = _on_each(space, system, plan, changes, fastest, least)
        limits = [min(limit, float(one[0])) for limit, one in zip(limits, firsts, strict=True)]
    known_enough = [limit <= listed.limit or limit == math.inf for limit in limits]
    changes = [one for one, enough in zip(changes, known_enough, strict=True) if enough]
    limits = [one for one, enough in zip(limits, known_enough, strict=True) if enough]
    chosen = [np.flatnonzero(listed.times <= limit * (1 + SLACK)) for limit in limits]
    times = _on_each(space, system, plan, changes, chosen, least)
    result: dict[Hashable, BestPlan | None] = {}
    for one, places, taken, limit in zip(changes, chosen, times, limits, strict=True):
        # Ties are broken as in a search: fewest enabled switches, then the lowest number.
        order = np.lexsort((listed.numbers[places], listed.switches[places], taken))
        best = order[0] if len(order) and taken[order[0]] < math.inf else None
        if limit <= listed.limit or (best is not None and taken[best] <= listed.limit):
            of_plan = None if best is None else int(listed.numbers[places[best]])
            result[change_key(one)] = (
                None if of_plan is None else BestPlan(-float(taken[best]), of_plan)
            )
    return result


def _on_each(
    space: Space,
    system: System,
    plan: Plan,
    changes: Sequence[Change],
    chosen: Sequence[Array],
    least: float,
) -> list[Array]:
    """Return the times of the chosen plans with each change; infinite if they fit with less than a probability."""
    places = np.concatenate([np.zeros(0, np.int64), *chosen])
    of_change = np.repeat(np.arange(len(changes)), [len(one) for one in chosen])
    times = np.zeros(len(places))
    for start in range(0, len(places), ROWS):
        some = slice(start, start + ROWS)
        rows = [changes[i] for i in of_change[some].tolist()]
        found = what_if(space.model, plan.take(places[some]), system, rows, edition=space.edition)
        # Plans that exceed memory by less than its error have times, too, but are no candidates.
        times[some] = np.where(found[FITS] < least, math.inf, found[TIME.statistic.name])
    times[np.isnan(times)] = math.inf
    ends = np.cumsum([len(one) for one in chosen])
    return [times[end - len(one) : end] for one, end in zip(chosen, ends, strict=True)]
