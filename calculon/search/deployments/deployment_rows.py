"""Figures of the deployments of a space, and the limits that they miss.

Equal replicas are solved once. If requests arrive as fast as they are answered, replicas are independent, and all
processor counts with the same split have the same batch and times per replica.
"""

from functools import cached_property

import numpy as np

from calculon.base.distinct_rows import distinct
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.search.deployments.deployment_space import DeploymentSpace, Group
from calculon.search.deployments.deployment_vocabulary import SCHEDULING, SPLIT, stated_default
from calculon.serving.passes.replica import Replica
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.load import SATURATED
from calculon.serving.states.operating_point import OperatingPointSolver
from calculon.serving.states.served_points import AllReplicas, Points, price_of


@dataclass(frozen=True)
class Rows:
    """Deployments of a group with their figures; columns have shape ``(deployments,)``.

    Attributes:
        space, group: The space, and the shared choices of the deployments.
        places: Indices of the deployments in the group.
        points: Operating points of distinct replicas.
        alike: Index of the operating point of each deployment.
        free: Fraction of the memory of a rank that is free for KV caches; negative if the model does not fit.
    """

    space: DeploymentSpace
    group: Group
    places: Array
    points: Points
    alike: Array
    free: Array

    @cached_property
    def sizes(self) -> dict[str, Count]:
        """Sizes of the deployments: fields that are columns."""
        return self.group.columns(self.places)

    @property
    def numbers(self) -> Array:
        """Numbers of the deployments in the space."""
        return self.group.number + self.places

    @property
    def batch(self) -> Count:
        """Largest number of sequences in a decode batch; undefined if not a single sequence fits."""
        return self.points.batch[self.alike]

    @property
    def fits(self) -> Array:
        """Mask of deployments with memory for at least one sequence."""
        return self.points.fits[self.alike]

    @property
    def feasible(self) -> Array:
        """Mask of deployments that fit in memory and meet all limits."""
        return self.points.feasible[self.alike]

    @cached_property
    def excess(self) -> Array:
        """Ratio of the worst figure to its limit: at most 1 if all limits are met.

        Infinite times are ignored: they follow from a request rate that is too high, and that ratio counts. If no
        sequence fits, the result is the used fraction of the memory.
        """
        worst = np.zeros(len(self.points.batch))
        for one in self.points.limits:
            ratio = one.found / one.most
            worst = np.maximum(worst, np.where(np.isfinite(ratio), ratio, 0.0))
        return np.where(self.points.fits, worst, 1 - self.free)[self.alike]

    def value(self, name: str) -> Array:
        """Return a figure, or a field of the deployments in the units of files."""
        if name in AllReplicas._fields:
            result: Array = getattr(self._of_all, name)
            return result
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
    """Return True if the figures of a replica do not depend on the number of replicas: saturated, without pools."""
    alone = group.pools is None
    return alone and space.workload.kind == SATURATED and space.workload.requests is None


def solve(space: DeploymentSpace, group: Group, places: Array, *, brief: bool = False) -> Rows:
    """Return the figures of deployments of a group, given by their indices.

    They are equal to the results of :func:`calculon.serve`; with `brief`, without the figures that take longest
    (:data:`~calculon.serving.states.operating_point.LATE`).
    """
    alike, chosen = np.arange(len(places)), places
    if shares(space, group):
        # Key of a replica: its split and the settings of its scheduler. Counts of processors do not matter.
        split, setting = np.divmod(places, group.settings)
        keys = group.engines[split] * group.settings + setting
        _, alike, first = distinct([keys])
        chosen = places[first]
    deployments = group.deployments(chosen)
    if shares(space, group):
        # Solve a deployment with a single replica; _of_all scales the result.
        single = deployments.tensor_par * deployments.pipeline_par
        columns = {name: getattr(deployments, name) for name in (*SPLIT, *SCHEDULING)}
        deployments = Deployments.of(group.record, None, **columns | {SPLIT[0]: single})
    load = OperatingPointSolver(Replica(space.model, space.system, deployments, space.workload))
    free = load.memory.free / load.memory.capacity
    return Rows(space, group, places, load.solve(brief=brief), alike, free)


def fits_in_memory(space: DeploymentSpace) -> bool:
    """Return True if a sequence fits in memory in some deployment of a space; no batch is solved."""
    for group in space.groups:
        if not len(group):
            continue
        # The first setting of a split has the smallest passes, which take the least memory.
        deployments = group.deployments(np.arange(0, len(group), group.settings))
        replica = Replica(space.model, space.system, deployments, space.workload)
        solver = OperatingPointSolver(replica)
        fits = solver.capacity >= 1
        if solver.pool is not None:
            fits = fits & (solver.pool.capacity >= 1)
        if fits.any():
            return True
    return False
