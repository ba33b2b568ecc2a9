"""Stragglers: a synchronous step takes as long as its slowest rank."""

import math
from functools import cache

import numpy as np

from calculon.base.units import Array
from calculon.campaign.exponentials import Values, ratio

_REACH, _STEP = 12.0, 0.04  # the grid of the normal law, in standard deviations


def any_slow(num_nodes: Values, share: Values) -> Array:
    """Return the probability that at least one of n nodes is slow, ``1 − (1 − share)^n``.

    >>> float(any_slow(2, 0.5)), float(any_slow(10**6, 0.0))
    (0.75, 0.0)
    """
    with np.errstate(divide="ignore"):
        log = np.log1p(-np.asarray(share, float))
    return -np.expm1(num_nodes * log)


def share_slow(between: Values, until_removed: Values) -> Array:
    """Return the share of time that a node is slow which becomes so now and then, and is soon replaced.

    Args:
        between: Mean time until a good node becomes slow; infinite if none does.
        until_removed: Mean time until a slow node is found and replaced, in the same unit.
    """
    return ratio(until_removed, np.add(between, until_removed))


def slow_nodes(num_nodes: Values, share: Values, factor: Values) -> Array:
    """Return the mean time of a step by that of good nodes, if a share of them is slower by a factor.

    One slow node slows the step down as much as many. It is right for times that all scale alike, and too much for
    ranks that have time to spare.
    """
    return 1.0 + (np.asarray(factor, float) - 1.0) * any_slow(num_nodes, share)


@cache
def _normal_law() -> tuple[Array, Array]:
    """Return a grid and the logarithm of the normal distribution function on it."""
    x = np.arange(-_REACH, _REACH + _STEP / 2.0, _STEP)
    beyond = np.array([math.erfc(abs(a) / math.sqrt(2.0)) / 2.0 for a in x])
    return x, np.where(x > 0, np.log1p(-beyond), np.log(beyond))


def expected_maximum(number: Values) -> Array:
    """Return the mean of the largest of n independent standard normal variables, to ten digits.

    ``∫ x n φ(x) Φ(x)^(n−1) dx``, by the trapezoidal rule, which is exact for such functions but for rounding. The known
    ``√(2 ln n)`` is its limit, and larger: by 43 % at 8, 15 % at 1,024 and 9 % at 10⁵.

    Args:
        number: At least 1, at most 1e15.

    >>> round(float(expected_maximum(2)), 6)
    0.56419
    """
    some, place = np.unique(np.asarray(number, float), return_inverse=True)
    x, log = _normal_law()
    density = np.exp(-x * x / 2.0) * (_STEP / math.sqrt(2.0 * math.pi))
    found = np.array([(x * n * density * np.exp((n - 1.0) * log)).sum() for n in some])
    return found[place].reshape(np.shape(number))[()]


def jitter(groups: Values, spread: Values) -> Array:
    """Return the mean time of a step by that of one rank whose times scatter from step to step.

    Args:
        groups: Ranks, or groups of them, that vary by themselves and wait for each other.
        spread: Standard deviation of the time of one, by its mean; about normal.
    """
    return 1.0 + spread * expected_maximum(groups)
