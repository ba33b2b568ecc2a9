"""Spare nodes: mean number of nodes in repair, time that a job waits for a node, and the best number of spares.

If nodes fail at a constant rate and each repair takes a time of any distribution, the number of nodes in repair is
Poisson distributed (the queue M/G/∞). Its mean is the failure rate times the mean repair time.
"""

import math

import numpy as np

from calculon.base.units import Array
from calculon.campaign.exponentials import Values, cached_for_numbers, ignore_float_errors, ratio

ENOUGH = 0.999
"""Share of time in which a job is complete with the recommended number of spares."""

_TABLE = np.array([math.lgamma(k + 1.0) for k in range(32)])
# a sum ends with terms smaller than this part of it, below the precision of a float
_ENDS = 1e-17


def nodes_in_repair(num_nodes: Values, node_mtbf: Values, repair: Values) -> Array:
    """Return the mean number of nodes in repair: ``n · repair / MTBF of a node``, both times in the same unit."""
    return ratio(np.multiply(num_nodes, repair), node_mtbf)


def _log_factorial(k: Array) -> Array:
    """Return ln k! of integers: exact below 32, otherwise Stirling's series with an error below 1e-13."""
    x = np.maximum(k, 1.0)
    series = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * x * x)) / (x * x)) / x
    long = (x + 0.5) * np.log(x) - x + 0.5 * math.log(2.0 * math.pi) + series
    return np.where(k < len(_TABLE), _TABLE[np.minimum(k, len(_TABLE) - 1).astype(int)], long)


def _exactly(mean: Array, k: Array) -> Array:
    """Return the probability of k under a Poisson distribution."""
    with ignore_float_errors():
        log = k * np.log(mean) - mean - _log_factorial(k)
    return np.where(mean > 0, np.exp(log), np.where(k == 0, 1.0, 0.0))


def _at_most(mean: Array, k: Array) -> Array:
    """Return P(X ≤ k) / P(X = k), a sum over the terms k, k − 1, …: for k below the mean, or for small k."""
    term, total = np.ones_like(mean), np.ones_like(mean)
    left = k.copy()
    with ignore_float_errors():
        while np.any(going := (left > 0) & (mean > 0) & (term > _ENDS * total)):
            term = np.where(going, term * left / np.where(going, mean, 1.0), 0.0)
            total, left = total + term, left - 1.0
    return total


def _more_than(mean: Array, k: Array) -> Array:
    """Return P(X > k) / P(X = k + 1), a sum over the terms k + 1, k + 2, …: for k from the mean on."""
    term, total = np.ones_like(mean), np.ones_like(mean)
    after = k + 2.0
    while np.any(going := term > _ENDS * total):
        term = np.where(going, term * mean / after, 0.0)
        total, after = total + term, after + 1.0
    return total


def probability_of_waiting(in_repair: Values, spares: Values) -> Array:
    """Return the probability that more nodes are in repair than there are spares, if waiting nodes fail too.

    The upper tail of a Poisson distribution, at full precision even if it is tiny.

    Args:
        in_repair: Mean number of nodes in repair (:func:`nodes_in_repair`).
        spares: Number of spare nodes: an integer, at least −1 (always more).

    >>> float(probability_of_waiting(0.0, 0)), float(probability_of_waiting(3.0, -1))
    (0.0, 1.0)
    """
    mean, k = np.broadcast_arrays(np.asarray(in_repair, float), np.asarray(spares, float))
    # sum the smaller tail, which converges fast and has no
    # cancellation; the other rows of each sum get 0 and end at once
    above = k + 1.0 > mean
    up, low = np.where(above, mean, 0.0), np.where(above, 0.0, k)
    tail = _exactly(mean, np.maximum(k + 1.0, 0.0)) * _more_than(up, np.maximum(k, 0.0))
    rest = 1.0 - _exactly(mean, np.maximum(k, 0.0)) * _at_most(mean, low)
    return np.where(k < 0, 1.0, np.where(above, tail, rest))[()]


