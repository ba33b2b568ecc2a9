"""Where the time of a block with experts goes: attention, router, dispatch, products, combine, shared experts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from calculon.architecture.layers import Layer
from calculon.architecture.linear_attention import PREFIXES
from calculon.base.units import Array
from calculon.cost.block_tables import only_choices
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.editions.edition import Edition
from calculon.estimate.layer_list import OperatorTable, operator_tables
from calculon.hardware.system import System
from calculon.plan.plan import Plan

ATTENTION, ROUTER, DISPATCH, PRODUCTS, COMBINE, SHARED, OTHER = EXPERT_PARTS = (
    "attention",
    "router",
    "dispatch",
    "experts",
    "combine",
    "shared experts",
    "other",
)
"""Parts of a block with experts, in order of execution; norm and residual of the second half are *other*."""

_ATTENDS = ("AttnBlock_", *(f"{prefix}_" for prefix in PREFIXES.values()))
"""How names of layers of attention begin, with softmax or linear."""


def parts_of(layers: Sequence[Layer]) -> list[str]:
    """Return the part that each layer of a block with experts belongs to."""
    modules = [layer.flags.module for layer in layers]
    routed = [i for i, module in enumerate(modules) if module == "moe"]
    products = [i for i in routed if layers[i].name.startswith("MlpBlock_Experts")]
    found = []
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
        found.append(part)
    return found


def has_experts(layers: Sequence[Layer]) -> bool:
    """Tell whether there are routed experts in a block."""
    return any(layer.expert for layer in layers)


def expert_parts(
    model: Model, system: System, execution: Execution, edition: Edition
) -> dict[str, Any]:
    """Return the time of the parts of a block with experts, for a microbatch on one processor.

    Returns:
        ``blocks``: how many have experts; ``parts``: for each of :data:`EXPERT_PARTS` that takes time its name, and
        seconds ``computing`` and ``sending`` (on the link, hidden or not) in all passes. The mean of several kinds of
        block with experts. Empty of a model without them.
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
    """Return seconds of computing and sending of every layer in all passes that happen: shape (layers, 2)."""
    stats, layout = table.stats, table.layout
    work, traffic = [stats.fw.time], [stats.fw_traffic.time]
    if training:
        work += [stats.agrad.time, stats.wgrad.time, stats.recompute.time]
        traffic += [stats.bw_traffic.time, stats.recomm.time]
    sending = sum(time[0] for time in traffic)  # of a block inside of a chunk
    for axis, further in table.cost.further.items():
        link = further.link[..., 0]
        sending[layout.table.collective_rows(axis)] += link.sum(axis=0) if training else link[0]
    return np.stack([sum(work), sending], axis=-1)
