"""Figure of a whole run on variants of its machine and its campaign, with an unchanged plan."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from calculon.advise.elasticities import Case, faster, sped_up
from calculon.advise.runs.run_parts import RunPart
from calculon.base.arrays import cached_property
from calculon.base.errors import Problem, SpecError
from calculon.base.records import Column
from calculon.base.units import Array, Seconds
from calculon.campaign.exponentials import ignore_float_errors
from calculon.campaign.record import Campaign
from calculon.campaign.run_columns import job, timed_segment
from calculon.campaign.scalars import scalars_of, with_scalars
from calculon.campaign.whole_run import WholeRun
from calculon.declarations.execution import Execution
from calculon.declarations.presets import Preset
from calculon.declarations.run_figures import RUN_FIGURES
from calculon.estimate.estimate import Estimate
from calculon.estimate.evaluate import Evaluation, evaluate
from calculon.estimate.what_if import what_if
from calculon.hardware.figures import OF_WHOLE_RUNS, Figure, figures_of, with_figures
from calculon.hardware.system import System
from calculon.search.objective import known_statistic
from calculon.search.training_runs import MADE_KNOWN

_OF_JOBS = ("mem2.", "networks[", "ext.host.", *OF_WHOLE_RUNS)
"""Path prefixes of machine parameters that a run uses directly; all others only affect its steps."""


class Run(Protocol):
    """Training run that can be analyzed (:class:`~calculon.advise.runs.training_run.TrainingRun`)."""

    @property
    def campaign(self) -> Campaign:
        """Requested run."""

    @property
    def parts(self) -> tuple[RunPart, ...]:
        """Parts of the run, in order."""

    @property
    def main(self) -> RunPart:
        """Longest part."""

    @property
    def system(self) -> System:
        """Machine."""

    @property
    def preset(self) -> Preset:
        """Framework that runs it."""

    @property
    def pauses(self) -> int:
        """Restarts between parts that are split differently."""

    @property
    def figures(self) -> Mapping[str, float | None]:
        """Figures by name."""

    def with_plan(self, other: Estimate) -> "Run":
        """Return the same run with another plan, or on another machine."""


class SmoothRun(WholeRun):
    """Run with checkpoint intervals that are not rounded to whole steps, so that its figures have derivatives."""

    @cached_property
    def checkpoint_interval(self) -> Seconds:
        """Time of steps between checkpoints: as stated, or the best that the storage allows."""
        c = self.campaign.checkpoints
        if c.interval_steps is not None:
            return c.interval_steps * self.step
        wanted = self.best_interval if c.interval is None else float(c.interval)
        return self._within_run(np.maximum(wanted, self.saves.least_interval))


def run_figure(name: str) -> Column:
    """Return a figure of whole runs by name.

    Raises:
        SpecError: If there is no figure of this name; the hint has the nearest.
    """
    result = known_statistic(name, "sensitivity", whole_runs=True)
    if name not in RUN_FIGURES:
        wanted = "a figure of a whole run, such as days, usd, mwh or goodput"
        hint = "it is a statistic of a step: leave out the campaign"
        raise SpecError("sensitivity", Problem("of", wanted, repr(name), hint))
    return result


def check_known(run: Run, figure: Column) -> None:
    """Refuse a figure that is unknown for this campaign and system.

    Raises:
        SpecError: With the inputs that make it known.
    """
    if run.figures[figure.name] is None:
        wanted = f"a figure that is known for the campaign and {run.system.name}"
        problem = Problem("of", wanted, repr(figure.name), MADE_KNOWN[figure.name])
        raise SpecError("sensitivity", problem)


class RunCase(Case):
    """Whole run, one of whose figures is evaluated on variants of its machine and its campaign.

    Every part of the run keeps its execution and its number of steps.

    Args:
        run: The run.
        statistic: Name of a figure (:class:`~calculon.declarations.run_figures.CampaignFigures`).
    """

    def __init__(self, run: Run, statistic: str):
        if any(one.rollout_time for one in run.parts):
            hint = "leave out the rollouts, whose time on other machines is not modeled"
            found = Problem("phases", "phases without rollouts", "a phase with one", hint)
            raise SpecError(run.campaign.name, found)
        main = run.main.estimate
        super().__init__(main.model, main.execution, main.system, statistic)
        self.run = run
        self._column = RUN_FIGURES[statistic]
        self._last: dict[Any, list[tuple[list[int], WholeRun]]] = {}

    def of(self, statistic: str) -> "RunCase":
        """Return the same run with another figure; both share the results of the last evaluation."""
        other = RunCase(self.run, statistic)
        other._last = self._last
        return other

    def for_plan(self, other: Estimate) -> "RunCase":
        """Return the same run with another plan, or on another machine."""
        return RunCase(self.run.with_plan(other), self.statistic)

    @cached_property
    def of_campaign(self) -> dict[str, Figure]:
        """Scalar parameters of the campaign, by path."""
        return scalars_of(self.run.campaign)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """Parameters of the machine, including prices and powers, and of the campaign, by path."""
        return figures_of(self.system, whole_runs=True) | self.of_campaign

    def possible(self, figure: Figure, value: float) -> bool:
        """Return True if a file can have this value of a parameter."""
        if figure.path in self.of_campaign:
            return figure.problem(value) is None
        return super().possible(figure, value)

    def values(self, changes: Sequence[Mapping[str, float]]) -> Array:
        """Return the figure for each change; NaN if a part of the run does not fit."""
        return self.tried(changes, [])[0]

    def tried(
        self, ends: Sequence[Mapping[str, float]], nearby: Sequence[Mapping[str, float]]
    ) -> tuple[Array, Array]:
        """Return the figure for ends of ranges and for nearby changes; the latter use a :class:`SmoothRun`."""
        found = self._values([*ends, *nearby], [WholeRun] * len(ends) + [SmoothRun] * len(nearby))
        return found[: len(ends)], found[len(ends) :]

    def on(self, system: System) -> float:
        """Return the figure on another system; NaN if a part of the run does not fit."""
        steps = [evaluate(self.model, [one], system) for one in self._executions]
        return self._value(WholeRun, self.run.campaign, system, steps)

    def faster(self, factor: float, *, figures: bool = True) -> float:
        """Return the figure with rates multiplied, and times divided, by `factor`; or only times in lists."""
        changes = sped_up(self.of_campaign.values(), factor) if figures else {}
        asked = with_scalars(self.run.campaign, changes)
        of_system = [one for path, one in self.figures.items() if path not in self.of_campaign]
        system = faster(self.system, of_system, factor, figures=figures)
        steps = [evaluate(self.model, [one], system) for one in self._executions]
        return self._value(SmoothRun, asked, system, steps)

    @cached_property
    def _executions(self) -> list[Execution]:
        """Distinct executions of the parts."""
        return list(dict.fromkeys(one.estimate.execution for one in self.run.parts))

    def _values(
        self, changes: Sequence[Mapping[str, float]], kinds: Sequence[type[WholeRun]]
    ) -> Array:
        """Return the figure for changes, each with a class of run."""
        asked = tuple(tuple(sorted(change.items())) for change in changes), tuple(kinds)
        # Only the last evaluation is kept: figures of one run are requested one after another with
        # the same changes.
        if asked not in self._last:
            self._last.clear()
            self._last[asked] = [*self._runs(changes, kinds)]
        result = np.full(len(changes), np.nan)
        for rows, whole in self._last[asked]:
            result[rows] = self._figure(whole)
        return result

    def _runs(
        self, changes: Sequence[Mapping[str, float]], kinds: Sequence[type[WholeRun]]
    ) -> Iterator[tuple[list[int], WholeRun]]:
        """Yield runs and the indices of their changes; changes with the same job are evaluated together as a column."""
        of_steps = [self._only(change, of_steps=True) for change in changes]
        keys = [tuple(sorted(change.items())) for change in of_steps]
        number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        each = [dict(key) for key in number]
        rows_of = np.array([number[key] for key in keys], np.int64)
        steps = [
            what_if(self.model, one, self.system, each).take(rows_of) for one in self._executions
        ]
        runs = np.all([one.feasible for one in steps], axis=0)
        together: dict[Any, list[int]] = {}
        for i in np.flatnonzero(runs).tolist():
            if all(self._allowed(*one) for one in changes[i].items()):
                change = self._only(changes[i], of_steps=False)
                together.setdefault((kinds[i], tuple(sorted(change.items()))), []).append(i)
        # Steps were evaluated for all machines at once; the rest of the run depends on few
        # parameters, so that most changes share one job.
        for (kind, pairs), rows in together.items():
            change = dict(pairs)
            own = {path: value for path, value in change.items() if path in self.of_campaign}
            rest = {path: value for path, value in change.items() if path not in own}
            system = with_figures(self.system, rest, self.figures) if rest else self.system
            asked = with_scalars(self.run.campaign, own) if own else self.run.campaign
            yield rows, self._run(kind, asked, system, [one.take(np.array(rows)) for one in steps])

    def _allowed(self, path: str, value: float) -> bool:
        """Return True if a campaign file can have a value; machine parameters are checked elsewhere."""
        return path not in self.of_campaign or self.of_campaign[path].problem(value) is None

    def _only(self, change: Mapping[str, float], *, of_steps: bool) -> dict[str, float]:
        """Return the part of a change that affects steps, or the part that affects the rest of a run."""
        own = self.of_campaign
        if of_steps:
            steps = (
                path for path in change if path not in own and not path.startswith(OF_WHOLE_RUNS)
            )
            return {path: change[path] for path in steps}
        rest = (path for path in change if path in own or path.startswith(_OF_JOBS))
        return {path: change[path] for path in rest}

    def _value(
        self,
        kind: type[WholeRun],
        campaign: Campaign,
        system: System,
        steps: Sequence[Evaluation],
    ) -> float:
        """Return the figure of one run; NaN if a part of it does not fit."""
        if not all(one.feasible[0] for one in steps):
            return np.nan
        return float(self._figure(self._run(kind, campaign, system, steps))[0])

    def _figure(self, run: WholeRun) -> Array:
        """Return the figure of runs; NaN for runs that never end."""
        with ignore_float_errors():
            found = np.asarray(self._column.of(run), float)
        return np.where(np.isinf(found), np.nan, found)

    def _run(
        self,
        kind: type[WholeRun],
        campaign: Campaign,
        system: System,
        steps: Sequence[Evaluation],
    ) -> WholeRun:
        """Return the runs whose parts have the steps of some tables, one table per execution."""
        tables = dict(zip(self._executions, steps, strict=True))
        parts = [(one, tables[one.estimate.execution]) for one in self.run.parts]
        segments = tuple(
            timed_segment(np.asarray(one.steps), np.asarray(one.tokens_per_step), table.column)
            for one, table in parts
        )
        of_job = job(campaign, system, self.execution.datatype, tables[self.execution].column)
        return kind(campaign, of_job, segments, self.run.pauses)
