"""Break-even: the value of a figure at which a plan is as good as another, or a machine as another."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from calculon.advise.elasticities import USE, Case, kind_of
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.hardware.figures import Figure

FURTHEST = 16
"""By how much a figure is multiplied, and divided, at most."""

TOLERANCE = 1e-12
"""Difference of the logarithms of two statistics at which they are equal."""

_EQUAL = 1e-6
"""The same where a figure goes in steps, as spare nodes do: beside a step nothing is equal."""

_ROUNDING = 1e-15

_POINTS = 9
_MOST_STEPS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """The value of a figure at which two are equal.

    Attributes:
        figure: The figure.
        value: Its value in the unit of the file, the nearest to that of now; None where there is none within
            :data:`FURTHEST`.
        ratio: The statistic of the first over that of the other at this value, per processor: 1 but for rounding.
    """

    figure: Figure
    value: float | None
    ratio: float | None = None

    @property
    def factor(self) -> float | None:
        """The value beside that of now."""
        return None if self.value is None else self.value / self.figure.value


@dataclass(frozen=True, slots=True)
class Rival:
    """What a plan is compared with: another plan on the same machine, or a level that does not depend on it.

    Attributes:
        case: The other plan, on its machine.
        words: What it is called.
        compared: Which two plans are compared.
        same_machine: Its machine is the one whose figures change.
    """

    case: Case
    words: str
    compared: str
    same_machine: bool


def break_evens(
    case: Case, rival: Rival, figures: Sequence[Figure], weight: Callable[[Case], float]
) -> tuple[BreakEven, ...]:
    """Return the break-even of each figure.

    Args:
        case, rival: The two that are compared, by the same statistic.
        figures: Figures of the machine of `case`, or of its run; of these all but sizes of memory, counts, and how well
            software uses the machine are tried.
        weight: What the statistic of a case is multiplied with: processors over tokens for times, so that those of a
            token on a processor are compared.
    """
    continuous = [
        one for one in figures if kind_of(one) != USE and one.kind is float and one.unit != "GiB"
    ]
    if not continuous:
        return ()
    constant = math.log(weight(case) / weight(rival.case))
    level = np.array([rival.case.on(rival.case.system)])

    def difference(which: Array, logs: Array) -> Array:
        """Return the logarithm of the ratio of both for some figures at logarithms of factors."""
        changes = _changes(continuous, which, logs)
        own = case.values(changes)
        other = rival.case.values(changes) if rival.same_machine else level
        return constant + _logarithm(own) - _logarithm(other)

    roots = _roots(difference, len(continuous))
    left = difference(np.arange(len(continuous)), np.nan_to_num(roots))
    return tuple(
        BreakEven(figure=one, value=None)
        if math.isnan(root) or not abs(rest) < _EQUAL
        else BreakEven(figure=one, value=one.value * math.exp(root), ratio=math.exp(rest))
        for one, root, rest in zip(continuous, roots.tolist(), left.tolist(), strict=True)
    )


def _logarithm(values: Array) -> Array:
    """Return logarithms; not-a-number of what is not above 0, which is no multiple of anything."""
    return np.log(np.where(values > 0, values, np.nan))


def _changes(figures: Sequence[Figure], which: Array, logs: Array) -> list[dict[str, float]]:
    """Return the changes of figures by logarithms of factors."""
    logged = zip(which.tolist(), logs.tolist(), strict=True)
    return [{figures[i].path: figures[i].value * math.exp(log)} for i, log in logged]


Difference = Callable[[Array, Array], Array]


def _roots(difference: Difference, count: int) -> Array:
    """Return the root of a function of each figure that is nearest to 0; not-a-number where there is none."""
    ends = np.linspace(-math.log(FURTHEST), math.log(FURTHEST), _POINTS)
    which = np.repeat(np.arange(count), _POINTS)
    grid = difference(which, np.tile(ends, count)).reshape(count, _POINTS)
    low, high = np.full(count, np.nan), np.full(count, np.nan)
    for i in sorted(range(_POINTS - 1), key=lambda i: -abs(ends[i] + ends[i + 1])):
        crosses = grid[:, i] * grid[:, i + 1] <= 0  # the last one found is the nearest
        low[crosses], high[crosses] = ends[i], ends[i + 1]
    equal = np.abs(grid[:, _POINTS // 2]) <= TOLERANCE
    low[equal] = high[equal] = 0.0
    return _refined(difference, low, high)


def _refined(difference: Difference, low: Array, high: Array) -> Array:
    """Return the roots between brackets, all of them together, by halves and secants in turn."""
    roots = (low + high) / 2
    some = np.flatnonzero(np.isfinite(roots))
    if not len(some):
        return roots
    a, b = low[some], high[some]
    at_a, at_b = difference(some, a), difference(some, b)
    left = np.arange(len(some))
    for step in range(_MOST_STEPS):
        low_end, high_end, at_low, at_high = (one[left] for one in (a, b, at_a, at_b))
        with np.errstate(invalid="ignore", divide="ignore"):
            secant = high_end - at_high * (high_end - low_end) / (at_high - at_low)
        inside = (secant >= np.minimum(low_end, high_end)) & (
            secant <= np.maximum(low_end, high_end)
        )
        middle = np.where(inside & (step % 3 != 2), secant, (low_end + high_end) / 2)
        found = difference(some[left], middle)
        roots[some[left]] = middle
        same = at_low * found > 0
        a[left], at_a[left] = np.where(same, middle, low_end), np.where(same, found, at_low)
        b[left], at_b[left] = np.where(same, high_end, middle), np.where(same, at_high, found)
        left = left[(np.abs(found) > TOLERANCE) & (np.abs(b[left] - a[left]) > _ROUNDING)]
        if not len(left):
            break
    return roots
