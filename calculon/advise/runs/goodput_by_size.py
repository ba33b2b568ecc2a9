"""Goodput over the number of processors: the same plan with more replicas, for several failure rates."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from calculon.advise.runs.training_run import TrainingRun
from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count
from calculon.campaign.exponentials import ignore_float_errors
from calculon.campaign.goals import MeanTime
from calculon.campaign.job_failures import SMALL_JOB
from calculon.campaign.published import PublishedFailures, published_failures
from calculon.campaign.record import HOUR, Campaign
from calculon.campaign.whole_run import WholeRun
from calculon.declarations.result_records import QUESTION
from calculon.declarations.spellings import processor_counts

MULTIPLES = (0.5, 1.0, 2.0)
"""Default times between failures, as multiples of the time of the campaign."""

SIZES = (1 / 16, 8.0)
"""Default smallest and largest number of processors, as multiples of the plan's."""

_PROJECTED = "projected"
"""Prefix of notes on times that a source derived from the failure rate of a node."""

LARGEST_MEASURED = 16_384
"""Processors of the largest job with published interruptions. Source: arXiv:2407.21783, table 5."""


@dataclass(frozen=True)
class GoodputCurve:
    """Runs of all sizes with the same time between failures of a processor.

    Attributes:
        mtbf_processor: Mean time between failures in hours.
        whole: Runs; the last axis is the size.
    """

    mtbf_processor: float
    whole: WholeRun

    @property
    def storage_limits(self) -> Array:
        """True where storage bandwidth forces longer checkpoint intervals; bool, shape (sizes,)."""
        checkpoints = self.whole.campaign.checkpoints
        wanted = self.whole.best_interval if checkpoints.interval is None else checkpoints.interval
        # An interval in steps is used as stated, even if the storage cannot keep up.
        if checkpoints.interval_steps is not None:
            return np.zeros(self.whole.wall.shape, bool)
        return np.asarray(self.whole.saves.least_interval > wanted)

    def to_dict(self) -> dict[str, Any]:
        """Return the curve as plain data: a list for each figure, with an entry for each size."""
        names = ("goodput", "mtbf_hours", "checkpoint_interval", "checkpoint_time", "spare_nodes")
        with ignore_float_errors():  # a large job with many failures may never end
            columns = {name: getattr(self.whole, name) for name in names}
        columns["storage_limits"] = self.storage_limits
        shape = self.whole.wall.shape
        lists = {name: np.broadcast_to(one, shape).tolist() for name, one in columns.items()}
        return {"mtbf_processor": self.mtbf_processor, **lists}


@dataclass(frozen=True)
class GoodputBySize:
    """A training run on other numbers of processors.

    Each size has proportionally more or fewer replicas of the plan, and batch and tokens in proportion: the number of
    steps, their time, and the saved bytes per processor are the same. Sizes need not be whole replicas, which does not
    matter for failures. Steps only round the intervals between checkpoints: with unchanged batch and tokens, goodput
    would be the same except for that, as long as a run lasts longer than some of these intervals.

    Attributes:
        run: Run whose plan is scaled.
        num_procs: Sizes, ascending.
        curves: Curves, the shortest time between failures first.
    """

    run: TrainingRun
    num_procs: tuple[int, ...]
    curves: tuple[GoodputCurve, ...]

    @cached_property
    def own(self) -> int:
        """Number of processors of the plan."""
        return int(self.run.main.estimate.execution.num_procs)

    def to_dict(self) -> dict[str, Any]:
        """Return the curves as plain data: a list for each figure, with an entry for each size."""
        checkpoints = self.run.campaign.checkpoints
        stated = checkpoints.interval is not None or checkpoints.interval_steps is not None
        return {
            QUESTION: self.run.to_dict()[QUESTION],
            "num_procs": list(self.num_procs),
            "plan_num_procs": self.own,
            "step_time": self.run.main.step_time,
            "interval_stated": stated,
            "measured_num_procs": [SMALL_JOB, LARGEST_MEASURED],
            "mtbf_of_campaign": self.run.campaign.reliability.mtbf_processor / HOUR,
            "published": [_published(one) for one in published_failures() if one.num_procs],
            "curves": [one.to_dict() for one in self.curves],
        }


def _published(one: PublishedFailures) -> dict[str, Any]:
    """Return the published figures of a run as plain data."""
    names = ("run", "num_procs", "goodput", "goodput_is", "interval", "evidence", "source")
    printed = {name: getattr(one, name) for name in names}
    return printed | {"mtbf_hours": one.mtbf_hours, "projected": one.note.startswith(_PROJECTED)}


def goodput_by_size(
    run: TrainingRun,
    procs: int | str | Sequence[int] | None = None,
    mtbf: Sequence[float | str] | None = None,
) -> GoodputBySize:
    """Return the goodput of a run on other numbers of processors.

    Args:
        procs: Sizes (``"1024:131072:x2"``); by default doublings from a sixteenth to eight times the plan's.
        mtbf: Hours between failures of a processor, or words (``"50000h"``); by default half, once and twice the time
            of the campaign.

    Raises:
        SpecError: For a malformed size or time, and for fewer processors than one replica of the plan has.
    """
    sizes = _sizes(run, procs)
    found = [_curve(run, one, np.array(sizes, float)) for one in _times(run.campaign, mtbf)]
    return GoodputBySize(run, sizes, tuple(found))


def _sizes(run: TrainingRun, procs: int | str | Sequence[int] | None) -> tuple[int, ...]:
    """Return the sizes, ascending."""
    e = run.main.estimate.execution
    least = e.num_procs // e.data_par
    if procs is None:
        low, high = (round(e.num_procs * one) for one in SIZES)
        low = max(low, least)
        return tuple(low * 2**i for i in range((high // low).bit_length()))
    if isinstance(procs, str):
        procs = processor_counts(procs, "--procs")
    sizes = tuple(sorted({procs} if isinstance(procs, int) else {*procs}))
    if not sizes or sizes[0] < least:
        wanted = f"at least the {least:,} processors of a replica of the plan"
        found = f"{sizes[0]:,}" if sizes else "none"
        raise SpecError("--procs", Problem("", wanted, found))
    return sizes


def _times(campaign: Campaign, mtbf: Sequence[float | str] | None) -> list[float]:
    """Return the times between failures of a processor in seconds, ascending."""
    if mtbf is None:
        return sorted({campaign.reliability.mtbf_processor * one for one in MULTIPLES})
    problems: list[Problem] = []
    found = {MeanTime.decode(one, "", problems, HOUR) for one in mtbf}
    if problems:
        raise SpecError("--mtbf", problems)
    return sorted(found)


def _curve(run: TrainingRun, mtbf: float, num_procs: Count) -> GoodputCurve:
    """Return the runs of all sizes with a given time between failures."""
    reliability = replace(run.campaign.reliability, mtbf_processor=MeanTime(mtbf))
    factor = num_procs / run.whole.job.num_procs
    whole = replace(
        run.whole,
        campaign=replace(run.campaign, reliability=reliability),
        job=replace(run.whole.job, num_procs=num_procs, replicas=run.whole.job.replicas * factor),
        segments=tuple(replace(one, tokens=one.tokens * factor) for one in run.whole.segments),
    )
    return GoodputCurve(mtbf / HOUR, whole)
