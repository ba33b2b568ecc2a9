"""Rankings of a search: the best executions by one statistic, the best of each split, or a Pareto front."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce

import numpy as np

from calculon.base.units import Array
from calculon.plan.plan import NAMES
from calculon.search.conditions import Condition
from calculon.search.grid import WITHIN
from calculon.search.objective import Objective, known_statistic
from calculon.search.search_counts import dominated, pareto_front
from calculon.search.space import Space
from calculon.search.tile import Chosen, Rows, Tile


class Ranking(ABC):
    """Base class of rankings; the result does not depend on the order of executions.

    Attributes:
        objectives: Objectives of the ranking.
        threshold: Score below which executions cannot enter the ranking.
        scores (shape (objectives, executions)): Scores of the kept executions, in no particular order; larger is
            better.
        numbers, switches (shape (executions,)): Numbers of the kept executions, and how many switches each has on:
            ties are broken in favor of fewer switches.
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
        """Return an upper bound of the score for each cell of a tile, or None if unknown.

        For selected `nodes` of the tile, return a closer bound, which takes longer to compute.
        """

    def least(self, numbers: Array) -> Array | float:
        """Return the scores below which executions or nodes cannot enter the ranking.

        They are given by their numbers. Numbers of nodes are enough: the loops within a node do not matter.
        """
        return self.threshold

    def order(self, bounds: Array, numbers: Array) -> Array:
        """Return the order in which to visit cells, given their bounds and the numbers of their nodes."""
        return np.argsort(-bounds, kind="stable")

    @abstractmethod
    def keep(self, scores: Array, numbers: Array, switches: Array | int = 0) -> None:
        """Add executions: scores of shape (objectives, executions), numbers, and counts of enabled switches."""

    def ranked(self) -> tuple[Array, Array]:
        """Return scores of shape (objectives, executions) and numbers of the kept executions, best first."""
        # lexsort sorts by the last key first: the first objective, the other objectives, the switches, the loop order
        order = np.lexsort((self.numbers, self.switches, *-self.scores[::-1]))
        return self.scores[:, order], self.numbers[order]

    def _take(self, kept: Array) -> None:
        """Keep only selected executions, given by their indices."""
        self.scores, self.numbers = self.scores[:, kept], self.numbers[kept]
        self.switches = self.switches[kept]

    def consider(self, space: Space, rows: Rows) -> None:
        """Add executions whose networks fit, that meet the condition, and that reach the threshold."""
        first, *others = self.objectives
        least = self.least(rows.numbers)
        chosen = Chosen(rows, np.flatnonzero(rows.allowed & (rows.bound(first) >= least)))
        # Cheap checks first: the condition and further objectives are computed for the few executions that are left.
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
    """The best `count` executions by one statistic; ties go to the fewest switches, then the smallest numbers.

    Statistics in `ties` break ties first.
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
        self._held = 0  # kept and waiting executions
        self._limit = count  # first compression as early as possible, for an early threshold

    def upper_bound(self, tile: Tile, nodes: Array | None = None) -> Array | None:
        """Return an upper bound of the score for each cell, or None if the objective has none."""
        return _upper_bound(self.objectives[0], tile, nodes) if self._prune else None

    def keep(self, scores: Array, numbers: Array, switches: Array | int = 0) -> None:
        """Add executions that reach the threshold.

        Executions are sorted only when there are twice as many as requested: a search for many remains linear in time.
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
        """Merge waiting executions, keep the best, and raise the threshold."""
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
    """The best execution of each kind by one statistic; ties as in :class:`Best`.

    Args:
        objective: Objective of the ranking.
        stride: Executions whose numbers agree above the stride are of one kind: the stride of
            ``pipeline_interleaving`` distinguishes tensor degree, pipeline degree, batch and chunks
            (:attr:`~calculon.search.space.Space.strides`).
    """

    def __init__(self, objective: Objective, stride: int, where: Condition | None = None):
        super().__init__([objective], where)
        self._stride = stride
        self._kinds = np.zeros(0, np.int64)  # kinds of the kept executions, ascending

    def upper_bound(self, tile: Tile, nodes: Array | None = None) -> Array | None:
        """Return an upper bound of the score for each cell, or None if the objective has none."""
        return _upper_bound(self.objectives[0], tile, nodes)

    def least(self, numbers: Array) -> Array | float:
        """Return the best score of the kind of each execution, which is the threshold of that kind."""
        if not len(self._kinds):
            return -np.inf
        kinds = numbers // self._stride
        places = np.minimum(np.searchsorted(self._kinds, kinds), len(self._kinds) - 1)
        known = self._kinds[places] == kinds
        return np.asarray(np.where(known, self.scores[0, places], -np.inf))

    def order(self, bounds: Array, numbers: Array) -> Array:
        """Return the cells with the highest bound of each kind first, then the second highest, and so on."""
        kinds = numbers // self._stride
        order = np.lexsort((-bounds, kinds))
        first = np.flatnonzero(np.diff(kinds[order], prepend=-1))
        place = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
        return order[np.argsort(place, kind="stable")]

    def keep(self, scores: Array, numbers: Array, switches: Array | int = 0) -> None:
        """Add executions."""
        self.scores = np.concatenate([self.scores, scores], axis=1)
        self.switches = np.concatenate([self.switches, np.broadcast_to(switches, numbers.shape)])
        self.numbers = np.concatenate([self.numbers, numbers])
        order = np.lexsort((self.numbers, self.switches, -self.scores[0]))
        self._kinds, first = np.unique(self.numbers[order] // self._stride, return_index=True)
        self._take(order[first])


class ParetoFront(Ranking):
    """Pareto front: executions that no other execution dominates; the one with the fewest switches among equals."""

    def upper_bound(self, tile: Tile, nodes: Array | None = None) -> Array | None:
        """Return None: a front has no single threshold."""
        return None

    def keep(self, scores: Array, numbers: Array, switches: Array | int = 0) -> None:
        """Add executions."""
        switches = np.broadcast_to(switches, numbers.shape)
        # A linear filter against the current front is much cheaper than a new front of all executions.
        if len(scores) == 2 and len(self.numbers):
            good = ~dominated(scores, self.scores)
            scores, numbers, switches = scores[:, good], numbers[good], switches[good]
        self.scores = np.concatenate([self.scores, scores], axis=1)
        self.numbers = np.concatenate([self.numbers, numbers])
        self.switches = np.concatenate([self.switches, switches])
        self._take(pareto_front(self.scores, self.numbers, self.switches))


class Together(Ranking):
    """Several rankings by one objective, whose executions are visited together; the first one gives the result."""

    def __init__(self, first: Ranking, *others: Ranking):
        super().__init__(first.objectives)
        self._first, self._all = first, (first, *others)

    def upper_bound(self, tile: Tile, nodes: Array | None = None) -> Array | None:
        """Return an upper bound of the score for each cell, or None if the objective has none."""
        return self._first.upper_bound(tile, nodes)

    def least(self, numbers: Array) -> Array | float:
        """Return the scores below which executions enter none of the rankings."""
        return reduce(np.minimum, (one.least(numbers) for one in self._all))

    def order(self, bounds: Array, numbers: Array) -> Array:
        """Return the order of the first ranking."""
        return self._first.order(bounds, numbers)

    def keep(self, scores: Array, numbers: Array, switches: Array | int = 0) -> None:
        """Add executions to all rankings."""
        for one in self._all:
            one.keep(scores, numbers, switches)

    def consider(self, space: Space, rows: Rows) -> None:
        """Add executions to each ranking whose condition they meet."""
        for one in self._all:
            one.consider(space, rows)

    def ranked(self) -> tuple[Array, Array]:
        """Return the executions of the first ranking."""
        return self._first.ranked()


def _upper_bound(objective: Objective, tile: Tile, nodes: Array | None) -> Array | None:
    """Return an upper bound of the score for each cell, or None; a closer bound for selected nodes."""
    if objective.of_memory:
        return _best_memory(objective, tile) if nodes is None else None
    if objective.of_runs:
        return _best_run(objective, tile, nodes)
    if nodes is None:
        return objective.bound(lambda: tile.time_lower_bound, tile.batch_size, tile.tokens)
    sizes = tile.batch_size[nodes], tile.tokens[nodes]
    return objective.bound(lambda: tile.closer_lower_bound(nodes), *sizes)


def _best_memory(objective: Objective, tile: Tile) -> Array:
    """Return the best memory score of the executions of each cell that fit; no time is needed."""
    scores = np.where(tile.fits, objective.score(tile.memory), -np.inf)
    return np.asarray(scores.max(axis=WITHIN))


def _best_run(objective: Objective, tile: Tile, nodes: Array | None) -> Array | None:
    """Return an upper bound of the score of a training-run figure for each cell, or None if it has none."""
    runs = tile.space.runs
    assert runs is not None
    if nodes is None:
        return runs.bound(objective, tile.schedule(slice(None)), lambda: tile.time_lower_bound)
    return runs.bound(objective, tile.schedule(nodes), lambda: tile.closer_lower_bound(nodes))


def _meets(where: Condition, space: Space, chosen: Chosen) -> Array:
    """Return a mask of the executions that meet a condition."""
    plan = space.plan(chosen.numbers)

    def lookup(name: str) -> Array:
        if name in NAMES:
            return plan.values(name)
        runs = space.campaign is not None
        return chosen.values(known_statistic(name, "where", whole_runs=runs))

    return np.broadcast_to(where.mask(lookup), chosen.flat.shape)
