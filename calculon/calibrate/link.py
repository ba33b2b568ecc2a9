"""A network's latency and efficiency from measured times."""

from dataclasses import dataclass

import numpy as np

from calculon.units import Array

HUBER = 0.1
"""Relative error above which a row counts linearly, not squared: outliers do not decide."""

_STEPS = 200
_TINY = 1e-14


@dataclass(frozen=True, slots=True)
class Line:
    """Time as a line: ``latency + size * slope``, in seconds and bytes."""

    latency: float
    slope: float

    def at(self, sizes: Array) -> Array:
        """Return the times of some sizes."""
        return self.latency + sizes * self.slope


def loss(line: Line, sizes: Array, seconds: Array, delta: float = HUBER) -> float:
    """Return the sum of the Huber losses of the logarithmic errors of a line."""
    error = np.abs(np.log(line.at(sizes) / seconds))
    square = 0.5 * error**2
    return float(np.where(error <= delta, square, delta * (error - 0.5 * delta)).sum())


def fit_line(sizes: Array, seconds: Array, least_slope: float, delta: float = HUBER) -> Line:
    """Return the line with the least loss, of a latency of at least 0 and a slope of at least `least_slope`.

    The start is the best line by relative errors; from there damped Gauss-Newton steps on both parameters with
    Huber's weights, held inside the bounds. Each parameter in turn is tried alone where a bound holds the other.
    """
    ones = np.ones_like(sizes)
    start = _bounded(np.stack([ones, sizes], axis=1) / seconds[:, None], ones, least_slope)
    line = Line(float(start[0]), float(start[1]))
    best = loss(line, sizes, seconds, delta)
    damping = 1e-3
    for _ in range(_STEPS):
        predicted = line.at(sizes)
        error = np.log(predicted / seconds)
        weight = np.sqrt(np.minimum(1.0, delta / np.maximum(np.abs(error), _TINY)))
        jacobian = np.stack([ones, sizes], axis=1) / predicted[:, None]
        # a step from p to q changes the logarithm by J (q - p); J p = 1, so that q solves J q = 1 - error
        target = (1.0 - error) * weight
        rows = jacobian * weight[:, None]
        scale = np.sqrt(damping) * np.linalg.norm(rows, axis=0)
        damped = np.vstack([rows, np.diag(scale)])
        wanted = np.concatenate([target, scale * np.array([line.latency, line.slope])])
        found = _bounded(damped, wanted, least_slope)
        trial = Line(float(found[0]), float(found[1]))
        value = loss(trial, sizes, seconds, delta)
        if value < best:
            gain, line, best, damping = best - value, trial, value, damping / 10
            if gain <= _TINY * best:
                break
        else:
            damping *= 10
            if damping > 1e8:
                break
    return line


def _bounded(rows: Array, target: Array, least_slope: float) -> Array:
    """Return the least squares of two parameters, the first at least 0, the second at least `least_slope`."""
    scale = np.linalg.norm(rows, axis=0)  # seconds beside seconds per byte: equal columns
    found: Array = np.linalg.lstsq(rows / scale, target, rcond=None)[0] / scale
    if found[0] >= 0 and found[1] >= least_slope and found.max() > 0:
        return found
    choices = []
    first, second = rows[:, 0], rows[:, 1]
    slope = max(float(second @ target / (second @ second)), least_slope)
    choices.append(np.array([0.0, slope]))
    latency = max(float(first @ (target - second * least_slope) / (first @ first)), 0.0)
    choices.append(np.array([latency, least_slope]))
    return min(choices, key=lambda one: float(((rows @ one - target) ** 2).sum()))
