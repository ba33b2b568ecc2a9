"""Why checkpoints of a run are as far apart as they are."""

from typing import Any

from calculon.campaign.checkpoint import storage_rate
from calculon.campaign.goodput import best_interval
from calculon.campaign.record import Campaign
from calculon.campaign.whole_run import Job
from calculon.frozen import dataclass

STATED, BEST, STORAGE = "stated", "best", "storage"
"""Reasons of an interval: the campaign says it; the run is the shortest; the storage takes no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalChoice:
    """The interval between checkpoints of a run, and what it is due to.

    Attributes
    ----------
    reason : str
        ``stated``, ``best`` or ``storage``.
    best : float
        Seconds between checkpoints with which the run is the shortest.
    write : float
        Seconds that the storage takes to write one.
    bandwidth : float
        Rate of the storage in B/s.
    bandwidth_needed : float
        Rate with which the storage takes the best interval, in B/s.
    """

    reason: str
    best: float
    write: float
    bandwidth: float
    bandwidth_needed: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "reason": self.reason,
            "best_interval": self.best,
            "write_time": self.write,
            "storage_bandwidth": self.bandwidth,
            "storage_bandwidth_needed": self.bandwidth_needed,
        }


def interval_choice(campaign: Campaign, job: Job, pause: float, mtbf: float) -> IntervalChoice:
    """Return why checkpoints are as far apart as they are.

    Parameters
    ----------
    pause : float
        Seconds that steps wait for a save.
    mtbf : float
        Mean seconds between interruptions of the job.
    """
    c = campaign.checkpoints
    best = float(best_interval(pause, mtbf))
    bandwidth = float(storage_rate(c, job.nodes))
    size = float(job.checkpoint_size)
    write = size / bandwidth
    stated = c.interval is not None or c.interval_steps is not None
    limited = c.mode == "async" and write > best
    reason = STATED if stated else STORAGE if limited else BEST
    needed = size / best if best else float("inf")
    return IntervalChoice(
        reason=reason, best=best, write=write, bandwidth=bandwidth, bandwidth_needed=needed
    )
