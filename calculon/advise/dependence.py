"""What a statistic of a plan depends on, or a figure of its whole run: elasticities, searches again, break-even."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Literal, overload

from calculon import inputs
from calculon.advise.break_even import BreakEven, Rival, break_evens
from calculon.advise.elasticities import (
    STEADY,
    TIMES,
    USE,
    Case,
    Effect,
    Range,
    Total,
    described,
    effects,
    kind_of,
    slopes,
    total,
)
from calculon.advise.replanned import Replanned, Replanner, Staircase, domain_sizes
from calculon.advise.runs.run_case import Run, RunCase, check_known, run_figure
from calculon.advise.runs.run_replanned import RunReplanner
from calculon.base.display import Displayed, drawn
from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.records import Column
from calculon.campaign.assumed import told_defaults
from calculon.campaign.record import Campaign
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.presets import Preset
from calculon.declarations.result_selection import QUESTION
from calculon.estimate.estimate import Estimate, estimate
from calculon.estimate.question import question
from calculon.hardware.figures import OF_WHOLE_RUNS, with_figures
from calculon.hardware.system import System

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure

TIME, DAYS = "total_time", "days"

Seen = Callable[[int], None]
"""What is told after each search of how many it is one."""

WHY = "calculon why says what would make it run"

CALIBRATED = "calibrated"
"""Range that is, where residuals of a calibration say so, that of the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What searching again makes of the changes.

    Attributes:
        now: The best plan on the machine as it is.
        ends: By path the best plans with the figure at both ends of its range; None where nothing fits, or at no end.
        sizes: By a larger size of the innermost network the statistic of the same plan, None where it cannot run, and
            the best plan.
        staircase: What capacity is worth.
    """

    now: Replanned
    ends: Mapping[str, tuple[Replanned | None, Replanned | None]]
    sizes: Mapping[int, tuple[float | None, Replanned | None]]
    staircase: Staircase

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""

        def told(one: Replanned | None) -> dict[str, Any] | None:
            return None if one is None else one.to_dict()

        return {
            "now": self.now.to_dict(),
            "ends": {path: [told(low), told(high)] for path, (low, high) in self.ends.items()},
            "sizes": {
                str(size): {"same_plan": value, "best": told(best)}
                for size, (value, best) in self.sizes.items()
            },
            "capacity": self.staircase.to_dict(),
        }


@dataclass(frozen=True)
class Sensitivity(Displayed):
    """What a statistic of a plan depends on.

    Attributes:
        model, execution, system: What was asked about.
        preset: Framework of the plan.
        statistic: The statistic.
        within: How far figures were taken.
        value: The statistic now.
        effects: What each figure of the system does to it, the largest swing first; those without effect are left out.
        idle: The figures without effect, in the order of the file.
        total: The sum of the elasticities, of times.
        searched: The same with the plan searched again.
        rival: What the break-even is with; empty without one.
        compared: Which two plans it compares, in words.
        break_evens: Values of figures at which the plan is as good as the rival.
        campaign: The whole run, of whose figures the statistic is one; None of a statistic of a step.
    """

    model: Model
    execution: Execution
    system: System
    preset: Preset
    statistic: Column
    within: Range
    value: float
    effects: tuple[Effect, ...]
    idle: tuple[Effect, ...]
    total: Total | None
    searched: Searched | None = None
    rival: str = ""
    compared: str = ""
    break_evens: tuple[BreakEven, ...] = field(default=())
    campaign: Campaign | None = None

    def __getitem__(self, path: str) -> Effect:
        """Return the effect of a figure by its path.

        Raises:
            KeyError: When the figure has no effect, or is none of the system.
        """
        return self._by_path[path]

    @cached_property
    def _by_path(self) -> dict[str, Effect]:
        return {one.figure.path: one for one in self.effects}

    @property
    def elasticities(self) -> dict[str, float]:
        """The elasticity with each figure that has one, by path."""
        return {
            one.figure.path: one.elasticity for one in self.effects if one.elasticity is not None
        }

    @cached_property
    def _of_other_plans(self) -> tuple[Effect, ...]:
        """The figures without effect on this plan that have one on the best."""
        if self.searched is None:
            return ()
        ends, now = self.searched.ends, self.searched.now.value
        return tuple(
            one
            for one in self.idle
            if any(
                best is not None and not math.isclose(best.value, now, rel_tol=STEADY)
                for best in ends.get(one.figure.path, ())
            )
        )

    @property
    def without_effect(self) -> list[str]:
        """The paths of the figures without effect on any plan."""
        return [one.figure.path for one in self.idle if one not in self._of_other_plans]

    @property
    def assumed(self) -> list[dict[str, Any]]:
        """The defaults of a whole run that nobody stated, prices and powers among them; none for a step."""
        if self.campaign is None:
            return []
        return [*told_defaults(self.campaign, [self.system.name]), *self._of_system]

    @property
    def _of_system(self) -> Iterator[dict[str, Any]]:
        """Yield the prices and powers of the system with an effect as plain data, with their sources."""
        for one in (effect.figure for effect in self.effects):
            if one.path.startswith(OF_WHOLE_RUNS):
                record: Any = reduce(getattr, one.place[:-1], self.system)
                source = f"{record.source}, {record.date}"
                told = {"field": one.path, "value": one.value, "unit": one.unit}
                yield told | {"source": source, "counts": True}

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of plain data for each effect, with the values of the best plans where they were searched."""
        ends = {} if self.searched is None else self.searched.ends
        rows = []
        for row in described((*self.effects, *self._of_other_plans)):
            if self.searched is not None:
                best = ends.get(row["path"], (None, None))
                values = [None if one is None else one.value for one in best]
                row |= dict(zip(("replanned_at_low", "replanned_at_high"), values, strict=True))
            rows.append(row)
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        edition = self.execution.edition
        asked: dict[str, Any] = {"execution": {"fields": self.execution.to_dict()}}
        if self.campaign is not None:
            asked["campaign"] = dict(self.campaign.document)
        found: dict[str, Any] = {
            QUESTION: question(self.model, self.system, edition, self.preset, **asked),
            "statistic": self.statistic.name,
            "help": self.statistic.help,
            "unit": self.statistic.unit.symbol,
            "value": self.value,
            "range": {"share": self.within.share, "calibrated": self.within.calibrated},
            "figures": self.rows(),
            "without_effect": self.without_effect,
        }
        if self.campaign is not None:
            found["assumed"] = self.assumed
        if self.total is not None:
            names = ("stated", "lists", "sum", "together", "unstated")
            found["sum_of_elasticities"] = {name: getattr(self.total, name) for name in names}
        if self.searched is not None:
            found["replanned"] = self.searched.to_dict()
        if self.rival:
            found["break_even"] = {
                "with": self.rival,
                "compared": self.compared,
                "figures": [
                    {
                        "path": one.figure.path,
                        "unit": one.figure.unit,
                        "value": one.value,
                        "factor": one.factor,
                    }
                    for one in self.break_evens
                ],
            }
        return found

    def to_frame(self) -> "pd.DataFrame":
        """Return a row for each figure with an effect as a DataFrame, the largest swing first."""
        import pandas as pd  # only for people who want frames

        return pd.DataFrame(self.rows())

    @overload
    def plot(self, kind: str = "tornado", *, interactive: Literal[False] = False) -> "Figure": ...

    @overload
    def plot(self, kind: str = "tornado", *, interactive: Literal[True]) -> "InteractiveFigure": ...

    def plot(
        self, kind: str = "tornado", *, interactive: bool = False
    ) -> "Figure | InteractiveFigure":
        """Draw what the statistic depends on.

        Args:
            kind: ``tornado`` (default): how far the statistic goes with each figure lower and higher, the longest bar
                first.
            interactive: As the page in a browser draws it (extra ``web``): a plotly Figure. With ``replan=True`` the
                time of a step also has ``capacity``: that of the best plan over the memory of a processor.

        Raises:
            SpecError: For another kind, and where the library is missing.
        """
        return drawn(self, kind, interactive=interactive)

    def __repr__(self) -> str:
        most = ", ".join(f"{one.figure.path} {one.elasticity:+.2f}" for one in self._most)
        return f"<Sensitivity of {self.statistic.name} of {self.model.name} on {self.system.name}: {most}>"

    @property
    def _most(self) -> list[Effect]:
        known = [one for one in self.effects if one.elasticity]
        return sorted(known, key=lambda one: -abs(one.elasticity or 0.0))[:3]


