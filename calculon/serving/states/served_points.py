"""Records of operating points: batch, figures, limits of the workload, price and energy per token."""

import math
from typing import NamedTuple

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count, Seconds
from calculon.campaign.energy import PowerDraw, power_draw
from calculon.campaign.money import Quote, quote
from calculon.declarations.serving_figures import ServingFigures
from calculon.hardware.system import System
from calculon.serving.passes.row_times import PassTimes
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.load import Workload

# Figures of a deployment that follow from the figures of one replica: rates and cost.

RENTS = ("on_demand", "reserved")
"""Kinds of prices used if the deployment states none: the first that the system has."""


class AllReplicas(NamedTuple):
    """Figures of :class:`~calculon.declarations.serving_figures.ServingFigures` that depend on all replicas."""

    output_rate: Array
    run_output_rate: Array
    output_rate_per_proc: Array
    total_rate_per_proc: Array
    request_rate: Array
    capacity_rate: Array
    utilization: Array
    usd_per_mtoken: Array
    usd_per_mtoken_blended: Array

    @classmethod
    def of(
        cls,
        workload: Workload,
        rate: Array,
        most: Array,
        replicas: Count,
        num_procs: Count,
        price: Quote | None,
        ends: Seconds | None = None,
    ) -> "AllReplicas":
        """Return the figures of all replicas.

        Args:
            workload: Workload of all replicas together.
            rate, most: Requests per second that a replica answers, and its maximum.
            replicas, num_procs: Number of replicas, and of processors of all of them.
            price: Price of a processor-hour.
            ends: Time of a finite run.
        """
        w = workload
        output = rate * w.output * replicas
        per_proc, each = output / num_procs, 1 + w.prompt / w.output
        answered, capacity = rate * replicas, most * replicas
        asked = answered if w.rate is None else np.full_like(answered, w.rate)
        dollars = np.full_like(output, np.nan)
        if price is not None:
            dollars = np.asarray(price.usd * num_procs / (3600 * output) * 1e6)
        return cls(
            output_rate=output,
            run_output_rate=output if ends is None else (w.requests or 0) * w.output / ends,
            output_rate_per_proc=per_proc,
            total_rate_per_proc=per_proc * each,
            request_rate=answered,
            capacity_rate=capacity,
            utilization=asked / capacity,
            usd_per_mtoken=dollars,
            usd_per_mtoken_blended=dollars / each,
        )


def price_of(system: System, deployment: Deployment) -> Quote | None:
    """Return the price of a processor-hour: as the deployment states it, or the rent of the system."""
    price = system.ext.price
    if deployment.price is not None:
        return quote(price, given=deployment.price)
    rents = [one for one in RENTS if price is not None and one in price.kinds]
    return quote(price, rents[0]) if rents else None


# Energy per generated token: power of processors that prefill, decode and wait, over the output rate.
#
# Prefill draws as much power as training steps. Decode passes are bound by memory bandwidth and draw less; the ratio is
# an assumption without a measurement, :data:`DECODING_SHARE`.

DECODING_SHARE = 0.7
"""Power of a processor that decodes over its power in training steps.

An assumption; Patel et al., *Splitwise*, arXiv 2311.18677, section III, report that token generation draws well below
the TDP while prompts come close to it.
"""


def power_of(system: System) -> PowerDraw | None:
    """Return the power of a processor by activity; None if unknown."""
    return power_draw(system.ext.power)


def energy_words(system: System) -> str:
    """Return a sentence on the source and the assumptions of the power of a processor; empty if it is unknown."""
    power = power_of(system)
    if power is None:
        return ""
    assumed = f"decoding draws {DECODING_SHARE:g} of the power of training steps"
    between = ";" if power.assumed else "; assumption without a source:"
    return f"{power.words}{between} {assumed}"


def joules_per_token(
    system: System, deployments: Deployments, figures: ServingFigures, output: int
) -> Array:
    """Return the energy per generated token, of processors and the rest of their nodes; NaN if the power is unknown.

    A replica decodes whenever it has a sequence, prefills during the prefill share of the time, and waits otherwise.
    Processors that only prefill wait between prompts.

    Args:
        system: The machine.
        deployments: The deployments.
        figures: Their figures.
        output: Generated tokens per request.
    """
    power = power_of(system)
    if power is None:
        return np.full_like(figures.output_rate, np.nan)
    pool = deployments.prefill_deployments
    others = 0.0 if pool is None else pool.num_procs
    prompts = np.clip(figures.prefill_share, 0.0, 1.0) if pool is None else 0.0
    decoding = np.minimum(1.0, figures.concurrency) * (1.0 - prompts)
    watts = (deployments.num_procs - others) * _mean(power, prompts, decoding)
    if pool is not None:
        watts = watts + others * _mean(power, np.minimum(1.0, figures.prefill_busy), 0.0)
    if power.node is None:
        watts = watts * (1.0 + power.share)
    else:
        watts = watts + power.node * deployments.num_procs / system.networks[0].size
    return np.asarray(watts / (figures.request_rate * output))


