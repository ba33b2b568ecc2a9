"""Prediction intervals for a new source of measurements, from the errors of measured sources.

Errors are logarithms of measured over predicted times. Rows of one source have similar errors (one machine, one
software, one interpretation of unstated settings), so sources are exchangeable and rows are not: sources have equal
weights for any number of rows, and so have the studies of a source.

The weight of a row for an execution depends on features that are known before a measurement: software, processor,
precision, class of models. Each shared feature multiplies the weight by a stated factor. So similar evidence dominates
an interval if it exists, and the interval is wide if few sources remain: errors of a new source follow a Student t
distribution around the weighted median, with the effective number of sources minus one as degrees of freedom. Its scale
is the standard deviation of the normal distribution that contains the same distance from the median with 80 %
probability as 80 % of the weight: errors are normal, and only the unknown scale makes their prediction a Student t. A
quantile is used because a variance would follow the few sources with the largest errors; and this one, because the 90 %
quantile of ten sources is a single source.

The coverage of the intervals is measured by leaving out each source in turn (:attr:`SourceErrors.sides`).

Source: prediction of one more value of a sample, Gelman et al., *Bayesian Data Analysis*, 3rd edition, section 3.2
(Student t, scale inflated by ``sqrt(1 + 1 / K)``), with the effective number of sources ``K = (sum w)^2 / sum w^2`` of
Kish, *Survey Sampling* (1965), section 11.7; groups of equal weight, Dunn, Wasserman and Ramdas, arXiv 1809.07441,
section 3.1; weights that are fixed before, Barber et al., *Conformal prediction beyond exchangeability*, arXiv
2202.13415.
"""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import cached_property
from statistics import NormalDist

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.statistics import LEVEL
from calculon.estimate.student import quantile

FEWEST = 3
"""Smallest number of sources of an interval: two to compare, and one to test it."""

WITHIN = 0.8
"""Fraction of the weight at which the scale of the distribution is estimated."""

DEVIATIONS = NormalDist().inv_cdf((1 + WITHIN) / 2)
"""Standard deviations from the middle of a normal distribution within which this fraction lies."""

_EXACT = 1e-9


@dataclass(frozen=True)
class SourceErrors:
    """Errors of several sources.

    Attributes:
        ratios (shape (rows,)): Logarithms of measured over predicted values.
        source (shape (rows,)): Index of the source of each row, from 0 without gaps.
        weight (shape (rows,)): Weight of each row in its source; weights of a source add up to 1.
        context (shape (features, rows)): Features of a row that are known before the measurement, as codes.
        factors (shape (features,)): Factors of the weight for shared features.
        evidence (shape (rows,)): Mask of the rows that intervals use. Other rows are only evaluated: a fit used them,
            or they do not measure speed.
    """

    ratios: Array
    source: Array
    weight: Array
    context: Array
    factors: tuple[float, ...]
    evidence: Array

    @cached_property
    def count(self) -> int:
        """Number of sources that intervals use."""
        return len(set(self.source[self.evidence].tolist()))

    @cached_property
    def _order(self) -> Array:
        return np.argsort(self.ratios, kind="stable")

    def likeness(self, context: Array) -> Array:
        """Return the weight of each row for a context; 0 for rows that are not evidence.

        Args:
            context (shape (features,)): The context; codes that no row has are not shared by any row.
        """
        factors = np.array(self.factors)[:, None]
        alike = np.where(self.context == context[:, None], factors, 1.0).prod(axis=0)
        result: Array = self.weight * self.evidence * alike
        return result

    def limits(self, context: Array, without: int = -1) -> tuple[float, float, float]:
        """Return lower end, median and upper end of the logarithm of measured over predicted values for a context.

        Args:
            context (shape (features,)): The context.
            without: Index of a source to leave out.
        """
        weights = self.likeness(context) * (self.source != without)
        middle = float(self.ratios[_reached(weights, self._order, np.array(0.5))])
        apart = np.abs(self.ratios - middle)
        near = apart[_reached(weights, np.argsort(apart, kind="stable"), np.array(WITHIN))]
        of_source = np.bincount(self.source, weights)
        effective = effective_number(of_source)
        freedom = max(1.0, effective - 1)
        scale = float(near) / DEVIATIONS * math.sqrt(1 + 1 / effective)
        half = quantile((1 + LEVEL) / 2, freedom) * scale
        return middle - half, middle, middle + half

    @cached_property
    def sides(self) -> Array:
        """Side on which each row misses the interval from all other sources: -1 is faster, 1 slower, 0 inside.

        Empty if there are too few other sources.
        """
        if self.count <= FEWEST:
            return np.zeros(0, int)
        # Rows of a source with equal context have the same interval: compute each once.
        known = np.column_stack([self.source, self.context.T])
        contexts, rows_of = np.unique(known, axis=0, return_inverse=True)
        ends = np.array([self.limits(one[1:], without=one[0]) for one in contexts])
        low, _, high = ends[rows_of.ravel()].T
        return np.where(self.ratios < low, -1, np.where(self.ratios > high, 1, 0))


def effective_number(weights: Array) -> float:
    """Return the number of equal weights with the same precision of their mean (Kish, section 11.7).

    >>> effective_number(np.ones(4)), effective_number(np.array([3.0, 1.0]))
    (4.0, 1.6)
    """
    return float(weights.sum() ** 2 / (weights**2).sum())


def equal_weights(groups: Sequence[Hashable], parts: Sequence[Hashable]) -> Array:
    """Return weights that are equal for the parts of a group and for the rows of a part; each group adds up to 1.

    >>> equal_weights(["vtrain", "vtrain", "vtrain"], ["multi", "single", "single"])
    array([0.5 , 0.25, 0.25])
    """
    rows = Counter(zip(groups, parts, strict=True))
    several = Counter(group for group, _ in rows)
    return np.array([1 / (several[g] * rows[g, p]) for g, p in zip(groups, parts, strict=True)])


def weighted_quantile(values: Array, weights: Array, level: float) -> float:
    """Return the smallest value at which the cumulative weight reaches a fraction of the total.

    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([0.5, 0.25, 0.25]), 0.5)
    2.0
    """
    return float(values[_reached(weights, np.argsort(values, kind="stable"), np.array(level))])


def _reached(weights: Array, order: Array, levels: Array) -> Array:
    """Return the rows at which cumulative weights, in the given order, reach fractions of the total."""
    sums = np.cumsum(weights[order])
    return order[np.searchsorted(sums, levels * sums[-1] * (1 - _EXACT))]
