"""The probability that an execution fits in memory, and how much uneven routing may add.

The logarithm of measured over predicted tier-1 memory of a run is taken to follow a Student t distribution around a
mean. Both come from the measured runs of ``validation/``, where each source counts alike, and runs like the execution
count more: of the same framework, the same sharding of weights, and the same class of models (dense or MoE). With few
sources the distribution is wide: the variance between sources is then hardly known.

Source: prediction of one more value from a sample of sources, Gelman et al., *Bayesian Data Analysis*, 3rd edition,
section 3.2 (Student t with K - 1 degrees of freedom, variance inflated by 1 + 1 / K), with the effective number of
sources ``K = (sum w)^2 / sum w^2`` of Kish, *Survey Sampling* (1965), section 11.7, in place of their number.
"""

import math
from collections.abc import Sequence

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import GIB, Array
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.statistics import LEVEL
from calculon.editions.edition import Edition
from calculon.estimate.evaluate import evaluate_one
from calculon.estimate.student import probability, quantile
from calculon.hardware.system import System
from calculon.plan.plan import Plan, all_fields

FEWEST_SOURCES = 2
"""Sources below which nothing is known of the variance between sources."""


@dataclass(frozen=True, slots=True)
class MemoryErrors:
    """The distribution of the logarithm of measured over predicted tier-1 memory: Student t.

    Attributes:
        mean: Its mean; above 0 where runs needed more than predicted.
        scale: Its scale.
        freedom: Its degrees of freedom, at least 1.
        runs, sources: Measured runs, and the sources that they are of.
    """

    mean: float
    scale: float
    freedom: float
    runs: int
    sources: int

    def fits(self, needed: Array, usable: Array | float) -> Array:
        """Return the probability that executions fit.

        Args:
            needed (shape (n,)): Bytes of tier 1 that they need, as predicted.
            usable: Bytes that there are for them.
        """
        with np.errstate(divide="ignore"):
            room = np.log(usable) - np.log(needed)
        return probability((room - self.mean) / self.scale, self.freedom)

    def room(self, level: float) -> float:
        """Return the usable over the predicted memory with which an execution fits with a probability of `level`."""
        return math.exp(self.mean + self.scale * quantile(level, self.freedom))


def memory_errors(ratios: Array, sources: Array, weights: Array) -> MemoryErrors | None:
    """Return the distribution of the logarithm of measured over predicted memory.

    Args:
        ratios (shape (runs,)): Logarithms of measured over predicted memory.
        sources (shape (runs,)): Number of the source of each run, from 0 without gaps.
        weights (shape (runs,)): How much each run counts.

    Returns:
        None with fewer than :data:`FEWEST_SOURCES` sources.
    """
    of_source = np.bincount(sources, weights)
    if len(of_source) < FEWEST_SOURCES:
        return None
    mean = float(np.average(ratios, weights=weights))
    effective = float(of_source.sum() ** 2 / (of_source**2).sum())
    variance = float(np.average((ratios - mean) ** 2, weights=weights))
    variance *= effective / (effective - 1) * (1 + 1 / effective)
    return MemoryErrors(
        mean=mean,
        scale=max(math.sqrt(variance), _LEAST_SCALE),
        freedom=max(1.0, effective - 1),
        runs=len(ratios),
        sources=len(of_source),
    )


_LEAST_SCALE = 1e-6
"""Scale of sources that agree to the byte, which tell nothing about others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """Evidence of measured runs about the predicted tier-1 memory of an execution.

    Attributes:
        fits: Probability that the execution fits.
        level: Probability of fitting at which an execution is taken to fit.
        error: Headroom that an execution needs to fit with this probability.
        runs, sources: Measured runs, and the sources that they are of.
        headroom: Usable over needed memory - 1 of the execution.
        remark: That the execution may not fit; empty where it fits with probability `level`.
    """

    fits: float
    level: float
    error: float
    runs: int
    sources: int
    headroom: float
    remark: str


def measured_memory(errors: MemoryErrors, needed: float, usable: float) -> MeasuredMemory:
    """Return the probability that an execution fits, with the evidence for it.

    Args:
        errors: The distribution for executions like it.
        needed, usable: Bytes of tier 1 that it needs, as predicted, and that there are for it.
    """
    fits, error = float(errors.fits(np.array(needed), usable)), errors.room(LEVEL) - 1
    remark = ""
    if fits < LEVEL:
        free = usable - needed
        left = (
            f"{free / GIB:.1f} GiB are left" if free >= 0 else f"{-free / GIB:.1f} GiB are missing"
        )
        remark = (
            f"{left}; it fits with a probability of {100 * fits:.0f} %, and with {100 * LEVEL:.0f} % "
            f"where {100 * error:.0f} % more than the predicted memory is usable"
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


# How unevenly tokens may choose experts before a processor has no memory left.


def imbalance_headroom(
    model: Model, system: System, execution: Execution, edition: Edition
) -> float | None:
    """Return the largest share of the mean rows that the busiest rank may have, and the memory still suffices.

    In whole percent. The memory of a stage is linear in it. At most ``expert_par``, where one rank has all
    rows, or the capacity of experts; None where no rank has more than others, or the execution does not fit as it is.
    """
    if not model.mixes or execution.expert_par == 1 or execution.moe_pad_to_capacity:
        return None
    least, most = execution.moe_imbalance_percent, 100 * execution.expert_par
    if execution.moe_capacity_percent:
        most = min(most, execution.moe_capacity_percent)
    most = max(least, most)
    there = edition.machine(system).usable[0]
    low, high = _needed(model, system, execution, edition, [least, most])
    if low > there:
        return None
    while high > there:
        # the fullest stage of some whose memory is linear: a chord lies above, so what fits by it does fit
        found = min(most - 1, int(least + (there - low) / (high - low) * (most - least)))
        _, low = _needed(model, system, execution, edition, [found, found + 1])
        if low > there:
            return found / 100
        least = found + 1
    return most / 100


def _needed(
    model: Model, system: System, execution: Execution, edition: Edition, percents: Sequence[int]
) -> list[float]:
    """Return bytes of tier 1 that an execution needs with each imbalance."""
    fields = all_fields(execution)
    rows = [fields | {"moe_imbalance_percent": percent} for percent in percents]
    batch = evaluate_one(model, system, Plan.from_records(rows), edition)
    return np.broadcast_to(batch.capacity.proc_mem_tier1_cap_req, len(rows)).tolist()
