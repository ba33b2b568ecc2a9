"""Effects of machine parameters on a statistic of one plan: elasticities, and the statistic over a range.

The elasticity of a statistic `y` with respect to a parameter `x` is ``d ln y / d ln x``: the percentage by which `y`
grows when `x` grows by one percent. Times are sums and maxima of work over rates, and of times that the system states.
On a machine with all rates doubled and all times halved, everything takes half the time. Therefore, the elasticities of
the rates minus the elasticities of the times add up to -1 (Euler's theorem on homogeneous functions), unless a maximum
has two equally long arguments, or part of the time is not stated in the file.
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
"""Change of the logarithm of a parameter to either side, for elasticities by finite differences.

The error of a difference is a sixth of the squared step times a third derivative of at most 0.1: 2e-8. With steps of 1
% it would exceed the 1e-6 to which the sum of elasticities is checked.
"""

RATES, TIMES = ("TFLOP/s", "GB/s", "1/h"), ("s", "h", "d")
"""Units of the parameters whose elasticities add up to -1: rates positive, times negative."""

STEADY = 1e-6
"""Relative change of a statistic above which a parameter has an effect."""

KINK = 1e-3
"""Difference between left and right elasticity above which a parameter is at a threshold.

The curvature of smooth functions causes about a quarter of it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Effect of a machine parameter on a statistic of a plan.

    Attributes:
        figure: The parameter: its path, value, unit and name.
        elasticity: ``d ln y / d ln x`` for the same plan; None for a count, which has no intermediate values, and if
            the statistic is 0 or undefined.
        kink: Right elasticity minus left elasticity: nonzero if the parameter is at a threshold.
        low, high: Ends of the range, in the unit of the file; None if no file can have that value.
        at_low, at_high: Statistic of the same plan at the ends; None if it cannot run there.
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
        """Elasticity between both ends of the range; None if the plan cannot run at one of them."""
        ends = self.low, self.high, self.at_low, self.at_high
        if any(one is None or one <= 0 for one in ends):
            return None
        low, high, at_low, at_high = (float(one or 0.0) for one in ends)
        return math.log(at_high / at_low) / math.log(high / low)

    @property
    def runs(self) -> bool:
        """True if the plan can run at both ends of the range."""
        low, high = self.low is None or self.at_low is not None, self.high is None
        return low and (high or self.at_high is not None)

    def swing(self, value: float) -> float:
        """Return the span of the statistic over the present `value` and the ends at which the plan runs."""
        known = [value, *(one for one in (self.at_low, self.at_high) if one is not None)]
        return max(known) - min(known)

    def matters(self, value: float) -> bool:
        """Return True if the parameter changes the statistic anywhere in its range."""
        scale = abs(value) or 1.0
        felt = abs(self.elasticity or 0.0) > STEADY or self.swing(value) > STEADY * scale
        return felt or not self.runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """Sum of the elasticities of all rates and times.

    Attributes:
        stated: Sum over the parameters: rates minus times.
        lists: Contribution of times in lists of the file, which are not single parameters: ramps of collectives, kernel
            tables.
        together: Elasticity if all rates change at once and all times change inversely: the sum without thresholds.
    """

    stated: float
    lists: float
    together: float

    @property
    def sum(self) -> float:
        """Sum including the times in lists."""
        return self.stated + self.lists

    @property
    def unstated(self) -> float:
        """Share of the time that is in neither parameters nor lists, such as NCCL latencies by kind of network."""
        return 1 + self.together

    @property
    def thresholds(self) -> float:
        """Contribution of thresholds to the sum."""
        return self.sum - self.together


Change = Mapping[str, float]
"""New values of parameters by path, in the units of their files."""


class Case:
    """Plan on a system, whose statistic is evaluated on variants of the system.

    Args:
        model, execution, system: The plan.
        statistic: Name of the statistic.
    """

    def __init__(self, model: Model, execution: Execution, system: System, statistic: str):
        self.model, self.execution, self.system = model, execution, system
        self.statistic = statistic

    def for_plan(self, other: Estimate) -> "Case":
        """Return the case of another plan, or of another machine, with the same statistic.

        Raises:
            SpecError: If the edition of the other plan does not compute the statistic.
        """
        check_statistic(self.statistic, "sensitivity", EDITIONS[other.edition])
        return Case(other.model, other.execution, other.system, self.statistic)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """Parameters that may have an effect, by path."""
        return figures_of(self.system)

    def possible(self, figure: Figure, value: float) -> bool:
        """Return True if a file can have this value of a parameter; other parameters may bound a count."""
        if figure.problem(value) is not None:
            return False
        # The sizes of nested networks bound each other, which only the system can check.
        if figure.kind is int:
            try:
                with_figures(self.system, {figure.path: value})
            except SpecError:
                return False
        return True

    def values(self, changes: Sequence[Change]) -> Array:
        """Return the statistic on a system with changed parameters, for each change; NaN if the plan cannot run."""
        found = what_if(self.model, self.execution, self.system, changes)
        return np.asarray(found[self.statistic])

    def tried(self, ends: Sequence[Change], nearby: Sequence[Change]) -> tuple[Array, Array]:
        """Return :meth:`values` for the ends of ranges and for nearby changes, whose differences are derivatives."""
        found = self.values([*ends, *nearby])
        return found[: len(ends)], found[len(ends) :]

    def on(self, system: System) -> float:
        """Return the statistic on another system; NaN if the plan cannot run."""
        return float(evaluate(self.model, [self.execution], system)[self.statistic][0])

    def faster(self, factor: float, *, figures: bool = True) -> float:
        """Return the statistic with all rates multiplied, and all times divided, by `factor`.

        Without `figures`, only times in lists of the file change.
        """
        return self.on(faster(self.system, self.figures.values(), factor, figures=figures))


