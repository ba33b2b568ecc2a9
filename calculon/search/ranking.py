"""What a search keeps: the best by one statistic, the best of each split, or the front of several."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from calculon.base.units import Array
from calculon.plan.plan import NAMES
from calculon.search.grid import WITHIN
from calculon.search.objective import Objective, known_statistic
from calculon.search.search_counts import beaten, pareto_front
from calculon.search.space import Space
from calculon.search.tile import Chosen, Rows, Tile
from calculon.search.where import Condition


class Ranking(ABC):
    """Keeps the best of the executions that it considers; the order in which it sees them does not matter.

    Attributes:
        objectives: What executions are ranked by.
        threshold: Executions with a smaller score are of no interest any more.
        scores (shape (objectives, executions)): Scores of what is kept, in no particular order; larger is better.
        numbers, switches (shape (executions,)): Numbers of what is kept, and how many switches that has on: of equal
            scores the fewest come first.
    """

    threshold = -np.inf

    def __init__(self, objectives: Sequence[Objective], where: Condition | None = None):
        self.objectives = tuple(objectives)
        self.where = where
        self.scores = np.zeros((len(objectives), 0))
        self.numbers = np.zeros(0, np.int64)
        self.switches = np.zeros(0, np.int64)

    @abstractmethod
    def upper_bound(self, tile: Tile, nodes: Array | None = None) -> Array | None:
        """Return a score that no execution of a cell exceeds, for each cell of a tile; None where none is known.

        Of some `nodes` of the tile a closer bound, which takes longer to find.
        """

    def least(self, numbers: Array) -> Array | float:
        """Return the scores below which executions are of no interest any more, of executions or of their nodes.

        They are given by their numbers; what is added to a number within a node does not matter.
        """
        return self.threshold

    def order(self, bounds: Array, numbers: Array) -> Array:
        """Return the places of cells with these bounds and numbers of nodes, those first that are looked at first."""
        return np.argsort(-bounds, kind="stable")

    @abstractmethod
    def keep(self, scores: Array, numbers: Array, switches: Array | int = 0) -> None:
        """Take in executions: scores of shape (objectives, executions), numbers, and switches that are on."""

    def ranked(self) -> tuple[Array, Array]:
        """Return scores, of shape (objectives, executions), and numbers of what is kept, best first."""
        # the last key counts most: the first objective, then the others, the switches, the order of the loops
        order = np.lexsort((self.numbers, self.switches, *-self.scores[::-1]))
        return self.scores[:, order], self.numbers[order]

    def _take(self, kept: Array) -> None:
        """Drop what is not among the kept ones, given by their places."""
        self.scores, self.numbers = self.scores[:, kept], self.numbers[kept]
        self.switches = self.switches[kept]

    def consider(self, space: Space, rows: Rows) -> None:
        """Keep of executions those whose networks fit, that meet the condition, and that are good enough."""
        first, *others = self.objectives
        least = self.least(rows.numbers)
        chosen = Chosen(rows, np.flatnonzero(rows.allowed & (rows.bound(first) >= least)))
        if not len(chosen):
            return
        score = first.value(chosen.values(first.statistic))
        kept = score >= self.least(chosen.numbers)
        if self.where is not None:
            kept[kept] = _meets(self.where, space, chosen.take(kept))
        if kept.any():
            chosen = chosen.take(kept)
            more = [one.value(chosen.values(one.statistic)) for one in others]
            scores = np.stack([score[kept], *more])
            self.keep(scores, chosen.numbers, space.switches_on(chosen.numbers))


class Best(Ranking):
    """The `count` best by one statistic; among equal scores the fewest switches, then the smallest numbers.

    Further statistics decide between equal scores before that, if there are `ties`.
    """

    def __init__(
        self,
        objective: Objective,
        count: int,
        where: Condition | None = None,
        *,
        ties: Sequence[Objective] = (),
        prune: bool = True,
    ):
        super().__init__([objective, *ties], where)
        self._count, self._prune = count, prune
        self._waiting: list[tuple[Array, Array, Array]] = []
        self._held = 0  # kept and waiting
        self._limit = count  # the first threshold as soon as there is one

    def upper_bound(self, tile: Tile, nodes: Array | None = None) -> Array | None:
        """Return the best score that each cell may have, where the objective has a bound."""
        return _upper_bound(self.objectives[0], tile, nodes) if self._prune else None

    def keep(self, scores: Array, numbers: Array, switches: Array | int = 0) -> None:
        """Take in executions that reach the threshold.

        They are sorted only when there are twice as many as wanted, so that a search for many stays linear.
        """
        good = scores[0] >= self.threshold
        if not good.any():
            return
        switches = np.broadcast_to(switches, numbers.shape)
        self._waiting.append((scores[:, good], numbers[good], switches[good]))
        self._held += len(self._waiting[-1][1])
        if self._held >= self._limit:
            self._compress()

    def _compress(self) -> None:
        """Join what waits, drop what is not among the best, and raise the threshold."""
        kept = self.scores, self.numbers, self.switches
        scores, numbers, switches = zip(kept, *self._waiting, strict=True)
        self.scores, self.numbers = np.concatenate(scores, axis=1), np.concatenate(numbers)
        self.switches = np.concatenate(switches)
        self._waiting.clear()
        if len(self.numbers) >= self._count:
            order = np.lexsort((self.numbers, self.switches, *-self.scores[::-1]))
            self._take(order[: self._count])
            self.threshold = float(self.scores[0, -1])
            self._limit = 2 * self._count
        self._held = len(self.numbers)

    def ranked(self) -> tuple[Array, Array]:
        """Return scores and numbers, best first."""
        self._compress()
        return super().ranked()


class BestOfEach(Ranking):
    """The best by one statistic of each kind of execution; among equal scores as :class:`Best`.

    Args:
        objective: What executions are ranked by.
        stride: Executions whose numbers agree above it are of one kind: that of the loop ``pipeline_interleaving``
            tells tensor degree, pipeline degree, batch and chunks apart (:attr:`~calculon.search.space.Space.strides`).
    """

    def __init__(self, objective: Objective, stride: int, where: Condition | None = None):
        super().__init__([objective], where)
        self._stride = stride
        self._kinds = np.zeros(0, np.int64)  # of what is kept, ascending

    def upper_bound(self, tile: Tile, nodes: Array | None = None) -> Array | None:
        """Return the best score that each cell may have, where the objective has a bound."""
        return _upper_bound(self.objectives[0], tile, nodes)

    def least(self, numbers: Array) -> Array | float:
        """Return the score of the best of each kind; each kind has a threshold of its own."""
        if not len(self._kinds):
            return -np.inf
        kinds = numbers // self._stride
        places = np.minimum(np.searchsorted(self._kinds, kinds), len(self._kinds) - 1)
        known = self._kinds[places] == kinds
        return np.asarray(np.where(known, self.scores[0, places], -np.inf))

    def order(self, bounds: Array, numbers: Array) -> Array:
        """Return the cells with the highest bound of each kind, then the next ones."""
        kinds = numbers // self._stride
        order = np.lexsort((-bounds, kinds))
        first = np.flatnonzero(np.diff(kinds[order], prepend=-1))
        place = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
        return order[np.argsort(place, kind="stable")]

    def keep(self, scores: Array, numbers: Array, switches: Array | int = 0) -> None:
        """Take in executions."""
        self.scores = np.concatenate([self.scores, scores], axis=1)
        self.switches = np.concatenate([self.switches, np.broadcast_to(switches, numbers.shape)])
        self.numbers = np.concatenate([self.numbers, numbers])
        order = np.lexsort((self.numbers, self.switches, -self.scores[0]))
        self._kinds, first = np.unique(self.numbers[order] // self._stride, return_index=True)
        self._take(order[first])


class Front(Ranking):
    """The executions that no other one beats in every statistic; of equal ones that with the fewest switches."""

    def upper_bound(self, tile: Tile, nodes: Array | None = None) -> Array | None:
        """Nothing: a front has no single threshold."""
        return None

    def keep(self, scores: Array, numbers: Array, switches: Array | int = 0) -> None:
        """Take in executions."""
        switches = np.broadcast_to(switches, numbers.shape)
        if len(scores) == 2 and len(self.numbers):
            good = ~beaten(scores, self.scores)
            scores, numbers, switches = scores[:, good], numbers[good], switches[good]
        self.scores = np.concatenate([self.scores, scores], axis=1)
        self.numbers = np.concatenate([self.numbers, numbers])
        self.switches = np.concatenate([self.switches, switches])
        self._take(pareto_front(self.scores, self.numbers, self.switches))


def _upper_bound(objective: Objective, tile: Tile, nodes: Array | None) -> Array | None:
    """Return the best score that each cell may have, where the objective has a bound; closer ones of some nodes."""
    if objective.of_memory:
        return _best_memory(objective, tile) if nodes is None else None
    if objective.of_runs:
        return _best_run(objective, tile, nodes)
    if nodes is None:
        return objective.bound(lambda: tile.time_lower_bound, tile.batch_size, tile.tokens)
    sizes = tile.batch_size[nodes], tile.tokens[nodes]
    return objective.bound(lambda: tile.closer_lower_bound(nodes), *sizes)


def _best_memory(objective: Objective, tile: Tile) -> Array:
    """Return the best score of the executions that fit, of memory, which a grid knows without any time."""
    scores = np.where(tile.fits, objective.score(tile.memory), -np.inf)
    return np.asarray(scores.max(axis=WITHIN))


def _best_run(objective: Objective, tile: Tile, nodes: Array | None) -> Array | None:
    """Return the best score that each cell may have of a figure of whole runs, where it has a bound."""
    runs = tile.space.runs
    assert runs is not None
    if nodes is None:
        return runs.bound(objective, tile.schedule(slice(None)), lambda: tile.time_lower_bound)
    return runs.bound(objective, tile.schedule(nodes), lambda: tile.closer_lower_bound(nodes))


def _meets(where: Condition, space: Space, chosen: Chosen) -> Array:
    """Return which executions meet a condition."""
    plan = space.plan(chosen.numbers)

    def lookup(name: str) -> Array:
        if name in NAMES:
            return plan.values(name)
        runs = space.campaign is not None
        return chosen.values(known_statistic(name, "where", whole_runs=runs))

    return np.broadcast_to(where.mask(lookup), chosen.flat.shape)
