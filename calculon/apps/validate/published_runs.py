"""Whole runs beside what their sources print: processor-hours of trainings, failures, and checks of the laws.

Processor-hours are those of studies with a figure of whole runs. Checks have no execution in them: a law of
:mod:`calculon.campaign`, at what a source states, beside what the source prints of the result.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from calculon.apps.validate.measured_and_predicted import Comparison, Result
from calculon.campaign.checkpoint import bytes_per_param, storage_rate
from calculon.campaign.energy import carbon, card_energy
from calculon.campaign.goodput import wall_per_useful, young
from calculon.campaign.job_mtbf import HOUR, job_mtbf
from calculon.campaign.money import rent
from calculon.campaign.published import (
    PublishedFailures,
    PublishedFootprint,
    published_failures,
    published_footprints,
)
from calculon.campaign.record import Checkpoints, Reliability
from calculon.campaign.spent import spent
from calculon.campaign.whole_run import NODE
from calculon.frozen import dataclass
from calculon.inspect.kernel_residuals import Sides
from calculon.inspect.validated_runs import factors
from calculon.plan.plan import Plan
from calculon.spec.named_values import PUBLISHED
from calculon.units import KILO, MEGA, TERA

Record = dict[str, Any]

ROOM = "campaign"
"""Folder of the studies of whole trainings."""

WIDEST = 1.6
"""Hours of a source over those of steps alone that failures, checkpoints, evaluation and downtime may account for."""

HALF_A_PERCENT, TENTH_OF_A_PERCENT = 0.005, 0.001

BY_HAND = "worked out by hand from what the source prints"

_ADAM = {"optimizer": "adam", "optimizer_state_dtype": "float32"}

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
        stats = {name: found.values[name][here] for name in Sides.statistics}
        low, high = (steps * float(end[0]) for end in factors(case.model, case.system, plan, stats))
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


def _of_llama_3(one: PublishedFailures) -> Iterator[Check]:
    """Yield the checks of the window of Llama 3 405B, with the defaults of campaigns."""
    reliability = Reliability()
    mtbf = float(job_mtbf(one.num_procs or 0, reliability.mtbf_processor / HOUR))
    interval = float(young(SAVE, mtbf))
    share = 1 / float(wall_per_useful(interval, SAVE, RESTART, mtbf))
    at_once = float(wall_per_useful(interval, SAVE, 0.0, mtbf))
    yield Check(
        name="Llama 3 405B: time between failures",
        unit="h",
        published=one.mtbf_hours or 0,
        ours=mtbf / HOUR,
        tolerance=TENTH_OF_A_PERCENT,
        source=one.source,
    )
    yield Check(
        name=f"Llama 3 405B: interval by Young, {SAVE:g} s a save",
        unit="s",
        published=817,
        ours=interval,
        tolerance=TENTH_OF_A_PERCENT,
        source=BY_HAND,
    )
    yield Check(
        name=f"Llama 3 405B: effective time, restarts of {RESTART:g} s",
        unit="",
        published=one.goodput or 0,
        ours=share,
        tolerance=0,
        at_least=True,
        source=one.source,
    )
    yield Check(
        name="Llama 3 405B: the same by the exact law",
        unit="",
        published=0.904,
        ours=share,
        tolerance=TENTH_OF_A_PERCENT,
        source=BY_HAND,
    )
    yield Check(
        name="Llama 3 405B: longest restart for 0.90",
        unit="s",
        published=345,
        ours=mtbf * float(np.log(1 / ((one.goodput or 1) * at_once))),
        tolerance=HALF_A_PERCENT,
        source=BY_HAND,
    )


def _of_rsc(nodes: PublishedFailures, jobs: Sequence[PublishedFailures]) -> Iterator[Check]:
    """Yield the checks of times to a failure that RSC-1's source projects from the failures of its nodes."""
    for one in jobs:
        yield Check(
            name=f"{one.run}: time to a failure",
            unit="h",
            published=one.mttf_hours or 0,
            ours=float(job_mtbf(one.num_procs or 0, nodes.mtbf_processor or 0)) / HOUR,
            tolerance=0.01,
            digits=0.1 if (one.mttf_hours or 0) > 1 else 0.01,
            source=one.source,
        )


def _of_bloom(one: PublishedFailures) -> Iterator[Check]:
    """Yield the checks of BLOOM's checkpoints."""
    interval, save, size = one.interval or 0, one.save or 0, one.checkpoint_bytes or 0
    state = float(bytes_per_param("bfloat16", _ADAM.__getitem__)) * (one.parameters or 0)
    rate = float(storage_rate(Checkpoints(), np.asarray((one.num_procs or 0) / NODE)))
    yield Check(
        name="BLOOM 176B: time that saving takes",
        unit="%",
        published=0.37,
        ours=100 * float(spent(interval, save, 0.0, np.inf).saving),
        tolerance=HALF_A_PERCENT,
        source=BY_HAND,
    )
    yield Check(
        name="BLOOM 176B: time of a save by the default rate",
        unit="s",
        published=save,
        ours=size / rate,
        tolerance=HALF_A_PERCENT,
        source=one.source,
    )
    yield Check(
        name="BLOOM 176B: size of a checkpoint",
        unit="TB",
        published=size / TERA,
        ours=state / TERA,
        tolerance=0.08,
        source=one.source,
    )


def _of_footprint(one: PublishedFootprint) -> Iterator[Check]:
    """Yield the checks of energy, CO2 and money of a run, by the conventions of its source."""
    tolerance = 0.02 if "estimate by others" in one.note else HALF_A_PERCENT
    energy = float(card_energy(one.processor_hours, one.watts or 0, one.pue or 1))
    if one.energy_kwh:
        yield Check(
            name=f"{one.run}: energy",
            unit="MWh",
            published=one.energy_kwh / KILO,
            ours=energy / KILO,
            tolerance=tolerance,
            digits=1.0,
            source=one.source,
        )
    if one.co2_t:
        yield Check(
            name=f"{one.run}: CO2",
            unit="t",
            published=one.co2_t,
            ours=float(carbon(energy, one.carbon or 0)),
            tolerance=tolerance,
            digits=1.0 if one.co2_t == round(one.co2_t) else 0.01,
            source=one.source,
        )
    if one.usd:
        yield Check(
            name=f"{one.run}: cost",
            unit="M USD",
            published=one.usd / MEGA,
            ours=float(rent(one.processor_hours, one.usd_per_hour or 0)) / MEGA,
            tolerance=HALF_A_PERCENT,
            source=one.source,
        )
