"""The best plans on machines that differ little from one, from two searches instead of one for each machine.

A better machine is never slower: higher rates, shorter times and larger memories make no plan take longer. So what a
plan takes on a worse machine is no less than on the one that is given, and on any better machine no less than on the
one that is better in all figures at once. Plans that take longer than the best known plan of a machine by these bounds
are not among its best, whatever they take there; the others are few enough to be evaluated on all machines.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from calculon.advise.elasticities import RATES, TIMES
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.estimate.what_if import Change, what_if
from calculon.hardware.figures import figures_of, with_figures
from calculon.hardware.system import System
from calculon.plan.plan import Plan
from calculon.search.driver import run
from calculon.search.objective import Objective
from calculon.search.ranking import Best
from calculon.search.space import Space

SIZES = ("GiB",)
"""Units of figures of which more lets more plans fit, and changes the time of none."""

MOST_PLANS = 8_192
"""Plans that are evaluated on each machine; where more may be the best, a search of the machine is as quick."""

ROWS = 16_384
"""Plans, each on its machine, that are evaluated at once: each takes about two kilobytes."""

SLACK = 2e-3
"""Share of a time by which a better machine may be slower in spite of the law, for all that is relied on it."""

TIME = Objective.parse("total_time")

Searched = Callable[[System], Space]
"""Returns what is searched on a machine, the same executions by the same numbers on each."""


@dataclass(frozen=True, slots=True)
class Found:
    """The best plan of a machine.

    Attributes:
        score: Less its time in seconds.
        number: Its number in the space.
    """

    score: float
    number: int


@dataclass(frozen=True, slots=True)
class _Listed:
    """The plans whose time on a machine is at most a limit.

    Attributes:
        numbers, times, switches (shape (plans,)): Their numbers, their times on this machine, the shortest first, and
            how many switches they have on.
        limit: All others take longer, in seconds.
    """

    numbers: Array
    times: Array
    switches: Array
    limit: float


def key_of(change: Change) -> Hashable:
    """Return what tells changes apart."""
    return tuple(sorted(change.items()))


def best_of_each(
    searched: Searched, system: System, changes: Sequence[Change], times: Sequence[float]
) -> dict[Hashable, Found | None]:
    """Return the best plan on a system and on that with each change, by the time of a step.

    Args:
        searched: Returns the space of a system.
        system: The system of which figures are changed.
        changes: New values of one figure each, in the units of the file; the first is that of none.
        times: Time in seconds of a known plan with each change, not-a-number where it cannot run there: slower plans
            are of no interest.

    Returns:
        By :func:`key_of` the best plan; None where none is faster than the known one. Changes of which the law says
        nothing are left out, and those for whose best plan more has to be searched.
    """
    known = dict(zip(map(key_of, changes), times, strict=True))
    worse, better = _sides(system, changes)
    space = searched(system)
    found: dict[Hashable, Found | None] = {}
    for side, there in ((worse, system), (better, _best_machine(system, better))):
        if not side:
            continue
        limits = {key_of(one): known[key_of(one)] for one in side}
        most = max((one for one in limits.values() if math.isfinite(one)), default=math.inf)
        listed = _listed(searched(there), most)
        found |= _best_of_listed(space, system, side, listed, limits)
    return found


def _sides(system: System, changes: Sequence[Change]) -> tuple[list[Change], list[Change]]:
    """Return the changes that make a system no better, and those that make it better; counts may do either."""
    figures = figures_of(system)
    worse: list[Change] = []
    better: list[Change] = []
    for change in changes:
        signs = set()
        for path, value in change.items():
            one = figures[path]
            sign = {**dict.fromkeys((*RATES, *SIZES), 1), **dict.fromkeys(TIMES, -1)}.get(one.unit)
            signs.add(None if sign is None or value == 0 else sign * (value - one.value) > 0)
        if signs <= {False}:
            worse.append(change)
        elif signs == {True}:
            better.append(change)
    return worse, better


def _best_machine(system: System, better: Sequence[Change]) -> System:
    """Return the system with all changes for the better at once."""
    figures = figures_of(system)
    together: dict[str, float] = {}
    for change in better:
        for path, value in change.items():
            further = max if figures[path].unit not in TIMES else min
            together[path] = further(value, together.get(path, value))
    return with_figures(system, together) if together else system


def _listed(space: Space, limit: float) -> _Listed:
    """Return the plans of a space up to a time; of very many the fastest."""
    ranking = Best(TIME, MOST_PLANS)
    ranking.threshold = -limit * (1 + SLACK)
    found = run(space, ranking)
    numbers, times = found.numbers, -found.scores[0]
    complete = limit if len(numbers) < MOST_PLANS else float(times[-1]) * (1 - SLACK)
    return _Listed(numbers, times, space.switches_on(numbers), complete)


def _best_of_listed(
    space: Space,
    system: System,
    changes: Sequence[Change],
    listed: _Listed,
    known: Mapping[Hashable, float],
) -> dict[Hashable, Found | None]:
    """Return the best of the listed plans on each changed system, where none that is not listed can be better."""
    plan = space.plan(listed.numbers)
    limits = [known[key_of(one)] for one in changes]
    limits = [one if math.isfinite(one) else math.inf for one in limits]
    if len(plan):  # the fastest of all is seldom slow elsewhere
        fastest = [np.zeros(1, np.int64)] * len(changes)
        firsts = _on_each(space, system, plan, changes, fastest)
        limits = [min(limit, float(one[0])) for limit, one in zip(limits, firsts, strict=True)]
    known_enough = [limit <= listed.limit or limit == math.inf for limit in limits]
    changes = [one for one, enough in zip(changes, known_enough, strict=True) if enough]
    limits = [one for one, enough in zip(limits, known_enough, strict=True) if enough]
    chosen = [np.flatnonzero(listed.times <= limit * (1 + SLACK)) for limit in limits]
    times = _on_each(space, system, plan, changes, chosen)
    found: dict[Hashable, Found | None] = {}
    for one, places, taken, limit in zip(changes, chosen, times, limits, strict=True):
        order = np.lexsort((listed.numbers[places], listed.switches[places], taken))
        best = order[0] if len(order) and taken[order[0]] < math.inf else None
        if limit <= listed.limit or (best is not None and taken[best] <= listed.limit):
            of_plan = None if best is None else int(listed.numbers[places[best]])
            found[key_of(one)] = None if of_plan is None else Found(-float(taken[best]), of_plan)
    return found


def _on_each(
    space: Space, system: System, plan: Plan, changes: Sequence[Change], chosen: Sequence[Array]
) -> list[Array]:
    """Return the times of some plans of a table, by their places, with each change; infinite where they do not fit."""
    places = np.concatenate([np.zeros(0, np.int64), *chosen])
    of_change = np.repeat(np.arange(len(changes)), [len(one) for one in chosen])
    times = np.zeros(len(places))
    for start in range(0, len(places), ROWS):
        some = slice(start, start + ROWS)
        rows = [changes[i] for i in of_change[some].tolist()]
        found = what_if(space.model, plan.take(places[some]), system, rows, edition=space.edition)
        times[some] = found[TIME.statistic.name]
    times[np.isnan(times)] = math.inf
    ends = np.cumsum([len(one) for one in chosen])
    return [times[end - len(one) : end] for one, end in zip(chosen, ends, strict=True)]
