"""Probability that an execution fits in memory.

The logarithm of measured over predicted tier-1 memory is modeled by a Student t distribution around a mean. Both come
from the measured runs of ``validation/``. Sources have equal weights, and runs similar to the execution count more:
with the same framework, the same sharding of weights, and the same class of models (dense or MoE). With few sources the
distribution is wide, because the variance between sources is hardly known.

Source: prediction of one more value from a sample of sources, Gelman et al., *Bayesian Data Analysis*, 3rd edition,
section 3.2 (Student t with K - 1 degrees of freedom, variance inflated by 1 + 1 / K), with the effective number of
sources ``K = (sum w)^2 / sum w^2`` of Kish, *Survey Sampling* (1965), section 11.7, in place of their number.
"""

import math

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array, chance, gib
from calculon.declarations.statistics import LEVEL
from calculon.estimate.source_errors import effective_number
from calculon.estimate.student import probability, quantile

FEWEST_SOURCES = 2
"""Number of sources below which the variance between sources is unknown."""


@dataclass(frozen=True, slots=True)
class MemoryErrors:
    """Student t distribution of the logarithm of measured over predicted tier-1 memory.

    Attributes:
        mean: Mean; positive if runs needed more than predicted.
        scale: Scale.
        freedom: Degrees of freedom, at least 1.
        runs, sources: Numbers of measured runs and of their sources.
    """

    mean: float
    scale: float
    freedom: float
    runs: int
    sources: int

    def fits(self, needed: Array, usable: Array | float) -> Array:
        """Return the probability that executions fit.

        Args:
            needed (shape (n,)): Predicted tier-1 bytes of the executions.
            usable: Usable bytes.
        """
        with np.errstate(divide="ignore"):
            margin = np.log(usable) - np.log(needed)
        return probability((margin - self.mean) / self.scale, self.freedom)

    def capacity_ratio(self, level: float) -> float:
        """Return the ratio of usable to predicted memory at which an execution fits with probability `level`."""
        return math.exp(self.mean + self.scale * quantile(level, self.freedom))


def memory_errors(ratios: Array, sources: Array, weights: Array) -> MemoryErrors | None:
    """Return the distribution of the logarithm of measured over predicted memory.

    Args:
        ratios (shape (runs,)): Logarithms of measured over predicted memory.
        sources (shape (runs,)): Number of the source of each run, from 0 without gaps.
        weights (shape (runs,)): Weight of each run.

    Returns:
        None with fewer than :data:`FEWEST_SOURCES` sources.
    """
    of_source = np.bincount(sources, weights)
    if len(of_source) < FEWEST_SOURCES:
        return None
    mean = float(np.average(ratios, weights=weights))
    effective = effective_number(of_source)
    variance = float(np.average((ratios - mean) ** 2, weights=weights))
    # Unbiased; and of one more source
    variance *= effective / (effective - 1) * (1 + 1 / effective)
    return MemoryErrors(
        mean=mean,
        scale=max(math.sqrt(variance), _MIN_SCALE),
        freedom=max(1.0, effective - 1),
        runs=len(ratios),
        sources=len(of_source),
    )


_MIN_SCALE = 1e-6
"""Smallest scale: sources that agree to the byte would otherwise exclude any error."""


def _left(needed: float, usable: float) -> str:
    """Return the remaining memory of an execution, or its excess over the usable memory, as text."""
    if needed <= usable:
        return (
            f"{gib(usable - needed)} of {gib(usable)} are left, which is less than the memory error"
        )
    share = 100 * (needed / usable - 1)
    return f"it needs {gib(needed - usable)} ({share:.1f} %) more than the usable {gib(usable)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """Evidence of measured runs about the predicted tier-1 memory of an execution.

    Attributes:
        fits: Probability that the execution fits.
        level: Probability of fitting above which an execution counts as fitting.
        error: Headroom with which an execution fits with this probability.
        runs, sources: Numbers of measured runs and of their sources.
        headroom: Usable over needed memory of the execution, minus 1.
        remark: Warning that the execution may not fit; empty if it fits with probability `level`.
    """

    fits: float
    level: float
    error: float
    runs: int
    sources: int
    headroom: float
    remark: str


def measured_memory(errors: MemoryErrors, needed: float, usable: float) -> MeasuredMemory:
    """Return the probability that an execution fits, with the evidence.

    Args:
        errors: Distribution for similar executions.
        needed, usable: Predicted and usable bytes of tier 1.
    """
    fits, error = float(errors.fits(np.array(needed), usable)), errors.capacity_ratio(LEVEL) - 1
    remark = ""
    if fits < LEVEL:
        remark = (
            f"{_left(needed, usable)}; it fits with a probability of {chance(fits)}, and with {chance(LEVEL)} "
            f"if {100 * error:.0f} % more than the predicted memory is usable"
        )
    return MeasuredMemory(
        fits=fits,
        level=LEVEL,
        error=error,
        runs=errors.runs,
        sources=errors.sources,
        headroom=float(usable / needed - 1) if needed else np.inf,
        remark=remark,
    )
