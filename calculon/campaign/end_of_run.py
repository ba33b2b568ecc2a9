"""When a run ends: mean, variance and quantiles of its wall time under failures and restarts.

A run of `work` seconds is ``K = work/interval`` segments, each of ``s = τ + δ`` seconds that have to pass without a
failure; a failure costs what was done of the segment, and a restart of R seconds without a failure. So the wall time is
a sum of K independent times, whose Laplace transform is closed: with λ = 1/M and z = λ + t,

``E e^(−tS) = e^(−zs) (t + λ e^(−zR)) / (t + λ e^(−z(s+R)))``

(of a renewal process; the restart alone has ``z e^(−zR)/(t + λ e^(−zR))``, Daly 2006 has its mean). Everything here
follows from it, failures during a restart included. K need not be whole: what is left over counts as that share of a
segment, which is wrong by less than what one failure costs.
"""

from statistics import NormalDist

import numpy as np

from calculon.base.units import Array
from calculon.campaign.exponentials import Values, curvature, growth, quiet, ratio, sine_excess
from calculon.campaign.goodput import wall_per_useful

SHARES = (0.1, 0.5, 0.9)
"""The quantiles that a run is told by: one in ten ends earlier than the first, one in ten later than the last."""

MANY_LOSSES = 30.0
"""From so many losses on, the wall time is as good as normal but for its skewness.

They are counted as the equal and independent ones that would scatter like those of the run, ``(mean/spread)²`` of what
is lost: about the number of failures where these are rare, and fewer where one failure brings others.
"""

_RARE = 3e-3  # of s + R by M: below it closed forms of higher moments lose their digits
_GRID = 512  # points of a distribution, over its mean, ten standard deviations and three segments
_ROWS = 2048  # rows at a time, so that their grids stay in the cache


def _segments(work: Values, interval: Values, save: Values) -> tuple[Array, Array, Array]:
    """Return the number of segments, the work of one and the time of its save; a run may be shorter than a segment."""
    held_up = np.where(np.isinf(interval), 0.0, save)
    interval = np.minimum(interval, work)
    return np.where(np.equal(work, 0), 0.0, ratio(work, interval)), interval, held_up


def _undisturbed(work: Values, interval: Values, save: Values) -> Array:
    number, interval, save = _segments(work, interval, save)
    return number * (interval + save)


def mean(work: Values, interval: Values, save: Values, restart: Values, mtbf: Values) -> Array:
    """Return the expected wall time of a run, exactly.

    Args:
        work: Useful seconds: those of the run without failures and saves.
        interval, save, restart, mtbf: As for :func:`~calculon.campaign.goodput.wall_per_useful`; an infinite interval
            is one that is never saved.

    >>> float(mean(1000.0, np.inf, 30.0, 300.0, np.inf))
    1000.0
    """
    number, interval, save = _segments(work, interval, save)
    with quiet():
        found = work * wall_per_useful(interval, save, restart, mtbf)
    return np.where(number > 0, found, 0.0)[()]


def failures(work: Values, interval: Values, save: Values, restart: Values, mtbf: Values) -> Array:
    """Return the expected number of failures of a run: exactly its expected wall time by their mean time (Wald)."""
    return ratio(mean(work, interval, save, restart, mtbf), mtbf)


