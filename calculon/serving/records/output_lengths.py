"""Distributions of output lengths: quantiles, the longest output of a batch, and batches that run empty."""

import math
from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Count

WIDEST_SHAPE, NARROWEST_SHAPE = 0.1, 1e4
"""Range of Weibull shapes that are searched: coefficients of variation from 430 to 0.00013."""

LONGER_AT_MOST = 1 - 2.0**-53
"""Upper bound of the share of outputs longer than a length: below 1, so that 1 minus the share has a logarithm."""

PARTS = 32
"""Number of parts into which a batch that runs empty is divided."""

_REACH, _POINTS = 60.0, 4001
"""Integration grid of lengths: ``log(-log(1 - F))`` from -60 to log 60, and its number of points."""


def weibull_shape(variation: float) -> float:
    """Return the shape of the Weibull distribution with a coefficient of variation above 0; 1 is exponential.

    It is found by bisection of ``c² = Γ(1 + 2/k) / Γ(1 + 1/k)² - 1``, which decreases with the shape. Source: Weibull,
    *A statistical distribution function of wide applicability*, Journal of Applied Mechanics 18, 1951.

    >>> round(weibull_shape(1.0), 9)
    1.0
    """
    low, high = math.log(WIDEST_SHAPE), math.log(NARROWEST_SHAPE)
    for _ in range(60):
        middle = (low + high) / 2
        inverse = math.exp(-middle)
        # in logarithms: Γ overflows for the widest shapes
        square = math.lgamma(1 + 2 * inverse) - 2 * math.lgamma(1 + inverse)
        low, high = (middle, high) if math.expm1(square) > variation**2 else (low, middle)
    return math.exp(low)


def length_quantile(mean: float, variation: float, share: float) -> float:
    """Return the length that a share of Weibull-distributed lengths does not exceed.

    >>> round(length_quantile(100.0, 1.0, 0.99))
    461
    """
    if not variation:
        return mean
    shape = weibull_shape(variation)
    return mean * (-math.log1p(-share)) ** (1 / shape) / math.gamma(1 + 1 / shape)


def longest_output(batch: Count, output: float, variation: float) -> Count:
    r"""Return the mean length of the longest output of a batch: the steps of a batch that starts and ends together.

    .. math:: E[\max] = \int_0^\infty 1 - F(x)^B \, dx

    for Weibull-distributed lengths with this mean and variation, which are exponential at 1:
    ``o (1 + 1/2 + ... + 1/B)``. Served outputs are nearly exponential (Xiang et al., *ServeGen*, arXiv 2505.09999,
    section 3.2).

    Args:
        batch: Number of outputs, at least 1.
        output, variation: Mean of the outputs, and their standard deviation over it.
    """
    if not variation:
        return np.full(np.shape(batch), float(output))
    shape = weibull_shape(variation)
    level, length = _spread(shape)
    below = np.log(-np.expm1(-np.exp(level)))
    left = -np.expm1(np.asarray(batch, float)[..., None] * below) * length / shape
    # below the first grid point every batch is complete, so that part of the integral is the point itself
    return np.asarray(output * (length[0] + _sums(left, level)[..., -1]))


def _spread(shape: float) -> tuple[Array, Array]:
    """Return evenly spaced values y of ``log(-log(1 - F))``, and lengths x with a mean of 1: dx is x/k dy."""
    level = np.linspace(-_REACH, math.log(_REACH), _POINTS)
    return level, np.exp(level / shape - math.lgamma(1 + 1 / shape))


def _sums(values: Array, at: Array) -> Array:
    """Return the integral up to each point by the trapezoidal rule."""
    areas = (values[..., 1:] + values[..., :-1]) / 2 * np.diff(at)
    return np.concatenate([np.zeros((*values.shape[:-1], 1)), areas.cumsum(axis=-1)], axis=-1)


class DrainingBatch(NamedTuple):
    """Passes of a batch that runs empty because no requests follow, in equal parts; shape ``(batches, parts)``.

    Attributes:
        passes: Number of passes in each part.
        left: Mean number of sequences left in a part.
        made: Mean tokens that these sequences have generated since the batch started to run empty.
    """

    passes: Count
    left: Count
    made: Count


def draining_batch(
    batch: Count, steps: float, variation: float, *, under_way: bool
) -> DrainingBatch:
    r"""Return the course of batches with outputs of different lengths that run empty.

    Of `B` outputs of which a share `S` is longer than a number of steps, at least one is left with a probability of
    :math:`1 - (1 - S)^B`. For sequences `under_way`, which have been running for random times in full batches, the
    remaining length exceeds `x` with probability :math:`\int_x^\infty S / \bar o`. Source: Cox, *Renewal Theory*, 1962,
    section 5.2.

    Args:
        batch (shape (batches,)): Sequences at the start.
        steps, variation: Mean steps of an output, and their standard deviation over it, above 0.
        under_way: True if the sequences have been running for random times, False if all begin now.
    """
    shape = weibull_shape(variation)
    # the logarithmic grid alone is too coarse for short lengths, where most passes are
    length = np.union1d(np.linspace(0.0, 1.0, _POINTS), _spread(shape)[1])
    longer = np.exp(-((length * math.gamma(1 + 1 / shape)) ** shape))
    if under_way:
        longer = _sums(longer[::-1], -length[::-1])[::-1]
    longer = np.clip(longer, 0.0, LONGER_AT_MOST)
    # searches evaluate the same batch for many deployments: each distinct size is integrated once
    known, place = np.unique(np.asarray(batch, float), return_inverse=True)
    found = np.empty((3, len(known), PARTS))
    for i, size in enumerate(known):
        some = -np.expm1(size * np.log1p(-longer))
        passed = _sums(some, length)
        ends = np.linspace(0.0, passed[-1], PARTS + 1)
        sums = passed, _sums(size * longer, length), _sums(some * length, length)
        found[:, i] = [np.diff(np.interp(ends, passed, one)) for one in sums]
    passes, left, made = found
    return DrainingBatch(
        (steps * passes)[place], (left / passes)[place], (steps * made / passes)[place]
    )
