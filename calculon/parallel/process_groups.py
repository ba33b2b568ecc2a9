"""Groups of ranks of executions, and the time of their collectives by the algorithm that an execution asks for."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calculon.hardware.collectives.group_times import PUBLISHED, group_time, group_volume
from calculon.hardware.collectives.placement import Group
from calculon.hardware.system import System
from calculon.plan.choice import Choice, Sizes
from calculon.plan.mesh import outermost
from calculon.plan.schedule import Schedule
from calculon.spec.execution import COLLECTIVES
from calculon.units import Array, Bytes, Count, Seconds


@dataclass(frozen=True, slots=True)
class Team:
    """Groups of so many ranks.

    Attributes
    ----------
    ranks : array
        Members of a group.
    network : array
        The network between them, the outermost of several.
    stride : array or int
        Distance of their numbers in a mesh; 0 where all of them are endpoints of the network.
    copies : bool
        They hold the same parts of what others share.
    """

    ranks: Count
    network: Array
    stride: Count | int = 0
    copies: bool = False

    def group(self, system: System) -> Group:
        """Return where the members sit."""
        ranks = np.asarray(self.ranks, np.int64)
        stated = np.asarray(self.stride) == 0
        if np.all(stated):
            return Group.on_network(system, self.network, ranks)
        meshed = Group.in_mesh(system, ranks, np.maximum(self.stride, 1))
        if not np.any(stated):
            return meshed
        alone = Group.on_network(system, self.network, ranks)
        members = [
            np.where(stated, *pair) for pair in zip(alone.members, meshed.members, strict=True)
        ]
        below = [np.where(stated, *pair) for pair in zip(alone.below, meshed.below, strict=True)]
        network = np.where(stated, alone.network, meshed.network)
        return Group(ranks, tuple(members), tuple(below), network, meshed.node)

    def time(
        self,
        system: System,
        operation: str,
        size: Bytes,
        algorithm: str,
        *,
        per_step: Array | bool = False,
    ) -> Seconds:
        """Time of a collective; arguments as in :func:`~calculon.hardware.collectives.group_times.group_time`."""
        if algorithm == PUBLISHED and operation in system.fabric.scalars:
            fabric = system.fabric
            return fabric.time(self.network, operation, size, self.ranks, per_step=per_step)
        return group_time(system, operation, size, self.group(system), algorithm, per_step=per_step)

    def volume(self, system: System, operation: str, size: Bytes, algorithm: str) -> Bytes:
        """Bytes of a collective on each network, where those of :meth:`time` are: shape (networks, ...)."""
        if algorithm == PUBLISHED:
            alone = Group.on_network(system, self.network, np.asarray(self.ranks))
            return group_volume(system, operation, size, alone, algorithm)
        return group_volume(system, operation, size, self.group(system), algorithm)


def tensor_team(sizes: Sizes, choice: Choice, system: System) -> Team:
    """Return the tensor-parallel groups: neighbours in a mesh."""
    if choice.mesh_order == "stated":
        return Team(sizes.tensor_par, sizes.tensor_par_net)
    return Team(sizes.tensor_par, outermost(system, sizes.tensor_par), 1)


def data_team(schedule: Schedule, system: System, ranks: Count, apart: Count | int = 1) -> Team:
    """Return groups of so many replicas, each `apart` from the next."""
    stride = schedule.data_stride
    if not np.any(stride):
        return Team(ranks, schedule.data_par_net)
    stride = stride * np.asarray(apart, np.int64)
    inner = outermost(system, stride * np.asarray(ranks, np.int64))
    return Team(ranks, np.where(stride == 0, schedule.data_par_net, inner), stride)


@dataclass(frozen=True, slots=True)
class Meter:
    """What collectives of executions take: seconds, or bytes on each network.

    Formulas of traffic are sums over collectives, whatever is counted: they are called with a meter.

    Attributes
    ----------
    system, schedule
        Where, and how: each execution by its own algorithm.
    bytes : bool
        Count bytes that pass a port, an array of shape (networks, ...), rather than seconds.
    copies : bool, optional
        Count only collectives among copies, or only the others.
    """

    system: System
    schedule: Schedule
    bytes: bool = False
    copies: bool | None = None

    def __call__(self, operation: str, size: Bytes, team: Team) -> Array:
        """Measure one collective."""
        codes = self.schedule.algorithm
        if not np.count_nonzero(codes):
            return self._measure(operation, size, team, PUBLISHED)
        found = None
        for code in np.unique(codes):
            one = self._measure(operation, size, team, COLLECTIVES[code])
            found = one if found is None else np.where(codes == code, one, found)
        assert found is not None
        return found

    def _measure(self, operation: str, size: Bytes, team: Team, algorithm: str) -> Array:
        if self.bytes:
            found: Array = team.volume(self.system, operation, size, algorithm)
        else:
            each = self.schedule.latency_per_step
            per_step: Array | bool = each if each.any() else False
            found = team.time(self.system, operation, size, algorithm, per_step=per_step)
        return found if self.copies in (None, team.copies) else 0.0 * found

    def of_longer(self, both: Callable[["Meter"], tuple[Array, Array]]) -> Array:
        """Return the one of two quantities that takes longer."""
        one, other = both(self)
        if not self.bytes and self.copies is None:
            return np.maximum(one, other)
        first, second = both(Meter(self.system, self.schedule))
        return np.where(second > first, other, one)
