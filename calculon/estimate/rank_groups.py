"""Process groups of one execution: their ranks, networks, and traffic through ports in a step."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import accumulate
from math import prod
from operator import mul
from types import SimpleNamespace
from typing import Any

import numpy as np

from calculon.architecture.segments import (
    EMBEDDING,
    HEAD,
    Segment,
    kinds_of_block,
    prediction_module,
)
from calculon.architecture.shape import Sizes
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes
from calculon.cost.batch import Batch
from calculon.cost.block_cost import BlockLayout
from calculon.cost.block_tables import only_choices
from calculon.cost.data.data_collectives import copy_group, shard_group
from calculon.cost.data.strategies import STRATEGIES
from calculon.cost.embedding_head import plain_choice
from calculon.cost.iteration_times import latent_traffic
from calculon.cost.mixture import Weight, mean_of
from calculon.cost.pipeline.transfers import pipeline_volume
from calculon.cost.process_groups import (
    CollectiveCost,
    ProcessGroup,
    axis_group,
    data_group,
    expert_replicas,
    layer_group,
    replica_strides,
)
from calculon.cost.tensor import tensor_volumes
from calculon.declarations.axes import AXES
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.scope_choices import BlockChoice
from calculon.editions.edition import Edition
from calculon.estimate.evaluate import evaluate_one
from calculon.hardware.collectives.placement import Group, fits_mesh, nested_networks
from calculon.hardware.system import System
from calculon.plan.mesh import DEGREES, mesh_fanouts, strides
from calculon.plan.plan import Plan

# Networks of a mesh with more processors per instance than the groups use.


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Network whose instances leave processors idle, so that all groups are placed evenly.

    Idle processors are not part of ``num_procs``: they count neither for time nor for rates.

    Attributes:
        network, size: Number of the network, and processors of an instance.
        used: Processors of an instance that the groups use.
        instances: Instances that the execution takes.
        idle: Idle processors of these instances in total.
    """

    network: int
    size: int
    used: int
    instances: int
    idle: int

    def to_dict(self) -> dict[str, Any]:
        """Return the domain as plain data."""
        return asdict(self)


