"""Keep the best of what a search has seen, and count all of it; merging does not depend on order."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from calculon.units import Array


class TopN:
    """The `count` executions with the largest scores; among equal scores the smallest numbers.

    Attributes
    ----------
    scores, numbers : array
        What is kept, in no particular order until :meth:`ranked`, and without what was offered last.
    """

    def __init__(self, count: int):
        self.count = count
        self.scores = np.zeros(0)
        self.numbers = np.zeros(0, np.int64)
        self.threshold = -np.inf
        self._waiting: list[tuple[Array, Array]] = []
        self._kept = 0
        self._limit = count  # the first threshold as soon as there is one

    def add(self, scores: Array, numbers: Array) -> None:
        """Offer executions; scores below the current threshold are dropped.

        What is kept is sorted only when there is twice as much as wanted, so that a search for many stays linear.
        """
        keep = scores >= self.threshold
        if not keep.any():
            return
        self._waiting.append((scores[keep], numbers[keep]))
        self._kept += len(self._waiting[-1][0])
        if self._kept >= self._limit:
            self._compress()

    def _compress(self) -> None:
        """Join what was offered, drop what is not among the best, and raise the threshold."""
        self.scores = np.concatenate([self.scores, *(scores for scores, _ in self._waiting)])
        self.numbers = np.concatenate([self.numbers, *(numbers for _, numbers in self._waiting)])
        self._waiting.clear()
        if len(self.scores) >= self.count:
            order = np.lexsort((self.numbers, -self.scores))[: self.count]
            self.scores, self.numbers = self.scores[order], self.numbers[order]
            self.threshold = float(self.scores[-1])
            self._limit = 2 * self.count
        self._kept = len(self.scores)

    def ranked(self) -> tuple[Array, Array]:
        """Return scores and numbers, best first."""
        self._compress()
        order = np.lexsort((self.numbers, -self.scores))
        return self.scores[order], self.numbers[order]


class Pareto:
    """The executions that no other one beats in every score; among equal scores the smallest number.

    Scores have shape ``(statistics, executions)``; larger is better in each.
    """

    def __init__(self, statistics: int):
        self.scores = np.zeros((statistics, 0))
        self.numbers = np.zeros(0, np.int64)

    def add(self, scores: Array, numbers: Array) -> None:
        """Offer executions."""
        scores = np.concatenate([self.scores, scores], axis=1)
        numbers = np.concatenate([self.numbers, numbers])
        front = pareto_front(scores, numbers)
        self.scores, self.numbers = scores[:, front], numbers[front]

    def ranked(self) -> tuple[Array, Array]:
        """Return scores and numbers, best first by the first statistic."""
        order = np.lexsort((self.numbers, *-self.scores[::-1]))
        return self.scores[:, order], self.numbers[order]


def pareto_front(scores: Array, numbers: Array) -> Array:
    """Return which executions are not dominated, as indices; of equal ones only the first number.

    Sorted by the first statistic, an execution can only be dominated by one before it: each survivor strikes out in
    one sweep everything behind it that is no better anywhere.
    """
    order = np.lexsort((numbers, *-scores[::-1]))
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


@dataclass
class Counts:
    """How many executions there are, how many can run, and why the others cannot.

    Attributes
    ----------
    total, good : int
        Executions enumerated, and feasible ones among them.
    reasons : Counter
        Infeasible executions by the identifier of the first rule that fails.
    nearest_miss : dict
        For each memory tier's reason, the fewest bytes by which an execution did not fit.
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
