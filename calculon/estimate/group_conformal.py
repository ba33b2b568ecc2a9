"""Prediction intervals for rows of a group that nobody has seen, from rows of groups that were measured.

Rows are log ratios of measured over predicted times; a group is a source of measurements, whose rows err alike. What is
exchangeable is groups, not rows: a new execution is one of a new group. Each group has the same weight, however many
rows it has, and in it each of its studies.

An interval starts from quantiles of the rows of all groups together, the lower and the upper side apart, so that a bias
stays visible in it. Rows that are like the new execution count more, in whatever context tells before anything is
measured; rows unlike it always count, so that few of the first kind do not make a narrow interval. Both ends are then
moved outwards by as much as makes intervals that were found without a group hold its rows.

The share of the rows that scores have to hold is the level itself. A promise for any distribution whatever would take
the level times (K + 1) / K, which of 11 groups asks for the largest error ever seen: nearly twice as wide, and 98 %
held. What share is held in fact is found by leaving out each group in turn (:meth:`Groups.coverage`).

Ends do not move further for what is far from every run. Scores that are divided by a distance to the nearest run of
another source were tried: errors depend on it little (rank correlation 0.16), which divisor is best differs with the
source that is left out, and intervals score 1 % better (Winkler's score); what lies outside is said in words.

Source: Dunn, Wasserman and Ramdas, *Distribution-free prediction sets for two-layer hierarchical models*, arXiv
1809.07441, section 3.1 (groups of equal weight, pooled); Romano, Patterson and Candes, *Conformalized quantile
regression*, arXiv 1905.03222, section 4 (ends moved by a quantile of scores); Barber et al., *Predictive inference with
the jackknife+*, arXiv 1905.02928 (scores of what is left out in turn); Barber et al., *Conformal prediction beyond
exchangeability*, arXiv 2202.13415 (weights that are fixed before).
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import cached_property

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.statistics import LEVEL

FEWEST = 3
"""Groups that an interval needs: two to compare, and one to try it on."""

_EXACT, _DIGITS = 1e-9, 9


@dataclass(frozen=True)
class Groups:
    """Rows of several groups.

    Attributes:
        ratios (shape (rows,)): Logarithms of measured over predicted values.
        group (shape (rows,)): Number of the group of each row, from 0 without gaps.
        weight (shape (rows,)): Weight of each row in its group; those of a group add up to 1.
        context (shape (features, rows)): What is known of a row before it is measured, each feature as a code.
        gains: For each feature, how much more a row counts that has it in common, in multiples of one that has none.
        evidence (shape (rows,)): Rows that intervals rest on. Others are covered or not, and nothing follows from it: a
            fit has seen them.
    """

    ratios: Array
    group: Array
    weight: Array
    context: Array
    gains: tuple[float, ...]
    evidence: Array

    @cached_property
    def count(self) -> int:
        """Number of groups."""
        return int(self.group.max()) + 1 if len(self.group) else 0

    @cached_property
    def speaking(self) -> int:
        """Number of groups that intervals rest on."""
        return len(set(self.group[self.evidence].tolist()))

    @cached_property
    def _contexts(self) -> list[tuple[int, Array, Array]]:
        """Each group, a context of it, and the rows that have it."""
        found: dict[tuple[int, ...], list[int]] = {}
        for row, key in enumerate(zip(self.group.tolist(), *self.context.tolist(), strict=True)):
            found.setdefault(key, []).append(row)
        return [(key[0], np.array(key[1:], int), np.array(rows)) for key, rows in found.items()]

    @cached_property
    def _order(self) -> Array:
        return np.argsort(self.ratios, kind="stable")

    @cached_property
    def _evident(self) -> Array:
        return self.weight * self.evidence

    @cached_property
    def _everyone(self) -> Array:
        return np.ones(self.count, bool)

    def quantiles(self, context: Array, present: Array) -> tuple[float, float, float]:
        """Return lower end, median and upper end of the rows of some groups, as they count for a context.

        Args:
            context (shape (features,)): The context; a code that no row has is one of a kind.
            present (shape (groups,)): The groups.
        """
        alike = 1.0 + np.array(self.gains) @ (self.context == context[:, None])
        weights = alike * self._evident * present[self.group]
        ends = np.array([(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2])
        low, middle, high = self.ratios[_reached(weights, self._order, ends)].tolist()
        return low, middle, high

    def outward(self, present: Array) -> float:
        """Return how far ends have to move outwards so that intervals found without a group hold its rows."""
        scores = np.full(len(self.ratios), -np.inf)
        for group, context, rows in self._contexts:
            if present[group]:
                low, _, high = self.quantiles(context, _but(present, group))
                scores[rows] = np.maximum(low - self.ratios[rows], self.ratios[rows] - high)
        order = np.argsort(scores, kind="stable")
        return float(scores[_reached(self._evident * present[self.group], order, np.array(LEVEL))])

    @cached_property
    def _outward(self) -> float:
        return self.outward(self._everyone)

    def limits(self, context: Array) -> tuple[float, float, float]:
        """Return lower end, median and upper end of the logarithm of measured over predicted values for a context."""
        low, middle, high = self.quantiles(context, self._everyone)
        return low - self._outward, middle, high + self._outward

    @cached_property
    def inside(self) -> Array:
        """Which rows are inside of the intervals that all other groups give; no array where these are too few."""
        inside = np.zeros(len(self.ratios), bool)
        if self.speaking <= FEWEST:
            return inside[:0]
        moved = [self.outward(_but(self._everyone, group)) for group in range(self.count)]
        for group, context, rows in self._contexts:
            low, _, high = self.quantiles(context, _but(self._everyone, group))
            ends = low - moved[group], high + moved[group]
            inside[rows] = (self.ratios[rows] >= ends[0]) & (self.ratios[rows] <= ends[1])
        return inside

    @cached_property
    def coverage(self) -> list[float]:
        """The share of each group inside of the intervals that all other groups give; empty where these are too few."""
        if not len(self.inside):
            return []
        shares = np.bincount(self.group, self.inside * self.weight)
        return [round(share, _DIGITS) for share in shares.tolist()]


def equal_weights(groups: Sequence[Hashable], parts: Sequence[Hashable]) -> Array:
    """Return weights by which the parts of a group count alike, and the rows of a part; each group adds up to 1.

    >>> equal_weights(["vtrain", "vtrain", "vtrain"], ["multi", "single", "single"])
    array([0.5 , 0.25, 0.25])
    """
    rows = Counter(zip(groups, parts, strict=True))
    several = Counter(group for group, _ in rows)
    return np.array([1 / (several[g] * rows[g, p]) for g, p in zip(groups, parts, strict=True)])


def weighted_quantile(values: Array, weights: Array, level: float) -> float:
    """Return the smallest value that at least a share of the weight is at or below.

    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([0.5, 0.25, 0.25]), 0.5)
    2.0
    """
    return float(values[_reached(weights, np.argsort(values, kind="stable"), np.array(level))])


def _reached(weights: Array, order: Array, levels: Array) -> Array:
    """Return the rows at which sums of weights, in an order of the rows, reach shares of all."""
    sums = np.cumsum(weights[order])
    return order[np.searchsorted(sums, levels * sums[-1] * (1 - _EXACT))]


def _but(present: Array, group: int) -> Array:
    """Return the groups without one of them."""
    others = present.copy()
    others[group] = False
    return others
