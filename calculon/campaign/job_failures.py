"""Failures of a job: how often, stragglers, and silent corruption found later."""

import math
from functools import cache

import numpy as np

from calculon.base.units import Array
from calculon.campaign.exponentials import Values, growth, quiet, ratio
from calculon.campaign.published import published_failures

# How often a job fails: rates of independent sources add.

HOUR = 3600.0

SMALL_JOB = 2000
"""Processors below which the rate of large jobs says too little; see :func:`small_job_warning`."""

_SAME = 1e-3
"""Relative difference of rates up to which one is not called higher."""

_LARGE, _SMALL = "RSC-1", "RSC-1 on 1,024"  # rows of published failures


def combined(*mtbfs: Values) -> Array:
    """Return the mean time between failures of several independent sources together, in their unit.

    Rates add, as a superposition of Poisson processes is one: ``1/M = Σ 1/M_i``. None at all fail never.

    >>> float(combined(2.0, 2.0, np.inf)), float(combined())
    (1.0, inf)
    """
    rates: Values = 0.0
    with quiet():
        for mtbf in mtbfs:
            rates = rates + np.divide(1.0, mtbf)
        return np.divide(1.0, rates)


def job_mtbf(num_procs: Values, per_processor: Values, *others: Values) -> Array:
    """Return the mean time between failures of a job in seconds.

    Args:
        num_procs: Processors that all have to work.
        per_processor: Hours of one processor between failures that stop the job.
        others: Hours between stops of the whole job that do not depend on its size: storage, power, maintenance,
            preemption.

    >>> float(job_mtbf(100, 200.0)), float(job_mtbf(100, 200.0, 2.0))
    (7200.0, 3600.0)
    """
    return combined(ratio(per_processor, num_procs), *others) * HOUR


def rate_among_published(mtbf_processor: float) -> str:
    """Say how many published rates of failures are worse than one of so many hours of a processor between failures.

    >>> rate_among_published(1.0)
    ''
    """
    hours = [one.mtbf_processor for one in published_failures() if one.mtbf_processor]
    worse = [one for one in hours if one < mtbf_processor * (1 - _SAME)]
    if 2 * len(worse) < len(hours):
        return ""
    return (
        f"The rate of failures is a default, and a favourable one: of {len(hours)} that are published {len(worse)} are "
        f"higher, up to {mtbf_processor / min(worse):.2g} times (--mtbf)."
    )


def small_job_warning(num_procs: int) -> str:
    """Return what to say of the failures of a small job; nothing of one from :data:`SMALL_JOB` processors on.

    Rates by processor come from large jobs, and small ones fail for other reasons as well: arXiv:2410.21680 projects
    the failures of large jobs by the rate of its nodes, and measured more of them at 1,024 processors.
    """
    if num_procs >= SMALL_JOB:
        return ""
    rows = {one.run: one for one in published_failures()}
    small, large = rows[_SMALL], rows[_LARGE]
    assert small.num_procs
    assert small.mtbf_hours
    assert large.mtbf_processor
    return (
        f"Jobs below {SMALL_JOB:,} processors fail more often than the rate of large ones says: on {_LARGE} one of "
        f"{small.num_procs:,} ran {small.mtbf_hours:.1f} h between failures, where the rate of its nodes says "
        f"{large.mtbf_processor / small.num_procs:.1f} h."
    )


# Stragglers: a synchronous step takes as long as its slowest rank.

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


# Silent corruption: results that are wrong without a failure, found later, and the work that has to be done again.


def rework(found_after: Values, interval: Values, restart: Values, mtbf: Values) -> Array:
    """Return the expected time per useful time where corrupted work is done again from the last clean checkpoint.

    A corruption at a random time is found some time later, and the job goes back to the last checkpoint before it. With
    L until it is found, R for the restart, τ between checkpoints and M between corruptions this is

    ``(M + L + R) (e^(τ/M) − 1)/τ``,

    since a segment is corrupted ``e^(τ/M) − 1`` times before it is clean, each time at the cost of the part before, of
    L and of R. To first order it is ``1 + (τ/2 + L + R)/M``. It is exact for any distribution of L with this mean, as
    further corruption before the discovery is undone with the first. Beside failures
    (:func:`~calculon.campaign.goodput.wall_per_useful`) it is a factor, as long as both are rare: with 3 h between
    failures and an hour until corruption is found, right within 0.1 % for one in 280 h, 0.7 % too much for one in 28 h.

    Args:
        found_after: Mean time of work from a corruption to its discovery (L): half of the time between two checks, if
            checks find it and tell which checkpoints are clean; all of it, if the only clean one is that of the check
            before.
        interval: Work between two checkpoints (τ).
        restart: From the discovery until work goes on (R).
        mtbf: Mean time between corruptions of the whole job (M); infinite if there are none.

    >>> float(rework(3600.0, 600.0, 300.0, np.inf))
    1.0
    """
    rare = ratio(interval, mtbf)
    with quiet():
        found = (1.0 + ratio(np.add(found_after, restart), mtbf)) * growth(rare)
    return np.where(np.isnan(found), np.inf, found)[()]


def checkpoints_to_keep(longest: Values, interval: Values) -> Array:
    """Return how many checkpoints to keep, so that one is older than the longest time until corruption is found.

    Args:
        longest: Longest wall time until it is found; 0 if there is nothing to find.
        interval: Wall time between two checkpoints.

    Returns:
        ``⌈longest/interval⌉ + 1``: just before a save, the newest of n is an interval old, and the oldest n intervals;
        just after it, only n − 1.

    >>> float(checkpoints_to_keep(0.0, 600.0)), float(checkpoints_to_keep(3600.0, 600.0))
    (1.0, 7.0)
    """
    return np.ceil(ratio(longest, interval)) + 1.0