def _mean(power: PowerDraw, prefill: Array | float, decoding: Array | float) -> Array:
    """Return the mean power of a processor from the shares of its time; the rest is waiting."""
    waiting = 1.0 - prefill - decoding
    steps = prefill + DECODING_SHARE * decoding
    return np.asarray(power.stepping * steps + power.waiting * waiting)


CUTS = (
    "max_batch",
    "memory",
    "token_budget",
    "users",
    "rate",
    "requests",
    "tpot",
    "ttft",
    "prefill",
)
"""Reasons that limit the sequences of a replica."""


_MANY = 1.1
"""Ratio from which a figure is stated as a multiple of its limit."""


def _apart(one: float, other: float) -> tuple[str, str]:
    """Format two numbers with as many digits, at least three, as are needed to distinguish them.

    >>> _apart(7.6, 7.57), _apart(7.5701, 7.57), _apart(1000.0, 8.3412)
    (('7.6', '7.57'), ('7.5701', '7.57'), ('1,000', '8.34'))
    """
    for digits in range(3, 17):
        said = _rounded(one, digits), _rounded(other, digits)
        if said[0] != said[1]:
            break
    return said


def _rounded(amount: float, digits: int) -> str:
    return f"{float(f'{amount:.{digits}g}'):,.15g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit of the workload with the figure that it bounds.

    Attributes:
        name, unit: Name of the limited figure, and its unit.
        most, found: The limit and the figure.
    """

    name: str
    unit: str
    most: float
    found: float

    @property
    def met(self) -> bool:
        """True if the figure meets the limit."""
        return self.found <= self.most

    @property
    def of_capacity(self) -> bool:
        """True for a load that exceeds the capacity of the replicas; False for a limit of a time."""
        return self.unit != "s"

    @property
    def in_words(self) -> str:
        """The figure and the limit, and the amount by which it is missed."""
        if self.of_capacity:
            found, most = _apart(self.found, self.most)
            return f"{self.name}: {f'{found} {self.unit}'.strip()} needed, capacity {most}"
        name, unit = self.name.upper(), f" {self.unit}"
        if not math.isfinite(self.found):
            return f"{name}: unbounded, limit {self.most:.3g}{unit}"
        if self.met:
            return f"{name}: {self.found:.3g}{unit}, limit {self.most:.3g}{unit}"
        found, most = _apart(self.found, self.most)
        ratio = self.found / self.most
        if ratio >= _MANY:
            return f"{name}: {found}{unit}, {ratio:.3g} times the limit of {most}{unit}"
        over = f"{100 * (ratio - 1):.2g} % over the limit of {most}{unit}"
        return f"{name}: {found}{unit}, {over}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitColumn:
    """A limit of the workload with the figure of each deployment; attributes as in :class:`Limit`."""

    name: str
    unit: str
    most: Array
    found: Array

    @property
    def met(self) -> Array:
        """Mask of deployments that meet the limit."""
        return self.found <= self.most

    def of(self, place: int) -> Limit:
        """Return the limit of one deployment."""
        return Limit(
            name=self.name,
            unit=self.unit,
            most=float(self.most[place]),
            found=float(self.found[place]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Operating point of a deployment.

    Attributes:
        figures: Figures, as arrays of one entry.
        batch: Sequences that a replica decodes concurrently; with a rate, the number needed to keep up.
        cut: Reason that limits the batch: ``memory``, ``max_batch``, ``token_budget``, ``users``, ``rate``,
            ``requests``, ``tpot``, ``ttft`` or ``prefill``.
        decode, prefill: The pass that decodes the batch, and the pass of one whole prompt.
        limits: Limits that the workload states.
        run_time: Seconds of a finite run.
        price, power: Source of the price, and source and assumptions of the power; empty if unknown.
    """

    figures: ServingFigures
    batch: int
    cut: str
    decode: PassTimes
    prefill: PassTimes
    limits: tuple[Limit, ...]
    run_time: float | None
    price: str
    power: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Operating points of deployments; columns of shape ``(deployments,)``.

    Attributes:
        figures: Figures, meaningless if not even one sequence fits.
        batch: As in :class:`Point`.
        cut: Limiting reasons, as indices of :data:`CUTS`.
        limits: Limits that the workload states.
        run_time: Seconds of a finite run.
        fits: Mask of deployments with enough memory, and large enough passes, for a sequence.
        price, power: Source of the price, and source and assumptions of the power; empty if unknown.
    """

    figures: ServingFigures
    batch: Count
    cut: Array
    limits: tuple[LimitColumn, ...]
    run_time: Seconds | None
    fits: Array
    price: str
    power: str

    @property
    def feasible(self) -> Array:
        """Mask of deployments in which a sequence fits and all limits are met."""
        kept = self.fits
        for one in self.limits:
            kept = kept & one.met
        return kept
