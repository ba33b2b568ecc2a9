"""Fits to measured times: robust least squares, held-out rows, and spreads of residuals for prediction intervals."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import approx_fprime, isotonic_regression, least_squares
from scipy.special import huber

from calculon.base.errors import SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.calibrate.networks import HUBER
from calculon.calibrate.readers import Row
from calculon.declarations.statistics import LEVEL

WORST_CONDITION = 30.0
"""Condition number of the scaled Jacobian above which parameters cannot be separated.

Source: Belsley, Kuh and Welsch, *Regression Diagnostics*, 1980, section 3.2 (scaled condition indexes above 30).
"""

NOTHING = 1e-6
"""Derivative of the log times by a coordinate, below which a parameter counts as having no effect."""

FROM = 2
"""Number of start points from which the search descends; the best ones are taken."""

_STEP = 1e-4
_TINY = 1e-14
_OPTIONS: dict[str, Any] = {"method": "dogbox", "loss": "huber", "f_scale": HUBER}


@dataclass(frozen=True, slots=True)
class Unknown:
    """A parameter to fit.

    Attributes:
        low, high: Bounds. The coordinate is the logarithm of the value if `low` is above 0, else a multiple of `scale`.
        starts: Values from which the search begins; the best result counts.
    """

    name: str
    low: float
    high: float
    starts: Sequence[float]
    scale: float = 1.0

    def inside(self, value: float) -> float:
        """Return the coordinate of a value."""
        return float(np.log(value)) if self.low > 0 else value / self.scale

    def value(self, coordinate: float) -> float:
        """Return the value of a coordinate, clipped to the bounds."""
        found = float(np.exp(coordinate)) if self.low > 0 else coordinate * self.scale
        return min(max(found, self.low), self.high)


@dataclass(frozen=True, slots=True)
class Solution:
    """Values of the parameters, and derivatives of the log times by their coordinates.

    Attributes:
        jacobian (shape (rows, parameters)): Derivatives at these values.
    """

    values: tuple[float, ...]
    jacobian: Array

    def undetermined(self, names: Sequence[str]) -> tuple[str, str] | None:
        """Return the task that the times fail at ("determine x" or "separate x from y"), and the reason; else None."""
        dead = np.abs(self.jacobian).max(axis=0) < NOTHING
        if dead.any():
            first = int(dead.argmax())
            why = f"none depends on it at its best value, {self.values[first]:.3g}"
            return f"determine {names[first]}", why
        if len(names) < 2:
            return None
        # Columns of unit length: the condition number must measure collinearity and not the choice of units.
        _, singular, directions = np.linalg.svd(
            self.jacobian / np.linalg.norm(self.jacobian, axis=0)
        )
        condition = float(singular[0] / max(singular[-1], _TINY))
        if condition <= WORST_CONDITION and len(singular) == len(names):
            return None
        # The right singular vector of the smallest singular value is the direction that the times do not determine.
        collinear = sorted(np.argsort(-np.abs(directions[-1]))[:2].tolist())
        number = f"condition number {condition:,.3g}, more than {WORST_CONDITION:g}"
        pair = " from ".join(names[i] for i in collinear)
        return f"separate {pair}", f"they change all times in the same proportion ({number})"


Predict = Callable[[Sequence[float]], Array]
"""Function from values of the parameters to the times of all rows."""


def solve(predict: Predict, seconds: Array, unknowns: Sequence[Unknown]) -> Solution:
    """Return the values within their bounds that minimize the sum of Huber losses of logarithmic errors.

    Least squares descends from the best combinations of start values. A parameter that a step would push out of its
    bounds stays at the bound.

    Source: Huber, *Robust Estimation of a Location Parameter*, Annals of Mathematical Statistics 35(1), 1964; Voglis
    and Lagaris, *A rectangular trust region dogleg approach*, WSEAS 2004 (``dogbox`` of SciPy).
    """
    low = np.array([one.inside(one.low) for one in unknowns])
    high = np.array([one.inside(one.high) for one in unknowns])

    def values(at: Array) -> tuple[float, ...]:
        return tuple(one.value(x) for one, x in zip(unknowns, at.tolist(), strict=True))

    def errors(at: Array) -> Array:
        result: Array = np.log(predict(values(at)) / seconds)
        return result

    def slopes(at: Array) -> Array:
        # A step up would leave the bounds near the upper one.
        step = np.where(at + _STEP <= high, _STEP, -_STEP)
        result: Array = approx_fprime(at, errors, step).reshape(len(seconds), -1)
        return result

    fit = partial(least_squares, errors, jac=slopes, bounds=(low, high), **_OPTIONS)
    combinations = product(*(map(one.inside, one.starts) for one in unknowns))
    starts = [np.clip(np.array(one), low, high) for one in combinations]
    # Ranking the starts costs one evaluation each, descending from one costs dozens.
    if len(starts) > FROM:
        starts.sort(key=lambda at: float(huber(HUBER, errors(at)).sum()))
    best = min((fit(at) for at in starts[:FROM]), key=lambda result: float(result.cost))
    return Solution(values(best.x), slopes(best.x))


# Split into fitted and held-out rows, and residuals of both.

LARGE = 2**20
"""Message size in bytes above which bandwidth matters more than latency; these rows are also scored separately."""


def held_out(rows: Sequence[Row], share: float) -> Array:
    """Return a mask of the held-out rows: complete groups, chosen by a hash of their names, so that runs agree.

    Of g groups the nearest whole number to ``share * g`` is held out, at least one and never all; with a share of 0
    none is.
    """
    groups = sorted({row.group for row in rows}, key=_rank)
    count = min(max(1, int(share * len(groups) + 0.5)), len(groups) - 1) if share > 0 else 0
    chosen = set(groups[:count])
    return np.array([row.group in chosen for row in rows])


def _rank(group: str) -> bytes:
    return hashlib.sha256(group.encode()).digest()


def residuals(names: Sequence[str], measured: Array, predicted: Array) -> dict[str, Any]:
    """Return relative errors of named rows in percent; a negative bias means that the file predicts too fast.

    The figures are mean, median and 90th percentile of the absolute errors, the signed mean (bias), and the worst row.
    """
    error = 100 * (predicted / measured - 1)
    size = np.abs(error)
    worst = int(size.argmax())
    figures = {
        "mape": size.mean(),
        "median": np.median(size),
        "p90": np.percentile(size, 90),
        "bias": error.mean(),
        "worst": error[worst],
    }
    rounded = {name: round(float(value), 3) for name, value in figures.items()}
    return {"n": len(names), **rounded, "worst_row": names[worst]}


def tabulated(
    part: str, rows: Sequence[Row], predicted: Array, held: Array, left: Array
) -> list[Mapping[str, Any]]:
    """Return residual records: fitted rows, held-out rows, and for collectives their large messages separately.

    Rows that were left out of the fit have a separate record.
    """
    message, seconds = (
        np.array([getattr(row, name) for row in rows]) for name in ("message", "seconds")
    )
    kinds = [("fitted", ~held & ~left), ("held out", held)]
    if message.any() and message.min() <= LARGE:
        kinds += [(f"{name}, above 1 MiB", which & (message > LARGE)) for name, which in kinds]
    records: list[Mapping[str, Any]] = []
    for name, which in [*kinds, ("left out", left)]:
        if which.any():
            names = [row.name for row, chosen in zip(rows, which, strict=True) if chosen]
            errors = residuals(names, seconds[which], predicted[which])
            records.append({"part": part, "rows": name} | errors)
    return records


# Spreads: quantiles of measured over predicted times, for rows of groups that the fit did not see.

NEAR_PEAK = 2 / 3
"""Share of the best rate from which operations count as large."""

_FEWEST = 2  # groups: one group says nothing about a new one
_EXACT = 1e-9


def cross_validated(
    rows: Sequence[Row],
    held: Array,
    fit: Callable[[Sequence[Row]], Callable[[Sequence[Row]], Array]],
) -> tuple[Array, list[str]]:
    """Return the time of each row by a fit that did not see its group, and the groups.

    Held-out rows get their times from the fit to all other rows; each other group is left out in turn as well. If all
    rows are in one group, each row is its own group. A row without which no fit is possible has the time not-a-number.

    Source: Barber et al., *Predictive inference with the jackknife+*, arXiv 1905.02928, section 1.3 (cross-validated
    residuals); Lei et al., *Distribution-free predictive inference for regression*, arXiv 1604.04173, section 2.2.
    """
    groups = [row.group for row in rows]
    if len(set(groups)) == 1:
        groups = [row.name for row in rows]
    times = np.full(len(rows), np.nan)
    names = np.array(groups)
    out = [held, *((names == one) & ~held for one in dict.fromkeys(groups))]
    for inside in out:
        if not inside.any():
            continue
        rest = [row for row, no in zip(rows, held | inside, strict=True) if not no]
        if not rest:
            continue
        try:
            times[inside] = fit(rest)([row for row, yes in zip(rows, inside, strict=True) if yes])
        except SpecError:  # too few rows are left to fit
            continue
    return times, groups


def quantiles(
    residuals: Array, groups: Sequence[str], level: float = LEVEL
) -> tuple[float, float, float]:
    """Return the ends of the interval that contains a row of a new group, and the probability that it does.

    Each end cuts off half of `1 - level`: of n sorted rows it is number `ceil((n + 1) (1 + level) / 2)`. Rows of a
    group with correlated errors count as fewer (:func:`independent`). With too few rows the ends are the extremes,
    which cover `(n - 1) / (n + 1)`. Every group has the same weight.

    Source: Lei et al., *Distribution-free predictive inference for regression*, arXiv 1604.04173, section 2.2 (split
    conformal prediction), on each side; groups as in Dunn, Wasserman and Ramdas, *Distribution-free prediction sets
    for two-layer hierarchical models*, arXiv 1809.07441, section 3.1 (pooling).

    Args:
        residuals: At least one residual.
        groups: Group of each residual.
        level: Wanted probability.
    """
    _, which, counts = np.unique(groups, return_inverse=True, return_counts=True)
    n = independent(residuals, which)
    weights = n / (n + 1) / (len(counts) * counts[which])
    ends = []
    for sign in (-1, 1):
        order = np.argsort(sign * residuals)
        reached = np.cumsum(weights[order]) >= (1 + level) / 2 - _EXACT
        last = order[reached.argmax()] if reached.any() else order[-1]
        ends.append(float(residuals[last]))
    return ends[0], ends[1], min(level, 1 - 2 / (n + 1))


def independent(values: Array, which: Array) -> float:
    """Return the effective number of independent values, given the group number of each.

    It is `n / (1 + (m - 1) r)` for groups of m values with intraclass correlation r: all values if values of the same
    group differ as much as values of different groups, and the number of groups if values of a group are equal.

    Source: Kish, *Survey Sampling*, 1965, section 5.4 (design effect); the correlation by analysis of variance, Donner,
    *International Statistical Review* 54(1), 1986, section 2.1.
    """
    counts = np.bincount(which)
    n, k = len(values), len(counts)
    # One group, or groups of one: there is no variance between, or within, groups to compare.
    if k in (1, n):
        return float(k)
    means = np.bincount(which, values) / counts
    inside = float(((values - means[which]) ** 2).sum()) / (n - k)
    between = float((counts * (means - values.mean()) ** 2).sum()) / (k - 1)
    usual = (n - float((counts**2).sum()) / n) / (k - 1)
    scale = between + (usual - 1) * inside
    share = min(1.0, max(0.0, (between - inside) / scale)) if scale > 0 else 1.0
    return max(float(k), n / (1 + (float((counts**2).sum()) / n - 1) * share))


def large_size(rows: Sequence[Row]) -> float:
    """Return the smallest size from which operations reach most of the best rate.

    Rates are smoothed to the nearest curve that rises with the size, so that no single row decides. If a time is a
    latency plus size over bandwidth, the result is twice the half-performance length.

    Source: Hockney and Jesshope, *Parallel Computers*, 1981, section 1.3.
    """
    order = sorted(rows, key=lambda row: row.size)
    sizes, seconds = (
        np.array([getattr(row, name) for row in order]) for name in ("size", "seconds")
    )
    points, which, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    means = np.bincount(which, np.log(sizes / seconds)) / counts
    rates = isotonic_regression(means, weights=counts).x
    return float(points[(rates >= rates[-1] + np.log(NEAR_PEAK)).argmax()])


def spreads(
    rows: Sequence[Row], predicted: Array, groups: Sequence[str], bound: float
) -> list[Mapping[str, Any]]:
    """Return the spreads of a part: separately for small and large operations if both have enough groups.

    Below the bound (:func:`large_size`) fixed costs dominate, so relative errors behave differently. If either side has
    fewer than two groups, all operations are pooled; for a single group there is no spread.
    """
    sizes = np.array([row.size for row in rows])
    residuals = np.log(np.array([row.seconds for row in rows]) / predicted)
    known = np.isfinite(residuals)
    large, small = known & (sizes >= bound), known & (sizes < bound)

    def several(which: Array) -> bool:
        return len({group for group, yes in zip(groups, which, strict=True) if yes}) >= _FEWEST

    if several(large) and several(small):
        return [
            _spread(residuals, groups, small, 0.0, bound),
            _spread(residuals, groups, large, bound, None),
        ]
    return [_spread(residuals, groups, known, 0.0, None)] if several(known) else []


def _spread(
    residuals: Array, groups: Sequence[str], which: Array, start: float, end: float | None
) -> Mapping[str, Any]:
    some = [group for group, yes in zip(groups, which, strict=True) if yes]
    low, high, level = quantiles(residuals[which], some)
    return {
        "of": "measured / predicted",
        "from": start,
        "below": end,
        "low": round(float(np.exp(low)), 4),
        "high": round(float(np.exp(high)), 4),
        "level": round(level, 4),
        "rows": len(some),
        "groups": len(set(some)),
    }
