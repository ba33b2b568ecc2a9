"""Parameters of any model of times from measured times: robust least squares of logarithms, within bounds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from calculon.apps.calibrate.link import HUBER
from calculon.units import Array

WORST_CONDITION = 30.0
"""Condition number of the scaled Jacobian above which parameters are not told apart.

Source: Belsley, Kuh and Welsch, *Regression Diagnostics*, 1980, section 3.2 (scaled condition indexes above 30).
"""

NOTHING = 1e-6
"""Change of the logarithm of every time, per that of a parameter, below which it has no effect."""

FROM = 2
"""Combinations of starts that are followed to their end."""

_STEP = 1e-4
_STEPS = 60
_NEAR = 1e-7
_TINY = 1e-14


def alike(condition: float) -> str:
    """Say that two parameters are not told apart, by the condition number of :meth:`Solution.confused`."""
    return f"both change all times alike (condition number {condition:,.3g}, more than {WORST_CONDITION:g})"


@dataclass(frozen=True, slots=True)
class Unknown:
    """A parameter that is sought.

    Attributes
    ----------
    low, high : float
        Its bounds. One whose lower bound is above 0 moves by factors, any other by multiples of `scale`.
    starts : sequence of float
        Where the search begins; the best end counts.
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
        """Return the value of a coordinate, within the bounds."""
        found = float(np.exp(coordinate)) if self.low > 0 else coordinate * self.scale
        return min(max(found, self.low), self.high)


@dataclass(frozen=True, slots=True)
class Solution:
    """Values of the parameters, and how the logarithms of the times change with their coordinates.

    Attributes
    ----------
    jacobian : array, shape (rows, parameters)
        At the values found.
    """

    values: tuple[float, ...]
    loss: float
    jacobian: Array

    def without_effect(self) -> int | None:
        """Return the number of a parameter that no time depends on here, or nothing."""
        dead = np.abs(self.jacobian).max(axis=0) < NOTHING
        return int(dead.argmax()) if dead.any() else None

    def confused(self) -> tuple[float, int, int] | None:
        """Return the condition number and the two parameters that move together most, where they are not told apart."""
        if self.jacobian.shape[1] < 2:
            return None
        _, singular, directions = np.linalg.svd(
            self.jacobian / np.linalg.norm(self.jacobian, axis=0)
        )
        condition = float(singular[0] / max(singular[-1], _TINY))
        if condition <= WORST_CONDITION and len(singular) == self.jacobian.shape[1]:
            return None
        first, second = np.argsort(-np.abs(directions[-1]))[:2]
        return condition, int(min(first, second)), int(max(first, second))


Predict = Callable[[Sequence[float]], Array]
"""Times of all rows for values of the parameters."""


def solve(predict: Predict, seconds: Array, unknowns: Sequence[Unknown]) -> Solution:
    """Return the values within their bounds that have the least sum of Huber losses of logarithmic errors.

    Damped Gauss-Newton steps with Huber's weights from the best combinations of starts; parameters that a step would
    push out of their bounds stay there.

    Source: Huber, *Robust Estimation of a Location Parameter*, Annals of Mathematical Statistics 35(1), 1964;
    Marquardt, SIAM Journal 11(2), 1963 (damping scaled by the diagonal).
    """
    problem = _Problem(predict, seconds, unknowns)
    starts = [problem.start(one) for one in product(*(one.starts for one in unknowns))]
    if len(starts) > FROM:
        starts.sort(key=lambda at: _loss(problem.errors(at)))
    return min((_descended(problem, at) for at in starts[:FROM]), key=lambda one: one.loss)


class _Problem:
    """The errors of coordinates, and their slopes."""

    def __init__(self, predict: Predict, seconds: Array, unknowns: Sequence[Unknown]):
        self._predict, self._seconds, self._unknowns = predict, seconds, unknowns
        self.low = np.array([one.inside(one.low) for one in unknowns])
        self.high = np.array([one.inside(one.high) for one in unknowns])

    def values(self, at: Array) -> tuple[float, ...]:
        return tuple(one.value(x) for one, x in zip(self._unknowns, at.tolist(), strict=True))

    def errors(self, at: Array) -> Array:
        found: Array = np.log(self._predict(self.values(at)) / self._seconds)
        return found

    def slopes(self, at: Array, errors: Array) -> Array:
        """Return the change of each error by each coordinate, from differences within the bounds."""
        columns = []
        for i, x in enumerate(at.tolist()):
            beside = at.copy()
            beside[i] = x + _STEP if x + _STEP <= self.high[i] else x - _STEP
            columns.append((self.errors(beside) - errors) / (beside[i] - x))
        return np.stack(columns, axis=1)

    def start(self, values: Sequence[float]) -> Array:
        """Return the coordinates of values, within the bounds."""
        inside = [one.inside(value) for one, value in zip(self._unknowns, values, strict=True)]
        found: Array = np.clip(np.array(inside), self.low, self.high)
        return found


def _loss(errors: Array) -> float:
    size = np.abs(errors)
    return float(np.where(size <= HUBER, 0.5 * size**2, HUBER * (size - 0.5 * HUBER)).sum())


def _descended(problem: _Problem, at: Array) -> Solution:
    """Follow the errors down from some coordinates."""
    errors = problem.errors(at)
    best, damping = _loss(errors), 1e-3
    slopes = problem.slopes(at, errors)
    for _ in range(_STEPS):
        weight = np.minimum(1.0, HUBER / np.maximum(np.abs(errors), _TINY))
        gradient = slopes.T @ (weight * errors)
        stuck = ((at <= problem.low) & (gradient > 0)) | ((at >= problem.high) & (gradient < 0))
        free = ~stuck & (np.abs(slopes).max(axis=0) > 0)
        if not free.any() or damping > 1e10:
            break
        square = slopes[:, free].T @ (weight[:, None] * slopes[:, free])
        step = np.linalg.solve(square + damping * np.diag(np.diag(square)), -gradient[free])
        trial = at.copy()
        trial[free] = np.clip(at[free] + step, problem.low[free], problem.high[free])
        if np.abs(trial - at).max() < _NEAR:
            break
        tried = problem.errors(trial)
        value = _loss(tried)
        if value >= best:
            damping *= 10
            continue
        gain, at, errors, best, damping = best - value, trial, tried, value, damping / 10
        slopes = problem.slopes(at, errors)
        if gain <= 1e-10 * best or best < _TINY:
            break
    return Solution(problem.values(at), best, slopes)
