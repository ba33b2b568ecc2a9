"""Training runs compared with published figures: processor-hours, failures, and checks of the laws of whole runs.

Processor-hours come from studies with a figure of whole runs. Checks need no execution: they compare a law of
:mod:`calculon.campaign`, evaluated for the inputs in a source, with the result in the source.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from calculon.architecture.parameters import parameter_count
from calculon.base.frozen import dataclass
from calculon.base.units import KILO, MEGA, TERA
from calculon.campaign.checkpoint import bytes_per_param, storage_rate
from calculon.campaign.energy import carbon, card_energy
from calculon.campaign.goodput import overhead, wall_per_useful, young
from calculon.campaign.job_failures import HOUR, job_mtbf
from calculon.campaign.money import rent
from calculon.campaign.published import (
    PublishedFailures,
    PublishedFootprint,
    published_failures,
    published_footprints,
)
from calculon.campaign.record import Campaign, Checkpoints, Reliability
from calculon.campaign.run_columns import whole_runs
from calculon.campaign.whole_run import NODE, WholeRun
from calculon.declarations.execution import Execution
from calculon.declarations.named_values import PUBLISHED
from calculon.validate.measured_and_predicted import Comparison, Result
from calculon.validate.row_bounds import row_bounds
from calculon.validate.study_rows import Row

Record = dict[str, Any]

FOLDER = "campaign"
"""Folder of the studies of training runs."""

WIDEST = 1.6
"""Largest ratio of published to step-only hours that failures, checkpoints, evaluation and downtime may explain."""

HALF_A_PERCENT, TENTH_OF_A_PERCENT = 0.005, 0.001

BY_HAND = "computed by hand from figures of the source"

_ADAM = {"optimizer": "adam", "optimizer_state_dtype": "float32"}

UTILISATION = {"Llama 3 8B": 15.6, "Llama 3 70B": 27.8}
"""Percent of the peak at 6 FLOP per parameter and token, from the processor-hours in the model cards."""

SCALED = "11616 H100"
"""MLPerf row whose rate per processor is compared with 512 processors."""

SAVE, RESTART = 30.0, 300.0
"""Seconds of a save and of a restart in checks of Llama 3, whose source states neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Published figure, compared with the result of a law.

    Attributes:
        name, unit: Name and unit of the figure.
        published, ours: Published and computed value.
        tolerance: Largest relative difference that passes.
        rounded: Absolute difference that always passes, such as half a unit of the last published digit.
        at_least: True if the source states a lower limit.
        source: Citation.
    """

    name: str
    unit: str
    published: float
    ours: float
    tolerance: float
    rounded: float = 0.0
    at_least: bool = False
    source: str

    @property
    def allowed(self) -> float:
        """Largest absolute difference that passes."""
        return max(self.tolerance * self.published, self.rounded)

    @property
    def passes(self) -> bool:
        """True if both values agree within the tolerance."""
        if self.at_least:
            return self.ours >= self.published
        return abs(self.ours - self.published) <= self.allowed * (1 + 1e-9)


def trainings(results: Sequence[Result]) -> list[Record]:
    """Return one row for each training run with published processor-hours, for editions that have intervals.

    Step-only hours are below the hours of a whole run. If the configuration is known, the check is that the ratio is at
    most :data:`WIDEST`; if the source states step hours itself, that they are in the interval. The ratio is the product
    of three factors: slower steps than predicted (from the published rate), failures and checkpoints (from the law with
    default campaign settings), and a remainder.
    """
    return [
        row
        for result in results
        if result.study.origin == FOLDER and result.edition != PUBLISHED
        for one in result.own.comparisons
        if one.quantity.is_run
        for row in _trainings(result, one)
    ]


def _trainings(result: Result, one: Comparison) -> Iterator[Record]:
    place = {row.number: i for i, row in enumerate(result.rows)}
    bounds = row_bounds(result)
    pairs = zip(one.rows, one.measured.tolist(), one.estimated.tolist(), strict=True)
    for row, published, steps in pairs:
        here = place[row.number]
        case = result.own.prediction.cases[here]
        known, whole = row.cells["configuration"] == "known", row.cells["hours_of"] == "run"
        low, high = (steps * float(end[here]) for end in (bounds.low, bounds.high))
        rate = row.cells["rate_hours"] or None
        law = 1 / float(_whole_run(result, one, row, here).goodput) if whole else None
        # Whole runs have losses that steps do not have; hours of steps alone must be in the prediction interval.
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
            "by_rate": rate and rate / steps,
            "by_law": law,
            # Without a published rate, the remainder also contains the error of the predicted step.
            "rest": published / (rate or steps) / (law or 1.0),
            "passes": judged if known else None,
        }


def _whole_run(result: Result, one: Comparison, row: Row, here: int) -> WholeRun:
    """Return the training run of a row with default campaign settings."""
    found = result.own.prediction
    case = found.cases[here]
    execution = Execution(**{**case.execution, "edition": result.edition})
    known = {"parameters": parameter_count(case.model)}

    def lookup(name: str) -> Any:
        if name in known:
            return known[name]
        return found.values[name][here] if name in found.values else getattr(execution, name)

    times = one.quantity.times
    processor_steps = times.of(row.cells) if times else 0.0
    each = execution.batch_size * (execution.seq_length or case.model.seq_size)
    tokens = processor_steps / execution.num_procs * each
    return whole_runs(Campaign(), case.system, execution.datatype, tokens, np.asarray(each), lookup)


def failures(results: Sequence[Result]) -> list[Record]:
    """Return one row for each published failure rate, compared with the default of campaigns.

    Empty unless several studies of training runs are shown.
    """
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
    """Return one row for each check of a law; empty unless several studies of training runs are shown."""
    return [
        {
            "name": one.name,
            "unit": one.unit,
            "published": one.published,
            "ours": one.ours,
            "tolerance": one.tolerance,
            "rounded": one.rounded,
            "at_least": one.at_least,
            "passes": one.passes,
            "source": one.source,
        }
        for one in ((*every_check(), *_of_studies(results)) if _shown(results) else ())
    ]


def _shown(results: Sequence[Result]) -> bool:
    """Return True if several studies of training runs are shown, instead of a single one in detail."""
    return len({one.study.name for one in results if one.study.origin == FOLDER}) > 1


def every_check() -> list[Check]:
    """Return all checks of laws: failures, checkpoints, energy, CO2 and cost."""
    runs = {one.run: one for one in published_failures()}
    return [
        *_of_llama_3(runs["Llama 3 405B"]),
        *_of_rsc(runs["RSC-1"], [runs[f"RSC-1 on {n}"] for n in ("16,384", "131,072")]),
        *_of_bloom(runs["BLOOM 176B"]),
        *(check for one in published_footprints() for check in _of_footprint(one)),
    ]


def _of_studies(results: Sequence[Result]) -> Iterator[Check]:
    """Yield the checks that need executions of studies, for studies among the results."""
    for result in results:
        if result.edition == PUBLISHED:
            continue
        for one in result.own.comparisons:
            for i, row in enumerate(one.rows):
                if row.label in UTILISATION:
                    yield _of_utilization(result, one, row, float(one.measured[i]))
                if row.label.startswith(SCALED):
                    yield Check(
                        name="GPT-3, MLPerf: 11,616 H100 keep",
                        unit="%",
                        published=float(one.measured[i]),
                        ours=float(one.estimated[i]),
                        tolerance=0,
                        rounded=10,
                        source=f"{row.cells['source']}; compared with 512",
                    )


def _of_utilization(result: Result, one: Comparison, row: Row, hours: float) -> Check:
    """Return the check of utilization at 6 FLOP per parameter and token, over all hours of a model card."""
    place = next(i for i, other in enumerate(result.rows) if other.number == row.number)
    run = _whole_run(result, one, row, place)
    share = float(run.mfu_effective) * float(run.processor_hours) / hours
    return Check(
        name=f"{row.label}: utilization in all hours",
        unit="%",
        published=UTILISATION[row.label],
        ours=100 * share,
        tolerance=0.01,
        source=BY_HAND,
    )


def _of_llama_3(one: PublishedFailures) -> Iterator[Check]:
    """Yield the checks for the published window of Llama 3 405B, with default campaign settings."""
    reliability = Reliability()
    mtbf = float(job_mtbf(one.num_procs or 0, reliability.mtbf_processor / HOUR))
    interval = float(young(SAVE, mtbf))
    share = 1 / float(wall_per_useful(interval, SAVE, RESTART, mtbf))
    at_once = float(wall_per_useful(interval, SAVE, 0.0, mtbf))
    yield Check(
        name="Llama 3: time between failures",
        unit="h",
        published=one.mtbf_hours or 0,
        ours=mtbf / HOUR,
        tolerance=TENTH_OF_A_PERCENT,
        source=one.source,
    )
    yield Check(
        name=f"Llama 3: interval, {SAVE:g} s a save",
        unit="s",
        published=817,
        ours=interval,
        tolerance=TENTH_OF_A_PERCENT,
        source=BY_HAND,
    )
    yield Check(
        name=f"Llama 3: goodput, restarts {RESTART:g} s",
        unit="",
        published=one.goodput or 0,
        ours=share,
        tolerance=0,
        at_least=True,
        source=one.source,
    )
    yield Check(
        name="Llama 3: goodput by the exact law",
        unit="",
        published=0.904,
        ours=share,
        tolerance=TENTH_OF_A_PERCENT,
        source=BY_HAND,
    )
    yield Check(
        name="Llama 3: restart for goodput 0.90",
        unit="s",
        published=345,
        # Restarts multiply the wall time by exp(restart / MTBF): solved for the restart time.
        ours=mtbf * float(np.log(1 / ((one.goodput or 1) * at_once))),
        tolerance=HALF_A_PERCENT,
        source=BY_HAND,
    )


def _of_rsc(nodes: PublishedFailures, jobs: Sequence[PublishedFailures]) -> Iterator[Check]:
    """Yield the checks of times to failure of jobs, which the RSC-1 source projects from node failures."""
    for one in jobs:
        yield Check(
            name=f"{one.run}: between failures",
            unit="h",
            published=one.mttf_hours or 0,
            ours=float(job_mtbf(one.num_procs or 0, nodes.mtbf_processor or 0)) / HOUR,
            tolerance=0.01,
            rounded=0.05 if (one.mttf_hours or 0) > 1 else 0.005,
            source=one.source,
        )


def _of_bloom(one: PublishedFailures) -> Iterator[Check]:
    """Yield the checks of the checkpoints of BLOOM."""
    interval, save, size = one.interval or 0, one.save or 0, one.checkpoint_bytes or 0
    state = float(bytes_per_param("bfloat16", _ADAM.__getitem__)) * (one.parameters or 0)
    rate = float(storage_rate(Checkpoints(), np.asarray((one.num_procs or 0) / NODE)))
    yield Check(
        name="BLOOM 176B: time for saves",
        unit="%",
        published=0.37,
        ours=100 * float(overhead(interval, save, 0.0, np.inf).saving),
        tolerance=HALF_A_PERCENT,
        source=BY_HAND,
    )
    yield Check(
        name="BLOOM 176B: time of a save",
        unit="s",
        published=save,
        ours=size / rate,
        tolerance=HALF_A_PERCENT,
        source=one.source,
    )
    yield Check(
        name="BLOOM 176B: size of a save",
        unit="TB",
        published=size / TERA,
        ours=state / TERA,
        tolerance=0.08,
        source=one.source,
    )


def _of_footprint(one: PublishedFootprint) -> Iterator[Check]:
    """Yield the checks of energy, CO2 and cost of a run, with the conventions of its source."""
    tolerance = 0.02 if "estimate by others" in one.note else HALF_A_PERCENT
    energy = float(card_energy(one.processor_hours, one.watts or 0, one.pue or 1))
    if one.energy_kwh:
        yield Check(
            name=f"{one.run}: energy",
            unit="MWh",
            published=one.energy_kwh / KILO,
            ours=energy / KILO,
            tolerance=tolerance,
            rounded=0.5,
            source=one.source,
        )
    if one.co2_t:
        yield Check(
            name=f"{one.run}: CO2",
            unit="t",
            published=one.co2_t,
            ours=float(carbon(energy, one.carbon or 0)),
            tolerance=tolerance,
            # Half a unit of the last printed digit: of whole tonnes, or of hundredths.
            rounded=0.5 if one.co2_t == round(one.co2_t) else 0.005,
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
