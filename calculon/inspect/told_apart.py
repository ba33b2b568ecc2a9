"""How far two predictions must be apart for the faster one to be the faster one as measured, too.

Two executions of one model on one system err alike: much of what is wrong in one time is wrong in the other, and does
not matter for their ratio. How much is left, pairs of measured runs tell: of one source, model, processor, type of
arithmetic and preset.
"""

from functools import cache

import numpy as np

from calculon.inspect.group_conformal import LEVEL
from calculon.inspect.validated_runs import Runs, runs
from calculon.units import Array

_SHARED = ("source", "system", "type", "parameters", "preset")


def ratio_errors(some: Runs) -> tuple[Array, Array]:
    """Return how far predicted ratios of two runs are from measured ones, and the weight of each pair.

    Returns
    -------
    tuple of array, shape (pairs,)
        Absolute logarithms of predicted over measured ratio, and weights by which all sources count alike.
    """
    errors = np.log(some.numbers("measured") / some.numbers("predicted"))
    alike: dict[tuple[str, ...], list[int]] = {}
    for i, kind in enumerate(zip(*(some.columns[name] for name in _SHARED), strict=True)):
        alike.setdefault(kind, []).append(i)
    found: dict[str, list[Array]] = {}
    for kind, rows in alike.items():
        first, second = np.triu_indices(len(rows), 1)
        if len(first):
            own = errors[rows]
            found.setdefault(kind[0], []).append(np.abs(own[first] - own[second]))
    pairs = [np.concatenate(several) for several in found.values()]
    weights = [np.full(len(one), 1 / len(one)) for one in pairs]
    return np.concatenate([*pairs, []]), np.concatenate([*weights, []])


@cache
def least_ratio() -> float:
    """Return the ratio of two times from which the predicted order is the measured one with 90 %.

    It is the quantile of the errors of ratios, all sources alike: the interval of a larger ratio is all above 1.
    Without any runs it is infinite.
    """
    errors, weights = ratio_errors(runs())
    if not len(errors):
        return np.inf
    order = np.argsort(errors, kind="stable")
    reached = np.cumsum(weights[order])
    return float(np.exp(errors[order][np.searchsorted(reached, LEVEL * reached[-1])]))
