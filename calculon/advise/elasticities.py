"""Effects of the figures of a system on a statistic of one plan: elasticities, and the statistic over a range.

A statistic `y` has the elasticity ``d ln y / d ln x`` with a figure `x`: by so many percent it grows when the figure
grows by one. Times are sums and maxima of work over rates and of times that the system states; on a machine whose rates
are all twice as high, and whose times are all half as long, everything takes half the time. So the elasticities of the
rates less those of the times add up to -1 (Euler's theorem of homogeneous functions), unless two things of which the
longer counts are as long as each other, or part of the time is stated nowhere.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from calculon.base.errors import SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.campaign.scalars import of_campaign
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.editions import EDITIONS
from calculon.estimate.estimate import Estimate
from calculon.estimate.evaluate import evaluate
from calculon.estimate.what_if import what_if
from calculon.hardware.figures import (
    OF_WHOLE_RUNS,
    Figure,
    figures_of,
    with_figures,
    with_slower_lists,
)
from calculon.hardware.system import System
from calculon.search.objective import check_statistic

STEP = 1e-3
"""Change of the logarithm of a figure to either side, of which elasticities are differences.

The error of a difference is a sixth of the square of the step, times a third derivative of at most 0.1: 2e-8. At steps
of 1 % it would be larger than the 1e-6 that the sum of elasticities is checked to.
"""

RATES, TIMES = ("TFLOP/s", "GB/s", "1/h"), ("s", "h", "d")
"""Units of the figures whose elasticities add up to -1: those of rates, less those of times."""

STEADY = 1e-6
"""Relative change of a statistic from which on a figure has an effect."""

KINK = 1e-3
"""Difference of the elasticities to either side from which on a figure is at a threshold; curvature makes a quarter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a figure of a system does to a statistic of a plan.

    Attributes:
        figure: The figure: its path, value, unit and name.
        elasticity: ``d ln y / d ln x`` on the same plan; None of a count, which has no values in between, and where the
            statistic is 0 or undefined.
        kink: Elasticity above the figure's value less that below it: other than 0 where it is at a threshold.
        low, high: The ends of the range, in the unit of the file; None where no file can have that value.
        at_low, at_high: The statistic of the same plan there; None where it cannot run.
    """

    figure: Figure
    elasticity: float | None
    kink: float = 0.0
    low: float | None = None
    high: float | None = None
    at_low: float | None = None
    at_high: float | None = None

    @property
    def between_ends(self) -> float | None:
        """The elasticity between both ends of the range; None where the plan cannot run at one of them."""
        ends = self.low, self.high, self.at_low, self.at_high
        if any(one is None or one <= 0 for one in ends):
            return None
        low, high, at_low, at_high = (float(one or 0.0) for one in ends)
        return math.log(at_high / at_low) / math.log(high / low)

    @property
    def runs(self) -> bool:
        """Whether the plan can run at both ends of the range."""
        low, high = self.low is None or self.at_low is not None, self.high is None
        return low and (high or self.at_high is not None)

    def swing(self, value: float) -> float:
        """Return how far the statistic goes between the ends at which the plan runs, from a value now."""
        known = [value, *(one for one in (self.at_low, self.at_high) if one is not None)]
        return max(known) - min(known)

    def matters(self, value: float) -> bool:
        """Whether the figure changes the statistic anywhere in its range."""
        scale = abs(value) or 1.0
        felt = abs(self.elasticity or 0.0) > STEADY or self.swing(value) > STEADY * scale
        return felt or not self.runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The elasticities of all rates and times together.

    Attributes:
        stated: The sum over the figures: those of rates less those of times.
        lists: That of times in lists of the file, which are no single figures: ramps of collectives, tables of kernels.
        together: The elasticity with all rates, where all times change against them at once: the sum without
            thresholds.
    """

    stated: float
    lists: float
    together: float

    @property
    def sum(self) -> float:
        """The sum with the times in lists."""
        return self.stated + self.lists

    @property
    def unstated(self) -> float:
        """The share of the time that neither figures nor lists state: latencies of NCCL by the kind of a network."""
        return 1 + self.together

    @property
    def thresholds(self) -> float:
        """What thresholds make of the sum."""
        return self.sum - self.together


