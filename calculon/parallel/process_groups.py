"""Process groups of executions, and what their collectives cost by the algorithm that an execution asks for."""

from collections.abc import Callable
from functools import reduce

import numpy as np

from calculon.architecture.layer_sizes import Sizes
from calculon.frozen import dataclass
from calculon.hardware.collectives.group_times import PUBLISHED, group_time, group_volume
from calculon.hardware.collectives.placement import Group, Rooms, rooms_used
from calculon.hardware.system import System
from calculon.plan.mesh import outermost
from calculon.plan.schedule import Schedule
from calculon.spec.axes import AXIS, LAYER_AXES
from calculon.spec.execution import MESH_ORDERS
from calculon.spec.scope_choices import BlockChoice
from calculon.units import Array, Bytes, Count, Fraction, Seconds


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """Process groups of equal size that run collectives.

    Attributes
    ----------
    ranks : array
        Members of a group.
    network : array
        The network between them, the outermost of several.
    stride : array, optional
        Distance of their numbers in a mesh; None where all of them are endpoints of the network.
    rooms : tuple of arrays, optional
        What an instance of each network joins in a mesh; as much as it can by default.
    copies : bool
        They hold the same parts of what others share.
    """

    ranks: Count
    network: Array
    stride: Count | None = None
    rooms: Rooms | None = None
    copies: bool = False

    def placed(self, system: System) -> Group:
        """Return where the members sit."""
        ranks = np.asarray(self.ranks, np.int64)
        if self.stride is None:
            return Group.on_network(system, self.network, ranks)
        return Group.in_mesh(system, ranks, np.asarray(self.stride, np.int64), self.rooms)

    def usage(self, system: System) -> Fraction:
        """Share of the compute engines that its collectives take: the largest of the networks that it spans.

        A collective over several networks runs as one kernel, with channels enough for each of them.
        Source: NCCL, src/enqueue.cc: a channel is a thread block, which holds a multiprocessor from begin to end.
        """
        shares = system.fabric.processor_usage
        if self.stride is None:
            return shares[self.network]
        used = zip(shares, self.placed(system).used, strict=True)
        return reduce(np.maximum, (np.where(here, share, 0.0) for share, here in used))

    def meets(self, other: "ProcessGroup", system: System) -> Array:
        """Whether its collectives and those of other groups use a network that is the same."""
        pairs = zip(self.placed(system).used, other.placed(system).used, strict=True)
        return reduce(np.logical_or, (one & two for one, two in pairs))

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
        where = self.placed(system)
        return group_time(system, operation, size, where, algorithm, per_step=per_step)

    def volume(self, system: System, operation: str, size: Bytes, algorithm: str) -> Bytes:
        """Bytes of a collective on each network, where those of :meth:`time` are: shape (networks, ...)."""
        if algorithm == PUBLISHED:
            alone = Group.on_network(system, self.network, np.asarray(self.ranks))
            return group_volume(system, operation, size, alone, algorithm)
        return group_volume(system, operation, size, self.placed(system), algorithm)


def tensor_group(sizes: Sizes, choice: BlockChoice, system: System) -> ProcessGroup:
    """Return the tensor-parallel groups: neighbours in a mesh."""
    return layer_group("tp", sizes, choice, system)


def layer_group(axis: str, sizes: Sizes, choice: BlockChoice, system: System) -> ProcessGroup:
    """Return the groups of an axis whose collectives are between layers: in a mesh these axes are the fastest ones."""
    ranks = sizes.degree(axis)
    if choice.mesh_order == MESH_ORDERS[0]:
        return ProcessGroup(ranks, sizes.network(axis))
    stride, degrees = np.array(1), []
    for inner in LAYER_AXES:
        degrees.append(np.asarray(sizes.degree(inner.name), np.int64))
        if inner.name == axis:
            break
        stride = stride * sizes.degree(inner.name)
    rooms = rooms_used(system, degrees, len(degrees))  # slower axes change nothing of these
    return ProcessGroup(ranks, outermost(system, ranks * stride, rooms), stride, rooms)


def data_group(
    schedule: Schedule, system: System, ranks: Count, apart: Count | None = None
) -> ProcessGroup:
    """Return process groups of replicas, each `apart` from the next."""
    if not schedule.choice.meshed:
        return ProcessGroup(ranks, schedule.networks["dp"])
    stride = np.asarray(schedule.strides["dp"], np.int64)
    if apart is not None:
        stride = stride * np.asarray(apart, np.int64)
    span = stride * np.asarray(ranks, np.int64)
    return ProcessGroup(ranks, outermost(system, span, schedule.rooms), stride, schedule.rooms)


def axis_group(schedule: Schedule, system: System, axis: str) -> ProcessGroup:
    """Return the process groups of an axis, as the executions of a schedule have them."""
    ranks = np.asarray(getattr(schedule.columns, AXIS[axis].degree), np.int64)
    network = schedule.networks[axis]
    if not schedule.choice.meshed:
        return ProcessGroup(ranks, network)
    stride = np.asarray(schedule.strides[axis], np.int64)
    return ProcessGroup(ranks, network, stride, schedule.rooms)


@dataclass(frozen=True, slots=True)
class CollectiveCost:
    """What collectives of executions take: seconds, or bytes on each network.

    Formulas of traffic are sums over collectives, whatever is counted: they are called with this cost function.

    Attributes
    ----------
    system, schedule
        Where, and how: by the algorithm that the executions share.
    bytes : bool
        Count bytes that pass a port, an array of shape (networks, ...), rather than seconds.
    copies : bool, optional
        Count only collectives among copies, or only the others.
    network : int, optional
        Count only the bytes on this network, an array without the axis of networks.
    known : dict, optional
        What has been counted, where equal collectives are asked for more than once.
    """

    system: System
    schedule: Schedule
    bytes: bool = False
    copies: bool | None = None
    network: int | None = None
    known: dict[tuple[object, ...], Array] | None = None

    def __call__(self, operation: str, size: Bytes, group: ProcessGroup) -> Array:
        """Count one collective."""
        if self.known is None:
            return self._count(operation, size, group)
        size, ranks = np.asarray(size), np.asarray(group.ranks)
        key = operation, size.shape, size.tobytes(), ranks.shape, ranks.tobytes(), group.copies
        if key not in self.known:
            self.known[key] = self._count(operation, size, group)
        return self.known[key]

    def _count(self, operation: str, size: Bytes, group: ProcessGroup) -> Array:
        algorithm = self.schedule.choice.coll_algo
        if self.bytes:
            found: Array = group.volume(self.system, operation, size, algorithm)
            if self.network is not None:
                found = found[self.network]
        else:
            each = self.schedule.columns.latency_per_step
            per_step: Array | bool = each if each.any() else False
            found = group.time(self.system, operation, size, algorithm, per_step=per_step)
        return found if self.copies in (None, group.copies) else 0.0 * found

    def of_longer(self, both: Callable[["CollectiveCost"], tuple[Array, Array]]) -> Array:
        """Return the one of two quantities that takes longer."""
        one, other = both(self)
        if not self.bytes and self.copies is None:
            return np.maximum(one, other)
        first, second = both(CollectiveCost(self.system, self.schedule))
        return np.where(second > first, other, one)
