"""How far predicted memory is from measured memory, and whether a prediction leaves as much room as that.

There are few measured rows of few sources, and no interval: one statement stands for all executions.
"""

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import GIB
from calculon.declarations.statistics import LEVEL
from calculon.estimate.group_conformal import weighted_quantile
from calculon.estimate.run_table import Runs


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
