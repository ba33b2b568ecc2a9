"""Which of two predicted plans is the faster one, and how sure that is.

Two executions of one model on one system err alike: much of what is wrong in one time is wrong in the other, and does
not matter for their ratio. Each part of the time (forward computation, bubble, exposed collectives of an axis, ...) is
taken to err by one factor in both plans, independently of the other parts. With shares ``a`` and ``b`` of the parts in
both times, the logarithm of the ratio then errs by ``sum((a - b) * e)`` to first order, and with 90 % by less than the
margin ``sqrt(sum(((a - b) * s) ** 2))``: errors ``e`` of a part are within ``s`` with 90 % (propagation of independent
contributions, JCGM 100:2008, section 5.1.2). Equal plans tie; plans that differ in a small part only have a narrow
margin.

How far parts err, pairs of measured runs say: of one source, model, processor, type of arithmetic and preset. Where a
calibration states residuals of parts of the system, these are perturbed instead, for both plans together.
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
"""Logarithm of the ratio of times of the same run on two days: repeated ones of ``validation/`` differ by 2 to 4 %."""

MOST_TIED = 0.1
"""Difference of predicted times above which two plans are never a tie, however unsure their order is."""

REST = 0.3
"""How far computation, bubble and work of the host err, as a share of how far exposed traffic does.

Of 1, 0.7, 0.5, 0.4, 0.3, 0.2 and 0.1 it has the least loss over pairs of measured runs; without any one source the
least is at 0.2 to 0.4.
"""

_WEIGHTS = np.array([1.0 if name.endswith("_exposed_time") else REST for name in ALL_PARTS_OF_TIME])

NEEDED = ("sample_rate", "total_time", *ALL_PARTS_OF_TIME)
"""Statistics that an order needs."""

_SHARED = ("source", "system", "type", "parameters", "preset")

_DEVIATIONS = NormalDist().inv_cdf((1 + LEVEL) / 2)
"""Standard deviations of a normal error within which it is with :data:`LEVEL`."""

_ALIKE = 1e-6
"""Distance of shares that six digits of a file leave of equal ones."""


@dataclass(frozen=True, slots=True)
class Order:
    """How sure it is that one plan is faster than another.

    Attributes:
        longer: By how much the other one takes longer for a sample, as a share: negative where it is faster.
        margin: What `longer` has to exceed to be sure with 90 %, to either side.
        probability: That the first plan is the faster one: 0.5 for equal ones.
    """

    longer: float
    margin: float
    probability: float

    @property
    def told_apart(self) -> bool:
        """True unless the plans tie: their order is sure with 90 %, or one takes over 10 % longer than the other.

        Plans whose times differ as little as repeated runs do tie in any case.
        """
        apart = abs(math.log1p(self.longer))
        least = max(REPEATS, min(math.log1p(self.margin), math.log1p(MOST_TIED)))
        return apart > least

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        found = {name: getattr(self, name) for name in ("longer", "margin", "probability")}
        return found | {"told_apart": self.told_apart}


def orders(
    model: Model, system: System, plan: Plan, stats: Mapping[str, Array], first: int = 0
) -> list[Order]:
    """Return how sure it is that one plan of several is faster than each of them.

    Args:
        model, system: Of all plans.
        plan (with n rows): The plans; they fit, and are of edition ``corrected``.
        stats (shape (n,)): Their statistics by name.
        first: The row that the others are compared with.
    """
    margins = calibrated_margins(model, system, plan, first)
    if margins is None:
        margins = margins_of_shares(shares_of(stats), first)
    ratios = _longer(np.asarray(stats["sample_rate"], float), first)
    return [ordered(*one) for one in zip(ratios, margins, strict=True)]


def orders_of_stats(several: Sequence[Mapping[str, float | None]]) -> list[Order]:
    """Return the same of statistics alone, for the first of several plans, as measured runs say."""
    stats = {name: np.array([one.get(name) or 0.0 for one in several]) for name in NEEDED}
    ratios, margins = _longer(stats["sample_rate"]), margins_of_shares(shares_of(stats))
    return [ordered(*one) for one in zip(ratios, margins, strict=True)]


def _longer(rates: Array, first: int = 0) -> Array:
    """Return the logarithms of the times of a sample over that of one plan; two without an end are as long."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Array = np.log(rates[first]) - np.log(rates)
    return np.where(rates == rates[first], 0.0, found)


