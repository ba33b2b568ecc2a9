"""Nodes away for repair: how many at a time, how long a job waits for one, and how many spares it takes.

Failures of nodes at a constant rate, each away for a time of any distribution, leave a Poisson number of them away (the
queue M/G/∞); its mean is the rate by the mean time away.
"""

import math

import numpy as np

from calculon.base.units import Array
from calculon.campaign.exponentials import Values, quiet, ratio, remembered

ENOUGH = 0.999
"""The share of time that the spares which are advised leave a job complete."""

_TABLE = np.array([math.lgamma(k + 1.0) for k in range(32)])
_ENDS = 1e-17  # terms of a sum that are smaller than this part of it


def away(num_nodes: Values, node_mtbf: Values, repair: Values) -> Array:
    """Return the mean number of nodes away: ``n · repair / MTBF of a node``, both in the same unit."""
    return ratio(np.multiply(num_nodes, repair), node_mtbf)


def _log_factorial(k: Array) -> Array:
    """Return ln k! of whole numbers: exact below 32, else Stirling's series, whose error is below 1e-13."""
    x = np.maximum(k, 1.0)
    series = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * x * x)) / (x * x)) / x
    long = (x + 0.5) * np.log(x) - x + 0.5 * math.log(2.0 * math.pi) + series
    return np.where(k < len(_TABLE), _TABLE[np.minimum(k, len(_TABLE) - 1).astype(int)], long)


def _exactly(mean: Array, k: Array) -> Array:
    """Return the probability of k under a Poisson law."""
    with quiet():
        log = k * np.log(mean) - mean - _log_factorial(k)
    return np.where(mean > 0, np.exp(log), np.where(k == 0, 1.0, 0.0))


def _at_most(mean: Array, k: Array) -> Array:
    """Return P(X ≤ k) by P(X = k), of the terms k, k − 1, … of a sum: for k below the mean, or for few."""
    term, total = np.ones_like(mean), np.ones_like(mean)
    left = k.copy()
    with quiet():
        while np.any(going := (left > 0) & (mean > 0) & (term > _ENDS * total)):
            term = np.where(going, term * left / np.where(going, mean, 1.0), 0.0)
            total, left = total + term, left - 1.0
    return total


def _more_than(mean: Array, k: Array) -> Array:
    """Return P(X > k) by P(X = k + 1), of the terms k + 1, k + 2, … of a sum: for k from the mean on."""
    term, total = np.ones_like(mean), np.ones_like(mean)
    after = k + 2.0
    while np.any(going := term > _ENDS * total):
        term = np.where(going, term * mean / after, 0.0)
        total, after = total + term, after + 1.0
    return total


def probability_of_waiting(away: Values, spares: Values) -> Array:
    """Return the probability that more nodes are away than there are spares, if nodes fail also while the job waits.

    The upper tail of a Poisson law, to the last digits also where it is tiny.

    Args:
        away: Mean number of nodes away (:func:`away`).
        spares: Number of spare nodes: whole, from −1 (always more) on.

    >>> float(probability_of_waiting(0.0, 0)), float(probability_of_waiting(3.0, -1))
    (0.0, 1.0)
    """
    mean, k = np.broadcast_arrays(np.asarray(away, float), np.asarray(spares, float))
    above = k + 1.0 > mean
    up, low = np.where(above, mean, 0.0), np.where(above, 0.0, k)
    tail = _exactly(mean, np.maximum(k + 1.0, 0.0)) * _more_than(up, np.maximum(k, 0.0))
    rest = 1.0 - _exactly(mean, np.maximum(k, 0.0)) * _at_most(mean, low)
    return np.where(k < 0, 1.0, np.where(above, tail, rest))[()]


