"""Reason for the checkpoint interval of a run: stated, optimal, or limited by storage or by the length of the run."""

import math
from typing import Any

from calculon.base.frozen import dataclass
from calculon.campaign.checkpoint import storage_rate
from calculon.campaign.whole_run import WholeRun

STATED, BEST, STORAGE, RUN = "stated", "best", "storage", "run"
"""Reasons for an interval: the campaign states it; the run is shortest with it; storage is slower; the run is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalChoice:
    """Checkpoint interval of a run with the reason for it.

    Attributes:
        reason: ``stated``, ``best``, ``storage`` or ``run``.
        best: Optimal seconds between checkpoints; infinite if nothing fails.
        write: Seconds in which storage writes a checkpoint.
        bandwidth: Bandwidth of the storage in B/s.
        bandwidth_needed: Bandwidth in B/s with which storage can keep the optimal interval.
        memory_interval: Seconds between copies in the memory of other nodes; None without such copies.
    """

    reason: str
    best: float
    write: float
    bandwidth: float
    bandwidth_needed: float
    memory_interval: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict; infinite values become None."""
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


def interval_choice(run: WholeRun) -> IntervalChoice:
    """Return the reason for the checkpoint interval of a run of a single execution."""
    c = run.campaign.checkpoints
    best, least = float(run.best_interval), float(run.saves.least_interval)
    bandwidth = float(storage_rate(c, run.job.nodes))
    size = float(run.saves.size)
    return IntervalChoice(
        reason=_reason(run, best, least),
        best=best,
        write=size / bandwidth,
        bandwidth=bandwidth,
        bandwidth_needed=size / best if best else math.inf,
        memory_interval=float(run.memory_interval) if c.levels > 1 else None,
    )


def _reason(run: WholeRun, best: float, least: float) -> str:
    c = run.campaign.checkpoints
    if c.interval_steps is not None:
        return STATED
    wanted = best if c.interval is None else float(c.interval)
    # order matters: a run that ends before its first checkpoint is not limited by storage
    if float(run.useful) <= max(wanted, least):
        return RUN
    if least > wanted:
        return STORAGE
    return BEST if c.interval is None else STATED