@cached_for_numbers
def share_of_time_waiting(in_repair: Values, spares: Values) -> Array:
    """Return the share of time that a job waits for a node, if nodes fail only while it runs.

    The job stops as soon as one node more is in repair than there are spares, and none fails until one is back:
    Erlang's loss formula for ``spares + 1`` places, for any distribution of the repair time. Without spares it is
    ``a/(1 + a)``, the share of a machine that alternates between running and repair. :func:`probability_of_waiting`,
    which assumes that waiting nodes fail too, is larger: slightly if ``a`` is small compared with the spares, greatly
    otherwise (.9996 instead of .89 for 7.8 nodes in repair without spares).

    >>> float(share_of_time_waiting(3.0, 0))
    0.75
    """
    mean, k = np.broadcast_arrays(np.asarray(in_repair, float), np.asarray(spares, float))
    return np.where(mean > 0, 1.0 / _at_most(np.where(mean > 0, mean, 1.0), k + 1.0), 0.0)[()]


@cached_for_numbers
def fewest_spares(in_repair: Values, enough: float = ENOUGH) -> Array:
    """Return the smallest number of spares with which the job is complete for a share of the time.

    The share of time follows from :func:`probability_of_waiting`.

    >>> float(fewest_spares(0.0)), float(fewest_spares(1.0, 0.9))
    (0.0, 2.0)
    """
    mean = np.asarray(in_repair, float)
    low = np.full(mean.shape, -1.0)
    # 40 standard deviations above the mean the tail of a Poisson distribution is 0 in a float
    high = np.ceil(mean + 40.0 * np.sqrt(mean) + 40.0)
    while np.any(high - low > 1.0):
        middle = np.floor((low + high) / 2.0)
        complete = probability_of_waiting(mean, middle) <= 1.0 - enough
        low, high = np.where(complete, low, middle), np.where(complete, middle, high)
    return high[()]


def cheapest_spares(in_repair: Values, num_nodes: Values) -> Array:
    """Return the number of spares with the fewest paid node-hours for a run, including spares and waiting.

    It minimizes ``(n + s)/(1 − share of time waiting)``, which falls and then rises with s. A small job rather waits
    for a node occasionally than pays for an idle spare.

    Args:
        in_repair: Mean number of nodes in repair (:func:`nodes_in_repair`).
        num_nodes: Nodes of the job.

    >>> float(cheapest_spares(0.003, 1.0)), float(cheapest_spares(6.0, 2000.0))
    (0.0, 15.0)
    """
    mean, nodes = np.broadcast_arrays(np.asarray(in_repair, float), np.asarray(num_nodes, float))

    def paid(spares: Array) -> Array:
        with ignore_float_errors():
            result: Array = (nodes + spares) / (1.0 - share_of_time_waiting(mean, spares))
        return result

    low = np.full(mean.shape, -1.0)
    high = np.ceil(mean + 40.0 * np.sqrt(mean) + 40.0)
    while np.any(high - low > 1.0):
        middle = np.floor((low + high) / 2.0)
        # bisection on the sign of the difference, which works because the cost has a single minimum
        more = paid(middle + 1.0)
        rises = np.isfinite(more) & (more >= paid(middle))
        low, high = np.where(rises, low, middle), np.where(rises, middle, high)
    return high[()]


def elastic_rate(
    in_repair: Values, spares: Values, replicas: Values, num_nodes: Values = np.inf
) -> Array:
    """Return the mean rate, relative to the full rate, of a job that continues without the replicas of failed nodes.

    Each missing node removes one of D replicas, or all replicas that it holds. No two missing nodes are assumed to
    belong to the same replica, so the rate is slightly underestimated if many are missing.

    Args:
        in_repair, spares: As for :func:`probability_of_waiting`.
        replicas: Data-parallel replicas of the job.
        num_nodes: Nodes of the job, if one node may hold several replicas.
    """
    lost = np.maximum(ratio(1.0, replicas), ratio(1.0, num_nodes))
    mean, k, lost = np.broadcast_arrays(
        np.asarray(in_repair, float), np.asarray(spares, float), lost
    )
    # the mean number of missing nodes is the sum of P(missing ≥ k) over k, cut off when no replica is left
    most = np.ceil(1.0 / lost)
    missing = np.zeros_like(mean)
    number, chance = 1.0, np.ones_like(mean)
    while np.any(going := (number <= most) & (chance * most > _ENDS)):
        chance = np.where(going, probability_of_waiting(mean, k + number - 1.0), 0.0)
        missing = missing + chance * np.minimum(lost, 1.0 - (number - 1.0) * lost)
        number += 1.0
    return np.clip(1.0 - missing, 0.0, 1.0)[()]