Change = Mapping[str, float]
"""New values of figures by path, in the units of their files."""


class Case:
    """A plan on a system, whose statistic is asked for on variants of the system.

    Args:
        model, execution, system: What is asked about.
        statistic: Name of the statistic.
    """

    def __init__(self, model: Model, execution: Execution, system: System, statistic: str):
        self.model, self.execution, self.system = model, execution, system
        self.statistic = statistic

    def beside(self, other: Estimate) -> "Case":
        """Return the same question about another plan, or on another machine.

        Raises:
            SpecError: Where its edition does not compute the statistic.
        """
        check_statistic(self.statistic, "sensitivity", EDITIONS[other.edition])
        return Case(other.model, other.execution, other.system, self.statistic)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """The figures that may have an effect, by path."""
        return figures_of(self.system)

    def possible(self, figure: Figure, value: float) -> bool:
        """Whether a file can have another value of a figure; other figures may bound a count."""
        if figure.problem(value) is not None:
            return False
        if figure.kind is int:
            try:
                with_figures(self.system, {figure.path: value})
            except SpecError:
                return False
        return True

    def values(self, changes: Sequence[Change]) -> Array:
        """Return the statistic on a system with changed figures, for each change; not-a-number where it cannot run."""
        found = what_if(self.model, self.execution, self.system, changes)
        return np.asarray(found[self.statistic])

    def tried(self, ends: Sequence[Change], beside: Sequence[Change]) -> tuple[Array, Array]:
        """Return :meth:`values` for changes far and near; differences of near ones are derivatives."""
        found = self.values([*ends, *beside])
        return found[: len(ends)], found[len(ends) :]

    def on(self, system: System) -> float:
        """Return the statistic on another system; not-a-number where the plan cannot run."""
        return float(evaluate(self.model, [self.execution], system)[self.statistic][0])

    def faster(self, factor: float, *, figures: bool = True) -> float:
        """Return the statistic where all rates are `factor` times as high, and all times as short.

        Or only those times in lists of the file, which are no figures.
        """
        return self.on(faster(self.system, self.figures.values(), factor, figures=figures))


@dataclass(frozen=True, slots=True)
class Range:
    """How far figures are taken from their values.

    Attributes:
        share: To either side, as a share of the value.
        calibrated: Where residuals of a calibration say how far the rate of a part is known, that is its range.
    """

    share: float = 0.25
    calibrated: bool = False

    def of(self, system: System, figure: Figure) -> tuple[float, float]:
        """Return the ends of the range of a figure.

        The size of a network has half and twice its value, other counts whole numbers; a share ends at its limit.
        """
        value = figure.value
        low, high = value * (1 - self.share), value * (1 + self.share)
        if of_network_size(figure):
            low, high = value // 2, value * 2
        elif figure.kind is int:
            low, high = round(low), round(high)
        elif self.calibrated and (times := _known_times(system, figure)):
            low, high = value / times[1], value / times[0]
        most = figure.declaration.at_most
        return low, (high if most is None or value >= most else min(high, most))

    def ends(self, case: Case, figure: Figure) -> tuple[float | None, float | None]:
        """Return the ends of the range; None for one that no file can have, and for one that is no other than now."""
        low, high = (
            end if end != figure.value and case.possible(figure, end) else None
            for end in self.of(case.system, figure)
        )
        return low, high


def _known_times(system: System, figure: Figure) -> tuple[float, float] | None:
    """Return by which factors the times of the part that a rate is of may differ; None where that is not known."""
    part, _, name = figure.path.rpartition(".")
    if name not in ("GBps", "tflops", "bandwidth"):
        return None
    spreads = [
        one
        for one in system.calibration.spreads
        if one.part == part and one.operations in ("all", "large")
    ]
    if not spreads:
        return None
    return min(one.low for one in spreads), max(one.high for one in spreads)


