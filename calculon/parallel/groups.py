"""Groups of ranks of executions, and the time of their collectives by the algorithm that an execution asks for."""

from dataclasses import dataclass

import numpy as np

from calculon.hardware.collectives.groups import PUBLISHED, group_time
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
    """

    ranks: Count
    network: Array
    stride: Count | int = 0

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
        """Time of a collective; arguments as in :func:`~calculon.hardware.collectives.groups.group_time`."""
        if algorithm == PUBLISHED and operation in system.fabric.scalars:
            fabric = system.fabric
            return fabric.time(self.network, operation, size, self.ranks, per_step=per_step)
        return group_time(system, operation, size, self.group(system), algorithm, per_step=per_step)


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


def collective(
    system: System, operation: str, size: Bytes, team: Team, schedule: Schedule
) -> Seconds:
    """Time of a collective, each execution by its own algorithm."""
    per_step: Array | bool = schedule.latency_per_step if schedule.latency_per_step.any() else False

    def time(algorithm: str) -> Seconds:
        return team.time(system, operation, size, algorithm, per_step=per_step)

    if not np.count_nonzero(schedule.algorithm):
        return time(PUBLISHED)
    found = None
    for code in np.unique(schedule.algorithm):
        one = time(COLLECTIVES[code])
        found = one if found is None else np.where(schedule.algorithm == code, one, found)
    assert found is not None
    return found