@dataclass(frozen=True, slots=True)
class Range:
    """Range over which parameters are varied.

    Attributes:
        share: Distance to either side, as a share of the value.
        calibrated: Whether the range of a calibrated rate follows from the residuals of its calibration.
    """

    share: float = 0.25
    calibrated: bool = False

    def of(self, system: System, figure: Figure) -> tuple[float, float]:
        """Return the ends of the range of a parameter.

        The size of a network ranges from half to twice its value, other counts are rounded to integers, and a share is
        capped at its limit.
        """
        value = figure.value
        low, high = value * (1 - self.share), value * (1 + self.share)
        if is_network_size(figure):
            low, high = value // 2, value * 2
        elif figure.kind is int:
            low, high = round(low), round(high)
        elif self.calibrated and (times := _known_times(system, figure)):
            low, high = value / times[1], value / times[0]
        most = figure.declaration.at_most
        return low, (high if most is None or value >= most else min(high, most))

    def ends(self, case: Case, figure: Figure) -> tuple[float | None, float | None]:
        """Return the ends of the range; None for an end that no file can have, or that equals the present value."""
        low, high = (
            end if end != figure.value and case.possible(figure, end) else None
            for end in self.of(case.system, figure)
        )
        return low, high


def _known_times(system: System, figure: Figure) -> tuple[float, float] | None:
    """Return the factors by which times of a calibrated part may differ from the prediction; None if unknown."""
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
    """Return the present statistic, and the effect of each parameter of the system, in file order.

    Args:
        case: The plan and the statistic.
        within: Range over which parameters are varied.
    """
    figures = [one for one in case.figures.values() if one.value]
    # Continuous parameters are evaluated together as one column of machines.
    sizes = [one for one in figures if one.kind is float]
    now, found = _effects(case, sizes, within, math.nan)
    # A count changes the shape of the machine and needs an evaluation of its own. Counts of parts
    # that have no effect at all are skipped.
    used = {_part(one.figure) for one in found if one.matters(now)}
    known = {_part(one) for one in sizes}
    counts = [
        one
        for one in figures
        if one.kind is int
        and (is_network_size(one) or _part(one) in used or _part(one) not in known)
    ]
    found += _effects(case, counts, within, now)[1]
    by_path = {one.figure.path: one for one in found}
    idle = (Effect(figure=one, elasticity=None) for one in figures if one.path not in by_path)
    by_path |= {one.figure.path: one for one in idle}
    return now, tuple(by_path[one.path] for one in figures)


def _part(figure: Figure) -> str:
    """Return the record that a parameter belongs to; if a kernel is not run, none of its parameters has an effect."""
    return figure.path.rpartition(".")[0]


def _effects(
    case: Case, figures: Sequence[Figure], within: Range, now: float
) -> tuple[float, list[Effect]]:
    """Return the present statistic, and the effects of some parameters."""
    pairs = [*_tried(case, figures, within)]
    ends = {key: change for key, change in pairs if key[1] in (_LOW, _HIGH)}
    nearby = {key: change for key, change in pairs if key not in ends}
    # The present value is evaluated twice, among the ends and among the near changes, because a
    # whole run rounds checkpoint intervals only for the former.
    first: list[Change] = [{}] if math.isnan(now) else []
    at_ends, near = (
        values.tolist()
        for values in case.tried([*first, *ends.values()], [*first, *nearby.values()])
    )
    middle = math.nan
    if first:
        now, middle = at_ends.pop(0), near.pop(0)
    found = dict(zip((*ends, *nearby), (*at_ends, *near), strict=True))
    known = {key: change[key[0]] for key, change in ends.items()}
    return now, [_effect(one, middle, found, known) for one in figures]


_Key = tuple[str, str]
_STEPS = {"below": math.exp(-STEP), "above": math.exp(STEP)}
_LOW, _HIGH = "low", "high"


def _tried(
    case: Case, figures: Iterable[Figure], within: Range
) -> Iterator[tuple[_Key, dict[str, float]]]:
    """Yield the values to try for each parameter: next to its present value, and at both ends of its range."""
    for one in figures:
        if one.kind is float:
            nearby = ((name, one.value * k) for name, k in _STEPS.items())
            yield from (
                ((one.path, name), {one.path: value})
                for name, value in nearby
                if one.problem(value) is None
            )
        for name, value in zip((_LOW, _HIGH), within.ends(case, one), strict=True):
            if value is not None:
                yield (one.path, name), {one.path: value}


