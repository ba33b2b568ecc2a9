"""Parameters of a model of times, fitted to measured times: robust least squares of logarithms, within bounds."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import approx_fprime, least_squares
from scipy.special import huber

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.calibrate.link import HUBER

WORST_CONDITION = 30.0
"""Condition number of the scaled Jacobian above which parameters cannot be separated.

Source: Belsley, Kuh and Welsch, *Regression Diagnostics*, 1980, section 3.2 (scaled condition indexes above 30).
"""

NOTHING = 1e-6
"""Derivative of the logarithms of all times by a coordinate below which a parameter has no effect."""

FROM = 2
"""Number of starts from which the search descends, the best ones."""

_STEP = 1e-4
_TINY = 1e-14
_OPTIONS: dict[str, Any] = {"method": "dogbox", "loss": "huber", "f_scale": HUBER}


@dataclass(frozen=True, slots=True)
class Unknown:
    """A parameter to fit.

    Attributes:
        low, high: Its bounds. With a lower bound above 0 the coordinate is its logarithm, else its multiple of `scale`.
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
        """Return the value of a coordinate, within the bounds."""
        found = float(np.exp(coordinate)) if self.low > 0 else coordinate * self.scale
        return min(max(found, self.low), self.high)


@dataclass(frozen=True, slots=True)
class Solution:
    """Values of the parameters, and derivatives of the logarithms of the times by their coordinates.

    Attributes:
        jacobian (shape (rows, parameters)): At the values found.
    """

    values: tuple[float, ...]
    jacobian: Array

    def undetermined(self, names: Sequence[str]) -> tuple[str, str] | None:
        """Return the names of parameters that the times do not determine or separate, and the reason; else None."""
        dead = np.abs(self.jacobian).max(axis=0) < NOTHING
        if dead.any():
            first = int(dead.argmax())
            why = f"none that depends on it at its best value, {self.values[first]:.3g}"
            return names[first], why
        if len(names) < 2:
            return None
        _, singular, directions = np.linalg.svd(
            self.jacobian / np.linalg.norm(self.jacobian, axis=0)
        )
        condition = float(singular[0] / max(singular[-1], _TINY))
        if condition <= WORST_CONDITION and len(singular) == len(names):
            return None
        collinear = sorted(np.argsort(-np.abs(directions[-1]))[:2].tolist())
        number = f"condition number {condition:,.3g}, more than {WORST_CONDITION:g}"
        return " from ".join(names[i] for i in collinear), f"both change all times alike ({number})"


Predict = Callable[[Sequence[float]], Array]
"""Times of all rows for values of the parameters."""


def solve(predict: Predict, seconds: Array, unknowns: Sequence[Unknown]) -> Solution:
    """Return the values within their bounds that have the least sum of Huber losses of logarithmic errors.

    Least squares from the best combinations of starts; parameters that a step would push out of their bounds stay
    there.

    Source: Huber, *Robust Estimation of a Location Parameter*, Annals of Mathematical Statistics 35(1), 1964; Voglis
    and Lagaris, *A rectangular trust region dogleg approach*, WSEAS 2004 (``dogbox`` of SciPy).
    """
    low = np.array([one.inside(one.low) for one in unknowns])
    high = np.array([one.inside(one.high) for one in unknowns])

    def values(at: Array) -> tuple[float, ...]:
        return tuple(one.value(x) for one, x in zip(unknowns, at.tolist(), strict=True))

    def errors(at: Array) -> Array:
        found: Array = np.log(predict(values(at)) / seconds)
        return found

    def slopes(at: Array) -> Array:
        step = np.where(at + _STEP <= high, _STEP, -_STEP)  # stays within the bounds
        found: Array = approx_fprime(at, errors, step).reshape(len(seconds), -1)
        return found

    fit = partial(least_squares, errors, jac=slopes, bounds=(low, high), **_OPTIONS)
    combinations = product(*(map(one.inside, one.starts) for one in unknowns))
    starts = [np.clip(np.array(one), low, high) for one in combinations]
    if len(starts) > FROM:
        starts.sort(key=lambda at: float(huber(HUBER, errors(at)).sum()))
    best = min((fit(at) for at in starts[:FROM]), key=lambda found: float(found.cost))
    return Solution(values(best.x), slopes(best.x))
