"""What a search keeps: the best by one statistic, or the front of several."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from calculon.plan.plan import NAMES
from calculon.search.objective import Objective, known_statistic
from calculon.search.select import Pareto, TopN
from calculon.search.space import Space
from calculon.search.tile import Rows, Tile
from calculon.search.where import Condition
from calculon.units import Array


class Ranking(ABC):
    """Keeps the executions that are wanted of those that are offered.

    Attributes
    ----------
    threshold : float
        Executions with a smaller score are of no interest any more.
    """

    threshold: float = -np.inf

    def __init__(self, objectives: Sequence[Objective], where: Condition | None = None):
        self.objectives = tuple(objectives)
        self.where = where

    @abstractmethod
    def bound(self, tile: Tile, nodes: Array | None = None) -> Array | None:
        """Return the best score that each cell of a tile can hope for, or nothing if that is not known.

        Of some `nodes` of the tile a closer bound, which takes longer to find.
        """

    @abstractmethod
    def keep(self, scores: Array, numbers: Array) -> None:
        """Take in executions: scores of shape (objectives, executions)."""

    @abstractmethod
    def ranked(self) -> tuple[Array, Array]:
        """Return scores, of shape (objectives, executions), and numbers of what is kept, best first."""

    def offer(self, space: Space, rows: Rows) -> None:
        """Offer executions: those whose networks fit, that meet the condition, and that are good enough."""
        shape = rows.numbers.shape
        scores = [np.broadcast_to(one.score(rows.batch), shape) for one in self.objectives]
        chosen = np.flatnonzero(rows.allowed & (scores[0] >= self.threshold))
        if self.where is not None and len(chosen):
            chosen = chosen[_meets(self.where, space, rows, chosen)]
        if len(chosen):
            places = np.unravel_index(chosen, shape)
            self.keep(np.stack([score[places] for score in scores]), rows.numbers[places])


class Best(Ranking):
    """The `count` best by one statistic, ties in the order of the loops."""

    def __init__(
        self,
        objective: Objective,
        count: int,
        where: Condition | None = None,
        *,
        prune: bool = True,
    ):
        super().__init__([objective], where)
        self._top = TopN(count)
        self._prune = prune

    @property
    def threshold(self) -> float:  # type: ignore[override]
        """The score of the last that is kept."""
        return self._top.threshold

    def bound(self, tile: Tile, nodes: Array | None = None) -> Array | None:
        """Return the best score of each cell, where the objective has a bound."""
        if not self._prune:
            return None
        bound = self.objectives[0].bound
        if nodes is None:
            return bound(lambda: tile.least_time, tile.batch_size)
        return bound(lambda: tile.closer_time(nodes), tile.batch_size[nodes])

    def keep(self, scores: Array, numbers: Array) -> None:
        """Take in executions."""
        self._top.add(scores[0], numbers)

    def ranked(self) -> tuple[Array, Array]:
        """Return scores and numbers, best first."""
        scores, numbers = self._top.ranked()
        return scores[None], numbers


class Front(Ranking):
    """The executions that no other one beats in every statistic."""

    def __init__(self, objectives: Sequence[Objective], where: Condition | None = None):
        super().__init__(objectives, where)
        self._front = Pareto(len(objectives))

    def bound(self, tile: Tile, nodes: Array | None = None) -> Array | None:
        """Nothing: a front has no single threshold."""
        return None

    def keep(self, scores: Array, numbers: Array) -> None:
        """Take in executions."""
        self._front.add(scores, numbers)

    def ranked(self) -> tuple[Array, Array]:
        """Return scores and numbers, best by the first statistic first."""
        return self._front.ranked()


def _meets(where: Condition, space: Space, rows: Rows, chosen: Array) -> Array:
    """Return which executions at flat positions of a grid meet a condition."""
    shape = rows.numbers.shape
    places = np.unravel_index(chosen, shape)
    plan = space.plan(rows.numbers[places])

    def lookup(name: str) -> Array:
        if name in NAMES:
            return plan.values(name)
        values = known_statistic(name, "where").of(rows.batch)
        column: Array = np.broadcast_to(values, shape)[places]
        return column

    return np.broadcast_to(where.mask(lookup), chosen.shape)
