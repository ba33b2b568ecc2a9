"""Confidence in the order of two predicted plans.

Two executions of one model on one system have similar errors: much of the error is common to both times, and cancels in
their ratio. Each part of the time (forward compute, pipeline bubble, exposed collectives of an axis, ...) is assumed to
have the same error factor in both plans, independent of the other parts. With fractions ``a`` and ``b`` of the parts in
both times, the error of the logarithm of the ratio is ``sum((a - b) * e)`` to first order, and with 90 % below the
margin ``sqrt(sum(((a - b) * s) ** 2))``: the error ``e`` of a part is within ``s`` with 90 % (propagation of
independent contributions, JCGM 100:2008, section 5.1.2). Equal plans tie; plans that differ only in a small part have a
narrow margin.

The errors of parts come from pairs of measured runs with the same source, model, processor, type of arithmetic and
preset. If a calibration states residuals of parts of the system, these are perturbed instead, for both plans together.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.model import Model
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.statistics import ALL_PARTS_OF_TIME, LEVEL
from calculon.editions import find_edition
from calculon.estimate.evaluate import evaluate
from calculon.estimate.validated_runs import Runs, runs
from calculon.hardware.figures import slowed
from calculon.hardware.residuals import TRAINING, Spread
from calculon.hardware.system import System
from calculon.plan.plan import Plan

REPEATS = math.log(1.03)
"""Logarithm of the ratio of times of the same run on two days: repeated runs of ``validation/`` differ by 2 to 4 %."""

MAX_TIED = 0.1
"""Difference of predicted times above which two plans never tie, however uncertain their order is."""

REST = 0.3
"""Error of compute, pipeline bubble and host work, relative to the error of exposed traffic.

Among 1, 0.7, 0.5, 0.4, 0.3, 0.2 and 0.1 it has the smallest loss over pairs of measured runs; if any single source is
left out, the optimum is 0.2 to 0.4.
"""

_WEIGHTS = np.array([1.0 if name.endswith("_exposed_time") else REST for name in ALL_PARTS_OF_TIME])

NEEDED = ("sample_rate", "total_time", *ALL_PARTS_OF_TIME)
"""Statistics that a comparison needs."""

_SHARED = ("source", "system", "type", "parameters", "preset")

_DEVIATIONS = NormalDist().inv_cdf((1 + LEVEL) / 2)
"""Standard deviations of a normal distribution that contain :data:`LEVEL`."""

_ALIKE = 1e-6
"""Distance between equal shares due to rounding to six digits in the file."""


@dataclass(frozen=True, slots=True)
class Order:
    """Confidence that one plan is faster than another.

    Attributes:
        longer: Relative additional time per sample of the other plan; negative if it is faster.
        margin: Value of `longer` above which the order has a probability of 90 %, on either side.
        probability: Probability that the first plan is faster: 0.5 for equal plans.
    """

    longer: float
    margin: float
    probability: float

    @property
    def distinguishable(self) -> bool:
        """True unless the plans tie: their order has a probability of 90 %, or one takes over 10 % longer.

        Plans whose times differ no more than repeated runs always tie.
        """
        apart = abs(math.log1p(self.longer))
        least = max(REPEATS, min(math.log1p(self.margin), math.log1p(MAX_TIED)))
        return apart > least

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        found = {name: getattr(self, name) for name in ("longer", "margin", "probability")}
        return found | {"told_apart": self.distinguishable}


def orders(
    model: Model, system: System, plan: Plan, stats: Mapping[str, Array], first: int = 0
) -> list[Order]:
    """Return the confidence that one plan is faster than each of several plans.

    Args:
        model, system: Model and system of all plans.
        plan (with n rows): The plans; they fit, and are of edition ``corrected``.
        stats (shape (n,)): Their statistics by name.
        first: Index of the plan that is compared with the others.
    """
    margins = calibrated_margins(model, system, plan, first)
    if margins is None:
        margins = margins_of_shares(shares_of(stats), first)
    ratios = _longer(np.asarray(stats["sample_rate"], float), first)
    return [ordered(*one) for one in zip(ratios, margins, strict=True)]


def orders_of_stats(several: Sequence[Mapping[str, float | None]]) -> list[Order]:
    """Return the confidence that the first of several plans is faster, from statistics and measured runs only."""
    stats = {name: np.array([one.get(name) or 0.0 for one in several]) for name in NEEDED}
    ratios, margins = _longer(stats["sample_rate"]), margins_of_shares(shares_of(stats))
    return [ordered(*one) for one in zip(ratios, margins, strict=True)]


def _longer(rates: Array, first: int = 0) -> Array:
    """Return the logarithms of the time per sample relative to one plan; infinite times are equal."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Array = np.log(rates[first]) - np.log(rates)
    return np.where(rates == rates[first], 0.0, found)


def ordered(ratio: float, margin: float) -> Order:
    """Return the comparison of two plans, from the logarithms of the ratio of their times and of its margin."""
    probability = NormalDist().cdf(ratio / margin * _DEVIATIONS) if margin else _certain(ratio)
    return Order(float(np.expm1(ratio)), float(np.expm1(margin)), probability)


def _certain(ratio: float) -> float:
    return 0.5 if ratio == 0 else float(ratio > 0)


