"""Queues: the wait before prefill, of requests at a rate and of users, and how far the batch varies."""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Count, Fraction, Seconds

_LATENT = 1e-17
"""Parts of a sum that do not count any more."""

_HALVINGS = 50
"""Steps of bisection: as many as a rate has bits."""


class Wait(NamedTuple):
    """The wait of requests: its mean, and what some share of them does not exceed."""

    mean: Seconds
    percentile: Seconds


def both(one: Wait, other: Wait) -> Wait:
    """Return the wait for one thing and then another: long ones meet the same request, as a burst makes both long."""
    return Wait(one.mean + other.mean, one.percentile + other.percentile)


def erlang_c(servers: Count, load: Array) -> Fraction:
    r"""Return the probability that a request waits, with `load` busy servers of so many on average; 1 from all busy on.

    Erlang B of `c` servers and a load of `a` from the terms that count of its sum, some :math:`\sqrt{c}` of them:

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
        goes_on = (term > _LATENT * inverse[places]) & (inverse[places] < 1 / _LATENT)
        places, term, number = places[goes_on], term[goes_on], number + 1
    waits = 1 / np.maximum(inverse * (1 - share) + share, _LATENT)
    return np.where(share < 1, np.where(share > 0, waits, 0.0), 1.0)


def wait(
    rate: Array,
    service: Seconds,
    servers: Count,
    arrival_cv: float,
    service_cv: Array | float,
    percentile: float,
) -> Wait:
    """Return the wait in a queue with several servers, infinite where they cannot keep up.

    The mean is that of a queue with exponential times, scaled with the variation of both; the tail is exponential.
    Source: Allen, *Probability, Statistics, and Queueing Theory*, 1990, section 5.3 (Allen-Cunneen).

    Args:
        rate: Requests per second of all servers.
        service: Time that a server has for each.
        servers: Servers.
        arrival_cv, service_cv: Standard deviation over mean of the times between requests, and of service; of that an
            array as well.
        percentile: Share of requests that wait no longer than the second value.
    """
    chance = erlang_c(servers, rate * service)
    varied = (arrival_cv**2 + service_cv**2) / 2
    return _exponential(chance, _drained(rate, service, servers, varied), percentile)


def _drained(rate: Array, service: Seconds, servers: Count, varied: Array | float) -> Seconds:
    """Return the mean wait of requests that wait, infinite where servers cannot keep up."""
    spare = servers - rate * service
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(spare > 0, varied * service / spare, np.inf)


def _exponential(chance: Fraction, each: Seconds, percentile: float) -> Wait:
    """Return a wait that there is by chance, and that is then exponential; of what is rare the mean is the tail."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(np.isinf(each), np.inf, chance * each)
        tail = np.where(mean > 0, each * np.log(chance / (1 - percentile)), 0.0)
    return Wait(mean, np.maximum(mean, tail))


def next_end(duration: Seconds, servers: Count, busy: Fraction, percentile: float) -> Wait:
    r"""Return the wait until the first of some servers ends, where all are at work with a probability.

    They began at random, each for a fixed time `d`: what is left of each is uniform, and so the least of `n` of them
    has a mean of :math:`d / (n + 1)`, and exceeds `w` with the probability :math:`(1 - w / d)^n`.

    Source: Wolff, *Stochastic Modeling and the Theory of Queues*, 1989, chapter 2 (residual times); where it is a pass
    that runs whether or not a prompt comes: Doshi, *Queueing systems with vacations*, Queueing Systems 1, 1986.
    """
    mean = busy * duration / (servers + 1)
    rare = np.minimum(1.0, (1 - percentile) / np.maximum(busy, _LATENT))
    return Wait(mean, np.maximum(mean, duration * (1 - rare ** (1 / servers))))


def pass_left(sequences: Count, decode: Seconds, percentile: float) -> Wait:
    """Return what is left of the pass that decodes when a request comes: of none where no sequence is at hand.

    Requests that come at random find a Poisson number of sequences (:func:`batch_percentile`).
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
    """Return the wait for the next batch where batches start and end together, and take all that have come.

    Requests wait until a batch ends, and for further batches where they are more than one may have. Those that a full
    batch leaves behind are as many as wait in a queue with as many servers as it has places, each for the time of the
    batch: both change by the requests that come in that time, less the places. Of single places the first has what is
    left of the request at work already, so that the second counts as often as all are busy: exact for one place
    (Pollaczek and Khinchine) and for full batches.

    Source: Bailey, *On queueing processes with bulk service*, JRSS B 16(1), 1954; Crommelin, *Delay probability
    formulae when the holding times are constant*, 1932.

    Args:
        rate: Requests per second of all servers.
        servers: Servers, each with a batch of its own.
        lasts: Time of a batch at that rate.
        most, longest: Most requests of a batch, and its time then.
        arrival_cv, percentile: As of :func:`wait`.
    """
    busy = erlang_c(servers, np.minimum(rate * lasts, servers))
    places = servers * most
    share = np.minimum(rate * longest / places, 1.0)
    chance = share * erlang_c(places, rate * longest)
    behind = _drained(rate, longest, places, arrival_cv**2 / 2)
    return both(
        next_end(lasts, servers, busy, percentile), _exponential(chance, behind, percentile)
    )


def closed_rate(
    users: Count, service: Seconds, servers: Count, service_cv: float, elsewhere: Seconds
) -> Array:
    r"""Return the requests per second of users who pass some servers and are `elsewhere` for the rest of the time.

    A request finds what the others alone would leave (the arrival theorem). With `y` requests per second of the others
    and the wait `W` of :func:`wait` at that rate each user needs :math:`W + R`, so that :math:`y (W(y) + R) = U - 1`,
    and all have :math:`x = U / (W + R)`, or what the servers can.

    Source: Reiser and Lavenberg, *Mean-value analysis of closed multichain queuing networks*, JACM 27(2), 1980;
    Schweitzer, *Approximate analysis of multiclass closed networks of queues*, 1979.

    Args:
        users: Users, each with one request at a time.
        service: Time that a server has for each request.
        servers, service_cv: As of :func:`wait`.
        elsewhere: Time from one request of a user to the next without the wait, the time in service included.
    """
    most = servers / service
    low, high = np.zeros_like(most), np.minimum(most, users / elsewhere)
    for _ in range(_HALVINGS):
        others = (low + high) / 2
        queue = wait(others, service, servers, 1.0, service_cv, 0.5).mean
        fewer = others * (queue + elsewhere) < users - 1
        low, high = np.where(fewer, others, low), np.where(fewer, high, others)
    queue = wait(low, service, servers, 1.0, service_cv, 0.5).mean
    return np.minimum(most, users / (queue + elsewhere))


def batch_percentile(mean: Count, percentile: float) -> Count:
    """Return the sequences that are not exceeded for some share of the time.

    Requests that come at random and stay for a time that they do not share have a Poisson number of them in the system
    (M/G/infinity); by its normal tail. Source: Wolff, *Stochastic Modeling and the Theory of Queues*, 1989, chapter 2.

    >>> batch_percentile(np.array([100.0]), 0.5).tolist()
    [100.0]
    """
    return mean + NormalDist().inv_cdf(percentile) * np.sqrt(mean)
