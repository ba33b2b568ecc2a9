"""Prediction intervals for rows of a group that nobody has seen, from rows of groups that were measured.

Rows are log ratios of measured over predicted times; a group is a source of measurements, whose rows err alike. What is
exchangeable is groups, not rows: a new execution is one of a new group. Each group has the same weight, however many
rows it has.

An interval starts from quantiles of the rows of all groups together, the lower and the upper side apart, so that a bias
stays visible in it. Rows that are like the new execution count more, in whatever context tells before anything is
measured; rows unlike it always count, so that few of the first kind do not make a narrow interval. Both sides are then
stretched from the median by one factor, so much that intervals found without a group hold its rows: that factor is what
is conformal.

Source: Dunn, Wasserman and Ramdas, *Distribution-free prediction sets for two-layer hierarchical models*, arXiv
1809.07441 (groups of equal weight; one more group than was seen); Lei et al., *Distribution-free predictive inference
for regression*, arXiv 1604.04173, section 5.2 (scores normalised by an expected size); Barber et al., *Predictive
inference with the jackknife+*, arXiv 1905.02928 (what is left out in turn); Barber et al., *Conformal prediction beyond
exchangeability*, arXiv 2202.13415 (weights that are fixed before).
"""

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from calculon.frozen import dataclass
from calculon.units import Array

LEVEL = 0.9
"""Share of the rows of groups not seen that an interval is to hold."""

_EXACT = 1e-9
_NARROWEST = 1e-6


@dataclass(frozen=True)
class Groups:
    """Rows of several groups.

    Attributes
    ----------
    ratios : array, shape (rows,)
        Logarithms of measured over predicted values.
    group : array of int, shape (rows,)
        Number of the group of each row, from 0.
    context : array of int, shape (features, rows)
        What is known of a row before it is measured, each feature as a code.
    gains : tuple of float
        How much more a row counts that has a feature in common, in multiples of one that has none.
    """

    ratios: Array
    group: Array
    context: Array
    gains: tuple[float, ...]

    @cached_property
    def count(self) -> int:
        """Number of groups."""
        return len(np.unique(self.group))

    @cached_property
    def _order(self) -> Array:
        return np.argsort(self.ratios, kind="stable")

    def without(self, group: int) -> "Groups":
        """Return the rows of all other groups."""
        return self._of(self.group != group)

    def _of(self, kept: Array) -> "Groups":
        return Groups(self.ratios[kept], self.group[kept], self.context[:, kept], self.gains)

    def quantiles(self, context: Array, level: float = LEVEL) -> tuple[float, float, float]:
        """Return the lower end, the median and the upper end of the rows for an execution of some context."""
        order = self._order
        sizes = np.bincount(self.group)
        alike = 1.0 + np.array(self.gains) @ (self.context == context[:, None])
        weights = (alike / sizes[self.group])[order]
        reached = np.cumsum(weights)
        wanted = np.array([(1 - level) / 2, 0.5, (1 + level) / 2]) * reached[-1]
        places = np.minimum(np.searchsorted(reached, wanted * (1 - _EXACT)), len(order) - 1)
        low, middle, high = self.ratios[order][places].tolist()
        return low, middle, high

    def scores(self) -> Array:
        """Return for each row how far it is from the median of all other groups, in widths of their side of it."""
        found = np.empty(len(self.ratios))
        for group in np.unique(self.group).tolist():
            rest = self.without(group)
            here = np.flatnonzero(self.group == group)
            for rows, context in _by_context(self.context, here):
                low, middle, high = rest.quantiles(context)
                offset = self.ratios[rows] - middle
                side = np.where(offset < 0, middle - low, high - middle)
                found[rows] = np.abs(offset) / np.maximum(side, _NARROWEST)
        return found

    @cached_property
    def stretch(self) -> float:
        """The factor that both sides are stretched by: a quantile of the scores, with one group more than was seen."""
        scores = self.scores()
        order = np.argsort(scores, kind="stable")
        weights = 1 / np.bincount(self.group)[self.group] / (self.count + 1)
        reached = np.cumsum(weights[order]) >= LEVEL * (1 - _EXACT)
        return float(scores[order[reached.argmax() if reached.any() else -1]])

    @property
    def level(self) -> float:
        """The level that so many groups allow."""
        return min(LEVEL, self.count / (self.count + 1))

    def limits(self, context: Array) -> tuple[float, float]:
        """Return the ends of the interval of measured over predicted values for a context."""
        low, middle, high = self.quantiles(context)
        ends = middle - self.stretch * (middle - low), middle + self.stretch * (high - middle)
        return float(np.exp(ends[0])), float(np.exp(ends[1]))

    def coverage(self) -> Mapping[int, float]:
        """Return for each group the share of its rows inside intervals that all other groups give."""
        found = {}
        for group in np.unique(self.group).tolist():
            rest = self.without(group)
            here = np.flatnonzero(self.group == group)
            inside = 0
            for rows, context in _by_context(self.context, here):
                low, high = rest.limits(context)
                ratios = np.exp(self.ratios[rows])
                inside += int(((ratios >= low) & (ratios <= high)).sum())
            found[group] = inside / len(here)
        return found


def _by_context(context: Array, rows: Array) -> list[tuple[Array, Array]]:
    """Return rows of equal context together, each with the context."""
    unique, which = np.unique(context[:, rows], axis=1, return_inverse=True)
    which = which.reshape(-1)
    return [(rows[which == i], unique[:, i]) for i in range(unique.shape[1])]
