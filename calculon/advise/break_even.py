"""Break-even: the value of a parameter at which two plans, or two machines, are equally good."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from calculon.advise.elasticities import USE, Case, kind_of
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.hardware.figures import Figure

FURTHEST = 16
"""Maximum factor by which a parameter is multiplied or divided."""

TOLERANCE = 1e-12
"""Difference of the logarithms of two statistics below which they are equal."""

_EQUAL = 1e-6
"""Tolerance for parameters whose statistic has jumps, such as spare nodes: next to a jump nothing is equal."""

_ROUNDING = 1e-15
"""Width of a bracket, in logarithms, that rounding cannot narrow further."""

_POINTS = 9
_MAX_STEPS = 60
"""Grid points over the range, and the maximum number of refinements; 60 halvings exhaust double precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """Value of a parameter at which two alternatives are equal.

    Attributes:
        figure: The parameter.
        value: Break-even value in the unit of the file, the one nearest to the present value; None if there is none
            within a factor of :data:`FURTHEST`.
        ratio: Ratio of both statistics at this value, per processor: 1 except for rounding.
    """

    figure: Figure
    value: float | None
    ratio: float | None = None

    @property
    def factor(self) -> float | None:
        """Break-even value divided by the present value."""
        return None if self.value is None else self.value / self.figure.value


@dataclass(frozen=True, slots=True)
class Alternative:
    """Alternative that a plan is compared with: another plan on the same machine, or a level independent of it.

    Attributes:
        case: The alternative plan, on its machine.
        words: Its name.
        compared: Description of the two compared plans.
        same_machine: Whether it runs on the machine whose parameters change.
    """

    case: Case
    words: str
    compared: str
    same_machine: bool


def break_evens(
    case: Case, rival: Alternative, figures: Sequence[Figure], weight: Callable[[Case], float]
) -> tuple[BreakEven, ...]:
    """Return the break-even of each parameter.

    Args:
        case, rival: The two alternatives, with the same statistic.
        figures: Parameters of the machine of `case`, or of its run. Memory sizes, counts and software efficiencies are
            skipped.
        weight: Factor that normalizes the statistic of a case: processors over tokens for times, so that processor time
            per token is compared.
    """
    continuous = [
        one for one in figures if kind_of(one) != USE and one.kind is float and one.unit != "GiB"
    ]
    if not continuous:
        return ()
    constant = math.log(weight(case) / weight(rival.case))
    # An alternative on another machine does not depend on the changed parameters: one number.
    level = np.array([rival.case.on(rival.case.system)])

    def difference(which: Array, logs: Array) -> Array:
        """Return the logarithm of the ratio of both statistics, for parameters scaled by exponentials of `logs`."""
        changes = _changes(continuous, which, logs)
        own = case.values(changes)
        other = rival.case.values(changes) if rival.same_machine else level
        return constant + _logarithm(own) - _logarithm(other)

    roots = _roots(difference, len(continuous))
    left = difference(np.arange(len(continuous)), np.nan_to_num(roots))
    return tuple(
        BreakEven(figure=one, value=None)
        # A bracket around a jump converges to the jump, where the two sides differ: no break-even.
        if math.isnan(root) or not abs(rest) < _EQUAL
        else BreakEven(figure=one, value=one.value * math.exp(root), ratio=math.exp(rest))
        for one, root, rest in zip(continuous, roots.tolist(), left.tolist(), strict=True)
    )


def _logarithm(values: Array) -> Array:
    """Return logarithms; NaN for values that are not positive, which no factor can reach."""
    return np.log(np.where(values > 0, values, np.nan))


def _changes(figures: Sequence[Figure], which: Array, logs: Array) -> list[dict[str, float]]:
    """Return the changed values of parameters, given logarithms of factors."""
    logged = zip(which.tolist(), logs.tolist(), strict=True)
    return [{figures[i].path: figures[i].value * math.exp(log)} for i, log in logged]


Difference = Callable[[Array, Array], Array]


def _roots(difference: Difference, count: int) -> Array:
    """Return the root nearest to 0 of a function of each parameter; NaN if there is none."""
    # Factors are evenly spaced in logarithm: 1/16, 1/8, ..., 16.
    ends = np.linspace(-math.log(FURTHEST), math.log(FURTHEST), _POINTS)
    which = np.repeat(np.arange(count), _POINTS)
    grid = difference(which, np.tile(ends, count)).reshape(count, _POINTS)
    low, high = np.full(count, np.nan), np.full(count, np.nan)
    for i in sorted(range(_POINTS - 1), key=lambda i: -abs(ends[i] + ends[i + 1])):
        crosses = grid[:, i] * grid[:, i + 1] <= 0  # intervals come outermost first: later ones win
        low[crosses], high[crosses] = ends[i], ends[i + 1]
    # The middle grid point is the present value.
    equal = np.abs(grid[:, _POINTS // 2]) <= TOLERANCE
    low[equal] = high[equal] = 0.0
    return _refined(difference, low, high)


def _refined(difference: Difference, low: Array, high: Array) -> Array:
    """Return the roots inside brackets, for all parameters at once, by bisection and secant steps."""
    roots = (low + high) / 2
    some = np.flatnonzero(np.isfinite(roots))
    if not len(some):
        return roots
    a, b = low[some], high[some]
    at_a, at_b = difference(some, a), difference(some, b)
    left = np.arange(len(some))
    for step in range(_MAX_STEPS):
        low_end, high_end, at_low, at_high = (one[left] for one in (a, b, at_a, at_b))
        with np.errstate(invalid="ignore", divide="ignore"):
            secant = high_end - at_high * (high_end - low_end) / (at_high - at_low)
        inside = (secant >= np.minimum(low_end, high_end)) & (
            secant <= np.maximum(low_end, high_end)
        )
        # Every third step bisects: secants alone can converge slowly from one side (regula falsi).
        middle = np.where(inside & (step % 3 != 2), secant, (low_end + high_end) / 2)
        found = difference(some[left], middle)
        roots[some[left]] = middle
        # Keep the half whose ends have opposite signs.
        same = at_low * found > 0
        a[left], at_a[left] = np.where(same, middle, low_end), np.where(same, found, at_low)
        b[left], at_b[left] = np.where(same, high_end, middle), np.where(same, at_high, found)
        # Converged parameters leave the batch: each evaluation covers only the remaining ones.
        left = left[(np.abs(found) > TOLERANCE) & (np.abs(b[left] - a[left]) > _ROUNDING)]
        if not len(left):
            break
    return roots