def is_network_size(figure: Figure) -> bool:
    """Return True if a parameter is the number of endpoints of a network."""
    return figure.path.startswith("networks[") and figure.path.endswith("].size")


PARTS = ("matrix", "vector", "mem1", "mem2", "networks", "ext.matrix", "ext.host")
"""Parts of a file that describe purchasable hardware; the others describe how well software uses it."""


HARDWARE, USE, RUN = KINDS = ("hardware", "use", "run")
"""Kinds of parameters: purchasable hardware, software efficiency, and whole-run inputs."""


def kind_of(figure: Figure) -> str:
    """Return the kind (:data:`KINDS`) of a parameter; whole-run inputs are prices, powers and campaign fields."""
    if figure.path.startswith(OF_WHOLE_RUNS) or of_campaign(figure.path):
        return RUN
    return HARDWARE if is_hardware(figure) else USE


def is_hardware(figure: Figure) -> bool:
    """Return True if a parameter belongs to :data:`PARTS` and is not an achieved share."""
    part = any(figure.path.startswith((f"{one}.", f"{one}[")) for one in PARTS)
    return part and (bool(figure.unit) or figure.kind is int)


def slopes(case: Case, figures: Iterable[Figure]) -> dict[str, float]:
    """Return the elasticities by path, for parameters that have one, without evaluating a range."""
    tried = {one.path: one for one in figures if one.kind is float and one.value}
    nearby = [{path: one.value * k} for path, one in tried.items() for k in _STEPS.values()]
    allowed = [all(case.possible(tried[path], new) for path, new in one.items()) for one in nearby]
    _, values = case.tried(
        [], [{}, *(one for one, may in zip(nearby, allowed, strict=True) if may)]
    )
    now, *near = values.tolist()
    left = iter(near)
    found = [next(left) if may else math.nan for may in allowed]
    pairs = zip(tried, found[::2], found[1::2], strict=True)
    every = {path: _mean_slope(now, low, high) for path, low, high in pairs}
    return {path: one for path, one in every.items() if one is not None}


def _effect(
    figure: Figure, now: float, values: Mapping[_Key, float], ends: Mapping[_Key, float]
) -> Effect:
    """Return the effect of a parameter from the statistic at the tried values."""

    def at(name: str) -> float | None:
        value = values.get((figure.path, name), math.nan)
        return value if math.isfinite(value) else None

    below, above = _slope(now, at("below"), -STEP), _slope(now, at("above"), STEP)
    # At a threshold, such as a transfer just hidden by compute, the slope jumps; smooth curvature
    # is filtered by KINK.
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
    """Return the elasticity as the mean of the left and right elasticities; None if both are undefined."""
    sides = _slope(now, below, -STEP), _slope(now, above, STEP)
    known = [one for one in sides if one is not None]
    return sum(known) / len(known) if known else None


def _slope(now: float, nearby: float | None, step: float) -> float | None:
    """Return the elasticity to one side; None if it is undefined."""
    if nearby is None or not math.isfinite(now) or not math.isfinite(nearby):
        return None
    if nearby == now:
        return 0.0
    return math.log(nearby / now) / step if min(nearby, now) > 0 else None


def faster(
    system: System, known: Iterable[Figure], factor: float, *, figures: bool = True
) -> System:
    """Return a system with rates multiplied, and times divided, by `factor`; without `figures`, only times in lists.

    `known` are the parameters of the system.
    """
    if figures:
        system = with_figures(system, sped_up(known, factor))
    return with_slower_lists(system, 1 / factor)


def sped_up(known: Iterable[Figure], factor: float) -> dict[str, float]:
    """Return the values of rates multiplied, and of times divided, by a factor, by path."""
    powers = dict.fromkeys(RATES, 1) | dict.fromkeys(TIMES, -1)
    timed = (one for one in known if one.unit in powers)
    return {one.path: one.value * factor ** powers[one.unit] for one in timed}


def total(case: Case, effects: Iterable[Effect]) -> Total:
    """Return the sum of the elasticities of all rates and times; `effects` are the effects of all parameters."""
    stated = 0.0
    for one in effects:
        if one.figure.unit in (*RATES, *TIMES):
            sign = 1 if one.figure.unit in RATES else -1
            stated += sign * (one.elasticity or 0.0)

    def slope(*, figures: bool) -> float:
        """Return the elasticity with respect to a common speedup of the machine."""
        # Central difference: its error is of second order in the step.
        ends = (case.faster(math.exp(step), figures=figures) for step in (-STEP, STEP))
        low, high = map(math.log, ends)
        return (high - low) / (2 * STEP)

    return Total(stated=stated, lists=slope(figures=False), together=slope(figures=True))


def described(effects: Iterable[Effect]) -> list[dict[str, Any]]:
    """Return effects as plain data."""
    return [
        {
            "path": one.figure.path,
            "name": one.figure.name,
            "unit": one.figure.unit,
            "hardware": is_hardware(one.figure),
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
        for one in effects
    ]
