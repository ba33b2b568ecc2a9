"""Queueing: wait before prefill with arrivals at a rate and with users, and variation of the batch."""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Count, Fraction, Seconds

_NEGLIGIBLE = 1e-17
"""Share of a sum below which further terms are negligible."""

_HALVINGS = 50
"""Bisection steps: about the number of bits of a float."""


class Wait(NamedTuple):
    """Wait of requests: its mean, and a percentile."""

    mean: Seconds
    percentile: Seconds


def add_waits(one: Wait, other: Wait) -> Wait:
    """Return the sum of two waits; percentiles add, because a burst makes both long for the same request."""
    return Wait(one.mean + other.mean, one.percentile + other.percentile)


def erlang_c(servers: Count, load: Array) -> Fraction:
    r"""Return the probability that a request waits in a queue with several servers; 1 if all are always busy.

    The Erlang B formula for `c` servers and a load of `a` busy servers, from the relevant terms of its sum, about
    :math:`\sqrt{c}` of them:

    .. math:: 1 / B = \sum_{k = 0}^{c} \frac{c \, (c - 1) \cdots (c - k + 1)}{a^k}

    Source: Erlang, 1917.

    >>> erlang_c(np.array([1.0]), np.array([0.5])).tolist()
    [0.5]
    """
    servers, load = (np.asarray(one, float) for one in np.broadcast_arrays(servers, load))
    share, inverse = load / servers, np.ones_like(load)
    places = np.flatnonzero((share > 0) & (share < 1))
    term, number = np.ones(len(places)), 0
    while len(places):
        term = term * np.maximum(servers[places] - number, 0.0) / load[places]
        inverse[places] += term
        # rows leave the loop as soon as their sum has converged, or is so large that nobody waits
        goes_on = (term > _NEGLIGIBLE * inverse[places]) & (inverse[places] < 1 / _NEGLIGIBLE)
        places, term, number = places[goes_on], term[goes_on], number + 1
    waits = 1 / np.maximum(inverse * (1 - share) + share, _NEGLIGIBLE)
    return np.where(share < 1, np.where(share > 0, waits, 0.0), 1.0)


def wait(
    rate: Array,
    service: Seconds,
    servers: Count,
    arrival_cv: float,
    service_cv: Array | float,
    percentile: float,
) -> Wait:
    """Return the wait in a queue with several servers; infinite if they cannot keep up.

    The mean is the wait with exponential times, scaled with the variation of arrivals and service; the tail is
    exponential. Source: Allen, *Probability, Statistics, and Queueing Theory*, 1990, section 5.3 (Allen-Cunneen).

    Args:
        rate: Requests per second of all servers.
        service: Service time of a request.
        servers: Number of servers.
        arrival_cv, service_cv: Standard deviation over mean of interarrival and service times; the latter may be an
            array.
        percentile: Share of requests that wait no longer than the second value.
    """
    chance = erlang_c(servers, rate * service)
    varied = (arrival_cv**2 + service_cv**2) / 2
    return _exponential(chance, _mean_wait(rate, service, servers, varied), percentile)


def _mean_wait(rate: Array, service: Seconds, servers: Count, varied: Array | float) -> Seconds:
    """Return the mean wait of requests that have to wait; infinite if servers cannot keep up."""
    spare = servers - rate * service
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(spare > 0, varied * service / spare, np.inf)


