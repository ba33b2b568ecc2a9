"""Prediction intervals for rows of a group that nobody has seen, from rows of groups that were measured.

Rows are log ratios of measured over predicted times; a group is a source of measurements, whose rows err alike. What is
exchangeable is groups, not rows: a new execution is one of a new group. Each group has the same weight, however many
rows it has.

An interval starts from quantiles of the rows of all groups together, the lower and the upper side apart, so that a bias
stays visible in it. Rows that are like the new execution count more, in whatever context tells before anything is
measured; rows unlike it always count, so that few of the first kind do not make a narrow interval. Both ends are then
moved outwards by as much as makes intervals that were found without a group hold its rows.

The share of the rows that scores have to hold is the level itself. A promise for any distribution whatever would take
the level times (K + 1) / K, which of 11 groups asks for the largest error ever seen: twice as wide, and 98 % held. What
share is held in fact is found by leaving out each group in turn (:meth:`Groups.coverage`).

Source: Dunn, Wasserman and Ramdas, *Distribution-free prediction sets for two-layer hierarchical models*, arXiv
1809.07441, section 3.1 (groups of equal weight, pooled); Romano, Patterson and Candes, *Conformalized quantile
regression*, arXiv 1905.03222, section 4 (ends moved by a quantile of scores); Barber et al., *Predictive inference with
the jackknife+*, arXiv 1905.02928 (scores of what is left out in turn); Barber et al., *Conformal prediction beyond
exchangeability*, arXiv 2202.13415 (weights that are fixed before).
"""

from functools import cached_property

import numpy as np

from calculon.frozen import dataclass
from calculon.units import Array

LEVEL = 0.9
"""Share of the rows of groups not seen that an interval is to hold."""

FEWEST = 3
"""Groups that an interval needs: two to compare, and one to try it on."""

_EXACT = 1e-9


@dataclass(frozen=True)
class Groups:
    """Rows of several groups.

    Attributes
    ----------
    ratios : array, shape (rows,)
        Logarithms of measured over predicted values.
    group : array of int, shape (rows,)
        Number of the group of each row, from 0 without gaps.
    context : array of int, shape (features, rows)
        What is known of a row before it is measured, each feature as a code.
    gains : tuple of float
        For each feature, how much more a row counts that has it in common, in multiples of one that has none.
    """

    ratios: Array
    group: Array
    context: Array
    gains: tuple[float, ...]

    @cached_property
    def count(self) -> int:
        """Number of groups."""
        return int(self.group.max()) + 1 if len(self.group) else 0

    @cached_property
    def _contexts(self) -> list[tuple[Array, Array]]:
        """The rows of each context of each group, and the context."""
        found: dict[tuple[int, ...], list[int]] = {}
        for row, key in enumerate(zip(self.group.tolist(), *self.context.tolist(), strict=True)):
            found.setdefault(key, []).append(row)
        return [(np.array(rows), np.array(key[1:], int)) for key, rows in found.items()]

    def quantiles(self, context: Array, present: Array) -> tuple[float, float, float]:
        """Return lower end, median and upper end of the rows of some groups, as they count for a context.

        Parameters
        ----------
        context : array of int, shape (features,)
            The context; a code that no row has is one of a kind.
        present : array of bool, shape (groups,)
            The groups.
        """
        order = self._order
        share = np.where(present, 1 / np.bincount(self.group), 0.0)
        alike = 1.0 + np.array(self.gains) @ (self.context == context[:, None])
        reached = np.cumsum((alike * share[self.group])[order])
        wanted = np.array([(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2]) * reached[-1]
        places = np.searchsorted(reached, wanted * (1 - _EXACT))
        low, middle, high = self.ratios[order][places].tolist()
        return low, middle, high

    @cached_property
    def _order(self) -> Array:
        return np.argsort(self.ratios, kind="stable")

    def outward(self, present: Array) -> float:
        """Return by how much ends have to move outwards so that intervals found without a group hold its rows."""
        scores = np.full(len(self.ratios), np.nan)
        for rows, context in self._contexts:
            group = self.group[rows[0]]
            if present[group]:
                others = present.copy()
                others[group] = False
                low, _, high = self.quantiles(context, others)
                scores[rows] = np.maximum(low - self.ratios[rows], self.ratios[rows] - high)
        known = np.isfinite(scores)
        order = np.argsort(scores[known], kind="stable")
        weights = (1 / np.bincount(self.group)[self.group])[known][order]
        reached = np.cumsum(weights)
        return float(scores[known][order][np.searchsorted(reached, LEVEL * reached[-1] - _EXACT)])

    @cached_property
    def _outward(self) -> float:
        return self.outward(np.ones(self.count, bool))

    def limits(self, context: Array) -> tuple[float, float, float]:
        """Return lower end, median and upper end of the logarithm of measured over predicted values for a context."""
        low, middle, high = self.quantiles(context, np.ones(self.count, bool))
        return low - self._outward, middle, high + self._outward

    def coverage(self) -> list[float]:
        """Return for each group the share of its rows inside of the intervals that all other groups give.

        Nothing where these are too few.
        """
        if self.count <= FEWEST:
            return []
        inside = np.zeros(len(self.ratios))
        everyone = np.ones(self.count, bool)
        moved = [self.outward(everyone & (np.arange(self.count) != k)) for k in range(self.count)]
        for rows, context in self._contexts:
            group = self.group[rows[0]]
            low, _, high = self.quantiles(context, everyone & (np.arange(self.count) != group))
            ends = low - moved[group], high + moved[group]
            inside[rows] = (self.ratios[rows] >= ends[0]) & (self.ratios[rows] <= ends[1])
        shares: list[float] = (np.bincount(self.group, inside) / np.bincount(self.group)).tolist()
        return shares
