"""Training runs of the executions of a search: their figures as columns, and upper bounds for pruning."""

from collections.abc import Callable
from dataclasses import field, fields
from typing import Any

import numpy as np

from calculon.architecture.parameters import active_count
from calculon.architecture.shape import sequence_lengths
from calculon.base.arrays import cached_property
from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.records import column
from calculon.base.units import Array, Count, FlopsPerSecond, Fraction, Seconds
from calculon.campaign.limits import LIMITED
from calculon.campaign.record import DAY, Campaign
from calculon.campaign.run_columns import Lookup, job, peak, steps_of, tokens_of_run, working
from calculon.campaign.whole_run import Job, TimedSegment, WholeRun
from calculon.cost.batch import Batch
from calculon.cost.quoted_figures import model_parameters
from calculon.declarations.model import Model
from calculon.declarations.run_figures import RUN_FIGURES
from calculon.declarations.statistics import CorrectedStats
from calculon.estimate.evaluate import Evaluation
from calculon.hardware.system import System
from calculon.plan.columns import field_of
from calculon.plan.plan import NAMES
from calculon.plan.schedule import Schedule
from calculon.search.objective import Objective

SLACK = 1 - 1e-9
"""Relaxation of a bound: the last digits of a time depend on the order of summation."""

MADE_KNOWN = {
    "usd": "state a price: --price 2.5 (fleet.price of the campaign), or ext.price of the system",
    "mwh": "state the power of a processor: fleet.tdp of the campaign, or ext.power of the system",
    "t_co2": "state the carbon of the electricity: --carbon 400 (fleet.g_co2_per_kwh), and the power of a processor",
}
"""Hints for figures that a campaign may leave undefined."""
MADE_KNOWN["tokens_per_usd"] = MADE_KNOWN["usd"]


def _is_shared(name: str) -> bool:
    """Return True for columns with few distinct values: their results are computed once for each value."""
    return name in ("num_procs", "parameters") or (name in NAMES and field_of(name).named)


_RISING = {
    ("days", "min"),
    ("processor_hours", "min"),
    ("failures", "min"),
    ("usd", "min"),
    ("tokens_per_usd", "max"),
    ("useful_days", "min"),
}
"""Objectives that never improve when a step takes longer."""


