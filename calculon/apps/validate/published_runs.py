"""Whole runs beside what their sources print: processor-hours of trainings, failures, and checks of the laws.

Processor-hours are those of studies with a figure of whole runs. Checks have no execution in them: a law of
:mod:`calculon.campaign`, at what a source states, beside what the source prints of the result.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from calculon.apps.validate.measured_and_predicted import Comparison, Result
from calculon.campaign.goodput import wall_per_useful, young
from calculon.campaign.job_mtbf import HOUR, job_mtbf
from calculon.campaign.published import (
    PublishedFailures,
    PublishedFootprint,
    published_failures,
    published_footprints,
)
from calculon.campaign.record import Reliability
from calculon.campaign.spent import spent
from calculon.frozen import dataclass
from calculon.inspect.validated_runs import factors
from calculon.plan.plan import Plan
from calculon.spec.named_values import PUBLISHED

Record = dict[str, Any]

ROOM = "campaign"
"""Folder of the studies of whole trainings."""

WIDEST = 1.6
"""Hours of a source over those of steps alone that failures, checkpoints, evaluation and downtime may account for."""

HALF_A_PERCENT, TENTH_OF_A_PERCENT = 0.005, 0.001

SAVE, RESTART = 30.0, 300.0
"""Seconds of a save and of a restart in checks of Llama 3, whose source prints neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A figure as a source prints it, beside what a law gives for it.

    Attributes
    ----------
    name, unit : str
        What it is.
    published, ours : float
        Both in the unit.
    tolerance : float
        Largest difference over the published value that passes; half a unit of its last printed digit always does.
    digits : float
        Unit of the last printed digit; 0 where it is exact.
    at_least : bool
        Whether the source prints a lower limit.
    source : str
        Where it stands.
    """

    name: str
    unit: str
    published: float
    ours: float
    tolerance: float
    digits: float = 0.0
    at_least: bool = False
    source: str

    @property
    def passes(self) -> bool:
        """Whether both agree within the tolerance."""
        if self.at_least:
            return self.ours >= self.published
        allowed = max(self.tolerance * self.published, self.digits / 2)
        return abs(self.ours - self.published) <= allowed * (1 + 1e-9)


def trainings(results: Sequence[Result]) -> list[Record]:
    """Return one row for each training whose processor-hours a source prints, of editions that have intervals.

    Hours of steps alone are below those of a whole run. Whether they are, by at most :data:`WIDEST`, is judged where the
    configuration is known; where the source prints hours of steps itself, whether these are in the interval.
    """
    return [
        row
        for result in results
        if result.study.origin == ROOM and result.edition != PUBLISHED
        for one in result.own.comparisons
        if one.quantity.is_run
        for row in _trainings(result, one)
    ]


def _trainings(result: Result, one: Comparison) -> Iterator[Record]:
    place = {row.number: i for i, row in enumerate(result.rows)}
    found = result.own.prediction
    pairs = zip(one.rows, one.measured.tolist(), one.estimated.tolist(), strict=True)
    for row, published, steps in pairs:
        here = place[row.number]
        case = found.cases[here]
        plan = Plan.from_records([{**case.execution, "edition": result.edition}])
        stats = {name: column[here] for name, column in found.values.items()}
        low, high = (
            steps * float(end[0]) for end in factors(case.model, case.system, plan, stats)
        )
        known, whole = row.cells["configuration"] == "known", row.cells["hours_of"] == "run"
        judged = steps < published <= WIDEST * steps if whole else low <= published <= high
        yield {
            "run": row.label,
            "study": result.study.name,
            "processors": case.execution["num_procs"],
            "configuration": row.cells["configuration"],
            "hours_of": row.cells["hours_of"],
            "published": published,
            "steps": steps,
            "low": low,
            "high": high,
            "ratio": published / steps,
            "passes": judged if known else None,
        }


def failures(results: Sequence[Result]) -> list[Record]:
    """Return one row for each published rate of failures, beside the default of campaigns; none without such studies."""
    default = float(Reliability().mtbf_processor) / HOUR
    return [
        {
            "run": one.run,
            "processors": one.num_procs,
            "failures": one.failures,
            "published": one.mtbf_hours,
            "ours": float(job_mtbf(one.num_procs, default)) / HOUR if one.num_procs else None,
            "goodput": f"{one.goodput_is} {one.goodput:.2f}" if one.goodput else "",
            "evidence": one.evidence,
            "note": one.note,
            "source": one.source,
        }
        for one in (published_failures() if _shown(results) else ())
    ]


def checks(results: Sequence[Result]) -> list[Record]:
    """Return one row for each check of a law; none without studies of whole trainings."""
    return [
        {
            "name": one.name,
            "unit": one.unit,
            "published": one.published,
            "ours": one.ours,
            "tolerance": one.tolerance,
            "at_least": one.at_least,
            "passes": one.passes,
            "source": one.source,
        }
        for one in (every_check() if _shown(results) else ())
    ]


def _shown(results: Sequence[Result]) -> bool:
    return any(result.study.origin == ROOM for result in results)


def every_check() -> list[Check]:
    """Return all checks of laws: failures, checkpoints, then energy, CO2 and money."""
    runs = {one.run: one for one in published_failures()}
    return [
        *_of_llama_3(runs["Llama 3 405B"]),
        *_of_rsc(runs["RSC-1"], [runs[f"RSC-1, jobs of {n}"] for n in ("16,384", "131,072")]),
        *_of_bloom(runs["BLOOM 176B"]),
        *(check for one in published_footprints() for check in _of_footprint(one)),
    ]
