"""How far predicted memory is from measured memory, and how much uneven routing may add.

There are few measured rows of few sources, and no interval: one statement stands for all executions.
"""

from collections.abc import Sequence

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import GIB
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.statistics import LEVEL
from calculon.editions.edition import Edition
from calculon.estimate.evaluate import evaluate_one
from calculon.estimate.group_conformal import weighted_quantile
from calculon.estimate.run_table import Runs
from calculon.hardware.system import System
from calculon.plan.plan import Plan, all_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """What measured rows say about predicted tier-1 memory.

    Attributes:
        level: Share of the measured rows, each source of the same weight, whose memory is within `error`.
        error: Measured over predicted memory - 1, as an absolute value.
        runs, sources: Measured rows, and the sources that they are of.
        headroom: Usable over needed memory - 1 of the execution.
        remark: That the headroom is below the error; else empty.
    """

    level: float
    error: float
    runs: int
    sources: int
    headroom: float
    remark: str


def memory_error(some: Runs, needed: float, usable: float) -> MeasuredMemory | None:
    """Return what measured rows say about an execution that needs so many bytes; nothing without such rows.

    Args:
        some: The measured runs; those whose memory was measured count.
        needed, usable: Bytes of tier 1 that the execution needs, and that there are for it.
    """
    errors, weights, sources = some.memory_errors
    if not sources:
        return None
    error = weighted_quantile(errors, weights, LEVEL)
    headroom = float(usable / needed - 1) if needed else np.inf
    remark = ""
    if headroom < error:
        free = max(0.0, usable - needed)
        remark = (
            f"{free / GIB:.1f} GiB are left, {100 * max(0.0, headroom):.0f} % of what is needed; "
            f"measured memory is within {100 * error:.0f} % of the prediction in 9 of 10 rows"
        )
    return MeasuredMemory(
        level=LEVEL,
        error=error,
        runs=len(errors),
        sources=sources,
        headroom=headroom,
        remark=remark,
    )


# How unevenly tokens may choose experts before a processor has no memory left.


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
