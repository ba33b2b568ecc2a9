"""Process groups of executions, the time and bytes of their collectives, and the time that overlap leaves exposed."""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import numpy as np

from calculon.architecture.shape import Sizes
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, Count, Fraction, Seconds
from calculon.declarations.axes import AXIS, LAYER_AXES
from calculon.declarations.named_values import MESH_ORDERS
from calculon.declarations.scope_choices import BlockChoice
from calculon.hardware.collectives.algorithm_times import AUTO, PUBLISHED, group_time, group_volume
from calculon.hardware.collectives.dispatch import Routing, library_time, library_volume
from calculon.hardware.collectives.placement import Group, Rooms, rooms_used
from calculon.hardware.system import System
from calculon.plan.mesh import expert_ranks, outermost
from calculon.plan.schedule import Schedule


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """Process groups of equal size that run collectives.

    Attributes:
        ranks: Members of a group.
        network: The network between them, the outermost of several.
        stride: Distance of their numbers in a mesh; None where all of them are endpoints of the network.
        rooms: What an instance of each network joins in a mesh; as much as it can by default.
        copies: They hold the same parts of what others share.
        experts: They are replicas of routed experts.
        near: In a mesh they are in clusters of so many, with a distance of their own; the stride is that of the
            clusters.
        near_stride: That distance.
    """

    ranks: Count
    network: Array
    stride: Count | None = None
    rooms: Rooms | None = None
    copies: bool = False
    experts: bool = False
    near: Count | None = None
    near_stride: Count | None = None

    def placed(self, system: System) -> Group:
        """Return where the members sit."""
        ranks = np.asarray(self.ranks, np.int64)
        if self.stride is None:
            return Group.on_network(system, self.network, ranks)
        stride = np.asarray(self.stride, np.int64)
        if self.near is None or self.near_stride is None:
            return Group.in_mesh(system, ranks, stride, self.rooms)
        near = Group.in_mesh(system, self.near, self.near_stride, self.rooms)
        far = Group.in_mesh(system, ranks // self.near, stride, self.rooms)
        return far.of_clusters(system, near)

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
        routing: Routing | None = None,
    ) -> Seconds:
        """Time of a collective; arguments as in :func:`~calculon.hardware.collectives.algorithm_times.group_time`.

        With a `routing` it is the exchange of a library of experts.
        """
        if routing is not None:
            return library_time(system, routing, size, self.placed(system))
        algorithm = algorithm_of(operation, algorithm)
        if algorithm == PUBLISHED and operation in system.fabric.scalars:
            fabric = system.fabric
            return fabric.time(self.network, operation, size, self.ranks, per_step=per_step)
        where = self.placed(system)
        return group_time(system, operation, size, where, algorithm, per_step=per_step)

    def volume(
        self,
        system: System,
        operation: str,
        size: Bytes,
        algorithm: str,
        routing: Routing | None = None,
    ) -> Bytes:
        """Bytes of a collective on each network, where those of :meth:`time` are: shape (networks, ...)."""
        if routing is not None:
            return library_volume(system, routing, size, self.placed(system))
        algorithm = algorithm_of(operation, algorithm)
        if algorithm == PUBLISHED:
            alone = Group.on_network(system, self.network, np.asarray(self.ranks))
            return group_volume(system, operation, size, alone, algorithm)
        return group_volume(system, operation, size, self.placed(system), algorithm)


def algorithm_of(operation: str, algorithm: str) -> str:
    """Return the algorithm of an operation: networks say under ``ops`` of no exchange what it moves."""
    return AUTO if operation == "all_to_all" and algorithm == PUBLISHED else algorithm


def tensor_group(sizes: Sizes, choice: BlockChoice, system: System) -> ProcessGroup:
    """Return the tensor-parallel groups: neighbours in a mesh."""
    return layer_group("tp", sizes, choice, system)


