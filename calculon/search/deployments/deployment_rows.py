"""The figures of deployments of a space, and which limits they miss."""

import math
from dataclasses import fields

import numpy as np

from calculon.errors import Infeasible
from calculon.frozen import dataclass
from calculon.records import concatenate
from calculon.search.deployments.deployment_space import DeploymentSpace, Group
from calculon.search.deployments.deployment_words import SIZES, stated_default
from calculon.serving.operating_point import Load, Point
from calculon.serving.replica import Replica
from calculon.serving_figures import SERVING_FIGURES, ServingFigures, ServingMemory
from calculon.units import Array, Count

_NONE = np.full(1, np.nan)
_MEMORY = ServingMemory(**{one.name: _NONE for one in fields(ServingMemory)})
_OTHERS = {one.name: _NONE for one in fields(ServingFigures) if one.name != "memory"}
NOTHING = ServingFigures(**_OTHERS, memory=_MEMORY)
"""Figures of what does not run."""


@dataclass(frozen=True)
class Rows:
    """Deployments of a group with their figures; arrays have shape ``(deployments,)``.

    Attributes
    ----------
    group : Group
        Their choices.
    numbers : int array
        Their numbers in the space.
    figures : ServingFigures
        Figures; not-a-number where there is no room for a sequence.
    batch : int array
        Sequences that a replica decodes at a time; 0 without room.
    feasible : bool array
        Whether there is room, and all limits are kept.
    excess : array
        How many times a limit there is, of the limit that is missed by most; at most 1 where all are kept. Without
        room, likewise of the memory.
    """

    group: Group
    numbers: Array
    figures: ServingFigures
    batch: Count
    feasible: Array
    excess: Array

    @property
    def fits(self) -> Array:
        """Whether there is room for a sequence."""
        return self.batch > 0

    def value(self, name: str) -> Array:
        """Return a figure, or a field of the deployments as files state it."""
        if name in SERVING_FIGURES:
            return SERVING_FIGURES[name].of(self.figures)
        rows = self.numbers - self.group.number
        if name in SIZES:
            return self.group.columns(rows)[name]
        stated = self.group.choices.get(name, stated_default(name))
        return np.full(len(rows), np.nan if stated is None else stated)


def solve(space: DeploymentSpace, group: Group, places: Array) -> Rows:
    """Return the figures of deployments of a group, given by their places in it.

    Every one is what :func:`calculon.serve` says of it.
    """
    points = [_point(space, group, int(place)) for place in places]
    return Rows(
        group=group,
        numbers=group.number + places,
        figures=concatenate(
            [NOTHING if isinstance(one, Infeasible) else one.figures for one in points]
        ),
        batch=np.array(
            [0 if isinstance(one, Infeasible) else one.batch for one in points], np.int64
        ),
        feasible=np.array(
            [isinstance(one, Point) and all(a.met for a in one.limits) for one in points]
        ),
        excess=np.array([_excess(one) for one in points]),
    )


def _point(space: DeploymentSpace, group: Group, place: int) -> Point | Infeasible:
    replica = Replica(space.model, space.system, group.deployment(place), space.workload)
    try:
        return Load(replica).answer()
    except Infeasible as error:
        return error


def _excess(point: Point | Infeasible) -> float:
    """Return by how many times the worst limit is missed; of times without end because of the rate, by the rate."""
    if isinstance(point, Infeasible):
        needed, available = point.needed, point.available
        return needed / available if needed and available else math.inf
    ratios = [one.found / one.most for one in point.limits]
    return max((one for one in ratios if math.isfinite(one)), default=0.0)