def effects(case: Case, within: Range) -> tuple[float, tuple[Effect, ...]]:
    """Return the statistic now, and what each figure of the system does to it, in the order of the file.

    Args:
        case: The plan, and the statistic.
        within: How far figures are taken.
    """
    figures = [one for one in case.figures.values() if one.value]
    sizes = [one for one in figures if one.kind is float]
    now, found = _effects(case, sizes, within, math.nan)
    used = {_part(one.figure) for one in found if one.matters(now)}
    known = {_part(one) for one in sizes}
    counts = [
        one
        for one in figures
        if one.kind is int
        and (of_network_size(one) or _part(one) in used or _part(one) not in known)
    ]
    found += _effects(case, counts, within, now)[1]
    by_path = {one.figure.path: one for one in found}
    idle = (Effect(figure=one, elasticity=None) for one in figures if one.path not in by_path)
    by_path |= {one.figure.path: one for one in idle}
    return now, tuple(by_path[one.path] for one in figures)


def _part(figure: Figure) -> str:
    """Return the record that a figure is of; no number of a kernel has an effect if it is not run."""
    return figure.path.rpartition(".")[0]


def _effects(
    case: Case, figures: Sequence[Figure], within: Range, now: float
) -> tuple[float, list[Effect]]:
    """Return the statistic now, and the effects of some figures; each count is a machine of its own."""
    pairs = [*_tried(case, figures, within)]
    ends = {key: change for key, change in pairs if key[1] in (_LOW, _HIGH)}
    beside = {key: change for key, change in pairs if key not in ends}
    first: list[Change] = [{}] if math.isnan(now) else []
    at_ends, near = (
        values.tolist()
        for values in case.tried([*first, *ends.values()], [*first, *beside.values()])
    )
    middle = math.nan
    if first:
        now, middle = at_ends.pop(0), near.pop(0)
    found = dict(zip((*ends, *beside), (*at_ends, *near), strict=True))
    known = {key: change[key[0]] for key, change in ends.items()}
    return now, [_effect(one, middle, found, known) for one in figures]


_Key = tuple[str, str]
_STEPS = {"below": math.exp(-STEP), "above": math.exp(STEP)}
_LOW, _HIGH = "low", "high"


def _tried(
    case: Case, figures: Iterable[Figure], within: Range
) -> Iterator[tuple[_Key, dict[str, float]]]:
    """Yield the values that are tried of each figure: beside its own, and at both ends of its range."""
    for one in figures:
        if one.kind is float:
            beside = ((name, one.value * k) for name, k in _STEPS.items())
            yield from (
                ((one.path, name), {one.path: value})
                for name, value in beside
                if one.problem(value) is None
            )
        for name, value in zip((_LOW, _HIGH), within.ends(case, one), strict=True):
            if value is not None:
                yield (one.path, name), {one.path: value}


def of_network_size(figure: Figure) -> bool:
    """Whether a figure is the number of endpoints of a network."""
    return figure.path.startswith("networks[") and figure.path.endswith("].size")


PARTS = ("matrix", "vector", "mem1", "mem2", "networks", "ext.matrix", "ext.host")
"""Parts of a file that a machine is bought by; the others say how well software uses it."""


HARDWARE, USE, RUN = KINDS = ("hardware", "use", "run")
"""Kinds of figures: what a machine is bought by, how well software uses it, and what a whole run takes beside."""


def kind_of(figure: Figure) -> str:
    """Return which of :data:`KINDS` a figure is; those of runs are prices, powers, and the fields of campaigns."""
    if figure.path.startswith(OF_WHOLE_RUNS) or of_campaign(figure.path):
        return RUN
    return HARDWARE if of_hardware(figure) else USE


def of_hardware(figure: Figure) -> bool:
    """Whether a figure is one of :data:`PARTS`, and no share that is achieved of it."""
    part = any(figure.path.startswith((f"{one}.", f"{one}[")) for one in PARTS)
    return part and (bool(figure.unit) or figure.kind is int)


