"""Job failures: their rate, stragglers, and silent data corruption that is found later."""

import math
from functools import cache

import numpy as np

from calculon.base.units import Array
from calculon.campaign.exponentials import Values, growth, ignore_float_errors, ratio
from calculon.campaign.published import published_failures

# Failure rate of a job: the rates of independent sources add.

HOUR = 3600.0

SMALL_JOB = 2000
"""Job size in processors below which failure rates of large jobs are too low; see :func:`small_job_warning`."""

_SAME = 1e-3
"""Relative difference up to which two rates count as equal."""

# rows of published failures that show how small jobs deviate from large ones
_LARGE, _SMALL = "RSC-1", "RSC-1 on 1,024"


def combined(*mtbfs: Values) -> Array:
    """Return the mean time between failures of several independent sources combined, in their unit.

    Rates add, because a superposition of Poisson processes is a Poisson process: ``1/M = Σ 1/M_i``. Without any source
    the result is infinite.

    >>> float(combined(2.0, 2.0, np.inf)), float(combined())
    (1.0, inf)
    """
    rates: Values = 0.0
    with ignore_float_errors():
        for mtbf in mtbfs:
            rates = rates + np.divide(1.0, mtbf)
        return np.divide(1.0, rates)


def job_mtbf(num_procs: Values, per_processor: Values, *others: Values) -> Array:
    """Return the mean time between failures (MTBF) of a job in seconds.

    Args:
        num_procs: Processors, all of which have to work.
        per_processor: Hours between failures of one processor that stop the job.
        others: Hours between stops of the whole job that do not depend on its size: storage, power, maintenance,
            preemption.

    >>> float(job_mtbf(100, 200.0)), float(job_mtbf(100, 200.0, 2.0))
    (7200.0, 3600.0)
    """
    return combined(ratio(per_processor, num_procs), *others) * HOUR


def rate_among_published(mtbf_processor: float) -> str:
    """Return a sentence on how many published failure rates are higher; empty if fewer than half of them are.

    >>> rate_among_published(1.0)
    ''
    """
    hours = [one.mtbf_processor for one in published_failures() if one.mtbf_processor]
    worse = [one for one in hours if one < mtbf_processor * (1 - _SAME)]
    if 2 * len(worse) < len(hours):
        return ""
    return (
        f"The failure rate is an optimistic default: {len(worse)} of {len(hours)} published rates are higher, up to "
        f"{mtbf_processor / min(worse):.2g} times as high (--mtbf)."
    )


def small_job_warning(num_procs: int) -> str:
    """Return a warning about the failure rate of a small job; empty from :data:`SMALL_JOB` processors on.

    Failure rates per processor come from large jobs, and small ones also fail for other reasons: arXiv:2410.21680
    projects the failures of large jobs from the failure rate of their nodes, but measured more failures at 1,024
    processors.
    """
    if num_procs >= SMALL_JOB:
        return ""
    rows = {one.run: one for one in published_failures()}
    small, large = rows[_SMALL], rows[_LARGE]
    assert small.num_procs
    assert small.mtbf_hours
    assert large.mtbf_processor
    return (
        f"Jobs below {SMALL_JOB:,} processors fail more often than the rate of large jobs suggests: on {_LARGE}, a job "
        f"of {small.num_procs:,} ran {small.mtbf_hours:.1f} h between failures, while the rate of its nodes suggests "
        f"{large.mtbf_processor / small.num_procs:.1f} h."
    )


# Stragglers: a synchronous step takes as long as its slowest rank.

# range and step of the grid of the normal distribution, in standard deviations: Φ(−12) is below 1e-32
_REACH, _STEP = 12.0, 0.04


def any_slow(num_nodes: Values, share: Values) -> Array:
    """Return the probability that at least one of n nodes is slow, ``1 − (1 − share)^n``.

    >>> float(any_slow(2, 0.5)), float(any_slow(10**6, 0.0))
    (0.75, 0.0)
    """
    with np.errstate(divide="ignore"):
        # log1p and expm1 keep the digits of a share that is tiny
        log = np.log1p(-np.asarray(share, float))
    return -np.expm1(num_nodes * log)


def share_slow(between: Values, until_removed: Values) -> Array:
    """Return the share of time in which a node is slow that becomes slow occasionally and is then replaced.

    Args:
        between: Mean time until a good node becomes slow; infinite if none does.
        until_removed: Mean time until a slow node is found and replaced, in the same unit.
    """
    return ratio(until_removed, np.add(between, until_removed))


