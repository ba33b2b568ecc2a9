"""Scores: summaries of the errors of many rows, and the quality of a predicted order."""

from collections.abc import Hashable, Sequence

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array


def relative_errors(measured: Array, estimated: Array) -> Array:
    r"""Return the error of each estimate in percent of the measured value.

    .. math:: e = 100 \, (A / P - 1)

    Errors are negative if the estimate is below the measurement: predicted too fast, or with too little memory.

    >>> relative_errors(np.array([10.0, 4.0]), np.array([9.0, 5.0]))
    array([-10.,  25.])
    """
    errors: Array = 100 * (estimated / measured - 1)
    return errors


@dataclass(frozen=True, slots=True)
class Score:
    """Summary of errors, in percent.

    Attributes:
        n: Number of compared rows.
        mean, median, p90, largest: Statistics of the absolute errors; p90 interpolates between neighbors.
        bias: Mean of the signed errors; negative is too fast or too small.
    """

    n: int
    mean: float
    median: float
    p90: float
    largest: float
    bias: float

    @classmethod
    def of(cls, errors: Array) -> "Score":
        """Return the summary of the errors of at least one row."""
        size = np.abs(errors)
        return cls(
            n=len(errors),
            mean=float(size.mean()),
            median=float(np.median(size)),
            p90=float(np.percentile(size, 90)),
            largest=float(size.max()),
            bias=float(errors.mean()),
        )


def kendall_tau(first: Array, second: Array) -> float:
    r"""Return Kendall's rank correlation of two orders of the same rows, with ties (tau-b).

    .. math:: \tau_b = \frac{C - D}{\sqrt{(n_0 - n_1)(n_0 - n_2)}}

    with C concordant and D discordant pairs, :math:`n_0 = n (n - 1) / 2` pairs in total and :math:`n_1`, :math:`n_2`
    pairs tied in either order: 1 is the same order, -1 the reverse, not-a-number when one order is all ties.

    Source: Kendall, *The treatment of ties in ranking problems*, Biometrika 33(3), 1945, doi:10.1093/biomet/33.3.239.

    >>> kendall_tau(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0]))
    0.3333333333333333
    """
    pairs = np.triu_indices(len(first), 1)
    one = np.sign(first[pairs[0]] - first[pairs[1]])
    two = np.sign(second[pairs[0]] - second[pairs[1]])
    untied = float(np.count_nonzero(one)) * float(np.count_nonzero(two))
    return float((one * two).sum() / np.sqrt(untied)) if untied else float("nan")


def regret(measured: Array, estimated: Array) -> float:
    """Return the cost of choosing the row with the lowest estimate instead of the best row, in percent.

    >>> regret(np.array([1.0, 1.2]), np.array([3.0, 2.0]))
    19.999999999999996
    """
    return float(100 * (measured[np.argmin(estimated)] / measured.min() - 1))


@dataclass(frozen=True, slots=True)
class Rank:
    """Accuracy of the predicted order within sweeps.

    Attributes:
        sweeps: Number of groups of at least :data:`SMALLEST_SWEEP` rows that differ only in their execution.
        tau: Mean of Kendall's tau over the sweeps; 0 for sweeps with equal estimates, which state no order.
        regret, worst_regret: Mean and largest cost of the plan with the lowest estimate over the best one, in percent.
    """

    sweeps: int
    tau: float
    regret: float
    worst_regret: float

    @classmethod
    def of(cls, groups: Sequence[Hashable], measured: Array, estimated: Array) -> "Rank | None":
        """Return the accuracy within groups; None when no group is large enough."""
        members: dict[Hashable, list[int]] = {}
        for row, group in enumerate(groups):
            members.setdefault(group, []).append(row)
        rows = [found for found in members.values() if len(found) >= SMALLEST_SWEEP]
        if not rows:
            return None
        regrets = [regret(measured[found], estimated[found]) for found in rows]
        taus = [
            kendall_tau(measured[found], estimated[found]) if np.ptp(estimated[found]) > 0 else 0.0
            for found in rows
        ]
        return cls(len(rows), float(np.mean(taus)), float(np.mean(regrets)), max(regrets))


SMALLEST_SWEEP = 3
"""Smallest number of rows for which an order is meaningful."""