def layer_group(
    axis: str, sizes: Sizes, choice: BlockChoice, system: System, which: str = ""
) -> ProcessGroup:
    """Return the groups of an axis whose collectives are between layers: in a mesh these axes are the fastest ones.

    `which` asks for other ranks of a group of experts (:func:`expert_group`), or for some of a context-parallel one
    (:func:`context_group`).
    """
    ranks = sizes.degree(axis)
    if which and axis == "cp":
        return context_group(sizes, choice, system, which)
    if which or AXIS[axis].folded:
        return expert_group(sizes, choice, system, which)
    if choice.mesh_order == MESH_ORDERS[0]:
        return ProcessGroup(ranks, sizes.network(axis))
    stride: Count = np.array(1)
    degrees: list[Count] = []
    for inner in LAYER_AXES:
        degree = np.asarray(sizes.degree(inner.name), np.int64)
        near = np.clip(np.asarray(sizes.cp_a2a_size, np.int64), 1, degree)
        degrees += [near, degree // near] if inner.name == "cp" else [degree]
        if inner.name == axis:
            break
        stride = stride * degree
    rooms = rooms_used(system, degrees, len(degrees))  # slower axes change nothing of these
    return ProcessGroup(ranks, outermost(system, ranks * stride, rooms), stride, rooms)


def context_group(sizes: Sizes, choice: BlockChoice, system: System, which: str) -> ProcessGroup:
    """Return groups inside of context-parallel ones: of neighbours that exchange heads, or of the rings between these.

    `which` is "heads" or "ring". Source: Transformer Engine, ``context_parallel.py``, ``cp_comm_type`` *a2a+p2p*;
    Megatron-LM, ``core/parallel_state.py``, ``create_hierarchical_groups``: the first of the sizes are neighbours.
    """
    every = np.asarray(sizes.context_par, np.int64)
    near = np.asarray(sizes.exchanging(choice.layout.cp_comm), np.int64)
    rings = np.maximum(every // near, 1)
    ranks = near if which == "heads" else rings
    if choice.mesh_order == MESH_ORDERS[0]:
        return ProcessGroup(ranks, sizes.network("cp"))
    tensor = np.asarray(sizes.tensor_par, np.int64)
    stride = tensor if which == "heads" else tensor * near
    rooms = rooms_used(system, [tensor, near, rings], 3)
    return ProcessGroup(ranks, outermost(system, ranks * stride, rooms), stride, rooms)


def expert_group(
    sizes: Sizes, choice: BlockChoice, system: System, which: str = ""
) -> ProcessGroup:
    """Return the groups over which experts are spread: consecutive ranks, those with parts of the same experts first.

    `which` are those with other experts (""), with other parts of the same ones ("width"), or all of both ("all"). In a
    mesh they contain whole tensor groups, and all parts of a sequence, or are inside of one; parts of the same experts
    always are inside of a tensor group. Source: Megatron-LM, ``core/parallel_state.py``: order *tp-cp-ep-dp-pp* of the
    expert mesh.
    """
    width = np.asarray(sizes.expert_tensor_par, np.int64)
    experts, tensor = np.asarray(sizes.expert_par, np.int64), np.asarray(sizes.tensor_par, np.int64)
    ranks = {"": experts, "width": width, "all": experts * width}[which]
    if choice.mesh_order == MESH_ORDERS[0]:
        if which == "width":
            return ProcessGroup(ranks, sizes.tensor_par_net)
        return ProcessGroup(ranks, sizes.network("ep"))
    stride = np.array(1) if which else width
    every, parts = experts * width, tensor * np.asarray(sizes.context_par, np.int64)
    spans = np.minimum(tensor, every), np.clip(every, tensor, parts), np.maximum(parts, every)
    degrees = [spans[0], spans[1] // spans[0], spans[2] // spans[1]]
    rooms = rooms_used(system, degrees, len(degrees))
    return ProcessGroup(ranks, outermost(system, ranks * stride, rooms), stride, rooms)


def data_group(
    schedule: Schedule, system: System, ranks: Count, apart: Count | None = None
) -> ProcessGroup:
    """Return process groups of ranks with the same weights, each `apart` from the next.

    Parts of sequences are next to each other in a mesh, and replicas of them may be further away.
    """
    if not schedule.choice.meshed:
        return ProcessGroup(ranks, schedule.data_network)
    strides, parts = schedule.strides, np.asarray(schedule.columns.context_par, np.int64)
    near = np.asarray(strides["cp"], np.int64), parts
    return _in_clusters(schedule, system, ranks, apart, near, np.asarray(strides["dp"], np.int64))


def _in_clusters(
    schedule: Schedule,
    system: System,
    ranks: Count,
    apart: Count | None,
    near: tuple[Count, Count],
    stride: Count,
) -> ProcessGroup:
    """Return process groups of a mesh, of clusters whose distance is a stride.

    Args:
        ranks: Members of a group.
        apart: Distance of two of them, in ranks of which they are one: whole clusters; neighbours by default.
        near: Distance of the members of a cluster, and how many there are.
    """
    count, rooms = np.asarray(ranks, np.int64), schedule.rooms
    distance, most = near
    clustered = np.minimum(most, count)
    if apart is not None:
        stride = stride * np.maximum(np.asarray(apart, np.int64) // most, 1)
        clustered = np.ones_like(clustered)
    if not (clustered > 1).any():
        return ProcessGroup(ranks, outermost(system, stride * count, rooms), stride, rooms)
    clusters = count // clustered
    span = np.where((clusters > 1) | (clustered == 1), stride * clusters, distance * clustered)
    network = outermost(system, span, rooms)
    return ProcessGroup(
        ranks, network, stride, rooms, near=clustered, near_stride=np.asarray(distance)
    )


def replica_strides(schedule: Schedule) -> tuple[Count, Count, Count]:
    """Return how far apart the replicas of routed experts are in a mesh: neighbours, how many, and such clusters.

    Ranks with parts of the same sequences are next to each other, and have the same experts once or several times.
    """
    columns, replicas = schedule.columns, np.asarray(schedule.strides["dp"], np.int64)
    width, tensor = expert_ranks(columns), np.asarray(columns.tensor_par, np.int64)
    apart = np.where(width == tensor, replicas, width)
    parts = np.asarray(columns.context_par, np.int64)
    if not (parts > 1).any():
        return width, np.array(1), apart
    near = np.where(parts > 1, np.maximum(tensor * parts // width, 1), 1)
    return width, near, np.where(parts > 1, np.maximum(replicas, width), apart)


def expert_replicas(
    schedule: Schedule, system: System, ranks: Count, apart: Count | None = None
) -> ProcessGroup:
    """Return process groups of replicas of routed experts, each `apart` from the next.

    Those next to each other are as far apart as a group of ranks that have all experts once is wide. Where that is the
    tensor-parallel group, they are the replicas of other weights.
    """
    if not schedule.choice.meshed:
        return replace(data_group(schedule, system, ranks, apart), experts=True)
    distance, near, stride = replica_strides(schedule)
    group = _in_clusters(schedule, system, ranks, apart, (distance, near), stride)
    return replace(group, experts=True)


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

    Attributes:
        system, schedule: Where, and how: by the algorithm that the executions share.
        bytes: Count bytes that pass a port, an array of shape (networks, ...), rather than seconds.
        copies: Count only collectives among copies, or only the others.
        experts: Count only collectives among replicas of routed experts, or only the others.
        network: Count only the bytes on this network, an array without the axis of networks.
        known: What has been counted, where equal collectives are asked for more than once.
    """

    system: System
    schedule: Schedule
    bytes: bool = False
    copies: bool | None = None
    experts: bool | None = None
    network: int | None = None
    known: dict[tuple[object, ...], Array] | None = None

    def __call__(self, operation: str, size: Bytes, group: ProcessGroup) -> Array:
        """Count one collective."""
        if self.known is None:
            return self._count(operation, size, group)
        size, ranks = np.asarray(size), np.asarray(group.ranks)
        kind = group.copies, group.experts
        key = operation, size.shape, size.tobytes(), ranks.shape, ranks.tobytes(), kind
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
        counted = self.copies in (None, group.copies) and self.experts in (None, group.experts)
        return found if counted else 0.0 * found

    def of_longer(self, both: Callable[["CollectiveCost"], tuple[Array, Array]]) -> Array:
        """Return the one of two quantities that takes longer."""
        one, other = both(self)
        if not self.bytes and self.copies is None and self.experts is None:
            return np.maximum(one, other)
        first, second = both(CollectiveCost(self.system, self.schedule))
        return np.where(second > first, other, one)


def not_hidden(traffic: Seconds, work: Seconds, usage: Fraction) -> Seconds:
    r"""Return what traffic adds to the work that runs beside it.

    .. math:: \min(t, \max(t - w, u \, t))

    for traffic `t`, work `w` and the share `u` of the engines that traffic takes from it: the work is slowed to
    :math:`1 - u` of its rate while there is traffic, and traffic that is left then runs alone.
    """
    return np.minimum(traffic, np.maximum(traffic - work, usage * traffic))


def slow_down(usage: Fraction, stated: Array) -> Fraction:
    r"""Return the share `u` of :func:`not_hidden`: of multiprocessors, or a larger one that is `stated` in percent.

    What collectives take beside multiprocessors is bandwidth of memory and caches, and power: in training steps on
    A100, H100, MI210 and MI250 work beside them takes 18.9 % longer, and steps without any overlap are 10.2 % longer
    than with it, on average (Lee et al., arXiv 2507.03114). Hidden traffic of `t` beside work of `w` then has
    :math:`u t = 0.189 w` and :math:`w + t = 1.102 (w + u t)`, so :math:`u = 0.61`; if 30 % of the work's time is
    traffic that nothing hides, 0.55.
    """
    return np.maximum(usage, stated / 100)
