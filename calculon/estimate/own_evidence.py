"""Measured steps of a user, which narrow the prediction intervals of executions like them.

An interval of published runs is for a new source of measurements: its variance is the variance between sources and the
variance within a source. Steps that a user measured are of the source of the executions that the user asks about, so
they show the error of this source. With ``b`` and ``w`` the two variances, ``m`` the middle of the published interval
and ``r`` the median error of ``n`` own steps, the error of the source is ``m + k (r - m)``, ``k = b / (b + w / n)``,
and the variance of one more step is ``b (1 - k) + w``. Both ends of the interval move with the middle, and its width
shrinks by the ratio of the standard deviations. Without own steps nothing changes; with many, the variance within a
source is left. A step that has less in common with an execution counts as a part of a step.

Predicted times, memory and the comparison of plans are as without own steps.

Source: shrinkage of a group mean in a hierarchical normal model, Gelman et al., *Bayesian Data Analysis*, 3rd edition,
section 5.4.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.estimate.run_table import FACTORS, Run, Runs
from calculon.estimate.source_errors import WITHIN, weighted_quantile
from calculon.estimate.student import quantile

_NORMAL = 1000.0
"""Degrees of freedom from which on Student's distribution is the normal one."""

Ends = tuple[float, float, float]
"""Lower end, median and upper end of log measured over predicted time."""


@dataclass(frozen=True, slots=True)
class OwnEvidence:
    """Steps that a user measured.

    Attributes:
        name: The file of them.
        steps: The steps.
    """

    name: str
    steps: tuple[Run, ...]


_held: list[OwnEvidence] = []


@contextmanager
def holding(evidence: OwnEvidence) -> Iterator[None]:
    """Let intervals rest on measured steps of a user, too, until the block ends; in all threads."""
    _held.append(evidence)
    try:
        yield
    finally:
        _held.remove(evidence)


def held() -> OwnEvidence | None:
    """Return the measured steps of the user, if there are any."""
    return _held[-1] if _held else None


def joined(published: Runs, steps: Sequence[Run]) -> Runs:
    """Return published runs, and after them some steps."""
    own = Runs.of(steps).columns
    return Runs({name: [*column, *own[name]] for name, column in published.columns.items()})


def narrowed(ends: Ends, published: Runs, context: Array, own: Array, likeness: Array) -> Ends:
    """Return an interval that rests on own steps, too.

    Args:
        ends: The interval of published runs.
        published: These runs.
        context (shape (features,)): What published runs may have in common with the execution.
        own (shape (steps,)): Logarithms of measured over predicted times of own steps.
        likeness (shape (steps,)): Their weights, 1 for a step that has everything in common with the execution.
    """
    count = float(likeness.sum())
    between, within = variances(published, context)
    if not count or not between:
        return ends
    low, middle, high = ends
    share = between / (between + within / count)
    center = middle + share * (weighted_quantile(own, likeness, 0.5) - middle)
    ratio = float(np.sqrt((between * (1 - share) + within) / (between + within)))
    return center - ratio * (middle - low), center, center + ratio * (high - middle)


def variances(published: Runs, context: Array) -> tuple[float, float]:
    """Return the variance of errors between sources and within a source, as the sources count for a context.

    Both are read at the share of the weight at which published intervals read their scale, so that a few sources that
    err most do not decide.
    """
    errors = published.by_source
    weights = errors.likeness(context)
    medians, of_source, apart = [], [], np.zeros(len(weights))
    for source in set(errors.source[weights > 0].tolist()):
        rows = (errors.source == source) & (weights > 0)
        medians.append(weighted_quantile(errors.ratios[rows], weights[rows], 0.5))
        of_source.append(float(weights[rows].sum()))
        apart[rows] = np.abs(errors.ratios[rows] - medians[-1])
    sources = np.array(of_source)
    within = np.where(apart > 0, weights, 0.0)  # a row that is the median itself shows no spread
    middle = weighted_quantile(np.array(medians), sources, 0.5)
    return (
        _variance(np.abs(np.array(medians) - middle), sources),
        _variance(apart, within),
    )


def _variance(apart: Array, weights: Array) -> float:
    """Return the variance of a normal distribution that is as often as near to its middle."""
    if not weights.any():
        return 0.0
    near = weighted_quantile(apart, weights, WITHIN)
    return float((near / quantile((1 + WITHIN) / 2, _NORMAL)) ** 2)


def likeness(steps: Array, context: Array) -> Array:
    """Return weights of steps by what they have in common with an execution: 1 for everything.

    Args:
        steps (shape (features, steps)): What each step may have in common, as codes.
        context (shape (features,)): The same of the execution.
    """
    factors = np.array([*FACTORS.values()])[:, None]
    found: Array = np.where(steps == context[:, None], 1.0, 1 / factors).prod(axis=0)
    return found
