"""Pareto fronts of scores, and counts of a search; both are independent of the order in which tiles are searched."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from calculon.base.units import Array


def pareto_front(scores: Array, numbers: Array, switches: Array | int = 0) -> Array:
    """Return the indices of executions that are not dominated; among equals the one with the fewest switches.

    Remaining ties go to the smallest number. After sorting by the first statistic, an execution can only be dominated
    by an earlier one: each survivor removes all later executions that are nowhere better in a single pass.
    """
    order = np.lexsort((numbers, np.broadcast_to(switches, numbers.shape), *-scores[::-1]))
    # Two objectives: a running maximum finds the front in linear time
    if len(scores) == 2 and len(order):
        second = scores[1, order]
        better = second[1:] > np.maximum.accumulate(second)[:-1]
        return np.asarray(order[np.concatenate([[True], better])])
    front = []
    while len(order):
        first, order = order[0], order[1:]
        front.append(first)
        order = order[(scores[:, order] > scores[:, [first]]).any(axis=0)]
    return np.array(front, np.int64)


def dominated(scores: Array, pareto: Array) -> Array:
    """Return a mask of the executions that a front of two statistics dominates.

    >>> dominated(np.array([[1.0, 3.0, 2.0], [2.0, 1.0, 2.0]]), np.array([[3.0, 1.0], [1.0, 2.0]])).tolist()
    [False, False, False]
    >>> dominated(np.array([[1.0, 3.0, 2.0], [1.0, 0.5, 1.0]]), np.array([[3.0, 1.0], [1.0, 2.0]])).tolist()
    [True, True, True]
    """
    falling, rising = pareto[:, np.argsort(-pareto[0])]
    # the last of the front that is at least as good in the first statistic, and so the best in the second
    last = np.searchsorted(-falling, -scores[0], side="right") - 1
    better = (rising[last] > scores[1]) | (
        (rising[last] == scores[1]) & (falling[last] > scores[0])
    )
    return np.asarray((last >= 0) & better)


FEASIBLE = ""
"""Reason of executions that can run."""

Splits = dict[tuple[int, int], Counter[str]]
"""Counts of executions by tensor and pipeline degree and by infeasibility reason."""


@dataclass
class Counts:
    """Counts of enumerated and feasible executions, and of infeasible ones by reason.

    Attributes:
        total, good: Enumerated and feasible executions.
        reasons: Infeasible executions by the identifier of the first rule that fails.
        nearest_miss: Smallest number of bytes by which an execution did not fit, by the reason of the memory tier.
    """

    total: int = 0
    good: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    nearest_miss: dict[str, float] = field(default_factory=dict)

    @property
    def bad(self) -> int:
        """Number of executions that cannot run."""
        return self.total - self.good

    def add(self, other: "Counts") -> None:
        """Add the counts of another part of the space."""
        self.total += other.total
        self.good += other.good
        self.reasons.update(other.reasons)
        for reason, miss in other.nearest_miss.items():
            self.nearest_miss[reason] = min(miss, self.nearest_miss.get(reason, np.inf))
