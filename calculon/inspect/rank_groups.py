"""Process groups of one execution: the ranks that work together, their networks, and bytes through ports in a step."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from calculon.architecture.layer_sizes import Sizes
from calculon.architecture.segments import EMBEDDING, HEAD, Segment, kinds_of_block
from calculon.cost.batch import Batch
from calculon.cost.block_cost import BlockLayout
from calculon.cost.block_tables import only_choices
from calculon.cost.embedding_head import plain_choice
from calculon.cost.mixture import mean_of
from calculon.editions.edition import Edition
from calculon.evaluate import evaluate_one
from calculon.frozen import dataclass
from calculon.hardware.collectives.placement import Group, fits_mesh
from calculon.hardware.system import System
from calculon.parallel.data.data_collectives import copy_group, shard_group
from calculon.parallel.data.strategies import data_traffic
from calculon.parallel.pipeline.transfers import pipeline_volume
from calculon.parallel.process_groups import (
    CollectiveCost,
    ProcessGroup,
    axis_group,
    data_group,
    layer_group,
)
from calculon.parallel.tensor import tensor_volumes
from calculon.plan.mesh import strides
from calculon.plan.plan import Plan
from calculon.spec.axes import AXES
from calculon.spec.execution import Execution
from calculon.spec.model import Model
from calculon.spec.scope_choices import BlockChoice
from calculon.units import Array, Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """The process groups of one kind of parallelism.

    Attributes
    ----------
    kind : str
        That of an axis: ``tensor``, ``pipeline``, ``data``; with hybrid sharding (HSDP) ``shards``, the
        replicas that share one state, and ``copies``, those that hold the same share, in place of ``data``.
    ranks, groups : int
        Ranks of a group, and how many groups there are.
    stride : int
        Distance of the numbers of the ranks of a group.
    members : tuple of int
        Members of a group that one instance of each network joins: ranks, nodes, or groups of nodes; 1 where it is not
        used.
    bytes : tuple of float
        Bytes through the port of one rank to each network in a step.
    link_time, exposed_time : float
        Seconds of a step on the link, and of them not hidden. Exposed time of data parallelism is divided between
        ``shards`` and ``copies`` as their time on the link.
    """

    kind: str
    ranks: int
    groups: int
    stride: int
    members: tuple[int, ...]
    bytes: tuple[float, ...]
    link_time: float
    exposed_time: float

    @property
    def example(self) -> str:
        """The ranks of the group of rank 0: ``0-7``, or ``0, 8, ..., 504``."""
        numbers = range(0, self.ranks * self.stride, self.stride)
        if self.stride == 1:
            return f"0-{numbers[-1]}"
        if self.ranks <= 3:
            return ", ".join(map(str, numbers))
        return f"0, {self.stride}, ..., {numbers[-1]}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; of the networks, those that the group uses."""
        each = enumerate(zip(self.members, self.bytes, strict=True))
        return {
            "kind": self.kind,
            "ranks": self.ranks,
            "groups": self.groups,
            "stride": self.stride,
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
    """Return the groups of an execution that have more than one rank.

    The execution must be valid; `stats` are its statistics. Bytes are those of a rank of the stage whose traffic takes
    longest, counted as its time is: transfers of a pipeline that spans several networks are all on the outermost.
    """
    plan, system = Plan.of(execution), edition.machine(system)
    batch = evaluate_one(model, system, plan, edition)
    choice, _, sizes = only_choices(plan)
    apart = {name: int(np.asarray(one).item()) for name, one in strides(plan).items()}
    found: list[RankGroup] = []
    for axis in AXES:
        name = axis.name
        if getattr(execution, axis.degree) == 1:
            continue
        times = _seconds(stats, *_TIMES.get(name, (f"{name}_comm",)))
        if name == "dp":
            found += _data_groups(batch, apart[name], times)
            continue
        if name == "pp":
            group, moved = _pipeline_group(batch), _pipeline_bytes(batch)
        else:
            group = layer_group(name, sizes, choice, system)
            moved = _layer_bytes(name, model, batch, choice, sizes)
        found.append(_rank_group(axis.kind, batch, group, apart[name], moved, times))
    return [group for group in found if group.ranks > 1]


_TIMES = {"tp": ("tp_comm", "recomm")}
"""Statistics of the time of an axis where there are several, without ``_link_time`` and ``_exposed_time``."""


def _seconds(stats: Mapping[str, float | None], *names: str) -> tuple[float, float]:
    """Return time on the link and exposed time."""
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
) -> RankGroup:
    """Return process groups as plain numbers; `moved` has shape (networks, 1)."""
    ranks = int(np.asarray(group.ranks).item())
    return RankGroup(
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
    """Return the stages of a pipeline."""
    schedule = batch.schedule
    if schedule.choice.meshed:
        return axis_group(schedule, batch.system, "pp")
    return ProcessGroup(schedule.pipeline_par, schedule.networks["pp"])


def _data_groups(batch: Batch, apart: int, times: tuple[float, float]) -> list[RankGroup]:
    """Return the groups of replicas: all of them, or with hybrid sharding shards and copies."""
    schedule, system, sharding = batch.schedule, batch.system, batch.strategy.sharding
    synced, embedding_head = batch.synced
    cost = CollectiveCost(system, schedule)
    shards = 1 if sharding is None else int(sharding.shards(schedule)[0])
    if sharding is None or not 1 < shards < schedule.data_par[0]:
        whole = data_group(schedule, system, schedule.data_par)
        moved = data_traffic(synced, embedding_head, replace(cost, bytes=True))
        return [_rank_group("data", batch, whole, apart, moved, times)]
    link, exposed = times

    def part(kind: str, group: ProcessGroup, stride: int) -> RankGroup:
        these = replace(cost, copies=group.copies)
        moved = data_traffic(synced, embedding_head, replace(these, bytes=True))
        time = float(data_traffic(synced, embedding_head, these).item())
        return _rank_group(kind, batch, group, stride, moved, (time, exposed * time / link))

    return [
        part("shards", shard_group(sharding, schedule, system), apart),
        part("copies", copy_group(sharding, schedule, system), apart * shards),
    ]


def _members(group: ProcessGroup, system: System) -> tuple[int, ...]:
    """Return the members that each network joins; all on the outermost one where they are not spread evenly."""
    ranks, stride = np.asarray(group.ranks, np.int64), group.stride
    placed = group.placed(system)
    uneven = stride is not None and not np.all(
        fits_mesh(system, ranks, np.asarray(stride, np.int64), group.rooms)
    )
    if uneven or np.any(placed.network != group.network):
        placed = Group.on_network(system, group.network, ranks)
    return tuple(int(np.asarray(members).item()) for members in placed.members)


def _pipeline_bytes(batch: Batch) -> Bytes:
    """Bytes of the pipeline's transfers: shape (networks, 1)."""
    shared = None if batch.embedding_head is None else batch.embedding_head.shared_gradient
    moved = pipeline_volume(batch.transfers, shared, batch.schedule, batch.system)
    networks = np.arange(len(batch.system.networks))[:, None]
    return np.where(networks == batch.schedule.networks["pp"], moved, 0.0)


def _layer_bytes(axis: str, model: Model, batch: Batch, choice: BlockChoice, sizes: Sizes) -> Bytes:
    """Bytes of the collectives of layers along an axis: shape (networks, 1)."""
    system, edition, schedule = batch.system, batch.edition, batch.schedule

    def passed(segment: Segment, choice: BlockChoice) -> Array:
        """Return the bytes of all passes: shape (kinds, networks, 1)."""
        layout = BlockLayout(model, system, choice.layout, sizes, edition, segment.layers)
        having = [layout.table.layers[row] for row in layout.table.collective_rows(axis)]
        passes = tensor_volumes(having, system, choice, sizes, edition, axis)
        return passes.sum(axis=0) if choice.training else passes[0]

    kinds = kinds_of_block(model)
    mean = mean_of([passed(kind, choice) for kind in kinds], [kind.count for kind in kinds])
    of_block = edition.at_edge(SimpleNamespace(bytes=mean), batch.piped)
    total: Bytes = schedule.batch_sum(*of_block.bytes)
    if batch.embedding_head_times is not None:
        both = (passed(one, plain_choice(choice, system))[0] for one in (EMBEDDING, HEAD))
        total = total + schedule.microbatches * batch.embedding_head_times.of_slower(*both)
    return total
