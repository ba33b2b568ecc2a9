"""The figures of deployments of a space, and which limits they miss.

Replicas that are alike are solved once: where requests come as fast as they are answered, a replica knows of no other,
and all counts of processors with the same split share its batch and its times.
"""

from functools import cached_property

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.plan.choices import distinct
from calculon.search.deployments.deployment_space import DeploymentSpace, Group
from calculon.search.deployments.deployment_words import SCHEDULING, SPLIT, stated_default
from calculon.serving.passes.replica import Replica
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.load import SATURATED
from calculon.serving.states.operating_point import OperatingPointSolver
from calculon.serving.states.served_points import AllReplicas, Points, price_of


@dataclass(frozen=True)
class Rows:
    """Deployments of a group with their figures; columns have shape ``(deployments,)``.

    Attributes:
        space, group: The space, and the choices of the deployments.
        places: Their places in the group.
        points: What replicas do.
        alike: Which of these each deployment has.
        free: Share of the memory of a rank that is left for sequences; below 0 where the model does not fit.
    """

    space: DeploymentSpace
    group: Group
    places: Array
    points: Points
    alike: Array
    free: Array

    @cached_property
    def sizes(self) -> dict[str, Count]:
        """Fields of the deployments that are columns."""
        return self.group.columns(self.places)

    @property
    def numbers(self) -> Array:
        """Numbers of the deployments in the space."""
        return self.group.number + self.places

    @property
    def batch(self) -> Count:
        """Sequences that a replica decodes at a time; meaningless without room for one."""
        return self.points.batch[self.alike]

    @property
    def room(self) -> Array:
        """Whether there is room for a sequence."""
        return self.points.fits[self.alike]

    @property
    def feasible(self) -> Array:
        """Whether there is room, and all limits are kept."""
        return self.points.feasible[self.alike]

    @cached_property
    def excess(self) -> Array:
        """How many times a limit there is, of the limit that is missed by most: 1 or less where all are kept.

        Times are without end where the rate is too high; then the rate counts. Without room for a sequence, what is
        held of the memory.
        """
        worst = np.zeros(len(self.points.batch))
        for one in self.points.limits:
            ratio = one.found / one.most
            worst = np.maximum(worst, np.where(np.isfinite(ratio), ratio, 0.0))
        return np.where(self.points.fits, worst, 1 - self.free)[self.alike]

    def value(self, name: str) -> Array:
        """Return a figure, or a field of the deployments as files state it."""
        if name in AllReplicas._fields:
            found: Array = getattr(self._of_all, name)
            return found
        if name in SERVING_FIGURES:
            return SERVING_FIGURES[name].of(self.points.figures)[self.alike]
        if name in (*SPLIT, *SCHEDULING):
            return self.sizes[name]
        stated = self.group.record.to_dict().get(name, stated_default(name))
        return np.full(len(self.places), np.nan if stated is None else stated)

    @cached_property
    def _of_all(self) -> AllReplicas:
        """Figures of all replicas together."""
        figures, sizes = self.points.figures, self.sizes
        own = AllReplicas(*(getattr(figures, name)[self.alike] for name in AllReplicas._fields))
        if not shares(self.space, self.group):
            return own
        replicas = sizes[SPLIT[0]] // (sizes["tensor_par"] * sizes["pipeline_par"])
        price = price_of(self.space.system, self.group.record)
        rates = own.request_rate, own.capacity_rate
        return AllReplicas.of(self.space.workload, *rates, replicas, sizes[SPLIT[0]], price)


def shares(space: DeploymentSpace, group: Group) -> bool:
    """Whether replicas do the same however many there are: all that they do, and as much as they can."""
    alone = group.pools is None
    return alone and space.workload.kind == SATURATED and space.workload.requests is None


def solve(space: DeploymentSpace, group: Group, places: Array) -> Rows:
    """Return the figures of deployments of a group, given by their places in it.

    Every one is what :func:`calculon.serve` says of it.
    """
    alike, chosen = np.arange(len(places)), places
    if shares(space, group):
        split, setting = np.divmod(places, group.settings)
        keys = group.engines[split] * group.settings + setting
        _, alike, first = distinct([keys])
        chosen = places[first]
    deployments = group.deployments(chosen)
    if shares(space, group):
        single = deployments.tensor_par * deployments.pipeline_par
        columns = {name: getattr(deployments, name) for name in (*SPLIT, *SCHEDULING)}
        deployments = Deployments.of(group.record, None, **columns | {SPLIT[0]: single})
    load = OperatingPointSolver(Replica(space.model, space.system, deployments, space.workload))
    free = load.memory.free / load.memory.capacity
    return Rows(space, group, places, load.solve(), alike, free)