@remembered
def share_of_time_waiting(away: Values, spares: Values) -> Array:
    """Return the share of its time that a job waits for a node, if nodes fail only while it runs.

    The job stops as soon as one node more is away than there are spares, and none fails until one is back: Erlang's
    loss formula for ``spares + 1`` places, for any distribution of the time away. Without spares it is ``a/(1 + a)``,
    the share of a machine that runs and is mended by turns. :func:`probability_of_waiting`, where waiting nodes fail
    as well, is larger: by little where ``a`` is small beside the spares, by far where it is not (.9996 against .89 for
    7.8 nodes away without spares).

    >>> float(share_of_time_waiting(3.0, 0))
    0.75
    """
    mean, k = np.broadcast_arrays(np.asarray(away, float), np.asarray(spares, float))
    return np.where(mean > 0, 1.0 / _at_most(np.where(mean > 0, mean, 1.0), k + 1.0), 0.0)[()]


@remembered
def fewest_spares(away: Values, enough: float = ENOUGH) -> Array:
    """Return the fewest spares with which the job is complete for a share of the time (:func:`probability_of_waiting`).

    >>> float(fewest_spares(0.0)), float(fewest_spares(1.0, 0.9))
    (0.0, 2.0)
    """
    mean = np.asarray(away, float)
    low = np.full(mean.shape, -1.0)
    high = np.ceil(mean + 40.0 * np.sqrt(mean) + 40.0)
    while np.any(high - low > 1.0):
        middle = np.floor((low + high) / 2.0)
        complete = probability_of_waiting(mean, middle) <= 1.0 - enough
        low, high = np.where(complete, low, middle), np.where(complete, middle, high)
    return high[()]


def cheapest_spares(away: Values, num_nodes: Values) -> Array:
    """Return the number of spares with which the fewest hours of nodes are paid for a run, spares and waiting included.

    The least of ``(n + s)/(1 − share of time waiting)``, which falls and then rises with s. A small job rather waits
    for a node now and then than pays for one that stands by.

    Args:
        away: Mean number of nodes away (:func:`away`).
        num_nodes: Nodes of the job.

    >>> float(cheapest_spares(0.003, 1.0)), float(cheapest_spares(6.0, 2000.0))
    (0.0, 15.0)
    """
    mean, nodes = np.broadcast_arrays(np.asarray(away, float), np.asarray(num_nodes, float))

    def paid(spares: Array) -> Array:
        with quiet():
            found: Array = (nodes + spares) / (1.0 - share_of_time_waiting(mean, spares))
        return found

    low = np.full(mean.shape, -1.0)
    high = np.ceil(mean + 40.0 * np.sqrt(mean) + 40.0)
    while np.any(high - low > 1.0):
        middle = np.floor((low + high) / 2.0)
        more = paid(middle + 1.0)
        rises = np.isfinite(more) & (more >= paid(middle))
        low, high = np.where(rises, low, middle), np.where(rises, middle, high)
    return high[()]


def elastic_rate(
    away: Values, spares: Values, replicas: Values, num_nodes: Values = np.inf
) -> Array:
    """Return the mean rate of a job that goes on without the replicas whose nodes are away, by its full rate.

    Each missing node takes one of D replicas with it, ``(D − 1)/D`` for one, or as many as it holds; no two are in the
    same replica, so that the rate is somewhat underestimated where many are missing.

    Args:
        away, spares: As for :func:`probability_of_waiting`.
        replicas: Data-parallel replicas of the job.
        num_nodes: Nodes of the job, where one may hold several replicas.
    """
    lost = np.maximum(ratio(1.0, replicas), ratio(1.0, num_nodes))
    mean, k, lost = np.broadcast_arrays(np.asarray(away, float), np.asarray(spares, float), lost)
    most = np.ceil(1.0 / lost)
    missing = np.zeros_like(mean)
    number, chance = 1.0, np.ones_like(mean)
    while np.any(going := (number <= most) & (chance * most > _ENDS)):
        chance = np.where(going, probability_of_waiting(mean, k + number - 1.0), 0.0)
        missing = missing + chance * np.minimum(lost, 1.0 - (number - 1.0) * lost)
        number += 1.0
    return np.clip(1.0 - missing, 0.0, 1.0)[()]
