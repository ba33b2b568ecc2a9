"""The Pareto front of scores, and the counts of a search; neither depends on the order of its parts."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from calculon.base.units import Array


def pareto_front(scores: Array, numbers: Array, switches: Array | int = 0) -> Array:
    """Return which executions are not dominated, as indices; of equal ones that with fewest switches, then the first.

    Sorted by the first statistic, an execution can only be dominated by one before it: each survivor strikes out in
    one sweep everything behind it that is no better anywhere.
    """
    order = np.lexsort((numbers, np.broadcast_to(switches, numbers.shape), *-scores[::-1]))
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


def beaten(scores: Array, front: Array) -> Array:
    """Return which executions one of a front beats in one of two statistics, and is no worse in the other.

    >>> beaten(np.array([[1.0, 3.0, 2.0], [2.0, 1.0, 2.0]]), np.array([[3.0, 1.0], [1.0, 2.0]])).tolist()
    [False, False, False]
    >>> beaten(np.array([[1.0, 3.0, 2.0], [1.0, 0.5, 1.0]]), np.array([[3.0, 1.0], [1.0, 2.0]])).tolist()
    [True, True, True]
    """
    falling, rising = front[:, np.argsort(-front[0])]
    last = (
        np.searchsorted(-falling, -scores[0], side="right") - 1
    )  # of those that are as good in the first
    better = (rising[last] > scores[1]) | (
        (rising[last] == scores[1]) & (falling[last] > scores[0])
    )
    return np.asarray((last >= 0) & better)


FEASIBLE = ""
"""The reason of executions that can run."""

Splits = dict[tuple[int, int], Counter[str]]
"""Executions of each tensor and pipeline degree, by the reason why they cannot run."""


@dataclass
class Counts:
    """How many executions there are, how many can run, and why the others cannot.

    Attributes:
        total, good: Executions enumerated, and feasible ones among them.
        reasons: Infeasible executions by the identifier of the first rule that fails.
        nearest_miss: For each memory tier's reason, the fewest bytes by which an execution did not fit.
    """

    total: int = 0
    good: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    nearest_miss: dict[str, float] = field(default_factory=dict)

    @property
    def bad(self) -> int:
        """Executions that cannot run."""
        return self.total - self.good

    def add(self, other: "Counts") -> None:
        """Add the counts of another part of the space."""
        self.total += other.total
        self.good += other.good
        self.reasons.update(other.reasons)
        for reason, miss in other.nearest_miss.items():
            self.nearest_miss[reason] = min(miss, self.nearest_miss.get(reason, np.inf))
