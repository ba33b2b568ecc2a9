"""Goodput over the number of processors: the same plan with more replicas, for several times between failures."""

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
"""Times between failures that are compared where none are asked for, as multiples of that of the campaign."""

SIZES = (1 / 16, 8.0)
"""Least and most processors where none are asked for, as multiples of those of the plan."""

_PROJECTED = "projected"
"""What a note begins with on hours that a source computed of those of a node."""

LARGEST_MEASURED = 16_384
"""Processors of the largest job whose interruptions are published. Source: arXiv:2407.21783, table 5."""


@dataclass(frozen=True)
class GoodputCurve:
    """Runs of all sizes with the same time between failures of a processor.

    Attributes:
        mtbf_processor: That time, in hours.
        whole: The runs; the last axis is the size.
    """

    mtbf_processor: float
    whole: WholeRun

    @property
    def storage_limits(self) -> Array:
        """Whether the storage takes checkpoints less often than they are wanted; bool, shape (sizes,)."""
        checkpoints = self.whole.campaign.checkpoints
        wanted = self.whole.best_interval if checkpoints.interval is None else checkpoints.interval
        if checkpoints.interval_steps is not None:
            return np.zeros(self.whole.wall.shape, bool)
        return np.asarray(self.whole.saves.least_interval > wanted)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data: a list for each figure, with an entry for each size."""
        names = ("goodput", "mtbf_hours", "checkpoint_interval", "checkpoint_time", "spare_nodes")
        with ignore_float_errors():  # a large job with many failures may never end
            columns = {name: getattr(self.whole, name) for name in names}
        columns["storage_limits"] = self.storage_limits
        shape = self.whole.wall.shape
        told = {name: np.broadcast_to(one, shape).tolist() for name, one in columns.items()}
        return {"mtbf_processor": self.mtbf_processor, **told}


@dataclass(frozen=True)
class GoodputBySize:
    """A training run on other numbers of processors.

    Each has as many replicas of the plan more or fewer, and batch and tokens in proportion: as many steps that take as
    long, and as much to save. Which sizes are whole replicas does not matter to failures. Steps only round intervals
    between checkpoints: with batch and tokens as they were, goodput is the same but for that, while a run lasts longer
    than some of these intervals.

    Attributes:
        run: The run whose plan it is.
        num_procs: The sizes, ascending.
        curves: The shortest time between failures first.
    """

    run: TrainingRun
    num_procs: tuple[int, ...]
    curves: tuple[GoodputCurve, ...]

    @cached_property
    def own(self) -> int:
        """Processors of the plan."""
        return int(self.run.main.estimate.execution.num_procs)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data: a list for each figure, with an entry for each size."""
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
    """Return what a source prints of a run as plain data."""
    names = ("run", "num_procs", "goodput", "goodput_is", "interval", "evidence", "source")
    told = {name: getattr(one, name) for name in names}
    return told | {"mtbf_hours": one.mtbf_hours, "projected": one.note.startswith(_PROJECTED)}


def goodput_by_size(
    run: TrainingRun,
    procs: int | str | Sequence[int] | None = None,
    mtbf: Sequence[float | str] | None = None,
) -> GoodputBySize:
    """Return the goodput of a run on other numbers of processors.

    Args:
        procs: The sizes (``"1024:131072:x2"``); by default doublings from a sixteenth to eight times that of the plan.
        mtbf: Hours of a processor between failures, or words (``"50000h"``); by default half, once and twice those of
            the campaign.

    Raises:
        SpecError: For what is no size or time, and for fewer processors than a replica of the plan has.
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
    """Return the seconds of a processor between failures, ascending."""
    if mtbf is None:
        return sorted({campaign.reliability.mtbf_processor * one for one in MULTIPLES})
    problems: list[Problem] = []
    found = {MeanTime.decode(one, "", problems, HOUR) for one in mtbf}
    if problems:
        raise SpecError("--mtbf", problems)
    return sorted(found)


def _curve(run: TrainingRun, mtbf: float, num_procs: Count) -> GoodputCurve:
    """Return the runs of all sizes with a time between failures."""
    reliability = replace(run.campaign.reliability, mtbf_processor=MeanTime(mtbf))
    factor = num_procs / run.whole.job.num_procs
    whole = replace(
        run.whole,
        campaign=replace(run.campaign, reliability=reliability),
        job=replace(run.whole.job, num_procs=num_procs, replicas=run.whole.job.replicas * factor),
        segments=tuple(replace(one, tokens=one.tokens * factor) for one in run.whole.segments),
    )
    return GoodputCurve(mtbf / HOUR, whole)