def variance(work: Values, interval: Values, save: Values, restart: Values, mtbf: Values) -> Array:
    """Return the variance of the wall time of a run, exactly, in the square of the unit of time.

    That of a segment is ``2 M² e^(u+r) ((1+r)(sinh u − u) + (e^r − 1 − r) sinh u + r (e^(−u) − 1 + u))`` with u = s/M
    and r = R/M, from the second derivative of the transform.

    If failures were a Poisson process of T/M, each costing R and a uniform part of a segment, it would be
    ``(T/M)(s²/12 + (R + s/2)²)``, its limit for rare failures. With saves of 30 s, 3.09 h between failures and the
    best interval, that is 4 % too little for restarts of 300 s, and 7 % for those of 1,800 s.
    """
    number, interval, save = _segments(work, interval, save)
    s = np.add(interval, save)
    with quiet():
        u, r = ratio(s, mtbf), ratio(restart, mtbf)
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
    """Return the wall times by which given shares of such runs have ended.

    From :data:`MANY_LOSSES` on this is the normal law with the exact mean and variance, corrected for skewness
    (Cornish and Fisher 1938, first term): within 0.01 standard deviations. With fewer it is the exact law, from its
    transform on a grid (a hundred times slower): the chance of no failure at all, which is a step, and the rest.

    Returns:
        Of shape (shares, ...), in the unit of time; infinite where the mean is.
    """
    arguments = np.broadcast_arrays(
        *(np.asarray(x, float) for x in (work, interval, save, restart, mtbf))
    )
    shape = arguments[0].shape
    rows = [x.ravel() for x in arguments]
    centre, spread = mean(*rows), np.sqrt(variance(*rows))
    found = np.tile(centre, (len(shares), 1))
    certain = ~np.isfinite(spread) | (spread == 0)
    lost = centre - _undisturbed(*rows[:3])
    many = ~certain & (lost**2 >= MANY_LOSSES * spread**2)
    found[:, many] = _nearly_normal([x[many] for x in rows], centre[many], spread[many], shares)
    few = np.flatnonzero(~certain & ~many)
    for start in range(0, len(few), _ROWS):
        some = few[start : start + _ROWS]
        found[:, some] = _by_transform([x[some] for x in rows], centre[some], spread[some], shares)
    return found.reshape(len(shares), *shape)


def _third_cumulant(rows: list[Array]) -> Array:
    """Return the third cumulant of the wall time, from the third derivative of the transform.

    It is ``K (L(s+R) − L(R))`` with ``L(a) = 2g³ − 6ag² + 3a²g`` and ``g = M e^(a/M)``. Where a/M is small this loses
    its digits, and the law of rare failures is as good, each costing R + U(0, s): ``(K s/M) ((R+s)⁴ − R⁴)/4s``.
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
    rows: list[Array], centre: Array, spread: Array, shares: tuple[float, ...]
) -> Array:
    """Return quantiles by the normal law, corrected for skewness."""
    skewness = _third_cumulant(rows) / spread**3
    z = np.array([[NormalDist().inv_cdf(share)] for share in shares])
    return centre + spread * (z + skewness * (z * z - 1.0) / 6.0)


def _by_transform(
    rows: list[Array], centre: Array, spread: Array, shares: tuple[float, ...]
) -> Array:
    """Return quantiles of the exact law of what failures cost, on a grid of 512 points.

    The transform is that of a compound law of failed attempts, ``p/(1 − (1−p) w)`` with ``|w| ≤ 1``, of which every
    power has one logarithm. What is left without the step at 0 is smoothed by a grid step, which keeps its jumps from
    ringing.
    """
    number, interval, save = _segments(*rows[:3])
    restart, s, failing = rows[3], interval + save, 1.0 / rows[4]
    none = number * s
    span = (centre - none) + 10.0 * spread + 3.0 * (restart + s)
    turns = 2.0 * np.pi * np.arange(1, _GRID // 2 + 1)
    t = 1j * turns / span[:, None]
    z = t + failing[:, None]
    restarted = failing[:, None] * np.exp(-z * restart[:, None])
    again = -np.expm1(-z * s[:, None]) * restarted / (t + restarted)
    log = -failing * s * number
    transform = np.exp(log[:, None] - number[:, None] * np.log1p(-again)) - np.exp(log)[:, None]
    transform *= np.exp(-((turns / _GRID) ** 2) / 2.0)
    transform = np.concatenate([-np.expm1(log)[:, None], transform], axis=1)
    masses = np.fft.irfft(transform, _GRID, axis=1)
    below = np.cumsum(masses, axis=1) - masses / 2.0 + np.exp(log)[:, None]
    below = np.maximum.accumulate(below, axis=1)
    return np.stack([none + span / _GRID * _crossing(below, share) for share in shares])


def _crossing(below: Array, share: float) -> Array:
    """Return where rising rows reach a share, in columns and parts of one; 0 where they start above it."""
    after = np.clip((below < share).sum(axis=1), 1, below.shape[1] - 1)
    row = np.arange(len(below))
    low, high = below[row, after - 1], below[row, after]
    return np.where(
        below[:, 0] >= share, 0.0, after - 1 + np.clip(ratio(share - low, high - low), 0.0, 1.0)
    )