@dataclass(frozen=True, slots=True)
class Terms:
    """What is asked of a case; the attributes are those of :func:`sensitivity`."""

    spread: float | str = 0.25
    replan: bool = False
    against: Any = None
    against_system: Any = None
    seen: Seen = lambda _: None

    def __post_init__(self) -> None:
        """Refuse what is no range, and two rivals."""
        if self.against is not None and self.against_system is not None:
            wanted = "another execution or another system"
            raise SpecError("sensitivity", Problem("against", wanted, "both"))
        read_range(self.spread)

    @property
    def within(self) -> Range:
        """How far figures are taken."""
        return read_range(self.spread)


def of_run(run: Run, name: str, **options: Any) -> Sensitivity:
    """Find what a figure of a whole run depends on, by its name; options and errors as of :func:`sensitivity`.

    A figure that is not known, such as money without a price, is an error, too.
    """
    return of_run_in(run, name, Terms(**options))


def of_run_in(run: Run, name: str, terms: Terms) -> Sensitivity:
    """Return :func:`of_run` in terms that were read."""
    statistic = run_figure(name)
    check_known(run, statistic)
    found = answer(RunCase(run, name), run.preset, statistic, terms)
    return replace(found, campaign=run.campaign)


def largest(run: Run, names: Iterable[str], most: int = 3) -> dict[str, list[dict[str, Any]]]:
    """Return the largest elasticities of some figures of a run as plain data, by the name of the figure.

    Of hardware, prices, power and the campaign; those that are not known are left out.
    """
    found, case = {}, RunCase(run, DAYS)
    for name in names:
        if run.figures[name] is None:
            continue
        figures = [one for one in case.figures.values() if kind_of(one) != USE]
        known = slopes(case.of(name), figures)
        first = sorted(known.items(), key=lambda pair: -abs(pair[1]))[:most]
        found[name] = [{"path": path, "elasticity": e} for path, e in first if abs(e) > STEADY]
    return found