def _exponential(chance: Fraction, each: Seconds, percentile: float) -> Wait:
    """Return a wait that occurs with a probability and is then exponential; the percentile is at least the mean."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(np.isinf(each), np.inf, chance * each)
        tail = np.where(mean > 0, each * np.log(chance / (1 - percentile)), 0.0)
    return Wait(mean, np.maximum(mean, tail))


def next_end(duration: Seconds, servers: Count, busy: Fraction, percentile: float) -> Wait:
    r"""Return the wait until the first of several servers finishes, if all are busy with a given probability.

    They started at random, each for a fixed time `d`. So their remaining times are uniform, and the smallest of `n` has
    a mean of :math:`d / (n + 1)` and exceeds `w` with probability :math:`(1 - w / d)^n`.

    Source: Wolff, *Stochastic Modeling and the Theory of Queues*, 1989, chapter 2 (residual times); for a pass that
    runs whether or not a prompt arrives: Doshi, *Queueing systems with vacations*, Queueing Systems 1, 1986.
    """
    mean = busy * duration / (servers + 1)
    # only a share `busy` of the requests waits: busy (1 - w/d)^n = 1 - percentile
    rare = np.minimum(1.0, (1 - percentile) / np.maximum(busy, _NEGLIGIBLE))
    return Wait(mean, np.maximum(mean, duration * (1 - rare ** (1 / servers))))


def pass_left(sequences: Count, decode: Seconds, percentile: float) -> Wait:
    """Return the remaining time of the running decode pass when a request arrives; 0 if no sequence is running.

    Requests that arrive at random find a Poisson number of sequences (:func:`batch_percentile`).
    """
    return next_end(decode, np.ones_like(decode), 1 - np.exp(-sequences), percentile)


def wait_for_batch(
    rate: Array,
    servers: Count,
    lasts: Seconds,
    most: Count,
    longest: Seconds,
    arrival_cv: float,
    percentile: float,
) -> Wait:
    """Return the wait for the next static batch; batches start and end together, and take all waiting requests.

    Requests wait until a batch ends, and for further batches if there are more of them than a batch may have. The
    number of requests that full batches leave waiting equals the queue of a system with one server per slot, each busy
    for the time of a batch: both change by the arrivals in that time minus the slots. With a single slot, the remaining
    time of the running request is already included, so the second part counts only as often as all servers are busy:
    exact for one slot (Pollaczek and Khinchine) and for full batches.

    Source: Bailey, *On queueing processes with bulk service*, JRSS B 16(1), 1954; Crommelin, *Delay probability
    formulae when the holding times are constant*, 1932.

    Args:
        rate: Requests per second of all servers.
        servers: Number of servers, each with its own batch.
        lasts: Time of a batch at this rate.
        most, longest: Maximum requests of a batch, and its time then.
        arrival_cv, percentile: As in :func:`wait`.
    """
    busy = erlang_c(servers, np.minimum(rate * lasts, servers))
    places = servers * most
    share = np.minimum(rate * longest / places, 1.0)
    chance = share * erlang_c(places, rate * longest)
    behind = _mean_wait(rate, longest, places, arrival_cv**2 / 2)
    return add_waits(
        next_end(lasts, servers, busy, percentile), _exponential(chance, behind, percentile)
    )


def closed_rate(
    users: Count, service: Seconds, servers: Count, service_cv: float, elsewhere: Seconds
) -> Array:
    r"""Return the requests per second of users in a closed loop, who visit a queue and then spend time elsewhere.

    A request finds the queue that the other users alone would cause (the arrival theorem). If the others make `y`
    requests per second and the wait of :func:`wait` at that rate is `W`, each user needs :math:`W + R`, so that
    :math:`y (W(y) + R) = U - 1`, and all users make :math:`x = U / (W + R)` requests, limited by the servers.

    Source: Reiser and Lavenberg, *Mean-value analysis of closed multichain queuing networks*, JACM 27(2), 1980;
    Schweitzer, *Approximate analysis of multiclass closed networks of queues*, 1979.

    Args:
        users: Users, each with one request at a time.
        service: Service time of a request.
        servers, service_cv: As in :func:`wait`.
        elsewhere: Time from one request of a user to the next without the wait, including the service time.
    """
    most = servers / service
    low, high = np.zeros_like(most), np.minimum(most, users / elsewhere)
    for _ in range(_HALVINGS):
        others = (low + high) / 2
        queue = wait(others, service, servers, 1.0, service_cv, 0.5).mean
        # the left side increases with the rate of the others, so bisection finds the only solution
        fewer = others * (queue + elsewhere) < users - 1
        low, high = np.where(fewer, others, low), np.where(fewer, high, others)
    queue = wait(low, service, servers, 1.0, service_cv, 0.5).mean
    return np.minimum(most, users / (queue + elsewhere))


def batch_percentile(mean: Count, percentile: float) -> Count:
    """Return the number of concurrent sequences that is not exceeded for a share of the time.

    If requests arrive at random and their durations are independent, the number in the system is Poisson distributed
    (M/G/infinity); its normal approximation is used. Source: Wolff, *Stochastic Modeling and the Theory of Queues*,
    1989, chapter 2.

    >>> batch_percentile(np.array([100.0]), 0.5).tolist()
    [100.0]
    """
    return mean + NormalDist().inv_cdf(percentile) * np.sqrt(mean)
