"""Operators of one block: arithmetic, memory traffic, collectives and time of each pass."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from calculon import inputs
from calculon.architecture.attention import mean_keys
from calculon.architecture.context_exchange import AXIS, busiest_share
from calculon.architecture.layer import Collective
from calculon.architecture.layers import Layer
from calculon.architecture.linear_attention import PREFIXES
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, Seconds
from calculon.cost.axis_overlap import exchange_rows, ring_row
from calculon.cost.block_cost import BlockLayout
from calculon.cost.block_tables import only_choices
from calculon.cost.layer_cost import kernel_types, ring_steps, tensor_exposed_times
from calculon.cost.process_groups import algorithm_of, layer_group
from calculon.cost.tensor import PASSES, operation_of
from calculon.declarations.axes import FURTHER_NAMES
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.scope_choices import BlockChoice
from calculon.declarations.statistics import KINDS
from calculon.editions import EDITIONS, find_edition
from calculon.editions.edition import Edition
from calculon.estimate.evaluate import evaluate_one
from calculon.estimate.layer_list import OperatorStats, OperatorTable, operator_tables
from calculon.estimate.question import warn_of_differences
from calculon.hardware.collectives.algorithm_times import PUBLISHED, bus_factor
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.plan.plan import Plan
from calculon.plan.rules.all_rules import check, raise_for
from calculon.plan.rules.rule import Request

# Time of an MoE block by part: attention, router, dispatch, products, combine, shared experts.

ATTENTION, ROUTER, DISPATCH, PRODUCTS, COMBINE, SHARED, OTHER = EXPERT_PARTS = (
    "attention",
    "router",
    "dispatch",
    "experts",
    "combine",
    "shared experts",
    "other",
)
"""Parts of an MoE block, in order of execution; norm and residual of the second half are *other*."""

_ATTENDS = ("AttnBlock_", *(f"{prefix}_" for prefix in PREFIXES.values()))
"""Name prefixes of attention layers, with softmax or linear."""


def parts_of(layers: Sequence[Layer]) -> list[str]:
    """Return the part of each layer of an MoE block."""
    modules = [layer.flags.module for layer in layers]
    routed = [i for i, module in enumerate(modules) if module == "moe"]
    products = [i for i in routed if layers[i].name.startswith("MlpBlock_Experts")]
    result = []
    for i, layer in enumerate(layers):
        if layer.name.startswith(_ATTENDS):
            part = ATTENTION
        elif modules[i] == "shared_experts" or layer.name.startswith("Shared_"):
            part = SHARED
        elif modules[i] != "moe":
            part = OTHER
        elif layer.name in ("MlpBlock_Router", "MlpBlock_TopK"):
            part = ROUTER
        elif i < products[0]:
            part = DISPATCH
        else:
            part = PRODUCTS if i <= products[-1] else COMBINE
        result.append(part)
    return result


def has_experts(layers: Sequence[Layer]) -> bool:
    """Return True if a block has routed experts."""
    return any(layer.expert for layer in layers)


def expert_parts(
    model: Model, system: System, execution: Execution, edition: Edition
) -> dict[str, Any]:
    """Return the time of the parts of an MoE block, for a microbatch on one processor.

    Returns:
        ``blocks``: number of blocks with experts; ``parts``: for each of :data:`EXPERT_PARTS` that takes time, its
        name and the seconds ``computing`` and ``sending`` (on the link, hidden or not) in all passes. With several
        kinds of MoE block the mean. Empty for models without experts.
    """
    plan = Plan.of(execution)
    (choice, _, _), times, blocks = only_choices(plan), np.zeros((len(EXPERT_PARTS), 2)), 0
    for table in operator_tables(model, system, plan, edition):
        layers = table.layout.table.layers
        if not has_experts(layers):
            continue
        count = int(table.labels.get("blocks", model.num_blocks))
        blocks += count
        of_layers = _times(table, training=choice.training)
        for part, seconds in zip(parts_of(layers), of_layers, strict=True):
            times[EXPERT_PARTS.index(part)] += count * seconds
    if not blocks:
        return {}
    named = zip(EXPERT_PARTS, (times / blocks).tolist(), strict=True)
    return {
        "blocks": blocks,
        "parts": [
            {"part": part, "computing": computing, "sending": sending}
            for part, (computing, sending) in named
            if computing or sending
        ],
    }


def _times(table: OperatorTable, *, training: bool) -> Array:
    """Return the seconds of computing and sending of every layer in all passes: shape (layers, 2)."""
    stats, layout = table.stats, table.layout
    work, traffic = [stats.fw.time], [stats.fw_traffic.time]
    if training:
        work += [stats.agrad.time, stats.wgrad.time, stats.recompute.time]
        traffic += [stats.bw_traffic.time, stats.recomm.time]
    sending = sum(time[0] for time in traffic)  # index 0: a block inside a chunk, not at its edge
    for axis, further in table.cost.further.items():
        link = further.link[..., 0]
        sending[layout.table.collective_rows(axis)] += link.sum(axis=0) if training else link[0]
    return np.stack([sum(work), sending], axis=-1)


FORWARD, INPUTS, WEIGHTS, AGAIN = "forward", "activation_grad", "weight_grad", "recompute"
WORK_PASSES = (FORWARD, INPUTS, WEIGHTS, AGAIN)
"""Passes over an operator: forward, gradient of the input, gradient of the weights, recomputed forward."""

_PASS_OF_TRAFFIC = dict(zip(PASSES, (FORWARD, INPUTS, AGAIN), strict=True))

_COLUMNS = dict(zip(WORK_PASSES, ("fw", "agrad", "wgrad", "recompute"), strict=True))
_QUANTITIES = {"flops": "flops", "bytes": "mem_accessed", "time": "processing_time"}
"""First and last parts of column names."""


@dataclass(frozen=True)
class Block:
    """Operators of one block for one microbatch, on one processor.

    Attributes:
        model, execution, system: The three specs.
        edition: Edition of the cost model.
        operators: In order of execution: ``name``, ``engine``, then ``flops``, ``bytes`` (moved in tier-1 memory) and
            ``time`` (s) by pass of :data:`WORK_PASSES`, ``weights`` and ``saved`` (bytes), and ``collectives``: for
            each its ``pass``, ``operation``, ``message`` and ``moved`` (bytes of the full array, and through each port:
            as the network's ``ops`` state, or with another ``coll_algo`` as in a ring, like nccl-tests), ``time`` and
            ``exposed`` (s), and the ``axis`` unless it is tensor parallelism. If blocks next to pipeline transfers have
            other collectives, these are in ``edge_collectives``. In MoE blocks, each operator has its ``part``
            (:data:`~calculon.estimate.operators.EXPERT_PARTS`). With several kinds of block, each operator also has
            its ``kind`` and the number of ``blocks`` of the kind.
        stats: Statistics of a block that :func:`calculon.estimate` reports, by name.
        rows: Operators as a flat table: ``describe layers``, then recomputation, and activation memory as ``saved``.
            Backward passes are included without training, too; collectives are sums.
    """

    model: Model
    execution: Execution
    system: System
    edition: str
    operators: list[dict[str, Any]] = field(repr=False)
    stats: dict[str, float | None] = field(repr=False)
    rows: list[dict[str, Any]] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the block as plain values."""
        return {
            "model": {"name": self.model.name} | self.model.to_dict(),
            "execution": self.execution.to_dict(),
            "system": self.system.name,
            "provenance": self.system.provenance.to_dict(),
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
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Block:
    """Return the operators of one block of a model, or of a part of it.

    The whole model need not fit into memory.

    Args:
        model, execution, system, edition, preset: As in :func:`calculon.estimate`.
        part: ``attention``, ``mlp`` or ``linear`` for this part only, as with the field ``part`` of a model.
        changes: Fields of the execution to change first.

    Raises:
        SpecError: For a malformed request.
        Infeasible: When the execution cannot run on this system.
    """
    named = None if edition is None else find_edition(edition).name
    whole, machine = inputs.model(model), inputs.system(system)
    asked = inputs.resolve_execution(
        execution, edition=named, preset=preset, changes=changes, system=machine, model=whole
    )
    warn_of_differences(asked.place, asked.question, whole, machine)
    shape = whole if part is None else whole.only(part)
    one = Request(shape, machine, asked.execution)
    plan = Plan.of(one.execution)
    raise_for(one, int(check(one.model, one.system, plan)[0]))
    known = EDITIONS[one.execution.edition]
    batch = evaluate_one(one.model, one.system, plan, known)
    columns = (column for column in known.columns if "block_" in column.name)
    stats = {column.name: column.values(batch)[0] for column in columns}
    tables = list(operator_tables(one.model, one.system, plan, known))
    return Block(
        model=one.model,
        execution=one.execution,
        system=one.system,
        edition=known.name,
        operators=[
            operator
            for table in tables
            for operator in operators_of(table, piped=one.execution.pipeline_par > 1)
        ],
        stats=stats,
        rows=[row for table in tables for row in table.rows(OperatorStats)],
    )


def operators_of(table: OperatorTable, *, piped: bool) -> Iterator[dict[str, Any]]:
    """Yield the operators of one kind of block as plain data; without training there is only a forward pass."""
    passes = WORK_PASSES if table.choice.training else WORK_PASSES[:1]
    exposed = tensor_exposed_times(
        table.layout.table, table.cost, table.choice, table.layout.edition
    )
    layers = table.layout.table.layers
    parts = parts_of(layers) if has_experts(layers) else None
    for i, row in enumerate(table.rows(OperatorStats)):
        base, edge = (list(_collectives(table, exposed, i, kind)) for kind in range(len(KINDS)))
        yield {
            "name": row["name"],
            **table.labels,
            **({"part": parts[i]} if parts else {}),
            "engine": table.layout.table.layers[i].engine,
            **{
                quantity: dict.fromkeys(WORK_PASSES, 0.0)
                | {name: row[f"{_COLUMNS[name]}_{column}"] for name in passes}
                for quantity, column in _QUANTITIES.items()
            },
            "weights": row["weight"],
            "saved": row["saved"],
            "collectives": base,
            **({"edge_collectives": edge} if piped and edge != base else {}),
        }


def _collectives(
    table: OperatorTable, tensor_exposed: Seconds, layer: int, kind: int
) -> Iterator[dict[str, Any]]:
    """Yield the collectives of a layer in a kind of block."""
    layout, choice, one = table.layout, table.choice, table.layout.table.layers[layer]
    if one.collective is None:
        return
    axis = one.collective.axis
    if axis in FURTHER_NAMES:
        further = table.cost.further[axis]
        sizes, times, exposed = further.size, further.link, _left(table, axis, kind)
    else:
        traffic = table.cost.traffic
        sizes, times, exposed = (
            values[:, kind] for values in (traffic.size, traffic.link, tensor_exposed)
        )
    number = layout.table.collective_rows(axis).index(layer)
    for i, name in enumerate(PASSES if choice.training else PASSES[:1]):
        operation = operation_of(one, name, KINDS[kind], choice, layout.edition)
        message = sizes[i, number]
        if operation is None or not message.any():
            continue
        yield {
            **({"axis": axis} if axis in FURTHER_NAMES else {}),
            "pass": _PASS_OF_TRAFFIC[name],
            "operation": operation,
            "message": message.item(),
            "moved": _through_port(layout, choice, operation, message, one.collective).item(),
            "time": times[i, number].item(),
            "exposed": exposed[i, number].item(),
        }


def _left(table: OperatorTable, axis: str, kind: int) -> Seconds:
    """Return the exposed time of the collectives of a further axis: shape (passes, layers, 1)."""
    exposed = table.cost.further[axis].link.copy()
    if axis == "ep" and (rows := exchange_rows(table.layout.table)):
        exposed[:, rows] -= np.moveaxis(table.experts_hidden[:, :, kind], 0, 1)
    if axis == "cp" and (ring := ring_row(table.layout.table)) is not None:
        exposed[:, ring] -= table.ring_hidden
    return exposed


def _through_port(
    layout: BlockLayout,
    choice: BlockChoice,
    operation: str,
    message: Bytes,
    collective: Collective,
) -> Bytes:
    """Return the bytes of a collective through each port; for an expert library, through all ports of a rank."""
    which = collective.group if collective.axis == "cp" else ""
    group = layer_group(collective.axis, layout.sizes, choice, layout.system, which)
    if collective.routing is not None:
        volume = group.volume(
            layout.system, operation, message, choice.coll_algo, collective.routing
        )
        moved: Bytes = volume.sum(axis=0)
        return moved
    if algorithm_of(operation, choice.coll_algo) == PUBLISHED:
        return layout.system.fabric.volume(group.network, operation, message, group.ranks)
    return bus_factor(operation, int(group.ranks[0])) * message


# Context parallelism: traffic of a block, balance of attention, and overlap of the ring with attention.

SENT = ("message", "moved", "time", "exposed")
"""Members of a traffic row that are means over blocks: bytes, bytes through the port, and seconds."""


def context_exchange(
    model: Model, system: System, execution: Execution, edition: Edition
) -> dict[str, Any]:
    """Return the context-parallel traffic of a rank for a microbatch.

    Returns:
        ``imbalance``: attention of the busiest rank over the mean. ``sent``: a row for each collective and pass, with
        the ``name`` of its layer, ``pass``, ``operation``, the number of ``blocks`` that have it, and means over these
        blocks: ``message`` and ``moved`` (bytes of the array, and through the port), ``time`` and ``exposed`` (s).
        ``ring``, if keys and values are passed around a ring: its ``steps``, and for the forward pass the times of a
        ``transfer`` and of the concurrent ``attention`` (s), for the first kind of block with a ring. Empty without
        context parallelism.
    """
    if execution.context_par == 1:
        return {}
    system = edition.machine(system)
    tables = list(operator_tables(model, system, Plan.of(execution), edition))
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for table in tables:
        blocks = int(table.labels.get("blocks", model.num_blocks))
        for row in _sent(table):
            key = row["name"], row["pass"], row["operation"]
            found = rows.setdefault(key, {"blocks": 0, **dict.fromkeys(SENT, 0.0)})
            found["blocks"] += blocks
            for name in SENT:
                found[name] += blocks * row[name]
    rings = [ring for table in tables if (ring := _ring(table, system))]
    shares = [busiest_share(table.layout.shape, mean_keys) for table in tables]
    return {
        "imbalance": float(max(share.max() for share in shares)),
        "sent": [
            {
                "name": name,
                "pass": pass_,
                "operation": operation,
                "blocks": row["blocks"],
                **{member: row[member] / row["blocks"] for member in SENT},
            }
            for (name, pass_, operation), row in rows.items()
        ],
        **({"ring": rings[0]} if rings else {}),
    }


def _sent(table: OperatorTable) -> Iterator[dict[str, Any]]:
    """Yield the context-parallel collectives of a block, with the names of their layers."""
    for operator in operators_of(table, piped=False):
        for sent in operator["collectives"]:
            if sent.get("axis") == AXIS:
                yield {"name": operator["name"], **sent}


def _ring(table: OperatorTable, system: System) -> dict[str, Any]:
    """Return the steps of a ring, and the times of a transfer and of the concurrent attention; empty without a ring."""
    number, layers = ring_row(table.layout.table), table.layout.table
    if number is None:
        return {}
    row = layers.rings[0]
    types = kernel_types(system, table.choice.layout)
    steps = ring_steps(
        layers.layers[row], layers.flops[:, row], layers.accessed[:, row], system, types
    )
    count = np.maximum(steps.steps - 1, 0.0).item()
    if not count:
        return {}
    link = table.cost.further[AXIS].link[0, number]
    halves = 2 if table.choice.in_halves else 1  # the table contains the sum of both halves
    return {
        "steps": count + 1,
        "transfer": link.item() / halves / count,
        "attention": steps.later[0].item(),
    }