def answer(case: Case, preset: Preset, statistic: Column, terms: Terms) -> Sensitivity:
    """Return all that is asked about a case."""
    within = terms.within
    _check_calibrated(within, case.system)
    replanner = _replanner(case, preset) if terms.replan else None  # which some statistics have not
    found = _found(case, preset, statistic, within)
    if replanner is not None:
        found = replace(found, searched=_searched(case, found, replanner, terms.seen))
    if terms.against is terms.against_system is None:
        return found
    rival = _rival(case, found, terms)
    even = _even(case, found, rival)
    return replace(found, rival=rival.words, compared=rival.compared, break_evens=even)


def _found(case: Case, preset: Preset, statistic: Column, within: Range) -> Sensitivity:
    """Return what the statistic of a case depends on."""
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
        SpecError: For anything else, and for a share that is not between 0 and 1.

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
    """Refuse ranges of calibrated parts where none is."""
    if within.calibrated and not system.calibration.spreads:
        wanted = f"a share such as 25%, as no part of {system.name} was calibrated"
        raise SpecError("sensitivity", Problem("range", wanted, CALIBRATED))


def _replanner(
    case: Case, preset: Preset, system: System | None = None
) -> Replanner | RunReplanner:
    """Return what searches for the best plan of a case, or for that on another system."""
    plan = Case(case.model, case.execution, system or case.system, case.statistic)
    return (
        RunReplanner(case.run, plan, preset)
        if isinstance(case, RunCase)
        else Replanner(plan, preset)
    )


