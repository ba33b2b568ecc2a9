"""Search for deployments: the best by one figure, or a Pareto front of several."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from calculon import inputs
from calculon.base.errors import Problem, SpecError
from calculon.base.units import Array
from calculon.declarations import arguments
from calculon.declarations.model import Model
from calculon.declarations.spellings import processor_counts
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.search.conditions import Condition
from calculon.search.deployments.deployment_rows import Rows, shares, solve
from calculon.search.deployments.deployment_search import DeploymentCounts, DeploymentSearch
from calculon.search.deployments.deployment_space import ROWS, DeploymentSpace, Group
from calculon.search.deployments.deployment_vocabulary import (
    ANY,
    STATIC,
    checked,
    may_be_unknown,
    unknown_figure,
)
from calculon.search.deployments.deployment_vocabulary import condition as read_condition
from calculon.search.deployments.deployment_vocabulary import objective as read_objective
from calculon.search.ranking import Best, ParetoFront
from calculon.search.request import stated_fields
from calculon.serving.caches.cache import check_length, check_served
from calculon.serving.passes.replica import Replica
from calculon.serving.records.load import Workload
from calculon.serving.records.read_records import WorkloadSource, read_workload, usual_workload
from calculon.serving.states.operating_point import LATE

OBJECTIVE = "output_rate_per_proc"
"""Default objective. At a given request rate, the deployment with the fewest processors has the highest rate each."""

TIES = "interactivity"
"""Objective that breaks ties."""

FEW = 2**9
"""Deployments that are solved first: the best of them may prune the others."""

FEW_PAIRS = 2**4
"""Pairs of pools that are solved first: their bounds are close, so the best of them prune most others."""

SLACK = 1e-9
"""Relaxation of a bound: the last digits of a figure depend on the order of its products."""

STEPS = 1.1
"""Relaxation of a bound by a decode pass: the times of kernels have steps, where a larger batch may be faster."""

DIGITS = 40
"""Binary digits of equal scores: dividing a rate by the replicas and multiplying again changes the last digits."""


def searched(
    space: DeploymentSpace,
    objective: str = OBJECTIVE,
    top: int = 1,
    pareto: Sequence[str] = (),
    where: str | None = None,
) -> DeploymentSearch:
    """Search a space; arguments and errors as of :func:`~calculon.search_deployments`."""
    condition = None if where is None else read_condition(where)
    ranking = make_ranking(objective, top, pareto)
    result = run(space, ranking, condition)
    if result.unknown and not len(result):
        ranked = [one.statistic.name for one in result.objectives]
        asked = "objective" if result.unknown[0] in ranked else "where"
        raise unknown_figure(asked, result.unknown[0], space.system.name)
    return result


def make_space(
    model: Source | Model,
    num_procs: int | str | Sequence[int],
    system: Source | System,
    workload: WorkloadSource | None,
    options: Mapping[str, Any] | None = None,
    fix: Mapping[str, Any] | None = None,
    add: Mapping[str, Any] | None = None,
    *,
    vary_batch: bool = False,
    apart: bool = False,
    named: Sequence[str] = ("fix", "add"),
) -> DeploymentSpace:
    """Return the space of deployments; arguments and errors as of :func:`~calculon.search_deployments`."""
    found = inputs.model(model)
    check_served(found)
    fixed, added = (
        checked(name, stated_fields(name, values))
        for name, values in zip(named, (fix, add), strict=True)
    )
    if both := next((name for name in fixed if name in added), None):
        hint = f"{named[0]} lists all values to try"
        raise SpecError(
            named[1], Problem(both, f"a field that is not in {named[0]}", repr(both), hint)
        )
    load = read_workload(usual_workload(workload, options or {}), options)
    check_length(found, load)
    return DeploymentSpace(
        model=found,
        system=inputs.system(system),
        workload=load,
        counts=_counts(num_procs),
        fix=fixed,
        add=added,
        vary_batch=vary_batch,
        kinds=("together", "apart") if apart else ("together",),
    )


def _counts(asked: int | str | Sequence[int]) -> tuple[int, ...]:
    """Return the counts of a question; empty for the fewest processors."""
    if asked == ANY:
        return ()
    if isinstance(asked, str):
        return processor_counts(asked)
    several = asked if isinstance(asked, Iterable) else [asked]
    counts = [arguments.count(one, "num_procs", "search_deployments") for one in several]
    return processor_counts(",".join(map(str, counts)))


def make_ranking(
    objective: str = OBJECTIVE, top: int = 1, pareto: Sequence[str] = ()
) -> Best | ParetoFront:
    """Return the ranking of a search: the best by one figure, or a Pareto front of several.

    Raises:
        SpecError: For unknown figures, for a front of fewer than two figures, and for `top` below 1.
    """
    if pareto:
        if len(pareto) < 2 or len({text.partition(":")[0] for text in pareto}) < len(pareto):
            wanted = (
                "two different figures or more, such as ['output_rate_per_proc', 'interactivity']"
            )
            raise SpecError("search_deployments", Problem("pareto", wanted, repr([*pareto])))
        return ParetoFront([read_objective(text, "pareto") for text in pareto])
    asked = read_objective(objective)
    ties = [] if asked.statistic.name == TIES else [read_objective(TIES)]
    return Best(asked, arguments.count(top, "top", "search_deployments"), ties=ties)


def run(
    space: DeploymentSpace,
    ranking: Best | ParetoFront,
    where: Condition | None = None,
    *,
    prune: bool = True,
) -> DeploymentSearch:
    """Search a space.

    Args:
        space: The deployments.
        ranking: A fresh ranking.
        where: Condition that deployments must meet.
        prune: True to skip deployments whose score is known to be too low before their batch is solved.
    """
    search = _Search(space, ranking, where)
    brief = LATE.isdisjoint(search.named)
    bounds = [_bounds(space, group, ranking) if prune else None for group in space.groups]
    for group, bound in zip(space.groups, bounds, strict=True):
        if bound is not None:
            # Best bounds first: their results raise the threshold early, which prunes the rest.
            few = FEW_PAIRS if group.every.rates is not None else FEW
            parts = group.parts(np.lexsort(-bound[::-1]), few)
        elif shares(space, group):
            parts = group.parts_alike()
        else:
            parts = group.parts(np.argsort(group.engines, kind="stable"), ROWS)
        for places in parts:
            kept = places
            if bound is not None:
                kept = places[_may_enter(ranking, bound[:, places // group.settings])]
            if len(kept):
                search.consider(solve(space, group, kept, brief=brief))
    return search.result()


def _may_enter(ranking: Best | ParetoFront, bounds: Array) -> Array:
    """Return a mask of deployments that may enter a ranking, given bounds of their score and of the first tie."""
    score, tie = bounds
    if not np.isfinite(ranking.threshold) or len(ranking.scores) < len(bounds):
        return np.asarray(score >= ranking.threshold)
    better = score > ranking.threshold + 4 * SLACK * abs(ranking.threshold)
    # Equal scores may win by the tie-breaking objective.
    return np.asarray((score >= ranking.threshold) & (better | (tie >= ranking.scores[1, -1])))


class _Search:
    """State of a search: the ranking and the counts."""

    def __init__(
        self, space: DeploymentSpace, ranking: Best | ParetoFront, where: Condition | None
    ):
        self._space, self._ranking, self._where = space, ranking, where
        self._solved = self._unfit = self._missing = 0
        self._nearest: tuple[bool, float, int] | None = None
        self.named = [one.statistic.name for one in ranking.objectives]
        self.named += sorted(where.names) if where is not None else []
        self._unknown = {name: True for name in self.named if may_be_unknown(name)}

    def consider(self, rows: Rows) -> None:
        """Add solved deployments."""
        feasible, fits = rows.feasible, rows.fits
        self._solved += len(fits)
        self._unfit += int((~fits).sum())
        self._missing += int((fits & ~feasible).sum())
        if not feasible.any():
            self._note(rows)
            return
        for name, unknown in self._unknown.items():
            self._unknown[name] = unknown and bool(np.isnan(rows.value(name)[feasible]).all())
        kept = feasible
        if self._where is not None:
            kept = kept & np.broadcast_to(self._where.mask(rows.value), kept.shape)
        values = [one.value(rows.value(one.statistic.name)) for one in self._ranking.objectives]
        scores = rounded(np.stack(values))
        # A deployment without a figure cannot be ranked by it
        kept = kept & ~np.isnan(scores).any(axis=0)
        self._ranking.keep(scores[:, kept], rows.numbers[kept])

    def _note(self, rows: Rows) -> None:
        """Remember the deployment that is nearest to the limits."""
        place = np.lexsort((rows.numbers, rows.excess, ~rows.fits))[0]
        one = (not rows.fits[place], float(rows.excess[place]), int(rows.numbers[place]))
        self._nearest = one if self._nearest is None else min(one, self._nearest)

    def result(self) -> DeploymentSearch:
        """Return the result."""
        _, numbers = self._ranking.ranked()
        counts = DeploymentCounts(len(self._space), self._solved, self._unfit, self._missing)
        nearest = self._nearest[2] if self._nearest and not counts.feasible else None
        asked = self._ranking.objectives
        objectives = asked[:1] if isinstance(self._ranking, Best) else asked
        unknown = tuple(name for name, none in self._unknown.items() if none and counts.feasible)
        return DeploymentSearch(self._space, objectives, counts, numbers, nearest, unknown)


def rounded(scores: Array) -> Array:
    """Return scores rounded to :data:`DIGITS` binary digits."""
    digits, power = np.frexp(scores)
    return np.ldexp(np.round(np.ldexp(digits, DIGITS)), power - DIGITS)


def _bounds(space: DeploymentSpace, group: Group, ranking: Best | ParetoFront) -> Array | None:
    """Return upper bounds of the score and of the tie-breaking one, of shape ``(2, splits)``; None if unknown.

    The score follows from the rate of the load, or of matched pools: deployments that meet the limits answer all
    requests of a load, so their output rate is the output rate of the load.
    """
    objective, *ties = ranking.objectives
    w, figure = space.workload, objective.statistic.name
    rate: Array | float | None = group.every.rates if w.rate is None else w.rate
    if rate is None or figure not in _OF_A_RATE:
        return None
    known = objective.value(rate * _OF_A_RATE[figure](w) / group.splits[0])
    scores = known + SLACK * np.abs(known)
    fastest = np.full_like(scores, np.inf)
    if (
        w.rate is not None
        and isinstance(ranking, Best)
        and [one.statistic.name for one in ties] == [TIES]
    ):
        fastest = _fastest(space, group, w.rate)
    return np.stack([scores, fastest])


def _fastest(space: DeploymentSpace, group: Group, rate: float) -> Array:
    """Return an upper bound of the tokens per second of a user at a request rate, for each split.

    A token takes at least a decode pass of the fewest sequences that run at a time, which follow by Little's law from
    the time of a token of a single sequence.
    """
    further = group.scheduling[2:]  # token budgets and batches do not matter to decode passes
    if group.pools is not None or group.record.batching == STATIC or np.ptp(further, axis=1).any():
        return np.full(len(group.engines), np.inf)
    deployments = group.deployments(np.arange(len(group.engines)) * group.settings)
    replica = Replica(space.model, space.system, deployments, space.workload)
    token = replica.decode(np.ones(len(group.engines))) / replica.per_pass
    batch = np.floor(rate / deployments.replicas * (space.workload.output - 1) * token)
    return np.asarray(STEPS * replica.per_pass / replica.decode(np.maximum(1.0, batch)))


_OF_A_RATE: Mapping[str, Callable[[Workload], int]] = {
    "output_rate_per_proc": lambda w: w.output,
    "total_rate_per_proc": lambda w: w.prompt + w.output,
}
"""Tokens per request of figures that a request rate determines."""
