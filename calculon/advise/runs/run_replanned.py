"""Value of a machine change to a whole run when the plan is searched again."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from calculon import inputs
from calculon.advise.elasticities import Case, Change, Effect
from calculon.advise.replanned import CapacitySweep, Replanned, Replanner, Step, capacity_sweep
from calculon.advise.runs.run_case import Run
from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.units import GIB
from calculon.declarations.presets import Preset
from calculon.estimate.estimate import estimate
from calculon.hardware.figures import with_figures
from calculon.hardware.system import System

TIME = "total_time"

LESS, MORE = 1.0, -1.0

RISING = {
    "days": LESS,
    "days_p10": LESS,
    "days_p50": LESS,
    "days_p90": LESS,
    "processor_hours": LESS,
    "usd": LESS,
    "tokens_per_usd": MORE,
    "mfu_effective": MORE,
    "failures": LESS,
    "useful_days": LESS,
}
"""Figures of a run that improve with a shorter step, and whether smaller or larger values are better.

On a given number of processors, all plans fail equally often, and save and restart equally fast, as long as they save
the same state.
"""

_ROUNDING = 1 + 1e-12
"""Factor on capacities that keeps a plan fitting despite the rounding of its need to GiB."""


class RunReplanner:
    """Search for the plan with the shortest step on variants of a machine, evaluated by its whole run.

    The original plan is always a candidate, so that the gain is never smaller than with the same plan. For a run of
    several parts, the step of the longest part counts; a plan that does not fit another part is rejected.

    Args:
        run: The run.
        case: Plan, machine and figure.
        preset: Framework whose plans are searched.

    Raises:
        SpecError: For a figure that a shorter step may make worse.
    """

    def __init__(self, run: Run, case: Case, preset: Preset):
        if case.statistic not in RISING:
            wanted = "a figure that improves with a shorter step: " + ", ".join(RISING)
            hint = "leave out --replan"
            raise SpecError("--replan", Problem("of", wanted, repr(case.statistic), hint))
        self.run, self.statistic, self.system = run, case.statistic, case.system
        steps = Case(case.model, case.execution, case.system, TIME)
        self._steps, self._sign = Replanner(steps, preset), RISING[case.statistic]

    def best(self, system: System, original: float | None) -> Replanned | None:
        """Return the best plan on a system; None if nothing fits.

        `original` is the figure of the original plan on this system, None if it cannot run there.
        """
        return self._best(system, original, lambda time: self._steps.best(system, time))

    def _best(
        self,
        system: System,
        original: float | None,
        steps: Callable[[float | None], Replanned | None],
    ) -> Replanned | None:
        """Return the best plan; `steps` finds the plan with the shortest step, given the time of the original plan."""
        kept = None
        if original is not None:
            kept = Replanned(value=original, execution=self._steps.fields, kept=True)
        time = self._steps.case.on(system)
        found = steps(time if math.isfinite(time) else None)
        if found is None or (found.kept and kept is not None):
            return kept
        other = self._of_run(found, system)
        if other is None or kept is None:
            return other or kept
        return kept if self._score(original or 0.0) >= self._score(other.value) else other

    def prefetch(self, changes: Sequence[Change]) -> None:
        """Search at once for the best plans with several single-parameter changes, which are requested later."""
        self._steps.prefetch(changes)

    def with_figures(self, values: Change, original: float | None) -> Replanned | None:
        """Return the best plan on the system with changed parameters; arguments as for :meth:`best`."""
        system = with_figures(self.system, values)
        return self._best(system, original, lambda time: self._steps.with_figures(values, time))

    def to_replan(self, felt: Iterable[Effect], idle: Iterable[Effect]) -> list[Effect]:
        """Return the hardware effects to replan."""
        return self._steps.to_replan(felt, idle)

    def capacity_sweep(self) -> CapacitySweep:
        """Return the best plan at each capacity of tier 1, among those with the shortest steps."""
        times = self._steps.capacity_sweep()
        steps = []
        for one in times.steps:
            gib = one.capacity / GIB * _ROUNDING
            best = self._of_run(one.best, with_figures(self.system, {"mem1.GiB": gib}))
            if best is not None:
                steps.append(Step(capacity=one.capacity, best=best))
        return capacity_sweep(times.capacity, times.withheld, steps, self._score)

    def _score(self, value: float) -> float:
        return -self._sign * value

    def _of_run(self, replanned: Replanned, system: System) -> Replanned | None:
        """Return a plan with the figure of its run; None if a part of the run does not fit."""
        plan = inputs.execution(replanned.execution)
        try:
            run = self.run.with_plan(estimate(self._steps.case.model, plan, system))
        except (Infeasible, SpecError):
            return None
        value = run.figures[self.statistic]
        return None if value is None else replace(replanned, value=value)
