"""Distribution of the wall time of a run with failures and restarts: mean, variance and quantiles.

A run with `work` seconds of useful steps consists of ``K = work/interval`` segments. Each segment takes ``s = τ + δ``
seconds and has to complete without a failure. A failure costs the time already spent on the segment, plus a restart of
R seconds, which itself may fail. So the wall time is the sum of K independent times, and its Laplace transform has a
closed form: with λ = 1/M and z = λ + t,

``E e^(−tS) = e^(−zs) (t + λ e^(−zR)) / (t + λ e^(−z(s+R)))``

(a renewal process; the restart alone has ``z e^(−zR)/(t + λ e^(−zR))``, and Daly 2006 gives the mean). Everything in
this module follows from this transform, which includes failures during a restart. K need not be an integer: a remainder
counts as that fraction of a segment, with an error below the cost of one failure.
"""

from statistics import NormalDist

import numpy as np

from calculon.base.units import Array
from calculon.campaign.exponentials import (
    Values,
    curvature,
    growth,
    ignore_float_errors,
    ratio,
    sine_excess,
)
from calculon.campaign.goodput import wall_per_useful

SHARES = (0.1, 0.5, 0.9)
"""Quantiles that are reported for a run: 10 % of runs end before the first, 10 % after the last."""

MANY_LOSSES = 30.0
"""Number of losses from which the wall time is treated as normal, with a correction for skewness.

The count is ``(mean/spread)²`` of the lost time: the number of equal, independent losses that would have the same
relative spread. It is close to the number of failures if failures are rare, and smaller if one failure causes others.
"""

# below this (s + R)/M the closed forms of higher moments suffer from cancellation
_RARE = 3e-3
# grid points of a distribution; the grid spans the lost time, ten standard deviations and three segments
_GRID = 512
# rows per chunk, chosen so that their grids stay in the CPU cache
_ROWS = 2048


def _segments(work: Values, interval: Values, save: Values) -> tuple[Array, Array, Array]:
    """Return the number of segments, the work per segment and its save time; a run may be shorter than one segment."""
    # an infinite interval means that the run never saves, so it has one segment without a save
    held_up = np.where(np.isinf(interval), 0.0, save)
    interval = np.minimum(interval, work)
    return np.where(np.equal(work, 0), 0.0, ratio(work, interval)), interval, held_up


def _undisturbed(work: Values, interval: Values, save: Values) -> Array:
    number, interval, save = _segments(work, interval, save)
    return number * (interval + save)


def mean(work: Values, interval: Values, save: Values, restart: Values, mtbf: Values) -> Array:
    """Return the exact expected wall time of a run.

    Args:
        work: Useful seconds: the time of all steps without failures and saves.
        interval, save, restart, mtbf: As for :func:`~calculon.campaign.goodput.wall_per_useful`; an infinite interval
            means that the run never saves.

    >>> float(mean(1000.0, np.inf, 30.0, 300.0, np.inf))
    1000.0
    """
    number, interval, save = _segments(work, interval, save)
    with ignore_float_errors():
        found = work * wall_per_useful(interval, save, restart, mtbf)
    return np.where(number > 0, found, 0.0)[()]


def failures(work: Values, interval: Values, save: Values, restart: Values, mtbf: Values) -> Array:
    """Return the expected number of failures of a run: exactly its mean wall time over the MTBF (Wald's equation)."""
    return ratio(mean(work, interval, save, restart, mtbf), mtbf)


def variance(work: Values, interval: Values, save: Values, restart: Values, mtbf: Values) -> Array:
    """Return the exact variance of the wall time of a run, in the square of the unit of time.

    The variance of a segment is ``2 M² e^(u+r) ((1+r)(sinh u − u) + (e^r − 1 − r) sinh u + r (e^(−u) − 1 + u))`` with u
    = s/M and r = R/M, from the second derivative of the transform.

    If failures were a Poisson process with T/M events that each cost R and a uniform part of a segment, the variance
    would be ``(T/M)(s²/12 + (R + s/2)²)``, the limit for rare failures. With saves of 30 s, an MTBF of 3.09 h and the
    optimal interval, this limit is 4 % too small for restarts of 300 s and 7 % too small for restarts of 1,800 s.
    """
    number, interval, save = _segments(work, interval, save)
    s = np.add(interval, save)
    with ignore_float_errors():
        u, r = ratio(s, mtbf), ratio(restart, mtbf)
        # each term is written with a stable helper, because u and
        # r are tiny for reliable jobs and the differences cancel
        segment = (1.0 + r) * s**3 * sine_excess(u)
        segment = segment + np.square(restart) * curvature(r) * s * growth(2.0 * u) * np.exp(-u)
        segment = segment + restart * s**2 * curvature(-u)
        found = number * ratio(2.0 * segment * np.exp(u + r), mtbf)
    return np.where(number > 0, found, 0.0)[()]