def _searched(
    case: Case, found: Sensitivity, replanner: Replanner | RunReplanner, seen: Seen
) -> Searched:
    """Search the plan again on the changed machines."""
    figures = replanner.worth(found.effects, found.idle)
    sizes = domain_sizes(case.system, case.execution.num_procs)
    count = sum(end is not None for one in figures for end in (one.low, one.high)) + len(sizes) + 2

    def at(path: str, value: float | None, own: float | None) -> Replanned | None:
        if value is None:
            return None
        best = replanner.with_figures({path: value}, own)
        seen(count)
        return best

    changed = {one.figure.path: (one.low, one.high) for one in figures}
    ends_of = ({path: end} for path, ends in changed.items() for end in ends if end is not None)
    replanner.foresee([*ends_of, *({path: size} for path, size in sizes)])
    best = replanner.with_figures({}, found.value)
    assert best is not None  # at least the plan itself
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
    stairs = replanner.staircase()
    seen(count)
    return Searched(now=best, ends=ends, sizes=larger, staircase=stairs)


def _rival(case: Case, found: Sensitivity, terms: Terms) -> Rival:
    """Return what a plan is compared with: another one, or the same on another machine, planned again if this one was.

    Raises:
        Infeasible: When it cannot run.
    """
    plan: Any = found.execution
    mine = "this plan"
    if terms.against is not None:
        words = terms.against if isinstance(terms.against, str) else "the other plan"
        other = estimated(words, found.model, terms.against, found.system)
        compared = f"{mine} against {words}"
        return Rival(case.beside(other), words, compared, same_machine=True)
    machine = inputs.system(terms.against_system)
    compared = f"{mine} on both machines"
    if found.searched is not None:
        own = case.on(machine)
        replanner = _replanner(case, found.preset, machine)
        best = replanner.best(machine, own if math.isfinite(own) else None)
        if best is None:
            raise Infeasible("nothing", f"no plan fits on {machine.name}")
        plan = inputs.execution(best.execution)
        mine += "" if found.searched.now.kept else ", which is not the best here,"
        compared = f"{mine} against the best plan of {machine.name}"
    other = estimated("", found.model, plan, machine)
    return Rival(case.beside(other), machine.name, compared, same_machine=False)


def estimated(name: str, model: Any, execution: Any, system: Any, **terms: Any) -> Estimate:
    """Return an estimate; errors say by name which execution they are of, where it has one.

    Raises:
        SpecError, Infeasible: As :func:`calculon.estimate`; where the execution cannot run, with a hint to ``calculon
            why``.
    """
    try:
        return estimate(model, execution, system, **terms)
    except SpecError as error:
        own = name and error.file == "execution"  # fields that contradict each other
        raise SpecError(name if own else error.file, error.problems) from None
    except Infeasible as error:
        text = f"{name}: {error}" if name else f"{error}"
        sizes = error.needed, error.available, error.tier
        raise Infeasible(error.reason, f"{text}. Hint: {WHY}", *sizes) from None


def _even(case: Case, found: Sensitivity, rival: Rival) -> tuple[BreakEven, ...]:
    """Return the break-even of each figure with an effect on either plan."""
    figures = {one.figure.path: one.figure for one in found.effects}
    if rival.same_machine:
        now, others = effects(rival.case, found.within)
        figures |= {one.figure.path: one.figure for one in others if one.matters(now)}
    return break_evens(case, rival, list(figures.values()), _weight)


def _weight(case: Case) -> float:
    """Return what makes the time of a step one of a token on a processor; other statistics are compared as they are."""
    e = case.execution
    tokens = e.batch_size * (e.seq_length or case.model.seq_size)
    return e.num_procs / tokens if case.statistic == TIME else 1.0
