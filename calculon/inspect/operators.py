"""One block, operator by operator: what each pass computes, moves, sends, and how long it takes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calculon import inputs
from calculon.architecture.layer_sizes import Sizes
from calculon.architecture.segments import Segment, listed_kinds
from calculon.cost.block_cost import BlockLayout
from calculon.cost.block_tables import only_choices
from calculon.cost.layer_cost import LayerCost, LayerTable, layer_cost
from calculon.cost.shares import exposed_times, stored_activations
from calculon.editions import EDITIONS, find_edition
from calculon.editions.edition import Edition
from calculon.evaluate import evaluate_one
from calculon.hardware.collectives.algorithm_times import bus_factor
from calculon.hardware.collectives.group_times import PUBLISHED
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.parallel.process_groups import layer_group
from calculon.parallel.tensor import PASSES, operation_of
from calculon.plan.plan import Plan
from calculon.plan.rules.check import check, raise_for
from calculon.plan.rules.rule import One
from calculon.spec.axes import FURTHER_NAMES
from calculon.spec.execution import BlockChoice, Execution
from calculon.spec.model import Model
from calculon.statistics import KINDS
from calculon.units import Array

FORWARD, INPUTS, WEIGHTS, AGAIN = "forward", "activation_grad", "weight_grad", "recompute"
WORK_PASSES = (FORWARD, INPUTS, WEIGHTS, AGAIN)
"""Passes over an operator: forward, gradients of its input and of its weights, and forward once more."""

_OF_TRAFFIC = dict(zip(PASSES, (FORWARD, INPUTS, AGAIN), strict=True))


@dataclass(frozen=True)
class Block:
    """The operators of one block for one microbatch, on one processor.

    Attributes
    ----------
    model, execution, system
        What was asked.
    edition : str
        Edition of the cost model.
    operators : list of dict
        In order of execution: ``name``, ``engine``, then ``flops``, ``bytes`` (moved in tier-1 memory) and ``time`` (s)
        by pass of :data:`WORK_PASSES`, ``weights`` and ``saved`` (bytes), and ``collectives``: for each its ``pass``,
        ``operation``, ``message`` and ``moved`` (bytes of the full array, and through each port: those of the network's
        ``ops``, or with another ``coll_algo`` of a ring, as nccl-tests counts), ``time`` and
        ``exposed`` (s), and of those that are not tensor-parallel their ``axis``. Where blocks next to pipeline
        transfers have others, they are in ``edge_collectives``. Of several kinds of block, each operator also says its
        ``kind``, and of how many ``blocks`` it is.
    stats : dict
        The statistics of a block that :func:`calculon.estimate` reports, by name.
    """

    model: Model
    execution: Execution
    system: System
    edition: str
    operators: list[dict[str, Any]] = field(repr=False)
    stats: dict[str, float | None] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "model": {"name": self.model.name} | self.model.to_dict(),
            "execution": self.execution.to_dict(),
            "system": self.system.name,
            "edition": self.edition,
            "operators": self.operators,
            "stats": self.stats,
        }


def block(
    model: Source | Model,
    execution: Source | Execution,
    system: Source | System,
    *,
    part: str | None = None,
    edition: Edition | str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Block:
    """List the operators of one block of a model, or of a part of it.

    Whether all blocks fit into memory is not asked.

    Parameters
    ----------
    model, execution, system, edition
        As in :func:`calculon.estimate`.
    part : str, optional
        ``attention``, ``mlp`` or ``linear``: that part alone, as a model says it with the field ``part``.
    changes : mapping, optional
        Fields of the execution to change first.

    Raises
    ------
    SpecError
        For a malformed request.
    Infeasible
        When it cannot run on this system.
    """
    one = One(inputs.model(model), inputs.system(system), inputs.execution(execution))
    asked = dict(changes or {})
    if edition is not None:
        asked["edition"] = find_edition(edition).name
    shape = one.model if part is None else one.model.only(part)
    one = replace(one, model=shape, execution=replace(one.execution, **asked))
    plan = Plan.of(one.execution)
    raise_for(one, int(check(one.model, one.system, plan)[0]))
    known = EDITIONS[one.execution.edition]
    batch = evaluate_one(one.model, one.system, plan, known)
    columns = (column for column in known.columns if "block_" in column.name)
    stats = {column.name: column.only(batch) for column in columns}
    return Block(
        model=one.model,
        execution=one.execution,
        system=one.system,
        edition=known.name,
        operators=list(_operators(one, plan, known)),
        stats=stats,
    )


def _operators(one: One, plan: Plan, edition: Edition) -> Iterator[dict[str, Any]]:
    """Yield the operators of each kind of block, whose columns have one entry."""
    for kind, said in listed_kinds(one.model):
        for operator in _of_kind(one, plan, edition, kind):
            yield {"name": operator.pop("name")} | said | operator


def _of_kind(one: One, plan: Plan, edition: Edition, kind: Segment) -> Iterator[dict[str, Any]]:
    """Yield the operators of one kind of block."""
    system, (choice, _, sizes) = edition.machine(one.system), only_choices(plan)
    layout = BlockLayout(one.model, system, choice.layout, sizes, edition, kind.layers)
    table = layout.table
    cost = layer_cost(table, layout.times, layout.network, choice, edition)
    repeated = table.flagged("recompute", choice, edition)
    counted = edition.recomputed_work(np.eye(len(table.layers))[..., None], repeated)
    passes = np.array([1.0, choice.training, choice.training])[:, None, None]
    work = {
        "flops": _with_repeated(passes * table.flops, counted),
        "bytes": _with_repeated(passes * table.accessed, counted),
        "time": _with_repeated(passes * cost.times.processing, repeated),
    }
    saved = _of_readers(stored_activations(table, choice, edition)[:, 0].tolist())
    sent = _Sent(table, cost, system, choice, sizes, edition)
    piped = one.execution.pipeline_par > 1
    for i, layer in enumerate(table.layers):
        base, edge = (sent.by(i, kind) for kind in range(len(KINDS)))
        yield {
            "name": layer.name,
            "engine": layer.engine,
            **{
                quantity: dict(zip(WORK_PASSES, values[:, i, 0].tolist(), strict=True))
                for quantity, values in work.items()
            },
            "weights": table.weight_bytes[i, 0].item(),
            "saved": saved[i],
            "collectives": base,
            **({"edge_collectives": edge} if piped and edge != base else {}),
        }


def _of_readers(stored: list[float]) -> list[float]:
    """Take outputs that do not stay off the operators that save them as their input: none keeps less than nothing."""
    saved, owed = [], 0.0
    for size in stored:
        left = size + owed
        saved.append(max(0.0, left))
        owed = min(0.0, left)
    return saved


def _with_repeated(values: Array, times: Array) -> Array:
    """Append what recomputation does again of the forward pass: shape (passes, layers, blocks)."""
    return np.concatenate([values, (values[0] * times)[None]])


class _Sent:
    """The collectives of the layers of a block."""

    def __init__(
        self,
        table: LayerTable,
        cost: LayerCost,
        system: System,
        choice: BlockChoice,
        sizes: Sizes,
        edition: Edition,
    ):
        self.table, self.cost, self.system = table, cost, system
        self.choice, self.sizes, self.edition = choice, sizes, edition
        self.exposed = exposed_times(table, cost, choice, edition)

    def by(self, layer: int, kind: int) -> list[dict[str, Any]]:
        """Return the collectives of a layer in a block of one kind."""
        found = self.table.layers[layer].collective
        return [] if found is None else list(self._by(layer, found.axis, kind))

    def _sent(self, axis: str, kind: int) -> tuple[Array, Array, Array]:
        """Return message, time and exposed time of the collectives along an axis: shape (passes, layers, blocks)."""
        if axis in FURTHER_NAMES:
            further = self.cost.further[axis]
            return further.size, further.link, further.link
        traffic = self.cost.traffic
        return traffic.size[:, kind], traffic.link[:, kind], self.exposed[:, kind]

    def _by(self, layer: int, axis: str, kind: int) -> Iterator[dict[str, Any]]:
        number = self.table.collective_rows(axis).index(layer)
        sizes, times, exposed = self._sent(axis, kind)
        for i, name in enumerate(PASSES if self.choice.training else PASSES[:1]):
            operation = operation_of(
                self.table.layers[layer], name, KINDS[kind], self.choice, self.edition
            )
            message = sizes[i, number]
            if operation is None or not message.any():
                continue
            yield {
                **({"axis": axis} if axis in FURTHER_NAMES else {}),
                "pass": _OF_TRAFFIC[name],
                "operation": operation,
                "message": message.item(),
                "moved": self._moved(operation, message, axis).item(),
                "time": times[i, number].item(),
                "exposed": exposed[i, number].item(),
            }

    def _moved(self, operation: str, message: Array, axis: str) -> Array:
        """Bytes through each port."""
        group = layer_group(axis, self.sizes, self.choice, self.system)
        if self.choice.coll_algo == PUBLISHED:
            return self.system.fabric.volume(group.network, operation, message, group.ranks)
        moved: Array = bus_factor(operation, int(group.ranks[0])) * message
        return moved
