"""What context-parallel ranks send in a block, how even their shares of attention are, and what hides their ring."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from calculon.architecture.attention import mean_keys
from calculon.architecture.context_exchange import AXIS, busiest_share
from calculon.cost.context_overlap import ring_row
from calculon.cost.layer_cost import kernel_types
from calculon.cost.ring_steps import ring_steps
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.editions.edition import Edition
from calculon.estimate.layer_list import OperatorTable, operator_tables
from calculon.estimate.operators import operators_of
from calculon.hardware.system import System
from calculon.plan.plan import Plan

SENT = ("message", "moved", "time", "exposed")
"""Members of a row of traffic that are means over blocks: bytes, bytes through the port, and seconds."""


def context_exchange(
    model: Model, system: System, execution: Execution, edition: Edition
) -> dict[str, Any]:
    """Return what a rank sends to ranks with other parts of its sequences, for a microbatch.

    Returns:
        ``imbalance``: attention of the busiest rank over the mean. ``sent``: a row for each collective and pass, with
        its ``name`` (of the layer), ``pass``, ``operation``, how many ``blocks`` have it, and of the mean of these
        ``message`` and ``moved`` (bytes of the array, and through the port), ``time`` and ``exposed`` (s). ``ring``,
        where keys and values go round one: its ``steps``, and of the forward pass the time of a ``transfer`` and of the
        ``attention`` beside it (s), of the first kind of block that has one. Empty without context parallelism.
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
    """Yield the collectives of context parallelism of a block, with the names of their layers."""
    for operator in operators_of(table, piped=False):
        for sent in operator["collectives"]:
            if sent.get("axis") == AXIS:
                yield {"name": operator["name"], **sent}


def _ring(table: OperatorTable, system: System) -> dict[str, Any]:
    """Return steps of a ring, and times of a transfer and of the attention beside it; nothing without a ring."""
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
    halves = 2 if table.choice.in_halves else 1  # the table adds both halves up
    return {
        "steps": count + 1,
        "transfer": link.item() / halves / count,
        "attention": steps.later[0].item(),
    }