def quantiles(
    work: Values,
    interval: Values,
    save: Values,
    restart: Values,
    mtbf: Values,
    shares: tuple[float, ...] = SHARES,
) -> Array:
    """Return the wall times by which given shares of similar runs have ended.

    From :data:`MANY_LOSSES` losses on, the distribution is normal with the exact mean and variance and a correction for
    skewness (Cornish and Fisher 1938, first term), accurate to 0.01 standard deviations. With fewer losses the exact
    distribution is computed from its transform on a grid, which is a hundred times slower: the probability of a run
    without failures, which is a step, plus the rest.

    Returns:
        Shape (shares, ...), in the unit of time; infinite if the mean is infinite.
    """
    arguments = np.broadcast_arrays(
        *(np.asarray(x, float) for x in (work, interval, save, restart, mtbf))
    )
    shape = arguments[0].shape
    rows = [x.ravel() for x in arguments]
    center, spread = mean(*rows), np.sqrt(variance(*rows))
    found = np.tile(center, (len(shares), 1))
    certain = ~np.isfinite(spread) | (spread == 0)
    lost = center - _undisturbed(*rows[:3])
    many = ~certain & (lost**2 >= MANY_LOSSES * spread**2)
    found[:, many] = _nearly_normal([x[many] for x in rows], center[many], spread[many], shares)
    # the slow path: only rows with few losses, in chunks that fit the cache
    few = np.flatnonzero(~certain & ~many)
    for start in range(0, len(few), _ROWS):
        some = few[start : start + _ROWS]
        found[:, some] = _by_transform([x[some] for x in rows], center[some], spread[some], shares)
    return found.reshape(len(shares), *shape)


def _third_cumulant(rows: list[Array]) -> Array:
    """Return the third cumulant of the wall time, from the third derivative of the transform.

    It is ``K (L(s+R) − L(R))`` with ``L(a) = 2g³ − 6ag² + 3a²g`` and ``g = M e^(a/M)``. This form suffers from
    cancellation if a/M is small. Rare failures that each cost R + U(0, s) are an equally good model there:
    ``(K s/M) ((R+s)⁴ − R⁴)/4s``.
    """
    number, interval, save = _segments(*rows[:3])
    restart, mtbf, s = rows[3], rows[4], interval + save

    def part(a: Array) -> Array:
        g = mtbf * np.exp(a / mtbf)
        return g * (2.0 * g * g - 6.0 * a * g + 3.0 * a * a)

    third = restart**3 + 1.5 * restart**2 * s + restart * s**2 + s**3 / 4.0
    exact = part(s + restart) - part(restart)
    return number * np.where(s + restart < _RARE * mtbf, s / mtbf * third, exact)


def _nearly_normal(
    rows: list[Array], center: Array, spread: Array, shares: tuple[float, ...]
) -> Array:
    """Return quantiles of the normal distribution, corrected for skewness."""
    skewness = _third_cumulant(rows) / spread**3
    z = np.array([[NormalDist().inv_cdf(share)] for share in shares])
    return center + spread * (z + skewness * (z * z - 1.0) / 6.0)


def _by_transform(
    rows: list[Array], center: Array, spread: Array, shares: tuple[float, ...]
) -> Array:
    """Return quantiles of the exact distribution of the time lost to failures, on a grid of 512 points.

    The transform is a compound distribution of failed attempts, ``p/(1 − (1−p) w)`` with ``|w| ≤ 1``, so every power of
    it has a unique logarithm. The step at 0 is subtracted first, and the rest is smoothed by one grid step to keep its
    jumps from ringing.
    """
    number, interval, save = _segments(*rows[:3])
    restart, s, failing = rows[3], interval + save, 1.0 / rows[4]
    none = number * s
    span = (center - none) + 10.0 * spread + 3.0 * (restart + s)
    turns = 2.0 * np.pi * np.arange(1, _GRID // 2 + 1)
    t = 1j * turns / span[:, None]
    z = t + failing[:, None]
    restarted = failing[:, None] * np.exp(-z * restart[:, None])
    again = -np.expm1(-z * s[:, None]) * restarted / (t + restarted)
    # log-probability of a run without any failure: the step at 0 of the lost time
    log = -failing * s * number
    transform = np.exp(log[:, None] - number[:, None] * np.log1p(-again)) - np.exp(log)[:, None]
    # a Gaussian of one grid step suppresses the ringing (Gibbs phenomenon) of the inverse FFT
    transform *= np.exp(-((turns / _GRID) ** 2) / 2.0)
    transform = np.concatenate([-np.expm1(log)[:, None], transform], axis=1)
    masses = np.fft.irfft(transform, _GRID, axis=1)
    below = np.cumsum(masses, axis=1) - masses / 2.0 + np.exp(log)[:, None]
    # remaining ringing may make the distribution function fall slightly; quantiles need a monotonic one
    below = np.maximum.accumulate(below, axis=1)
    return np.stack([none + span / _GRID * _crossing(below, share) for share in shares])


def _crossing(below: Array, share: float) -> Array:
    """Return the fractional column at which monotonic rows reach a share; 0 if they start above it."""
    after = np.clip((below < share).sum(axis=1), 1, below.shape[1] - 1)
    row = np.arange(len(below))
    low, high = below[row, after - 1], below[row, after]
    return np.where(
        below[:, 0] >= share, 0.0, after - 1 + np.clip(ratio(share - low, high - low), 0.0, 1.0)
    )
