"""Student's t distribution, as a table: numpy has none, and scipy would be a dependency of every prediction."""

import math
from functools import cache

import numpy as np

from calculon.base.units import Array


def probability(values: Array, freedom: float) -> Array:
    """Return the probability that a variable of Student's t distribution is at most each of some values.

    Args:
        values: Any shape; infinite ones too.
        freedom: Degrees of freedom, at least 1.
    """
    angles, shares = _table(freedom)
    angle = np.arctan(np.asarray(values) / math.sqrt(freedom))
    tail = np.interp(np.abs(angle), angles, shares)
    return np.where(angle < 0, 0.5 - tail, 0.5 + tail)


def quantile(level: float, freedom: float) -> float:
    """Return the value that a variable is at most with a probability: the inverse of :func:`probability`."""
    angles, shares = _table(freedom)
    angle = float(np.interp(abs(level - 0.5), shares, angles))
    return math.copysign(math.sqrt(freedom) * math.tan(angle), level - 0.5)


@cache
def _table(freedom: float) -> tuple[Array, Array]:
    """Return half of the distribution: angles, and the probability between 0 and each of them.

    With ``t = sqrt(freedom) tan(angle)`` the density is proportional to ``cos(angle) ** (freedom - 1)``, on a finite
    interval, where the trapezoidal rule is exact to four decimals.
    """
    angles = np.linspace(0.0, math.pi / 2, 4001)
    density = np.cos(angles) ** (freedom - 1)
    sums = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return angles, sums / sums[-1] / 2
