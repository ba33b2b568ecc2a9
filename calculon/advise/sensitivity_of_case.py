"""Sensitivity of a statistic of a plan, or of a whole run: elasticities, renewed searches, break-even."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from calculon import inputs
from calculon.advise.break_even import Alternative, BreakEven, break_evens
from calculon.advise.elasticities import (
    STEADY,
    TIMES,
    USE,
    Case,
    Range,
    effects,
    kind_of,
    slopes,
    total,
)
from calculon.advise.replanned import Replanned, Replanner, domain_sizes
from calculon.advise.runs.run_case import Run, RunCase, check_known, run_figure
from calculon.advise.runs.run_replanned import RunReplanner
from calculon.advise.sensitivity_result import ReplannedPlans, Sensitivity
from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.records import Column
from calculon.declarations.presets import Preset
from calculon.estimate.estimate import Estimate, estimate
from calculon.hardware.figures import with_figures
from calculon.hardware.system import System

TIME, DAYS = "total_time", "days"

Seen = Callable[[int], None]
"""Callback after each search, which receives the total number of searches."""

WHY = "calculon why suggests changes that make it run"

CALIBRATED = "calibrated"
"""Range that follows from the calibration residuals of each part, if there are any."""


@dataclass(frozen=True, slots=True)
class SensitivityOptions:
    """Options of a sensitivity analysis; the attributes are arguments of :func:`calculon.sensitivity`."""

    spread: float | str = 0.25
    replan: bool = False
    against: Any = None
    against_system: Any = None
    seen: Seen = lambda _: None

    def __post_init__(self) -> None:
        """Refuse a malformed range, and two alternatives at once."""
        if self.against is not None and self.against_system is not None:
            wanted = "another execution or another system"
            raise SpecError("sensitivity", Problem("against", wanted, "both"))
        read_range(self.spread)

    @property
    def within(self) -> Range:
        """Range over which parameters are varied."""
        return read_range(self.spread)


def run_sensitivity(run: Run, name: str, **options: Any) -> Sensitivity:
    """Analyze a figure of a whole run, by name; options and errors as for :func:`sensitivity`.

    An unknown figure, such as money without a price, is an error, too.
    """
    return run_sensitivity_with(run, name, SensitivityOptions(**options))


def run_sensitivity_with(run: Run, name: str, terms: SensitivityOptions) -> Sensitivity:
    """Return :func:`run_sensitivity` with options that were already read."""
    statistic = run_figure(name)
    check_known(run, statistic)
    found = answer(RunCase(run, name), run.preset, statistic, terms)
    return replace(found, campaign=run.campaign)


def largest(run: Run, names: Iterable[str], most: int = 3) -> dict[str, list[dict[str, Any]]]:
    """Return the largest elasticities of some figures of a run as plain data, by the name of the figure.

    They cover hardware, prices, power and campaign; unknown figures are omitted.
    """
    result, case = {}, RunCase(run, DAYS)
    for name in names:
        if run.figures[name] is None:
            continue
        figures = [one for one in case.figures.values() if kind_of(one) != USE]
        known = slopes(case.of(name), figures)
        first = sorted(known.items(), key=lambda pair: -abs(pair[1]))[:most]
        result[name] = [{"path": path, "elasticity": e} for path, e in first if abs(e) > STEADY]
    return result


def answer(case: Case, preset: Preset, statistic: Column, terms: SensitivityOptions) -> Sensitivity:
    """Return the complete sensitivity analysis of a case."""
    within = terms.within
    _check_calibrated(within, case.system)
    replanner = _replanner(case, preset) if terms.replan else None  # fails early if unsupported
    result = _effects_on(case, preset, statistic, within)
    if replanner is not None:
        result = replace(result, searched=_searched(case, result, replanner, terms.seen))
    if terms.against is terms.against_system is None:
        return result
    rival = _rival(case, result, terms)
    even = _even(case, result, rival)
    return replace(result, rival=rival.words, compared=rival.compared, break_evens=even)


def _effects_on(case: Case, preset: Preset, statistic: Column, within: Range) -> Sensitivity:
    """Return the effects of machine parameters on the statistic of a case."""
    now, every = effects(case, within)
    felt = [one for one in every if one.matters(now)]
    timed = statistic.unit.symbol in TIMES and now > 0
    return Sensitivity(
        model=case.model,
        execution=case.execution,
        system=case.system,
        preset=preset,
        statistic=statistic,
        within=within,
        value=now,
        effects=tuple(sorted(felt, key=lambda one: -one.swing(now))),
        idle=tuple(one for one in every if not one.matters(now)),
        total=total(case, every) if timed else None,
    )


def read_range(spread: float | str) -> Range:
    """Read a range: a share, a percentage, or :data:`CALIBRATED`.

    Raises:
        SpecError: For other values, and for a share that is not between 0 and 1.

    Examples:
        >>> read_range("25%").share, read_range(0.1).share, read_range("calibrated").calibrated
        (0.25, 0.1, True)
    """
    if spread == CALIBRATED:
        return Range(calibrated=True)
    text = str(spread).strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share < 1:
        wanted = f"a share between 0 and 1, such as 0.25 or 25%, or {CALIBRATED}"
        hint = f"write {text}%" if 1 <= share < 100 and not text.endswith("%") else ""
        raise SpecError("sensitivity", Problem("range", wanted, repr(spread), hint))
    return Range(share)


def _check_calibrated(within: Range, system: System) -> None:
    """Refuse calibrated ranges if the system was not calibrated."""
    if within.calibrated and not system.calibration.spreads:
        wanted = f"a share such as 25%, as no part of {system.name} was calibrated"
        raise SpecError("sensitivity", Problem("range", wanted, CALIBRATED))


def _replanner(
    case: Case, preset: Preset, system: System | None = None
) -> Replanner | RunReplanner:
    """Return a replanner for a case, or for its plan on another system."""
    plan = Case(case.model, case.execution, system or case.system, case.statistic)
    return (
        RunReplanner(case.run, plan, preset)
        if isinstance(case, RunCase)
        else Replanner(plan, preset)
    )


def _searched(
    case: Case, analysis: Sensitivity, replanner: Replanner | RunReplanner, seen: Seen
) -> ReplannedPlans:
    """Search the plan again on the changed machines."""
    figures = replanner.to_replan(analysis.effects, analysis.idle)
    sizes = domain_sizes(case.system, case.execution.num_procs)
    # Plus the unchanged machine and the capacity sweep.
    count = sum(end is not None for one in figures for end in (one.low, one.high)) + len(sizes) + 2

    def at(path: str, value: float | None, original: float | None) -> Replanned | None:
        if value is None:
            return None
        best = replanner.with_figures({path: value}, original)
        seen(count)
        return best

    changed = {one.figure.path: (one.low, one.high) for one in figures}
    ends_of = ({path: end} for path, ends in changed.items() for end in ends if end is not None)
    replanner.prefetch([*ends_of, *({path: size} for path, size in sizes)])
    best = replanner.with_figures({}, analysis.value)
    assert best is not None  # the original plan is always a candidate
    seen(count)
    ends = {
        path: (at(path, one.low, one.at_low), at(path, one.high, one.at_high))
        for one in figures
        for path in [one.figure.path]
    }
    larger: dict[int, tuple[float | None, Replanned | None]] = {}
    for path, size in sizes:
        value = case.on(with_figures(case.system, {path: size}))
        same = value if math.isfinite(value) else None
        larger[size] = same, at(path, size, same)
    stairs = replanner.capacity_sweep()
    seen(count)
    return ReplannedPlans(now=best, ends=ends, sizes=larger, staircase=stairs)


def _rival(case: Case, analysis: Sensitivity, terms: SensitivityOptions) -> Alternative:
    """Return the alternative: another plan, or the plan of another machine, planned again if this one was.

    Raises:
        Infeasible: If the alternative cannot run.
    """
    plan: Any = analysis.execution
    mine = "this plan"
    if terms.against is not None:
        words = terms.against if isinstance(terms.against, str) else "the other plan"
        other = estimate_named(words, analysis.model, terms.against, analysis.system)
        compared = f"{mine} against {words}"
        return Alternative(case.for_plan(other), words, compared, same_machine=True)
    machine = inputs.system(terms.against_system)
    compared = f"{mine} on both machines"
    if analysis.searched is not None:
        original = case.on(machine)
        replanner = _replanner(case, analysis.preset, machine)
        best = replanner.best(machine, original if math.isfinite(original) else None)
        if best is None:
            raise Infeasible("nothing", f"no plan fits on {machine.name}")
        plan = inputs.execution(best.execution)
        mine += "" if analysis.searched.now.kept else ", which is not the best here,"
        compared = f"{mine} against the best plan of {machine.name}"
    other = estimate_named("", analysis.model, plan, machine)
    return Alternative(case.for_plan(other), machine.name, compared, same_machine=False)


def estimate_named(name: str, model: Any, execution: Any, system: Any, **terms: Any) -> Estimate:
    """Return an estimate; error messages name the execution if it has a name.

    Raises:
        SpecError, Infeasible: As :func:`calculon.estimate`; if the execution cannot run, with a hint to ``calculon
            why``.
    """
    try:
        return estimate(model, execution, system, **terms)
    except SpecError as error:
        own = name and error.file == "execution"  # a contradiction between fields
        raise SpecError(name if own else error.file, error.problems) from None
    except Infeasible as error:
        text = f"{name}: {error}" if name else f"{error}"
        sizes = error.needed, error.available, error.tier
        raise Infeasible(error.reason, f"{text}. Hint: {WHY}", *sizes) from None


def _even(case: Case, analysis: Sensitivity, rival: Alternative) -> tuple[BreakEven, ...]:
    """Return the break-even of each parameter with an effect on either plan."""
    figures = {one.figure.path: one.figure for one in analysis.effects}
    if rival.same_machine:
        now, others = effects(rival.case, analysis.within)
        figures |= {one.figure.path: one.figure for one in others if one.matters(now)}
    return break_evens(case, rival, list(figures.values()), _weight)


def _weight(case: Case) -> float:
    """Return the factor that converts a step time to processor time per token; 1 for other statistics."""
    e = case.execution
    tokens = e.batch_size * (e.seq_length or case.model.seq_size)
    return e.num_procs / tokens if case.statistic == TIME else 1.0
