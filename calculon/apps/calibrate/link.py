"""A network's latency, efficiency and ramp from measured times."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from calculon.units import Array

HUBER = 0.1
"""Relative error above which a row counts linearly, not squared: outliers do not decide."""

RAMP_SIZES, RAMP_SPAN = 6, 1024.0
"""Different sizes, and ratio of the largest to the smallest, that tell a ramp from latency and bandwidth."""

_NOTHING = 1e-4
"""Share of the time of every row below which a ramp is rounding."""

_STEPS = 200
_TINY = 1e-14


@dataclass(frozen=True, slots=True)
class Line:
    """Time of a message: ``latency + size * slope + root * sqrt(size)``, in seconds and bytes."""

    latency: float
    slope: float
    root: float = 0.0

    @property
    def ramp(self) -> float:
        """The ramp in seconds: that of ``2 * sqrt(ramp * size * slope)``."""
        return self.root**2 / (4 * self.slope)

    def at(self, sizes: Array) -> Array:
        """Return the times of some sizes."""
        return self.latency + sizes * self.slope + self.root * np.sqrt(sizes)


def loss(line: Line, sizes: Array, seconds: Array, delta: float = HUBER) -> float:
    """Return the sum of the Huber losses of the logarithmic errors of a line."""
    error = np.abs(np.log(line.at(sizes) / seconds))
    square = 0.5 * error**2
    return float(np.where(error <= delta, square, delta * (error - 0.5 * delta)).sum())


def fit_link(sizes: Array, seconds: Array, least_slope: float) -> Line:
    """Return the line with the least loss; it has a ramp where the rows are many and wide enough to tell one."""
    distinct = np.unique(sizes)
    if len(distinct) >= RAMP_SIZES and distinct[-1] / distinct[0] >= RAMP_SPAN:
        bent = fit_line(sizes, seconds, least_slope, ramp=True)
        if (bent.root * np.sqrt(sizes) > _NOTHING * bent.at(sizes)).any():
            return bent
    return fit_line(sizes, seconds, least_slope)


def fit_line(
    sizes: Array, seconds: Array, least_slope: float, delta: float = HUBER, *, ramp: bool = False
) -> Line:
    """Return the line with the least loss, of a slope of at least `least_slope` and nothing below 0.

    The start is the best line by relative errors; from there damped Gauss-Newton steps on all parameters with
    Huber's weights, held inside the bounds. Without `ramp` there is none.
    """
    columns = np.stack([np.ones_like(sizes), sizes, *([np.sqrt(sizes)] if ramp else [])], axis=1)
    least = np.array([0.0, least_slope, 0.0])[: columns.shape[1]]
    found = _bounded(columns / seconds[:, None], np.ones_like(sizes), least)
    line = Line(*found.tolist())
    best = loss(line, sizes, seconds, delta)
    damping = 1e-3
    for _ in range(_STEPS):
        predicted = line.at(sizes)
        error = np.log(predicted / seconds)
        weight = np.sqrt(np.minimum(1.0, delta / np.maximum(np.abs(error), _TINY)))
        # a step from p to q changes the logarithm by J (q - p); J p = 1, so that q solves J q = 1 - error
        target = (1.0 - error) * weight
        rows = columns / predicted[:, None] * weight[:, None]
        scale = np.sqrt(damping) * np.linalg.norm(rows, axis=0)
        damped = np.vstack([rows, np.diag(scale)])
        trial = _bounded(damped, np.concatenate([target, scale * found]), least)
        value = loss(Line(*trial.tolist()), sizes, seconds, delta)
        if value < best:
            gain, found, best, damping = best - value, trial, value, damping / 10
            line = Line(*found.tolist())
            if gain <= _TINY * best:
                break
        else:
            damping *= 10
            if damping > 1e8:
                break
    return line


def _bounded(rows: Array, target: Array, least: Array) -> Array:
    """Return the least squares whose parameters are at least so large: the best with some of them held there."""
    scale = np.linalg.norm(rows, axis=0)  # seconds beside seconds per byte: equal columns
    count = len(least)
    best, error = least.copy(), float(((rows @ least - target) ** 2).sum())
    for free in (list(some) for n in range(count, 0, -1) for some in combinations(range(count), n)):
        held = [one for one in range(count) if one not in free]
        rest = target - rows[:, held] @ least[held]
        found = least.copy()
        found[free] = (
            np.linalg.lstsq(rows[:, free] / scale[free], rest, rcond=None)[0] / scale[free]
        )
        if (found < least).any():
            continue
        if len(free) == count:
            return found
        value = float(((rows @ found - target) ** 2).sum())
        if value < error:
            best, error = found, value
    return best