def slopes(case: Case, figures: Iterable[Figure]) -> dict[str, float]:
    """Return the elasticities with some figures, by path: of those that have one, without a range around them."""
    tried = {one.path: one for one in figures if one.kind is float and one.value}
    beside = [{path: one.value * k} for path, one in tried.items() for k in _STEPS.values()]
    allowed = [all(case.possible(tried[path], new) for path, new in one.items()) for one in beside]
    _, values = case.tried(
        [], [{}, *(one for one, may in zip(beside, allowed, strict=True) if may)]
    )
    now, *near = values.tolist()
    left = iter(near)
    found = [next(left) if may else math.nan for may in allowed]
    pairs = zip(tried, found[::2], found[1::2], strict=True)
    every = {path: _mean_slope(now, low, high) for path, low, high in pairs}
    return {path: one for path, one in every.items() if one is not None}


def _effect(
    figure: Figure, now: float, found: Mapping[_Key, float], ends: Mapping[_Key, float]
) -> Effect:
    """Return the effect of a figure from the statistic at the values that were tried."""

    def at(name: str) -> float | None:
        value = found.get((figure.path, name), math.nan)
        return value if math.isfinite(value) else None

    below, above = _slope(now, at("below"), -STEP), _slope(now, at("above"), STEP)
    kink = 0.0 if below is None or above is None else above - below
    return Effect(
        figure=figure,
        elasticity=_mean_slope(now, at("below"), at("above")),
        kink=kink if abs(kink) > KINK else 0.0,
        low=ends.get((figure.path, _LOW)),
        high=ends.get((figure.path, _HIGH)),
        at_low=at(_LOW),
        at_high=at(_HIGH),
    )


def _mean_slope(now: float, below: float | None, above: float | None) -> float | None:
    """Return the elasticity as the mean of those to both sides; None where both are undefined."""
    sides = _slope(now, below, -STEP), _slope(now, above, STEP)
    known = [one for one in sides if one is not None]
    return sum(known) / len(known) if known else None


def _slope(now: float, beside: float | None, step: float) -> float | None:
    """Return the elasticity to one side; None where it is undefined."""
    if beside is None or not math.isfinite(now) or not math.isfinite(beside):
        return None
    if beside == now:
        return 0.0
    return math.log(beside / now) / step if min(beside, now) > 0 else None


def faster(
    system: System, known: Iterable[Figure], factor: float, *, figures: bool = True
) -> System:
    """Return a system with all rates `factor` times as high and all times as short; or only those times in lists.

    `known` are its figures.
    """
    if figures:
        system = with_figures(system, sped_up(known, factor))
    return with_slower_lists(system, 1 / factor)


def sped_up(known: Iterable[Figure], factor: float) -> dict[str, float]:
    """Return the values of rates that are `factor` times as high, and of times as short, by path."""
    powers = dict.fromkeys(RATES, 1) | dict.fromkeys(TIMES, -1)
    timed = (one for one in known if one.unit in powers)
    return {one.path: one.value * factor ** powers[one.unit] for one in timed}


def total(case: Case, found: Iterable[Effect]) -> Total:
    """Return the elasticities of all rates and times together; `found` are the effects of all figures."""
    stated = 0.0
    for one in found:
        if one.figure.unit in (*RATES, *TIMES):
            sign = 1 if one.figure.unit in RATES else -1
            stated += sign * (one.elasticity or 0.0)

    def slope(*, figures: bool) -> float:
        """Return the elasticity with the factor by which a machine is faster."""
        ends = (case.faster(math.exp(step), figures=figures) for step in (-STEP, STEP))
        low, high = map(math.log, ends)
        return (high - low) / (2 * STEP)

    return Total(stated=stated, lists=slope(figures=False), together=slope(figures=True))


def described(found: Iterable[Effect]) -> list[dict[str, Any]]:
    """Return effects as plain data."""
    return [
        {
            "path": one.figure.path,
            "name": one.figure.name,
            "unit": one.figure.unit,
            "hardware": of_hardware(one.figure),
            "value": one.figure.value,
            "kind": kind_of(one.figure),
            "elasticity": one.elasticity,
            "kink": one.kink,
            "low": one.low,
            "high": one.high,
            "at_low": one.at_low,
            "at_high": one.at_high,
            "elasticity_between_ends": one.between_ends,
        }
        for one in found
    ]