@dataclass(frozen=True, slots=True)
class TrainingRuns:
    """Training runs of a model on a system, all of one campaign with a constant batch.

    Attributes:
        campaign: The campaign; it states its length.
        datatype: Type of the weights.
    """

    campaign: Campaign
    model: Model
    system: System
    datatype: str

    @property
    def limits(self) -> tuple[str, ...]:
        """Deadline and budgets of the campaign, as conditions."""
        stated = ((figure, getattr(self.campaign, name)) for name, figure in LIMITED.items())
        given = {figure: most for figure, most in stated if most is not None}
        if "days" in given:
            given["days"] = given["days"] / DAY
        return tuple(f"{figure} <= {float(most)!r}" for figure, most in given.items())

    @property
    def active(self) -> float:
        """Active parameters per token, which a campaign may use to state its tokens."""
        return float(active_count(self.model))

    def steps(self, tokens_per_step: Count) -> Count:
        """Return the number of steps of runs."""
        asked = self.campaign
        if asked.steps is not None:
            return np.full(np.shape(tokens_per_step), float(asked.steps))
        return steps_of(tokens_of_run(asked, self.active, 0), tokens_per_step)

    def of(self, lookup: Lookup, tokens_per_step: Count) -> WholeRun:
        """Return the runs of executions, given a lookup function for their columns."""
        steps = self.steps(tokens_per_step)
        whole = _timed_segment(steps, np.asarray(lookup("total_time")), tokens_per_step)
        return _Columns(self.campaign, self._job(lookup), (whole,), lookup=lookup)

    def _job(self, lookup: Lookup) -> Job:
        """Return the quantities of a run that its time depends on."""
        # Without the peak, which `_Columns` reads on demand.
        return job(self.campaign, self.system, self.datatype, lookup, self.active, peaks=False)

    def of_table(self, table: Evaluation) -> WholeRun:
        """Return the runs of the executions of a table."""
        lengths = sequence_lengths(self.model, table.column("seq_length"))

        def lookup(name: str) -> Any:
            values = table.column(name)
            return _alike(values) if _is_shared(name) else values

        return self.of(lookup, table.column("batch_size") * lengths)

    def figures(self, table: Evaluation) -> dict[str, Array]:
        """Return the figures of the runs of a table of executions, by name."""
        runs = self.of_table(table)
        return {
            name: np.array(np.broadcast_to(one.of(runs), len(table)), float)
            for name, one in RUN_FIGURES.items()
        }

    def of_batch(self, batch: Batch, pick: Callable[[Array], Array]) -> WholeRun:
        """Return the runs of executions on the axes of a search; `pick` selects the entries of a column."""
        schedule = batch.schedule

        def lookup(name: str) -> Any:
            if _is_shared(name):
                values = _of_job(batch.model, schedule, name)
                return pick(values) if values.ndim else values
            if name in NAMES:
                return pick(getattr(schedule.columns, name))
            return pick(column(CorrectedStats, name).of(batch))

        return self.of(lookup, pick(schedule.batch_size * schedule.seq_length))

    def least(self, schedule: Schedule, step_time: Seconds) -> WholeRun:
        """Return the runs of executions for a lower bound of their step time: the actual runs are not shorter.

        The content of a step is unknown, so figures that depend on it are not available.
        """

        def lookup(name: str) -> Any:
            if _is_shared(name):
                return _of_job(self.model, schedule, name)
            return getattr(schedule.columns, name)

        tokens_per_step = schedule.batch_size * schedule.seq_length
        steps = self.steps(tokens_per_step)
        whole = _timed_segment(steps, step_time, tokens_per_step)
        return WholeRun(self.campaign, self._job(lookup), (whole,), rounded=False)

    def bound(
        self, objective: Objective, schedule: Schedule, step_time: Callable[[], Seconds]
    ) -> Array | None:
        """Return an upper bound of the score of runs with at least this step time; None if time gives no bound.

        Energy does not follow from time, and neither does the electricity cost of an owner. With several levels of
        checkpoints there is no bound either: their optimal intervals are known to first order only.
        """
        c, price = self.campaign, self.system.ext.price
        owned = price is not None and price.own is not None and c.fleet.price is None
        priced = objective.statistic.name in ("usd", "tokens_per_usd")
        name, sense = objective.statistic.name, objective.sense
        if (name, sense) not in _RISING or c.checkpoints.levels > 1 or (priced and owned):
            return None
        score = objective.score(self.least(schedule, step_time() * SLACK))
        return score * SLACK if sense == "min" else score / SLACK

    @property
    def _example(self) -> WholeRun:
        """A run that has all figures that the other runs of this campaign have."""
        one = np.ones(())
        names = (f.name for f in fields(Job) if f.name not in ("system", "peak"))
        of_job = Job(system=self.system, **dict.fromkeys(names, one))
        return WholeRun(self.campaign, of_job, (_timed_segment(one, one, one),))

    @property
    def price(self) -> dict[str, Any] | None:
        """Price of a processor-hour and its source, as plain data; None if unknown."""
        found = self._example.quote
        if found is None:
            return None
        stated = {name: getattr(found, name) for name in ("kind", "source", "date")}
        return {"usd": float(found.usd), **stated}

    def check_known(self, name: str, where: str) -> None:
        """Refuse a figure that the campaign and the system leave undefined.

        Raises:
            SpecError: With a hint that says what defines it.
        """
        if name in MADE_KNOWN and np.isnan(RUN_FIGURES[name].of(self._example)).any():
            wanted = f"a figure that the campaign and {self.system.name} define"
            raise SpecError(where, Problem("", wanted, repr(name), MADE_KNOWN[name]))


@dataclass(frozen=True)
class _Columns(WholeRun):
    """Training runs of executions whose columns are read on demand: most figures need only their time."""

    lookup: Lookup = field(kw_only=True)

    @cached_property
    def working(self) -> Fraction:
        """Fraction of the step time in which engines are busy."""
        return working(self.lookup)

    @cached_property
    def peak(self) -> FlopsPerSecond:
        """Peak FLOP/s of a processor in the type of matrix products."""
        return peak(self.lookup)


def _timed_segment(steps: Count, step_time: Seconds, tokens_per_step: Count) -> TimedSegment:
    """Return the segment of a run whose steps take the given time."""
    return TimedSegment(steps=steps, step_time=step_time, tokens=steps * tokens_per_step)


def _of_job(model: Model, schedule: Schedule, name: str) -> Array:
    """Return a column that executions of a search share, as a scalar if all values are equal; named values as text."""
    if name == "num_procs":
        return _alike(schedule.processors)
    if name == "parameters":
        return _alike(model_parameters(model, schedule))
    values = _alike(getattr(schedule.columns, name))
    return np.asarray(np.array([*field_of(name).declaration.choices])[values])


def _alike(values: Array) -> Array:
    """Return a scalar if all entries are equal, else the entries."""
    values = np.asarray(values)
    if values.ndim and values.size and (values == values.flat[0]).all():
        return np.asarray(values.flat[0])
    return values
