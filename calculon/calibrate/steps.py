"""Efficiency curves from measurements: rising step functions of the size with few steps."""

import numpy as np
from scipy.optimize import isotonic_regression

from calculon.base.frozen import dataclass
from calculon.base.units import Array

MAX_STEPS = 6
_SAME = 1e-12


@dataclass(frozen=True, slots=True)
class Steps:
    """A rising step function: values, and the size from which each holds (the first from 0)."""

    sizes: tuple[float, ...]
    values: tuple[float, ...]

    @property
    def pairs(self) -> list[list[float]]:
        """The steps from the largest size to 0, as in system files."""
        return [list(pair) for pair in zip(self.sizes, self.values, strict=True)][::-1]


def partition(values: Array, weights: Array, most: int) -> list[int]:
    """Return the start indices of at most `most` runs of equal value with the least weighted squared error.

    Exact dynamic programming over the start of the last run. Among equally good partitions the one with fewer runs
    wins.

    Source: Bellman, *On the approximation of curves by line segments using dynamic programming*, CACM 4(6), 1961.
    """
    n = len(values)
    zero = np.zeros(1)
    # Prefix sums of weight, weight * x and weight * x**2 give the squared error of any run in constant time.
    w, wx, wxx = (np.concatenate([zero, np.cumsum(weights * values**power)]) for power in (0, 1, 2))

    def costs(end: int) -> Array:
        """Return the error of one run from each possible start to `end`."""
        weight, mean = w[end] - w[:end], wx[end] - wx[:end]
        error: Array = np.maximum(wxx[end] - wxx[:end] - mean**2 / weight, 0.0)
        return error

    # Error of the values up to each end, as one run.
    best = np.array([costs(end)[0] for end in range(1, n + 1)])
    begins = [[0] * n]
    answer, error = [0], float(best[-1])
    for _ in range(1, min(most, n)):
        before = np.concatenate([[np.inf], best])
        begins.append([0] * n)
        for end in range(n):  # recomputed: storing all costs would need quadratic memory
            totals = before[: end + 1] + costs(end + 1)
            begins[-1][end] = int(totals.argmin())
            best[end] = totals.min()
        if float(best[-1]) < error - _SAME * max(1.0, float(wxx[-1])):
            error, answer = float(best[-1]), _traced(begins, n)
    return answer


def _traced(begins: list[list[int]], n: int) -> list[int]:
    """Trace the start indices back from the last run to the first."""
    starts, end = [], n
    for row in reversed(begins):
        starts.append(row[end - 1])
        end = row[end - 1]
    return starts[::-1]


def fit_steps(sizes: Array, efficiencies: Array, most: int = MAX_STEPS) -> Steps:
    """Return the rising step curve with at most `most` steps that is nearest to the efficiencies, by relative error.

    Isotonic regression first gives the nearest rising curve, and the best partition of its pools gives the steps. Every
    run takes the mean of its pools, so no rising curve with this number of steps that keeps the pools together is
    nearer. A step begins at the geometric mean of the sizes on both sides.

    Args:
        sizes, efficiencies: Measurements in any order; several of the same size are one point with their weight.
        most: Largest number of steps.
    """
    points, which = np.unique(sizes, return_inverse=True)
    weights = np.bincount(which).astype(float)
    logs = np.bincount(which, np.log(efficiencies)) / weights
    pools, where = np.unique(isotonic_regression(logs, weights=weights).x, return_inverse=True)
    heavy = np.bincount(where, weights)
    starts = partition(pools, heavy, most)
    ends = [*starts[1:], len(pools)]
    means = [np.average(pools[a:b], weights=heavy[a:b]) for a, b in zip(starts, ends, strict=True)]
    firsts = [int(np.argmax(where == at)) for at in starts]
    values = [min(1.0, rounded(float(np.exp(mean)), 4)) for mean in means]
    edges = [0.0] + [_between(points[at - 1], points[at]) for at in firsts[1:]]
    kept = [i for i in range(len(values)) if i == 0 or values[i] > values[i - 1]]
    return Steps(tuple(edges[i] for i in kept), tuple(values[i] for i in kept))


def _between(low: float, high: float) -> float:
    """Return a number with few digits above `low` and at most `high`."""
    middle = float(np.sqrt(low) * np.sqrt(high))
    for digits in range(3, 17):
        short = rounded(middle, digits)
        if low < short <= high:
            return short
    return float(high)


def rounded(value: float, digits: int) -> float:
    """Return a number rounded to significant digits."""
    return float(f"{value:.{digits}g}")