def domains(system: System, execution: Execution) -> list[Domain]:
    """Return the networks with idle processors in a mesh, from the inside out; none if all processors are used."""
    nested = nested_networks(system)
    used = [int(np.asarray(fanout).item()) for fanout in mesh_fanouts(Plan.of(execution), system)]
    count = prod(getattr(execution, name) for name in DEGREES)
    result = []
    places = zip(nested, used, accumulate(used, mul), strict=True)
    for (number, fanout), joined, inside in places:
        if joined < fanout:
            size, instances = system.networks[number].size, -(-count // inside)
            idle = instances * size - count
            result.append(
                Domain(network=number, size=size, used=inside, instances=instances, idle=idle)
            )
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """Process groups of one kind of parallelism.

    Attributes:
        kind: Kind of an axis: ``tensor``, ``pipeline``, ``data``; with hybrid sharding (HSDP) ``shards`` (replicas that
            share one state) and ``copies`` (ranks with the same shard) instead of ``data``. If routed experts have
            separate replica groups, these are ``expert data``, ``expert shards``, ``expert copies``.
        ranks, groups: Ranks of a group, and number of groups.
        stride: Distance between the ranks of a group, or between its clusters if there are any.
        members: Members of a group in one instance of each network: ranks, nodes, or groups of nodes; 1 if the network
            is not used.
        bytes: Bytes through the port of one rank to each network in a step.
        link_time, exposed_time: Seconds of a step on the link, and the part of them that is not hidden. The exposed
            data-parallel time is divided between kinds of groups in proportion to their link times, which overlap on
            different networks.
        near, near_stride: Ranks of a cluster, and the distance between them: context-parallel ranks, with replicas
            further apart.
    """

    kind: str
    ranks: int
    groups: int
    stride: int
    members: tuple[int, ...]
    bytes: tuple[float, ...]
    link_time: float
    exposed_time: float
    near: int = 1
    near_stride: int = 1

    @property
    def example(self) -> str:
        """Ranks of the group of rank 0: ``0-7``, or ``0, 8, ..., 504``, or clusters ``0-3, 16-19, ...``."""
        if self.near > 1:
            first = replace(self, ranks=self.near, stride=self.near_stride, near=1).example
            last = (self.ranks // self.near - 1) * self.stride
            return f"{first}, ..., {last + (self.near - 1) * self.near_stride}"
        numbers = range(0, self.ranks * self.stride, self.stride)
        if self.stride == 1:
            return f"0-{numbers[-1]}"
        if self.ranks <= 3:
            return ", ".join(map(str, numbers))
        return f"0, {self.stride}, ..., {numbers[-1]}"

    def to_dict(self) -> dict[str, Any]:
        """Return the group as plain data, with the networks that it uses."""
        each = enumerate(zip(self.members, self.bytes, strict=True))
        return {
            "kind": self.kind,
            "ranks": self.ranks,
            "groups": self.groups,
            "stride": self.stride,
            **({"near": self.near, "near_stride": self.near_stride} if self.near > 1 else {}),
            "example": self.example,
            "networks": [
                {"network": number, "members": members, "bytes": moved}
                for number, (members, moved) in each
                if members > 1
            ],
            "link_time": self.link_time,
            "exposed_time": self.exposed_time,
        }


def rank_groups(
    model: Model,
    system: System,
    execution: Execution,
    edition: Edition,
    stats: Mapping[str, float | None],
) -> list[RankGroup]:
    """Return the process groups of an execution with more than one rank.

    The execution must be valid; `stats` are its statistics. Bytes are for a rank of the stage with the longest traffic,
    consistent with its time: transfers of a pipeline that spans several networks all count for the outermost.
    """
    plan, system = Plan.of(execution), edition.machine(system)
    model = model.executed(training=execution.training)
    batch = evaluate_one(model, system, plan, edition)
    choice, _, sizes = only_choices(plan)
    apart = {name: int(np.asarray(one).item()) for name, one in strides(plan).items()}
    found: list[RankGroup] = []
    for axis in AXES:
        name = axis.name
        if getattr(execution, axis.degree) == 1 and (name != "dp" or execution.context_par == 1):
            continue
        times = _seconds(stats, *_TIMES.get(name, (f"{name}_comm",)))
        if name == "dp":
            clusters = apart["cp"], execution.context_par, apart[name]
            found += _data_groups(batch, clusters, times)
            continue
        if name == "pp":
            group, moved = _pipeline_group(batch), _pipeline_bytes(batch)
        else:
            group = layer_group(name, sizes, choice, system)
            moved = _layer_bytes(name, model, batch, choice, sizes)
        found.append(_rank_group(axis.kind, batch, group, apart[name], moved, times))
    return [group for group in found if group.ranks > 1]


_TIMES = {"tp": ("tp_comm", "recomm")}
"""Statistics of the time of an axis with several, without ``_link_time`` and ``_exposed_time``."""


def _seconds(stats: Mapping[str, float | None], *names: str) -> tuple[float, float]:
    """Return link time and exposed time."""
    link, exposed = (
        sum(stats[f"{name}_{which}_time"] or 0.0 for name in names) for which in ("link", "exposed")
    )
    return link, exposed


def _rank_group(
    kind: str,
    batch: Batch,
    group: ProcessGroup,
    stride: int,
    moved: Bytes,
    times: tuple[float, float],
    near: int = 1,
    near_stride: int = 1,
) -> RankGroup:
    """Return process groups as plain numbers; `moved` has shape (networks, 1)."""
    ranks = int(np.asarray(group.ranks).item())
    return RankGroup(
        near=near,
        near_stride=near_stride,
        kind=kind,
        ranks=ranks,
        groups=int(batch.schedule.processors[0]) // ranks,
        stride=stride,
        members=_members(group, batch.system),
        bytes=tuple(np.ravel(moved).astype(float).tolist()),
        link_time=times[0],
        exposed_time=times[1],
    )


def _pipeline_group(batch: Batch) -> ProcessGroup:
    """Return the process group of the stages of a pipeline."""
    schedule = batch.schedule
    if schedule.choice.meshed:
        return axis_group(schedule, batch.system, "pp")
    return ProcessGroup(schedule.pipeline_par, schedule.networks["pp"])


_Clusters = tuple[int, int, int]
"""Distance between the ranks of a cluster, ranks per cluster, and distance between clusters."""


def _spaced(ranks: int, clusters: _Clusters, apart: int = 1) -> _Clusters:
    """Return the clusters of a group whose ranks are `apart` ranks apart; no clusters if distances are equal."""
    distance, near, stride = clusters
    if apart > 1:
        return 1, 1, stride * max(apart // near, 1)
    near = min(near, ranks)
    if near == 1:
        return 1, 1, stride
    if ranks == near or stride == distance * near:
        return 1, 1, distance
    return distance, near, stride


def _data_groups(batch: Batch, clusters: _Clusters, times: tuple[float, float]) -> list[RankGroup]:
    """Return the groups of ranks with equal weights: all of them, or with hybrid sharding shards and copies."""
    schedule, system, traffic = batch.schedule, batch.system, batch.pipeline.traffic.total
    sharding = STRATEGIES[schedule.choice.zero_stage].sharding
    cost, (synced, _) = CollectiveCost(system, schedule), batch.stage.synced
    shards = 1 if sharding is None else int(sharding.shards(schedule)[0])
    cut = sharding is not None and 1 < shards < schedule.data_ranks[0]
    experts = synced.experts is not None
    if not cut and not experts:
        whole = data_group(schedule, system, schedule.data_ranks)
        # The same function computes times and bytes, so both describe the same collectives.
        moved = traffic(replace(cost, bytes=True))
        return [_of_replicas("data", batch, whole, clusters, 1, moved, times)]
    link, exposed = times

    def part(kind: str, group: ProcessGroup, clusters: _Clusters, apart: int = 1) -> RankGroup:
        these = replace(cost, copies=group.copies, experts=group.experts)
        moved = traffic(replace(these, bytes=True))
        # Groups of different kinds overlap, so their times do not add up to the link time.
        time = float(traffic(these).item())
        share = time / link if link else 0.0
        seconds = time, exposed * share
        return _of_replicas(kind, batch, group, clusters, apart, moved, seconds)

    result = []
    for of_experts in (False, True) if experts else (False,):
        prefix, these = ("expert ", _expert_clusters(batch)) if of_experts else ("", clusters)
        if sharding is None or not cut:
            every = expert_replicas if of_experts else data_group
            ranks = schedule.expert_data_par if of_experts else schedule.data_ranks
            result.append(part(f"{prefix}data", every(schedule, system, ranks), these))
            continue
        split = shard_group(sharding, schedule, system, experts=of_experts)
        held = copy_group(sharding, schedule, system, experts=of_experts)
        apart = int(np.asarray(split.ranks).item())
        shared = part(f"{prefix}shards", split, these)
        result += [shared, part(f"{prefix}copies", held, these, apart)]
    return result


def _of_replicas(
    kind: str,
    batch: Batch,
    group: ProcessGroup,
    clusters: _Clusters,
    apart: int,
    moved: Bytes,
    times: tuple[float, float],
) -> RankGroup:
    """Return groups of ranks with equal weights that are `apart` such ranks apart."""
    ranks = int(np.asarray(group.ranks).item())
    near_stride, near, stride = _spaced(ranks, clusters, apart)
    return _rank_group(kind, batch, group, stride, moved, times, near, near_stride)


def _expert_clusters(batch: Batch) -> _Clusters:
    """Return the distances between the replicas of routed experts; for stated networks, as in a mesh of all axes."""
    distance, near, stride = (int(np.asarray(n).item()) for n in replica_strides(batch.schedule))
    return distance, near, stride


def _members(group: ProcessGroup, system: System) -> tuple[int, ...]:
    """Return the members on each network; all on the outermost one if they are not placed evenly."""
    ranks, stride = np.asarray(group.ranks, np.int64), group.stride
    placed = group.placed(system)
    near = 1 if group.near is None else group.near
    uneven = stride is not None and not np.all(
        fits_mesh(system, ranks // near, np.asarray(stride, np.int64), group.fanouts)
    )
    if uneven or np.any(placed.network != group.network):
        placed = Group.on_network(system, group.network, ranks)
    return tuple(int(np.asarray(members).item()) for members in placed.members)


def _pipeline_bytes(batch: Batch) -> Bytes:
    """Return the bytes of the pipeline's transfers: shape (networks, 1)."""
    ends, mirrored = batch.stage.embedding_head, batch.pipeline.mirrored_gradient
    shared = None if ends is None else ends.shared_table
    sent = batch.pipeline.slowest.transfers
    moved = pipeline_volume(sent, shared, mirrored, batch.schedule, batch.system)
    networks = np.arange(len(batch.system.networks))[:, None]
    return np.where(networks == batch.schedule.networks["pp"], moved, 0.0)


def _layer_bytes(axis: str, model: Model, batch: Batch, choice: BlockChoice, sizes: Sizes) -> Bytes:
    """Return the bytes of the collectives of layers along an axis: shape (networks, 1)."""
    system, edition, schedule = batch.system, batch.edition, batch.schedule

    def passed(segment: Segment, choice: BlockChoice) -> Array:
        """Return the bytes of all passes: shape (kinds, networks, 1)."""
        of_pass = sizes.halved() if choice.in_halves else sizes
        layout = BlockLayout(model, system, choice.layout, of_pass, edition, segment.layers)
        having = [layout.table.layers[row] for row in layout.table.collective_rows(axis)]
        passes = tensor_volumes(having, layout.network.along(axis), choice, edition)
        total: Array = passes.sum(axis=0) if choice.training else passes[0]
        # Both halves of a microbatch have separate collectives.
        return 2 * total if choice.in_halves else total

    kinds = kinds_of_block(model)
    layout = schedule.layout
    counts: list[Weight] = [kind.count for kind in kinds]
    if batch.pipeline.uneven is not None and layout is not None and layout.of_kind is not None:
        # The slowest stage determines the time, and its kinds of block can differ from the average.
        counts = [batch.pipeline.uneven.of_slowest(own) for own in layout.of_kind]
        # A stage without blocks sends nothing of them: the weights of its mean only must not add up to 0.
        counts = [np.where(batch.pipeline.uneven.blocks_of_slowest > 0, n, 1.0) for n in counts]
        schedule = batch.pipeline.slowest_schedule
    of_kinds, module = [passed(kind, choice) for kind in kinds], prediction_module(model)
    plain = plain_choice(choice, system)
    if schedule.modules and module is not None:  # blocks of a stage, but for their heads
        of_kinds.append(passed(module, choice) + passed(EMBEDDING, plain))
    mean = mean_of(of_kinds, counts)
    of_block = edition.at_edge(SimpleNamespace(bytes=mean), schedule.pipeline_par > 1)
    total: Bytes = schedule.batch_sum(*of_block.bytes)
    if batch.pipeline.embedding_head is not None:
        embedding, head = (passed(one, plain)[0] for one in (EMBEDDING, HEAD))
        if module is not None:
            own = 0.0 if schedule.modules else embedding + passed(module, choice)[0]
            head = head + module.count * (head + own)
        ends = batch.pipeline.embedding_head.of_slower(embedding, head)
        total = total + schedule.microbatches * ends
    if axis == "tp" and model.latent:
        cost, stage = CollectiveCost(system, schedule, bytes=True), batch.stage
        once = latent_traffic(model, stage.block, cost, modules=stage.has_modules)
        total = total if once is None else total + once
    return total