def shares_of(stats: Mapping[str, Array]) -> Array:
    """Return the fractions of the parts in times, shape (parts, n); parts that an edition lacks are 0."""
    total = np.asarray(stats["total_time"], float)
    nothing = np.zeros(len(total))
    parts = [np.asarray(stats.get(name, nothing), float) for name in ALL_PARTS_OF_TIME]
    result: Array = np.array(parts) / total
    return result


def margins_of_shares(shares: Array, first: int = 0, errors: Array | float | None = None) -> Array:
    """Return the 90 % margins of the logarithms of time ratios, from the fractions of their parts.

    Args:
        shares (shape (parts, n)): Fractions of the parts in the times of n plans.
        first: Index of the plan that is compared with the others.
        errors (shape (parts,)): 90 % errors of the logarithms of parts; by default from pairs of measured runs.
    """
    within = errors_of_parts() if errors is None else errors
    with np.errstate(invalid="ignore"):  # no evidence at all: equal shares times infinity
        apart = (shares - shares[:, first : first + 1]).T * within
    result: Array = np.sqrt(np.nansum(apart**2, axis=1))
    return result


def calibrated_margins(model: Model, system: System, plan: Plan, first: int = 0) -> Array | None:
    """Return the 90 % margins of the logarithms of time ratios from the residuals of calibrated parts.

    Each part is made as slow and as fast as its residuals, for all plans together; the changes of the ratios add in
    quadrature. Arguments as in :func:`orders`.

    Returns:
        Array of shape (n,); None for a system without residuals of parts.
    """
    machine = find_edition(CORRECTED).machine(system)
    spreads = [
        one
        for one in system.calibration.spreads
        if one.part != TRAINING and one.edition in ("", CORRECTED)
    ]
    if not spreads:
        return None

    def logs(one: Spread, factor: float) -> Array:
        found = np.log(evaluate(model, plan, slowed(machine, one, factor))["total_time"])
        return found - found[first]

    squares = np.zeros(len(plan))
    for one in spreads:
        # Not the unchanged machine: a factor of 1 may convert constants to curves
        before = logs(one, 1.0)
        squares += np.max([np.abs(logs(one, f) - before) for f in (one.low, one.high)], axis=0) ** 2
    return np.sqrt(squares)


# -- evidence from pairs of measured runs ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pairs:
    """Pairs of measured runs with the same source, model, processor, type of arithmetic and preset.

    Attributes:
        errors (shape (pairs,)): Absolute logarithms of predicted over measured ratio.
        distances (shape (pairs,)): Euclidean distances between the fractions of parts, scaled by :data:`REST` except
            for exposed traffic.
        sources (shape (pairs,)): Index of the source of each pair.
    """

    errors: Array
    distances: Array
    sources: Array

    @property
    def weights(self) -> Array:
        """Weights of the pairs, with equal totals for all sources."""
        counts = np.bincount(self.sources)
        result: Array = 1 / counts[self.sources]
        return result

    def without(self, source: int) -> "Pairs":
        """Return the pairs of all other sources."""
        kept = self.sources != source
        _, numbers = np.unique(self.sources[kept], return_inverse=True)
        return Pairs(self.errors[kept], self.distances[kept], numbers)

    @property
    def error(self) -> float:
        """90 % error of the logarithm of exposed traffic, with equal weights of sources; infinite without pairs.

        It is the quantile of the errors of ratios divided by the distances of fractions. The variation of repeated runs
        is subtracted from the errors first, in quadrature.
        """
        if not len(self.errors):
            return math.inf
        beyond = np.sqrt(np.maximum(0.0, self.errors**2 - REPEATS**2))
        # A difference that equal fractions cannot explain
        never = np.where(beyond > 0, math.inf, 0.0)
        scores = np.divide(beyond, self.distances, out=never, where=self.distances > _ALIKE)
        order = np.argsort(scores, kind="stable")
        reached = np.cumsum(self.weights[order])
        place = int(np.searchsorted(reached, LEVEL * reached[-1]))
        return float(scores[order][min(place, len(order) - 1)])

    def margins(self, error: float) -> Array:
        """Return the 90 % margins of measured ratios for an error of exposed traffic, and of repeated runs."""
        result: Array = np.hypot(REPEATS, error * self.distances)
        return result


def pairs_of(some: Runs) -> Pairs:
    """Return all pairs of comparable runs."""
    ratios = np.log(some.numbers("measured") / some.numbers("predicted"))
    shares = some.shares * _WEIGHTS[:, None]
    alike: dict[tuple[str, ...], list[int]] = {}
    for i, kind in enumerate(zip(*(some.columns[name] for name in _SHARED), strict=True)):
        alike.setdefault(kind, []).append(i)
    errors, distances, sources = [], [], []
    numbers: dict[str, int] = {}
    for kind, rows in alike.items():
        one, other = (np.array(rows)[side] for side in np.triu_indices(len(rows), 1))
        if not len(one):
            continue
        errors.append(np.abs(ratios[one] - ratios[other]))
        distances.append(np.sqrt(((shares[:, one] - shares[:, other]) ** 2).sum(axis=0)))
        sources.append(np.full(len(one), numbers.setdefault(kind[0], len(numbers))))
    none = np.zeros(0)
    return Pairs(
        np.concatenate([*errors, none]),
        np.concatenate([*distances, none]),
        np.concatenate([*sources, none.astype(int)]),
    )


@cache
def errors_of_parts() -> Array:
    """Return the 90 % error of the logarithm of each part of the time, from all measured runs."""
    result: Array = pairs_of(runs()).error * _WEIGHTS
    return result
