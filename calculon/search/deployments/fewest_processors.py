"""Fewest processors that answer a request rate, or a number of users, within the limits."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count
from calculon.search.deployments.deployment_search import DeploymentSearch
from calculon.search.deployments.deployment_space import DeploymentSpace, Group
from calculon.search.deployments.deployment_vocabulary import ANY, SPLIT
from calculon.search.deployments.serving_search import searched
from calculon.serving.passes.replica import Replica
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.load import SATURATED, Workload
from calculon.serving.serve import serve
from calculon.serving.states.operating_point import OperatingPointSolver
from calculon.serving.states.served_points import Points

NODES = 8
"""Nodes of the largest replica that is tried. Smaller ones divide them, so that replicas fill nodes."""

MOST = 2**17
"""Largest number of processors that is tried."""

AT_FIRST = 64
"""Replicas that are tried first: those with the smallest lower bounds, which limit the number of all others."""

SLACK = 0.98
"""Relaxation of the lower bound of the replicas: batches are whole sequences, and times have steps."""


@dataclass(frozen=True)
class Fleet:
    """The fewest processors that are sufficient, and what fewer would miss.

    Attributes:
        found: Deployments on the fewest processors, best first.
        missed: What the next smaller deployment misses, in words; empty if there is no smaller one.
    """

    found: DeploymentSearch
    missed: str


def fewest(space: DeploymentSpace, top: int = 1) -> Fleet:
    """Return the best deployment on the fewest processors.

    The number of replicas of each split and scheduler is bisected: a further replica never misses a limit that fewer
    keep. Replicas divide :data:`NODES` nodes. Splits whose lower bound exceeds the fewest processors so far are not
    solved, so that the cost does not depend on the number of replicas.

    Args:
        space: Deployments; their counts are ignored.
        top: Number of the best deployments on the fewest processors to return.

    Raises:
        SpecError: For a load without a rate or users, which any processor count answers.
        Infeasible: If the limits cannot be met with :data:`MOST` processors.
    """
    if space.workload.kind == SATURATED:
        hint = "a saturating load has no smallest count: state one, such as 8"
        wanted = "a load for the fewest processors: --rate or --users"
        raise SpecError("num_procs", Problem("", wanted, "neither", hint))
    reach = largest_replica(space)
    alone = replace(space, counts=(reach,), kinds=("alone",))
    least = MOST + 1
    for group in alone.groups:
        least = min(least, _fewest_of(alone, group, least))
    if least > MOST:
        raise _why(replace(space, counts=(reach,)))
    found = searched(replace(space, counts=(least,)), top=top)
    return Fleet(found, _missed(space, found.deployments[0]))


def largest_replica(space: DeploymentSpace) -> int:
    """Return the processors of the largest replica that a search for the fewest processors tries."""
    return NODES * space.system.networks[0].size


def check_fewest(others: Mapping[str, Any]) -> None:
    """Raise SpecError if a search for the fewest processors has another objective, or a condition, by argument."""
    if stated := [name for name, value in others.items() if value]:
        hint = f"state counts for {stated[0]}, such as 8-64"
        wanted = "counts, as any finds the fewest processors within the limits"
        raise SpecError("num_procs", Problem("", wanted, repr(ANY), hint))


def _missed(space: DeploymentSpace, best: Deployment) -> str:
    """Return what a deployment misses without one of its replicas; a single replica, on half of its processors."""
    if best.num_procs == 1:
        return ""
    count = best.num_procs - best.replica_procs or best.num_procs // 2
    try:
        if best.replicas > 1:
            fewer = replace(best, num_procs=count)
            served = serve(space.model, fewer, space.system, space.workload)
        else:
            served = searched(replace(space, counts=(count,))).best_or_nearest
    except Infeasible as error:
        return f"{count:,} processors would not do: {error}"
    missed = "; ".join(one.in_words for one in served.limits if not one.met)
    return f"{count:,} processors ({served.deployment.in_words}) would miss {missed}"


def _why(space: DeploymentSpace) -> Infeasible:
    """Return the error of a load whose limits no number of replicas meets."""
    found = searched(space)
    if len(found):
        return Infeasible("limits", f"more than {MOST:,} processors")
    nearest = found.best_or_nearest
    before = (
        f"no number of processors up to {MOST:,} meets the limits; the nearest of "
        f"{nearest.deployment.num_procs:,} processors, {nearest.deployment.in_words}, misses"
    )
    return nearest.infeasible(before, more=False)


def _fewest_of(space: DeploymentSpace, group: Group, least: int) -> int:
    """Return the fewest processors of the deployments of a group, if they are fewer than `least`."""
    size = group.columns(np.arange(len(group)))[SPLIT[0]].astype(np.int64)
    low = _lower_bounds(space, group) - 1
    order = np.argsort((low + 1) * size, kind="stable")
    order = order[np.isfinite(low[order])]
    for places in _parts(order):
        least = _bisected(space, group, places, low[places].astype(np.int64), least)
    return least


def _parts(order: Array) -> Iterator[Array]:
    """Yield replicas in an order, in parts that double in size."""
    first, count = 0, AT_FIRST
    while first < len(order):
        yield order[first : first + count]
        first, count = first + count, 2 * count


def _bisected(space: DeploymentSpace, group: Group, places: Array, low: Array, least: int) -> int:
    """Return the fewest processors of deployments of a group, given numbers of replicas that are too small."""
    size = group.columns(places)[SPLIT[0]].astype(np.int64)
    # The gap doubles until a number is sufficient, as the lower bound is close to it; then it is halved.
    high, gap = np.zeros_like(low), np.ones_like(low)
    while True:
        most = np.where(high > 0, high - 1, (least - 1) // size)
        most = np.minimum(most, (least - 1) // size)
        left = np.flatnonzero(most > low)
        if not len(left):
            return least
        middle = np.where(high > 0, (low + high) // 2, low + gap)
        tried = np.minimum(np.maximum(middle, low + 1), most)[left]
        kept = _solved(space, group, places[left], tried, space.workload).feasible
        high[left[kept]] = tried[kept]
        low[left[~kept]] = tried[~kept]
        gap[left[~kept]] *= 2
        if kept.any():
            least = min(least, int((tried * size[left])[kept].min()))


def _lower_bounds(space: DeploymentSpace, group: Group) -> Count:
    """Return a number of replicas of each deployment below which they cannot keep up; infinite if none fits."""
    w, places = space.workload, np.arange(len(group))
    free = replace(w.saturating, ttft_limit=None)
    points = _solved(space, group, places, np.ones(len(places), np.int64), free)
    if w.rate is None:
        return np.where(points.fits, 1.0, math.inf)
    fewest = np.ceil(SLACK * w.rate / points.figures.request_rate)
    return np.where(points.fits, np.maximum(1.0, fewest), math.inf)


def _solved(
    space: DeploymentSpace, group: Group, places: Array, replicas: Array, workload: Workload
) -> Points:
    """Return the operating points of numbers of replicas of deployments that have a single replica."""
    columns = group.columns(places)
    columns[SPLIT[0]] = columns[SPLIT[0]] * replicas
    deployments = Deployments.of(group.record, None, **columns)
    replica = Replica(space.model, space.system, deployments, workload)
    return OperatingPointSolver(replica).solve(brief=True)
