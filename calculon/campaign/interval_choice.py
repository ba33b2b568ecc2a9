"""Why checkpoints of a run are as far apart as they are."""

import math
from typing import Any

from calculon.base.frozen import dataclass
from calculon.campaign.checkpoint import storage_rate
from calculon.campaign.whole_run import WholeRun

STATED, BEST, STORAGE, RUN = "stated", "best", "storage", "run"
"""Reasons of an interval: the campaign says it; the run is the shortest; the storage takes no more; the run ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalChoice:
    """The interval between checkpoints of a run, and what it is due to.

    Attributes:
        reason: ``stated``, ``best``, ``storage`` or ``run``.
        best: Seconds between checkpoints with which the run is the shortest; infinite where nothing fails.
        write: Seconds that the storage takes to write one.
        bandwidth: Rate of the storage in B/s.
        bandwidth_needed: Rate with which the storage takes the best interval, in B/s.
        memory_interval: Seconds between copies in the memory of other nodes; None without.
    """

    reason: str
    best: float
    write: float
    bandwidth: float
    bandwidth_needed: float
    memory_interval: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data; None in place of what is infinite."""
        found = {
            "best_interval": self.best,
            "write_time": self.write,
            "storage_bandwidth": self.bandwidth,
            "storage_bandwidth_needed": self.bandwidth_needed,
            "memory_interval": self.memory_interval,
        }
        known = {
            name: one if one is not None and math.isfinite(one) else None
            for name, one in found.items()
        }
        return {"reason": self.reason, **known}


def interval_choice(whole: WholeRun) -> IntervalChoice:
    """Return why checkpoints of a run, of one execution, are as far apart as they are."""
    c = whole.campaign.checkpoints
    best, least = float(whole.best_interval), float(whole.saves.least_interval)
    bandwidth = float(storage_rate(c, whole.job.nodes))
    size = float(whole.saves.size)
    return IntervalChoice(
        reason=_reason(whole, best, least),
        best=best,
        write=size / bandwidth,
        bandwidth=bandwidth,
        bandwidth_needed=size / best if best else math.inf,
        memory_interval=float(whole.memory_interval) if c.levels > 1 else None,
    )


def _reason(whole: WholeRun, best: float, least: float) -> str:
    c = whole.campaign.checkpoints
    if c.interval_steps is not None:
        return STATED
    wanted = best if c.interval is None else float(c.interval)
    if float(whole.useful) <= max(wanted, least):
        return RUN
    if least > wanted:
        return STORAGE
    return BEST if c.interval is None else STATED
