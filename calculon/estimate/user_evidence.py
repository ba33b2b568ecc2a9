"""Measured steps of a user, which narrow the prediction intervals of similar executions.

The interval of published runs is for a new source of measurements: its variance is the variance between sources plus
the variance within a source. Steps that a user measured have the same source as the user's executions, so they show the
error of this source. With the two variances ``b`` and ``w``, the middle ``m`` of the published interval and the median
error ``r`` of ``n`` own steps, the error of the source is ``m + k (r - m)``, ``k = b / (b + w / n)``, and the variance
of one more step is ``b (1 - k) + w``. Both ends of the interval move with the middle, and the width shrinks by the
ratio of the standard deviations. Without own steps nothing changes; with many, only the variance within a source
remains. Steps that are less similar to an execution count as fractions of a step.

Own steps do not change predicted times, memory, or the comparison of plans.

Source: shrinkage of a group mean in a hierarchical normal model, Gelman et al., *Bayesian Data Analysis*, 3rd edition,
section 5.4.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.serving_classes import ServedClass
from calculon.estimate.run_table import FACTORS, Run, Runs
from calculon.estimate.source_errors import DEVIATIONS, WITHIN, SourceErrors, weighted_quantile

Ends = tuple[float, float, float]
"""Lower end, median and upper end of the logarithm of measured over predicted time."""


@dataclass(frozen=True, slots=True)
class OwnFigure:
    """Figure of a served model that a user measured: its name, the class of the deployment, measured over predicted."""

    figure: str
    of_class: ServedClass
    ratio: float


@dataclass(frozen=True, slots=True)
class OwnEvidence:
    """Measurements of a user.

    Attributes:
        name: File of the measurements.
        steps: Training steps.
        figures: Figures of served models.
    """

    name: str
    steps: tuple[Run, ...] = ()
    figures: tuple[OwnFigure, ...] = ()


_held: list[OwnEvidence] = []


@contextmanager
def using_evidence(evidence: OwnEvidence) -> Iterator[None]:
    """Use measurements of a user in prediction intervals until the block ends, in all threads."""
    _held.append(evidence)
    try:
        yield
    finally:
        _held.remove(evidence)


def current_evidence() -> OwnEvidence | None:
    """Return the measurements of the user, or None."""
    return _held[-1] if _held else None


def concatenated(published: Runs, steps: Sequence[Run]) -> Runs:
    """Concatenate published runs and measured steps."""
    own = Runs.of(steps).columns
    return Runs({name: [*column, *own[name]] for name, column in published.columns.items()})


def narrowed(
    ends: Ends, published: SourceErrors, context: Array, own: Array, likeness: Array
) -> Ends:
    """Return a prediction interval that includes the evidence of own steps.

    Args:
        ends: Interval of published runs.
        published: Their errors.
        context (shape (features,)): Features of the execution that published runs may share.
        own (shape (steps,)): Logarithms of measured over predicted times of own steps.
        likeness (shape (steps,)): Weights of the steps; 1 for a step that shares all features with the execution.
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


def variances(errors: SourceErrors, context: Array) -> tuple[float, float]:
    """Return the variances of errors between sources and within a source, weighted for a context.

    Both are estimated from the same quantile as the scale of published intervals, so that a few sources with large
    errors do not dominate.
    """
    weights = errors.likeness(context)
    medians, of_source, apart = [], [], np.zeros(len(weights))
    for source in set(errors.source[weights > 0].tolist()):
        rows = (errors.source == source) & (weights > 0)
        medians.append(weighted_quantile(errors.ratios[rows], weights[rows], 0.5))
        of_source.append(float(weights[rows].sum()))
        apart[rows] = np.abs(errors.ratios[rows] - medians[-1])
    sources = np.array(of_source)
    within = np.where(apart > 0, weights, 0.0)  # the median row itself shows no spread
    middle = weighted_quantile(np.array(medians), sources, 0.5)
    return (
        _variance(np.abs(np.array(medians) - middle), sources),
        _variance(apart, within),
    )


def _variance(apart: Array, weights: Array) -> float:
    """Return the variance of a normal distribution with the same quantile of distances from its middle."""
    if not weights.any():
        return 0.0
    near = weighted_quantile(apart, weights, WITHIN)
    return (near / DEVIATIONS) ** 2


def likeness(steps: Array, context: Array) -> Array:
    """Return the weights of steps from the features that they share with an execution: 1 for all features.

    Args:
        steps (shape (features, steps)): Features of each step, as codes.
        context (shape (features,)): Features of the execution, as codes.
    """
    factors = np.array([*FACTORS.values()])[:, None]
    result: Array = np.where(steps == context[:, None], 1.0, 1 / factors).prod(axis=0)
    return result
