"""Requests that come at a rate: the wait before prefill, and how far the batch varies."""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from calculon.units import Array, Count, Fraction, Seconds


class Wait(NamedTuple):
    """The wait of requests: its mean, and what some share of them does not exceed."""

    mean: Seconds
    percentile: Seconds


def erlang_c(servers: Count, load: Array) -> Fraction:
    """Return the probability that a request waits, with `load` busy servers of so many on average; 1 from all busy on.

    Source: Erlang, 1917; by the recursion of Erlang B, which does not overflow.

    >>> erlang_c(np.array([1.0]), np.array([0.5])).tolist()
    [0.5]
    """
    blocked = np.ones_like(load)
    for number in range(1, int(np.max(servers, initial=0)) + 1):
        one_more = load * blocked / (number + load * blocked)
        blocked = np.where(number <= servers, one_more, blocked)
    share = load / servers
    waits = blocked / np.maximum(1 - share * (1 - blocked), 1e-300)
    return np.where(share < 1, waits, 1.0)


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

    Parameters
    ----------
    rate : array
        Requests per second of all servers.
    service : array
        Time that a server has for each.
    servers : array
        Servers.
    arrival_cv, service_cv : float
        Standard deviation over mean of the times between requests, and of service; of that an array as well.
    percentile : float
        Share of requests that wait no longer than the second value.
    """
    load = rate * service
    waits = erlang_c(servers, load)
    spare = servers * np.maximum(1 - load / servers, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = waits * service / spare * (arrival_cv**2 + service_cv**2) / 2
        tail = np.where(mean > 0, mean / waits * np.log(waits / (1 - percentile)), 0.0)
    there = spare > 0
    return Wait(
        np.where(there, mean, np.inf), np.where(there, np.maximum(0.0, np.nan_to_num(tail)), np.inf)
    )


def batch_percentile(mean: Count, percentile: float) -> Count:
    """Return the sequences that are not exceeded for some share of the time.

    Requests that come at random and stay for a time that they do not share have a Poisson number of them in the system
    (M/G/infinity); by its normal tail. Source: Wolff, *Stochastic Modeling and the Theory of Queues*, 1989, chapter 2.

    >>> batch_percentile(np.array([100.0]), 0.5).tolist()
    [100.0]
    """
    return mean + NormalDist().inv_cdf(percentile) * np.sqrt(mean)
