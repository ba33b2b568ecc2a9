"""What is found of deployments under a load: the batch of each, its figures, and the limits that it keeps."""

import math
from typing import NamedTuple

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count, Seconds
from calculon.campaign.energy import Draw, draw
from calculon.campaign.money import Quote, quote
from calculon.declarations.serving_figures import ServingFigures
from calculon.hardware.system import System
from calculon.serving.passes.row_times import PassTimes
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.load import Workload

# Figures of a deployment that follow from those of a replica: rates, and money.

RENTS = ("on_demand", "reserved")
"""Prices of processors that count where the deployment states none: the first that the system has."""


class AllReplicas(NamedTuple):
    """Figures of :class:`~calculon.declarations.serving_figures.ServingFigures` by the number of replicas."""

    output_rate: Array
    run_output_rate: Array
    output_rate_per_proc: Array
    total_rate_per_proc: Array
    request_rate: Array
    capacity_rate: Array
    utilisation: Array
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
            workload: What is asked of them.
            rate, most: Requests per second that a replica answers, and the most that it could.
            replicas, num_procs: Replicas, and their processors together.
            price: Of an hour of a processor.
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
            utilisation=asked / capacity,
            usd_per_mtoken=dollars,
            usd_per_mtoken_blended=dollars / each,
        )


def price_of(system: System, deployment: Deployment) -> Quote | None:
    """Return the price of an hour of a processor: as the deployment says, or the rent of the system."""
    price = system.ext.price
    if deployment.price is not None:
        return quote(price, given=deployment.price)
    rents = [one for one in RENTS if price is not None and one in price.kinds]
    return quote(price, rents[0]) if rents else None


# The energy of a generated token: power of processors that prefill, that decode and that wait, over their rate.
#
# Prefill draws what steps of training draw. Passes that decode are bound by memory and draw less; how much less is not
# measured here but an assumption, :data:`DECODING_SHARE`.

DECODING_SHARE = 0.7
"""Power of a processor that decodes over that in steps of training. An assumption; that token generation draws well
below the TDP where prompts come near it is from Patel et al., *Splitwise*, arXiv 2311.18677, section III."""


def power_of(system: System) -> Draw | None:
    """Return the power of a processor by what it does; None where nothing is known of it."""
    return draw(system.ext.power)


def energy_words(system: System) -> str:
    """Say where the power of a processor is from, and what is assumed; empty where nothing is known of it."""
    power = power_of(system)
    if power is None:
        return ""
    assumed = f"decoding draws {DECODING_SHARE:g} of what steps of training draw"
    between = ";" if power.assumed else "; assumption without a source:"
    return f"{power.words}{between} {assumed}"


def joules_per_token(
    system: System, deployments: Deployments, figures: ServingFigures, output: int
) -> Array:
    """Return the energy of a generated token, of processors and the rest of their nodes; NaN without a power.

    A replica decodes as long as it has a sequence, and prefills in the share of the time that prompts take; in what is
    left it waits. Processors that only prefill wait for prompts.

    Args:
        system: The machine.
        deployments: What is deployed.
        figures: What they give.
        output: Generated tokens of a request.
    """
    power = power_of(system)
    if power is None:
        return np.full_like(figures.output_rate, np.nan)
    pool = deployments.prefilling
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


def _mean(power: Draw, prefill: Array | float, decoding: Array | float) -> Array:
    """Return the mean power of a processor by the shares of its time; in what is left it waits."""
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
"""What bounds the sequences of a replica."""


_MANY = 1.1
"""Ratio from which a figure is said to be so many times its limit."""


def _apart(one: float, other: float) -> tuple[str, str]:
    """Write two numbers with as many digits, three at least, as tell them apart.

    >>> _apart(7.6, 7.57), _apart(7.5701, 7.57)
    (('7.6', '7.57'), ('7.5701', '7.57'))
    """
    for digits in range(3, 17):
        said = f"{one:.{digits}g}", f"{other:.{digits}g}"
        if said[0] != said[1]:
            break
    return said


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit of the workload, and what there is.

    Attributes:
        name, unit: The figure that is limited, and its unit.
        most, found: The limit and the figure.
    """

    name: str
    unit: str
    most: float
    found: float

    @property
    def met(self) -> bool:
        """Whether the figure keeps the limit."""
        return self.found <= self.most

    @property
    def in_words(self) -> str:
        """Say the figure and the limit, and by how much it is missed."""
        name = self.name.upper() if len(self.unit) == 1 else self.name
        unit = f" {self.unit}".rstrip()
        if not math.isfinite(self.found):
            return f"{name}: without end, of {self.most:.3g}{unit}"
        if self.met:
            return f"{name}: {self.found:.3g} of {self.most:.3g}{unit}"
        found, most = _apart(self.found, self.most)
        ratio = self.found / self.most
        more = f"{ratio:.3g} times as much" if ratio >= _MANY else f"{100 * (ratio - 1):.2g} % more"
        return f"{name}: {found} of {most}{unit}, {more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitColumn:
    """A limit of the workload, and what there is in each deployment; attributes as of :class:`Limit`."""

    name: str
    unit: str
    most: Array
    found: Array

    @property
    def met(self) -> Array:
        """Which deployments keep the limit."""
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
    """A point at which a deployment works.

    Attributes:
        figures: Arrays of one entry.
        batch: Sequences that a replica decodes at a time; for a rate what it takes to keep up.
        cut: What bounds the sequences of a replica: ``memory``, ``max_batch``, ``token_budget``, ``users``, ``rate``,
            ``requests``, ``tpot``, ``ttft`` or ``prefill``.
        decode, prefill: The pass that decodes the batch, and that of one whole prompt.
        limits: Those that the workload states.
        run_time: Seconds of a finite run.
        price, power: Source of the price, and of the power with what is assumed of it; empty without one.
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
    """The points at which deployments work; columns of shape ``(deployments,)``.

    Attributes:
        figures: Meaningless where not a single sequence has room.
        batch: As of :class:`Point`.
        cut: What bounds them, as places in :data:`CUTS`.
        limits: Those that the workload states.
        run_time: Seconds of a finite run.
        room: Where a sequence has room in memory, and in a pass.
        price, power: Source of the price, and of the power with what is assumed of it; empty without one.
    """

    figures: ServingFigures
    batch: Count
    cut: Array
    limits: tuple[LimitColumn, ...]
    run_time: Seconds | None
    room: Array
    price: str
    power: str

    @property
    def feasible(self) -> Array:
        """Which deployments have room, and keep all limits."""
        kept = self.room
        for one in self.limits:
            kept = kept & one.met
        return kept
