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
from calculon.hardware.collectives.placement import Fanouts, Group, fanouts_used
from calculon.hardware.system import System
from calculon.plan.mesh import expert_ranks, outermost
from calculon.plan.schedule import Schedule


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """Process groups of equal size that run collectives.

    Without a mesh, all members are endpoints of ``network``. In a mesh, global ranks are numbered with the fastest
    dimension first (as in ``torch.distributed.DeviceMesh``), and the numbers decide which networks a group spans.

    Attributes:
        ranks: Members of a group.
        network: Index of the outermost network between the members.
        stride: Distance between the global ranks of neighbors in a mesh; None without a mesh.
        fanouts: Inner instances that an instance of each nested network joins in a mesh; None: as many as possible.
        copies: Members hold equal shards: the replicate dimension of HSDP.
        experts: Members are data-parallel replicas of routed experts.
        near: Size of the clusters that a group consists of, in a mesh; ``stride`` is then the distance between
            clusters. None without clusters.
        near_stride: Distance between the global ranks of neighbors in a cluster.
    """

    ranks: Count
    network: Array
    stride: Count | None = None
    fanouts: Fanouts | None = None
    copies: bool = False
    experts: bool = False
    near: Count | None = None
    near_stride: Count | None = None

    def placed(self, system: System) -> Group:
        """Return the networks that connect the members, and the number of members that each connects."""
        ranks = np.asarray(self.ranks, np.int64)
        if self.stride is None:
            return Group.on_network(system, self.network, ranks)
        stride = np.asarray(self.stride, np.int64)
        if self.near is None or self.near_stride is None:
            return Group.in_mesh(system, ranks, stride, self.fanouts)
        near = Group.in_mesh(system, self.near, self.near_stride, self.fanouts)
        far = Group.in_mesh(system, ranks // self.near, stride, self.fanouts)
        return far.of_clusters(system, near)

    def usage(self, system: System) -> Fraction:
        """Share of the multiprocessors that its collectives occupy: the largest of the networks that it spans.

        A collective over several networks is one kernel with enough channels for each network, so that shares are not
        added. Source: NCCL, src/enqueue.cc: a channel is a thread block, which occupies a multiprocessor from start to
        end.
        """
        shares = system.fabric.processor_usage
        if self.stride is None:
            return shares[self.network]
        used = zip(shares, self.placed(system).used, strict=True)
        return reduce(np.maximum, (np.where(here, share, 0.0) for share, here in used))

    def meets(self, other: "ProcessGroup", system: System) -> Array:
        """Return true if collectives of both groups use a common network, and so cannot both run at full rate."""
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

        With a `routing`, it is the all-to-all of an expert-dispatch library such as DeepEP, whatever the `algorithm`.
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
        """Bytes of a collective through a port of each network that :meth:`time` uses: shape (networks, ...)."""
        if routing is not None:
            return library_volume(system, routing, size, self.placed(system))
        algorithm = algorithm_of(operation, algorithm)
        if algorithm == PUBLISHED:
            alone = Group.on_network(system, self.network, np.asarray(self.ranks))
            return group_volume(system, operation, size, alone, algorithm)
        return group_volume(system, operation, size, self.placed(system), algorithm)


def algorithm_of(operation: str, algorithm: str) -> str:
    """Return the algorithm of an operation: the published scalars (``ops`` of a network) do not include all-to-all."""
    return AUTO if operation == "all_to_all" and algorithm == PUBLISHED else algorithm


def tensor_group(sizes: Sizes, choice: BlockChoice, system: System) -> ProcessGroup:
    """Return the tensor-parallel groups, whose members have consecutive ranks in a mesh."""
    return layer_group("tp", sizes, choice, system)


def layer_group(
    axis: str, sizes: Sizes, choice: BlockChoice, system: System, which: str = ""
) -> ProcessGroup:
    """Return the groups of an axis with collectives inside of layers (TP, CP, EP): the fastest dimensions of a mesh.

    `which` selects a group of experts (:func:`expert_group`) or a part of a context-parallel group
    (:func:`context_group`); "" is the group of the axis itself.
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
    # Slower dimensions do not move these groups.
    fanouts = fanouts_used(system, degrees, len(degrees))
    return ProcessGroup(ranks, outermost(system, ranks * stride, fanouts), stride, fanouts)


def context_group(sizes: Sizes, choice: BlockChoice, system: System, which: str) -> ProcessGroup:
    """Return the subgroups of hierarchical context parallelism, which exchanges heads inside and sends rings between.

    `which` is "heads" for the all-to-all groups of consecutive ranks, or "ring" for the rings across them. Source:
    Transformer Engine, ``context_parallel.py``, ``cp_comm_type`` *a2a+p2p*; Megatron-LM, ``core/parallel_state.py``,
    ``create_hierarchical_groups``: the first size counts consecutive ranks.
    """
    every = np.asarray(sizes.context_par, np.int64)
    near = np.asarray(sizes.exchanging(choice.layout.cp_comm), np.int64)
    rings = np.maximum(every // near, 1)
    ranks = near if which == "heads" else rings
    if choice.mesh_order == MESH_ORDERS[0]:
        return ProcessGroup(ranks, sizes.network("cp"))
    tensor = np.asarray(sizes.tensor_par, np.int64)
    stride = tensor if which == "heads" else tensor * near
    fanouts = fanouts_used(system, [tensor, near, rings], 3)
    return ProcessGroup(ranks, outermost(system, ranks * stride, fanouts), stride, fanouts)


def expert_group(
    sizes: Sizes, choice: BlockChoice, system: System, which: str = ""
) -> ProcessGroup:
    """Return the groups over which experts are spread, whose members have consecutive ranks.

    `which` is "" for expert parallelism (ranks with different experts), "width" for expert tensor parallelism (ranks
    with shards of the same experts, the fastest dimension), or "all" for both. In a mesh, a group contains whole
    tensor- and context-parallel groups or is inside of one; an expert-tensor-parallel group is always inside of a
    tensor-parallel group. Source: Megatron-LM, ``core/parallel_state.py``: order *tp-cp-ep-dp-pp* of the expert mesh.
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
    # nested sizes of the tensor, the tensor-and-context, and the expert groups, whichever contains which
    spans = np.minimum(tensor, every), np.clip(every, tensor, parts), np.maximum(parts, every)
    degrees = [spans[0], spans[1] // spans[0], spans[2] // spans[1]]
    fanouts = fanouts_used(system, degrees, len(degrees))
    return ProcessGroup(ranks, outermost(system, ranks * stride, fanouts), stride, fanouts)


def data_group(
    schedule: Schedule, system: System, ranks: Count, apart: Count | None = None
) -> ProcessGroup:
    """Return process groups of `ranks` data-parallel ranks, each `apart` places from the next in the whole group.

    Context-parallel ranks have the same weights and are part of these groups. In a mesh they are a cluster of near
    ranks, while replicas of the whole sequence may be further apart.
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
    """Return process groups of a mesh that consist of clusters, with a `stride` between the clusters.

    Args:
        ranks: Members of a group.
        apart: Distance between two members, counted in data-parallel ranks: a multiple of a cluster. None: neighbors.
        near: Distance between the members of a cluster, and their number.
    """
    count, fanouts = np.asarray(ranks, np.int64), schedule.fanouts
    distance, most = near
    clustered = np.minimum(most, count)
    if apart is not None:
        stride = stride * np.maximum(np.asarray(apart, np.int64) // most, 1)
        clustered = np.ones_like(clustered)
    if not (clustered > 1).any():
        return ProcessGroup(ranks, outermost(system, stride * count, fanouts), stride, fanouts)
    clusters = count // clustered
    # a single cluster of several ranks spans its own members only, whatever the stride between clusters
    span = np.where((clusters > 1) | (clustered == 1), stride * clusters, distance * clustered)
    network = outermost(system, span, fanouts)
    return ProcessGroup(
        ranks, network, stride, fanouts, near=clustered, near_stride=np.asarray(distance)
    )


def replica_strides(schedule: Schedule) -> tuple[Count, Count, Count]:
    """Return the layout of replicas of routed experts in a mesh: near stride, cluster size, stride between clusters.

    The ranks of a sequence (tensor- and context-parallel) hold all experts once or several times: the replicas among
    them are a cluster.
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
    """Return process groups of replicas of routed experts, each `apart` places from the next.

    Neighboring replicas are as far apart as the group of ranks that holds all experts once is wide. If that is the
    tensor-parallel group, replicas of experts are the replicas of all other weights.
    """
    if not schedule.choice.meshed:
        return replace(data_group(schedule, system, ranks, apart), experts=True)
    distance, near, stride = replica_strides(schedule)
    group = _in_clusters(schedule, system, ranks, apart, (distance, near), stride)
    return replace(group, experts=True)


def axis_group(schedule: Schedule, system: System, axis: str) -> ProcessGroup:
    """Return the process groups of an axis of parallelism for the executions of a schedule."""
    ranks = np.asarray(getattr(schedule.columns, AXIS[axis].degree), np.int64)
    network = schedule.networks[axis]
    if not schedule.choice.meshed:
        return ProcessGroup(ranks, network)
    stride = np.asarray(schedule.strides[axis], np.int64)
    return ProcessGroup(ranks, network, stride, schedule.fanouts)


@dataclass(frozen=True, slots=True)
class CollectiveCost:
    """Cost function of collectives: seconds, or bytes on each network.

    Formulas of traffic are sums over collectives. They take this function as an argument, so that one formula gives
    both the time and the bytes.

    Attributes:
        system, schedule: The machine, and the executions with their collective algorithm.
        bytes: Count bytes through a port of each network, with shape (networks, ...), instead of seconds.
        copies: Count only collectives among the replicas of HSDP's shards, or only others; None: all.
        experts: Count only collectives among replicas of routed experts, or only others; None: all.
        network: Count only bytes on this network, without the axis of networks.
        known: Cache of the collectives of kinds of stage, which are often equal.
    """

    system: System
    schedule: Schedule
    bytes: bool = False
    copies: bool | None = None
    experts: bool | None = None
    network: int | None = None
    known: dict[tuple[object, ...], Array] | None = None

    def __call__(self, operation: str, size: Bytes, group: ProcessGroup) -> Array:
        """Return the cost of one collective."""
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
        """Return the quantity that takes longer of the two of `both`, which is called with a cost function.

        "Longer" is in seconds, also if bytes are counted.
        """
        one, other = both(self)
        if not self.bytes and self.copies is None and self.experts is None:
            return np.maximum(one, other)
        first, second = both(CollectiveCost(self.system, self.schedule))
        return np.where(second > first, other, one)


def exposed_time(traffic: Seconds, work: Seconds, usage: Fraction) -> Seconds:
    r"""Return the exposed time of traffic that overlaps with work.

    .. math:: \min(t, \max(t - w, u \, t))

    for traffic `t`, work `w` and the share `u` of the multiprocessors that traffic occupies: work runs at
    :math:`1 - u` of its rate during the traffic, and traffic that outlasts the work runs alone.
    """
    return np.minimum(traffic, np.maximum(traffic - work, usage * traffic))


def slow_down(usage: Fraction, stated: Array) -> Fraction:
    r"""Return the share `u` of :func:`exposed_time`: the `usage` of multiprocessors, or `stated` percent if larger.

    Collectives take memory and cache bandwidth and power in addition to multiprocessors. On A100, H100, MI210 and
    MI250, overlapped work takes 18.9 % longer, and training steps without any overlap are 10.2 % longer than with it,
    on average (Lee et al., arXiv 2507.03114). For hidden traffic `t` and work `w` that is :math:`u t = 0.189 w` and
    :math:`w + t = 1.102 (w + u t)`, so :math:`u = 0.61`; with exposed traffic of 30 % of the work's time, 0.55.
    """
    return np.maximum(usage, stated / 100)
