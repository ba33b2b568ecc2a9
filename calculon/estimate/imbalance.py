"""Memory headroom for the load imbalance of MoE experts."""

from collections.abc import Sequence

import numpy as np

from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.editions.edition import Edition
from calculon.estimate.evaluate import evaluate_one
from calculon.hardware.system import System
from calculon.plan.plan import Plan, all_fields


def imbalance_headroom(
    model: Model, system: System, execution: Execution, edition: Edition
) -> float | None:
    """Return the largest imbalance of experts that fits in memory: rows of the busiest rank over the mean.

    The result is in whole percent; the memory of a stage is linear in it. It is at most ``expert_par`` (one rank has
    all rows), or the capacity of experts. None if no rank has more rows than others, or if the execution does not fit.
    """
    if not model.mixes or execution.expert_par == 1 or execution.moe_pad_to_capacity:
        return None
    least, most = execution.moe_imbalance_percent, 100 * execution.expert_par
    if execution.moe_capacity_percent:
        most = min(most, execution.moe_capacity_percent)
    most = max(least, most)
    there = edition.machine(system).usable[0]
    low, high = _needed(model, system, execution, edition, [least, most])
    if low > there:
        return None
    while high > there:
        # Memory is the maximum over stages, each linear in the imbalance, and so convex: a chord lies above the curve,
        # and an imbalance that fits by the chord fits.
        found = min(most - 1, int(least + (there - low) / (high - low) * (most - least)))
        _, low = _needed(model, system, execution, edition, [found, found + 1])
        if low > there:
            return found / 100
        least = found + 1
    return most / 100


def _needed(
    model: Model, system: System, execution: Execution, edition: Edition, percents: Sequence[int]
) -> list[float]:
    """Return the required tier-1 bytes of an execution for each imbalance."""
    fields = all_fields(execution)
    rows = [fields | {"moe_imbalance_percent": percent} for percent in percents]
    batch = evaluate_one(model, system, Plan.from_records(rows), edition)
    return np.broadcast_to(batch.capacity.proc_mem_tier1_cap_req, len(rows)).tolist()
