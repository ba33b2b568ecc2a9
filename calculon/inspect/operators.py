"""One block, operator by operator: what each pass computes, moves, sends, and how long it takes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calculon import inputs
from calculon.cost.block_cost import BlockLayout
from calculon.cost.block_tables import choice_of, sizes_of
from calculon.cost.layer_cost import LayerCost, LayerTable, layer_cost
from calculon.cost.shares import exposed_times, stored_activations
from calculon.editions import EDITIONS, find_edition
from calculon.editions.edition import Edition
from calculon.evaluate import evaluate_rows
from calculon.hardware.collectives.algorithm_times import bus_factor
from calculon.hardware.collectives.group_times import PUBLISHED
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.parallel.process_groups import tensor_team
from calculon.parallel.tensor import PASSES, operation_of
from calculon.plan.choice import Choice, Sizes
from calculon.plan.plan import Plan
from calculon.plan.rules.check import check, raise_for
from calculon.plan.rules.rule import One, Question
from calculon.spec.execution import Execution
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
        ``exposed`` (s). Where blocks next to pipeline transfers have others, they are in ``edge_collectives``.
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
    raise_for(one, int(check(Question(one.model, one.system, plan))[0]))
    known = EDITIONS[one.execution.edition]
    _, batch = next(evaluate_rows(one.model, one.system, plan, known))
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
    """Yield the operators of a block, whose columns have one entry."""
    system, choice, sizes = edition.machine(one.system), choice_of(plan), sizes_of(plan)
    layout = BlockLayout(one.model, system, choice, sizes, edition)
    table = layout.table
    cost = layer_cost(table, layout.times, system, choice, sizes, edition)
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
        choice: Choice,
        sizes: Sizes,
        edition: Edition,
    ):
        self.table, self.cost, self.system = table, cost, system
        self.choice, self.sizes, self.edition = choice, sizes, edition
        self.exposed = exposed_times(table, cost, choice, edition)
        self.rows = {row: number for number, row in enumerate(table.collective_rows())}

    def by(self, layer: int, kind: int) -> list[dict[str, Any]]:
        """Return the collectives of a layer in a block of one kind."""
        number = self.rows.get(layer)
        return [] if number is None else list(self._by(layer, number, kind))

    def _by(self, layer: int, number: int, kind: int) -> Iterator[dict[str, Any]]:
        traffic = self.cost.traffic
        for i, name in enumerate(PASSES if self.choice.training else PASSES[:1]):
            operation = operation_of(
                self.table.layers[layer], name, KINDS[kind], self.choice, self.edition
            )
            message = traffic.size[i, kind, number]
            if operation is None or not message.any():
                continue
            yield {
                "pass": _OF_TRAFFIC[name],
                "operation": operation,
                "message": message.item(),
                "moved": self._moved(operation, message).item(),
                "time": traffic.link[i, kind, number].item(),
                "exposed": self.exposed[i, kind, number].item(),
            }

    def _moved(self, operation: str, message: Array) -> Array:
        """Bytes through each port."""
        team = tensor_team(self.sizes, self.choice, self.system)
        if self.choice.coll_algo == PUBLISHED:
            return self.system.fabric.volume(team.network, operation, message, team.ranks)
        moved: Array = bus_factor(operation, int(team.ranks[0])) * message
        return moved
