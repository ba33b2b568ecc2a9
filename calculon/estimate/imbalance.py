"""The imbalance of experts up to which the memory of an execution suffices."""

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
    """Return the largest share of the mean rows that the busiest rank may have, and the memory still suffices.

    In whole percent. The memory of a stage is linear in it. At most ``expert_par``, where one rank has all
    rows, or the capacity of experts; None where no rank has more than others, or the execution does not fit as it is.
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
        # the fullest stage of some whose memory is linear: a chord lies above, so what fits by it does fit
        found = min(most - 1, int(least + (there - low) / (high - low) * (most - least)))
        _, low = _needed(model, system, execution, edition, [found, found + 1])
        if low > there:
            return found / 100
        least = found + 1
    return most / 100


def _needed(
    model: Model, system: System, execution: Execution, edition: Edition, percents: Sequence[int]
) -> list[float]:
    """Return bytes of tier 1 that an execution needs with each imbalance."""
    fields = all_fields(execution)
    rows = [fields | {"moe_imbalance_percent": percent} for percent in percents]
    batch = evaluate_one(model, system, Plan.from_records(rows), edition)
    return np.broadcast_to(batch.capacity.proc_mem_tier1_cap_req, len(rows)).tolist()
