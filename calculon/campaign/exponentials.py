"""Numerically stable exponential helpers: no cancellation for small arguments, no warnings for large ones."""

import math
from collections.abc import Callable
from functools import lru_cache, wraps

import numpy as np

from calculon.base.units import Array

Values = float | Array
"""A number or an array of numbers; the functions of this package broadcast their arguments against each other."""

# below this argument the series is used; with 14 terms the last one is then under 1e-17
_SMALL = 0.5
_TERMS = 14


def ignore_float_errors() -> np.errstate:
    """Return a context that ignores overflow and 0/0: overflow is meant to give infinity, and callers replace NaN."""
    return np.errstate(over="ignore", divide="ignore", invalid="ignore")


def cached_for_numbers(law: Callable[..., Array]) -> Callable[..., Array]:
    """Cache the results of a function for single numbers: a search asks for the same job with every chunk of rows."""
    kept = lru_cache(256)(law)

    @wraps(law)
    def call(*arguments: Values) -> Array:
        # arrays are not hashable, and a search never repeats the same array
        if any(np.ndim(one) for one in arguments):
            return law(*arguments)
        return kept(*map(float, arguments))

    return call


def ratio(amount: Values, per: Values) -> Array:
    """Return a ratio in which 0/0 and ∞/∞ are 0: a share of nothing, or of an event that never happens.

    >>> float(ratio(0.0, 0.0)), float(ratio(1.0, 0.0)), float(ratio(3.0, np.inf))
    (0.0, inf, 0.0)
    """
    with ignore_float_errors():
        found = np.divide(amount, per)
    return np.where(np.isnan(found), 0.0, found)[()]


def _series(x: Array, first: int, step: int = 1) -> Array:
    """Return Σ x^k / (first + k step)! for small x."""
    result = np.zeros_like(x)
    for k in range(_TERMS, -1, -1):
        result = result * x + 1.0 / math.factorial(first + k * step)
    return result


def growth(x: Values) -> Array:
    """Return (e^x − 1)/x, the ratio of exponential to linear growth; 1 at 0.

    >>> float(growth(0.0)), float(growth(1e4))
    (1.0, inf)
    """
    x = np.asarray(x, float)
    with ignore_float_errors():
        found = np.where(np.isposinf(x), np.inf, np.expm1(x) / x)
    return np.where(x == 0, 1.0, found)[()]


def curvature(x: Values) -> Array:
    """Return (e^x − 1 − x)/x²; 1/2 at 0.

    >>> float(curvature(0.0))
    0.5
    """
    x = np.asarray(x, float)
    small = np.abs(x) < _SMALL
    # np.where evaluates both branches, so the series gets 0 in place of large arguments
    with ignore_float_errors():
        found = np.where(np.isposinf(x), np.inf, (np.expm1(x) - x) / (x * x))
        return np.where(small, _series(np.where(small, x, 0.0), 2), found)[()]


def sine_excess(x: Values) -> Array:
    """Return (sinh x − x)/x³; 1/6 at 0.

    >>> float(sine_excess(0.0)) == 1 / 6
    True
    """
    x = np.asarray(x, float)
    small = np.abs(x) < _SMALL
    with ignore_float_errors():
        found = np.where(np.isinf(x), np.inf, (np.sinh(x) - x) / x**3)
        return np.where(small, _series(np.where(small, x * x, 0.0), 3, 2), found)[()]