def slow_nodes(num_nodes: Values, share: Values, factor: Values) -> Array:
    """Return the mean step time relative to healthy nodes if a share of the nodes is slower by a factor.

    One slow node slows a step as much as many do. This is exact if all times scale alike, and an upper bound for ranks
    that have slack.
    """
    return 1.0 + (np.asarray(factor, float) - 1.0) * any_slow(num_nodes, share)


@cache
def _normal_law() -> tuple[Array, Array]:
    """Return a grid and the logarithm of the normal distribution function on it."""
    x = np.arange(-_REACH, _REACH + _STEP / 2.0, _STEP)
    # tail probabilities first: 1 − Φ would lose all digits in the upper tail
    beyond = np.array([math.erfc(abs(a) / math.sqrt(2.0)) / 2.0 for a in x])
    return x, np.where(x > 0, np.log1p(-beyond), np.log(beyond))


def expected_maximum(number: Values) -> Array:
    """Return the mean of the largest of n independent standard normal variables, to ten digits.

    ``∫ x n φ(x) Φ(x)^(n−1) dx`` by the trapezoidal rule, which is exact up to rounding for such integrands. The
    familiar ``√(2 ln n)`` is the limit for large n and overestimates: by 43 % at 8, 15 % at 1,024 and 9 % at 10⁵.

    Args:
        number: At least 1, at most 1e15.

    >>> round(float(expected_maximum(2)), 6)
    0.56419
    """
    # columns of a search hold few distinct sizes, and each integral is evaluated once
    some, place = np.unique(np.asarray(number, float), return_inverse=True)
    x, log = _normal_law()
    density = np.exp(-x * x / 2.0) * (_STEP / math.sqrt(2.0 * math.pi))
    found = np.array([(x * n * density * np.exp((n - 1.0) * log)).sum() for n in some])
    return found[place].reshape(np.shape(number))[()]


def jitter(groups: Values, spread: Values) -> Array:
    """Return the mean step time relative to a single rank, if step times vary randomly from step to step.

    Args:
        groups: Ranks, or groups of ranks, that vary independently and wait for each other.
        spread: Standard deviation of the step time over its mean; the distribution is nearly normal.
    """
    return 1.0 + spread * expected_maximum(groups)


# Silent data corruption: wrong results without a failure, found later, and the work that has to be repeated.


def rework(found_after: Values, interval: Values, restart: Values, mtbf: Values) -> Array:
    """Return the expected time per useful time if corrupted work is repeated from the last clean checkpoint.

    A corruption happens at a random time and is found later; the job then goes back to the last checkpoint before it.
    With the detection delay L, the restart R, τ between checkpoints and M between corruptions the result is

    ``(M + L + R) (e^(τ/M) − 1)/τ``,

    because a segment is corrupted ``e^(τ/M) − 1`` times before it is clean, and each time costs the part before the
    corruption, L and R. To first order it is ``1 + (τ/2 + L + R)/M``. It is exact for any distribution of L with this
    mean, since further corruption before the detection is undone together with the first. Together with failures
    (:func:`~calculon.campaign.goodput.wall_per_useful`) the two are multiplied, which holds as long as both are rare:
    with an MTBF of 3 h and a detection delay of an hour, the product is accurate to 0.1 % for a corruption every 280 h
    and 0.7 % too large for one every 28 h.

    Args:
        found_after: Mean work from a corruption to its detection (L): half of the time between two checks if checks
            find it and identify the clean checkpoints; all of it if only the checkpoint of the previous check is known
            to be clean.
        interval: Work between two checkpoints (τ).
        restart: Time from the detection until training continues (R).
        mtbf: Mean time between corruptions of the whole job (M); infinite if there are none.

    >>> float(rework(3600.0, 600.0, 300.0, np.inf))
    1.0
    """
    rare = ratio(interval, mtbf)
    with ignore_float_errors():
        found = (1.0 + ratio(np.add(found_after, restart), mtbf)) * growth(rare)
    # NaN is ∞·0 or ∞/∞ of a run that never gets past a corruption
    return np.where(np.isnan(found), np.inf, found)[()]


def checkpoints_to_keep(longest: Values, interval: Values) -> Array:
    """Return the number of checkpoints to keep so that one is older than the longest detection delay of a corruption.

    Args:
        longest: Longest wall time until a corruption is found; 0 if there is none to find.
        interval: Wall time between two checkpoints.

    Returns:
        ``⌈longest/interval⌉ + 1``: just before a save, the newest of n is an interval old, and the oldest n intervals;
        just after it, only n − 1.

    >>> float(checkpoints_to_keep(0.0, 600.0)), float(checkpoints_to_keep(3600.0, 600.0))
    (1.0, 7.0)
    """
    return np.ceil(ratio(longest, interval)) + 1.0
