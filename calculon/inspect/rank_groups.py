"""Which ranks of one execution work together: where they sit, and what passes their ports in a step."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from calculon.architecture.block import block_layers
from calculon.architecture.embedding_and_head import embedding_layers, head_layers
from calculon.architecture.layers import Layer
from calculon.architecture.shape import BlockShape
from calculon.cost.batch import Batch
from calculon.cost.block_cost import BlockLayout
from calculon.cost.block_tables import choice_of, sizes_of
from calculon.cost.ends import plain_choice
from calculon.editions.edition import Edition
from calculon.evaluate import evaluate_rows
from calculon.hardware.collectives.placement import Group, fits_mesh
from calculon.hardware.system import System
from calculon.parallel.data.exchanges import copy_team, shard_team
from calculon.parallel.data.sync import data_traffic
from calculon.parallel.pipeline.transfers import pipeline_volume
from calculon.parallel.process_groups import Meter, Team, data_team, tensor_team
from calculon.parallel.tensor import tensor_volumes
from calculon.plan.choice import Choice
from calculon.plan.mesh import numbering, pipeline_stride
from calculon.plan.plan import Plan
from calculon.spec.execution import Execution
from calculon.spec.model import Model
from calculon.units import Array, Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """The groups of ranks of one kind of parallelism.

    Attributes
    ----------
    kind : str
        ``tensor``, ``pipeline`` or ``data``; with hybrid sharding ``shards``, the replicas that share what is split,
        and ``copies``, those that hold the same of it, in place of ``data``.
    ranks, groups : int
        Ranks of a group, and how many groups there are.
    stride : int
        Distance of the numbers of the ranks of a group.
    members : tuple of int
        What one instance of each network joins in a group: ranks, nodes, or groups of nodes; 1 where it is not used.
    bytes : tuple of float
        What passes the port of one rank to each network in a step.
    link_time, exposed_time : float
        Seconds of a step on the link, and of them not hidden. What of data parallelism is exposed is shared out between
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
    _, batch = next(evaluate_rows(model, system, plan, edition))
    choice, schedule = choice_of(plan), batch.schedule
    between_stages, apart = (int(stride[0]) for stride in numbering(plan))
    tensor = tensor_team(sizes_of(plan), choice, system)
    stages = Team(schedule.pipeline_par, schedule.pipeline_par_net, pipeline_stride(plan))
    moved, sent = _tensor_bytes(model, batch, choice, plan), _pipeline_bytes(batch)
    parts = [
        _Part("tensor", tensor, 1, moved, _seconds(stats, "tp_comm", "recomm")),
        _Part("pipeline", stages, between_stages, sent, _seconds(stats, "pp_comm")),
        *_data_parts(batch, apart, _seconds(stats, "dp_comm")),
    ]
    return [
        RankGroup(
            kind=part.kind,
            ranks=part.ranks,
            groups=execution.num_procs // part.ranks,
            stride=part.stride,
            members=_members(part.team, system),
            bytes=tuple(float(one) for one in np.reshape(part.bytes, -1)),
            link_time=part.times[0],
            exposed_time=part.times[1],
        )
        for part in parts
        if part.ranks > 1
    ]


class _Part(NamedTuple):
    """One kind of parallelism: its groups, and bytes of shape (networks, 1)."""

    kind: str
    team: Team
    stride: int
    bytes: Bytes
    times: tuple[float, float]

    @property
    def ranks(self) -> int:
        """Ranks of a group."""
        return int(np.asarray(self.team.ranks).item())


def _seconds(stats: Mapping[str, float | None], *names: str) -> tuple[float, float]:
    """Return time on the link and exposed time."""
    link, exposed = (
        sum(stats[f"{name}_{which}_time"] or 0.0 for name in names) for which in ("link", "exposed")
    )
    return link, exposed


def _data_parts(batch: Batch, apart: int, times: tuple[float, float]) -> list[_Part]:
    """Return the groups of replicas: all of them, or with hybrid sharding shards and copies."""
    schedule, system = batch.schedule, batch.system
    synced, ends = batch.synced
    meter, form = Meter(system, schedule), schedule.replicas
    if form is None or not form.stated[0] or not 1 < form.shards[0] < schedule.data_par[0]:
        whole = data_team(schedule, system, schedule.data_par)
        moved = data_traffic(synced, ends, replace(meter, bytes=True))
        return [_Part("data", whole, apart, moved, times)]
    link, exposed = times

    def part(kind: str, team: Team, stride: int) -> _Part:
        these = replace(meter, copies=team.copies)
        moved = data_traffic(synced, ends, replace(these, bytes=True))
        time = float(data_traffic(synced, ends, these).item())
        return _Part(kind, team, stride, moved, (time, exposed * time / link))

    return [
        part("shards", shard_team(schedule, system), apart),
        part("copies", copy_team(schedule, system), apart * int(form.shards[0])),
    ]


def _members(team: Team, system: System) -> tuple[int, ...]:
    """Return what each network joins; all ranks on the outermost one where they are not spread evenly."""
    ranks = np.asarray(team.ranks, np.int64)
    group = team.group(system)
    meshed = np.any(np.asarray(team.stride) > 0)
    uneven = meshed and not np.all(fits_mesh(system, ranks, np.asarray(team.stride)))
    if uneven or np.any(group.network != team.network):
        group = Group.on_network(system, team.network, ranks)
    return tuple(int(np.asarray(members).item()) for members in group.members)


def _pipeline_bytes(batch: Batch) -> Bytes:
    """Bytes of the pipeline's transfers: shape (networks, 1)."""
    shared = None if batch.ends is None else batch.ends.shared_gradient
    moved = pipeline_volume(batch.transfers, shared, batch.schedule, batch.system)
    networks = np.arange(len(batch.system.networks))[:, None]
    return np.where(networks == batch.schedule.pipeline_par_net, moved, 0.0)


def _tensor_bytes(model: Model, batch: Batch, choice: Choice, plan: Plan) -> Bytes:
    """Bytes of tensor-parallel collectives: shape (networks, 1)."""
    system, edition, schedule = batch.system, batch.edition, batch.schedule

    def passed(layers: Callable[[BlockShape], Iterable[Layer]], choice: Choice) -> Array:
        """Return the bytes of all passes: shape (kinds, networks, 1)."""
        layout = BlockLayout(model, system, choice, sizes_of(plan), edition, layers)
        having: Sequence[Layer] = [one for one in layout.table.layers if one.collective is not None]
        passes = tensor_volumes(having, system, choice, sizes_of(plan), edition)
        found: Array = passes.sum(axis=0) if choice.training else passes[0]
        return found

    of_block = edition.at_edge(SimpleNamespace(bytes=passed(block_layers, choice)), batch.piped)
    total: Bytes = schedule.batch_sum(*of_block.bytes)
    if batch.end_times is not None:
        both = (passed(one, plain_choice(choice))[0] for one in (embedding_layers, head_layers))
        total = total + schedule.microbatches * batch.end_times.of_slower(*both)
    return total