def ordered(ratio: float, margin: float) -> Order:
    """Return the order of two plans, of the logarithms of the ratio of their times and of its margin."""
    probability = NormalDist().cdf(ratio / margin * _DEVIATIONS) if margin else _certain(ratio)
    return Order(float(np.expm1(ratio)), float(np.expm1(margin)), probability)


def _certain(ratio: float) -> float:
    return 0.5 if ratio == 0 else float(ratio > 0)


def shares_of(stats: Mapping[str, Array]) -> Array:
    """Return the shares of the parts of times, shape (parts, n); a part that an edition does not have is 0."""
    total = np.asarray(stats["total_time"], float)
    nothing = np.zeros(len(total))
    parts = [np.asarray(stats.get(name, nothing), float) for name in ALL_PARTS_OF_TIME]
    found: Array = np.array(parts) / total
    return found


def margins_of_shares(shares: Array, first: int = 0, errors: Array | float | None = None) -> Array:
    """Return the 90 % margins of the logarithms of ratios of times, by the shares of their parts.

    Args:
        shares (shape (parts, n)): Shares of the parts in the times of n plans.
        first: The plan that the others are compared with.
        errors (shape (parts,)): How far the logarithms of parts err at most with 90 %; by default as far as pairs of
            measured runs say.
    """
    within = errors_of_parts() if errors is None else errors
    with np.errstate(invalid="ignore"):  # no evidence at all: equal shares times infinity
        apart = (shares - shares[:, first : first + 1]).T * within
    found: Array = np.sqrt(np.nansum(apart**2, axis=1))
    return found


def calibrated_margins(model: Model, system: System, plan: Plan, first: int = 0) -> Array | None:
    """Return the 90 % margins of the logarithms of ratios of times that residuals of calibrated parts leave.

    Each part is made as slow and as fast as its residuals say, for all plans together; the changes of the ratios add
    in quadrature. Arguments as in :func:`orders`.

    Returns:
        Array of shape (n,): none for a system without residuals of parts.
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
        before = logs(one, 1.0)  # a constant of the machine may be written otherwise then
        squares += np.max([np.abs(logs(one, f) - before) for f in (one.low, one.high)], axis=0) ** 2
    return np.sqrt(squares)


# -- what pairs of measured runs say -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pairs:
    """Pairs of measured runs of one source, model, processor, type of arithmetic and preset.

    Attributes:
        errors (shape (pairs,)): Absolute logarithms of predicted over measured ratio.
        distances (shape (pairs,)): Distances of the shares of their parts: the root of the sum of squares, those of all
            but exposed traffic less by :data:`REST`.
        sources (shape (pairs,)): The source of each, by number.
    """

    errors: Array
    distances: Array
    sources: Array

    @property
    def weights(self) -> Array:
        """Weights of the pairs, by which all sources count alike."""
        counts = np.bincount(self.sources)
        found: Array = 1 / counts[self.sources]
        return found

    def without(self, source: int) -> "Pairs":
        """Return the pairs of all other sources."""
        kept = self.sources != source
        _, numbers = np.unique(self.sources[kept], return_inverse=True)
        return Pairs(self.errors[kept], self.distances[kept], numbers)

    @property
    def error(self) -> float:
        """How far the logarithm of exposed traffic errs at most with 90 %, all sources alike; infinite without pairs.

        It is the quantile of the errors of ratios over the distances of shares. What repeated runs differ by is taken
        off the errors before, in quadrature.
        """
        if not len(self.errors):
            return math.inf
        beyond = np.sqrt(np.maximum(0.0, self.errors**2 - REPEATS**2))
        never = np.where(beyond > 0, math.inf, 0.0)  # equal shares explain nothing
        scores = np.divide(beyond, self.distances, out=never, where=self.distances > _ALIKE)
        order = np.argsort(scores, kind="stable")
        reached = np.cumsum(self.weights[order])
        place = int(np.searchsorted(reached, LEVEL * reached[-1]))
        return float(scores[order][min(place, len(order) - 1)])

    def margins(self, error: float) -> Array:
        """Return the 90 % margins of measured ratios where exposed traffic errs so far: repeated runs differ, too."""
        found: Array = np.hypot(REPEATS, error * self.distances)
        return found


def pairs_of(some: Runs) -> Pairs:
    """Return the pairs of some runs."""
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
    """Return how far the logarithm of each part of the time errs at most with 90 %, as all measured runs say."""
    found: Array = pairs_of(runs()).error * _WEIGHTS
    return found
