"""Spreads: quantiles of measured over predicted times, for rows of groups that the fit has not seen."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from calculon.base.errors import SpecError
from calculon.base.units import Array
from calculon.calibrate.measured_rows import Row
from calculon.declarations.statistics import LEVEL

LARGE = 2 / 3
"""Share of the best rate from which operations are large."""

_FEWEST = 2  # groups: one tells nothing of new ones
_EXACT = 1e-9


def unseen(
    rows: Sequence[Row],
    held: Array,
    fit: Callable[[Sequence[Row]], Callable[[Sequence[Row]], Array]],
) -> tuple[Array, list[str]]:
    """Return the time of each row by a fit that did not see its group, and the groups.

    Rows that are held out have the time of the fit to all others; of the others each group in turn is left out too.
    Where all rows are one group, each row is a group of its own. Rows without which there is no fit have no time
    (not-a-number).

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
        except SpecError:  # too few are left
            continue
    return times, groups


def quantiles(
    residuals: Array, groups: Sequence[str], level: float = LEVEL
) -> tuple[float, float, float]:
    """Return the ends between which a row of a new group is, and the probability of that.

    Each end cuts off half of `1 - level`: of n rows it is the one number `ceil((n + 1) (1 + level) / 2)`. Rows of a
    group that err together count as fewer: :func:`independent`. Where there are too few the ends are the extremes,
    which cover `(n - 1) / (n + 1)`. Every group has the same weight.

    Source: Lei et al., *Distribution-free predictive inference for regression*, arXiv 1604.04173, section 2.2 (split
    conformal prediction), on each side; groups as in Dunn, Wasserman and Ramdas, *Distribution-free prediction sets
    for two-layer hierarchical models*, arXiv 1809.07441, section 3.1 (pooling).

    Args:
        residuals: At least one.
        groups: The group of each.
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
    """Return the effective number of independent values, given the number of the group of each.

    It is `n / (1 + (m - 1) r)`, for groups of m values with the intraclass correlation r: all of them where those of
    one group are as different as those of two, as many as there are groups where those of one group are the same.

    Source: Kish, *Survey Sampling*, 1965, section 5.4 (design effect); the correlation by analysis of variance, Donner,
    *International Statistical Review* 54(1), 1986, section 2.1.
    """
    counts = np.bincount(which)
    n, k = len(values), len(counts)
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
    """Return the smallest size from which on operations reach most of the best rate.

    Rates are those of the nearest curve that rises with the size, so that no single row decides.

    Where a time is a latency and a rate it is twice the half-performance length.

    Source: Hockney and Jesshope, *Parallel Computers*, 1981, section 1.3.
    """
    order = sorted(rows, key=lambda row: row.size)
    sizes, seconds = (
        np.array([getattr(row, name) for row in order]) for name in ("size", "seconds")
    )
    points, which, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    means = np.bincount(which, np.log(sizes / seconds)) / counts
    rates = isotonic_regression(means, weights=counts).x
    return float(points[(rates >= rates[-1] + np.log(LARGE)).argmax()])


def spreads(
    rows: Sequence[Row], predicted: Array, groups: Sequence[str], bound: float
) -> list[Mapping[str, Any]]:
    """Return the spreads of a part: of small and of large operations each, given enough groups.

    Below a bound (:func:`large_size`) fixed costs decide, and relative errors are of another kind. Where either side
    has fewer than two groups all operations are taken together; of a single group there is no spread.
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
