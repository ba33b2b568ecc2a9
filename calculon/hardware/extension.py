"""Extensions of the published system file format: everything under the key ``ext``."""

import re
from dataclasses import field, replace
from itertools import pairwise
from typing import ClassVar, Protocol

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.fields import check_record, declare, shown
from calculon.declarations.named_values import DATATYPE_BYTES, ENGINE_BYTES, MATMUL_BYTES
from calculon.declarations.recipes import RECIPES
from calculon.hardware.curve import Curve
from calculon.hardware.kernels.kernel import Launch, Rate
from calculon.hardware.kernels.laws import Gemm
from calculon.hardware.kernels.stated_kernels import FAMILY, StatedKernels
from calculon.hardware.kernels.stated_rates import StatedCurve, Stream
from calculon.hardware.processor import Engine, Host, MemoryUse, RecipeUse
from calculon.hardware.serving import Serving
from calculon.hardware.stated_networks import MEASURABLE, CollectiveLaw, Torus, Uplink

# Prices and powers depend on date and place: each is stated with its source and its date.

DATE = re.compile(r"(19|20)\d\d(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")
"""A year, a month or a day, as ``2025``, ``2025-06``, ``2025-06-05``."""

SOURCE = "source of the figure; 'recalled' if it was not looked up"
DAY = "date of the figure: year, year-month or year-month-day"
"""Help of the fields ``source`` and ``date``."""


class Dated(Protocol):
    """A record with a source and a date."""

    @property
    def source(self) -> str:
        """Source of the numbers."""

    @property
    def date(self) -> str:
        """Date of the numbers."""


def check_dated(record: Dated) -> None:
    """Check the plain fields of a record, and that its source and date are valid.

    Raises:
        SpecError: For all invalid fields.
    """
    check_record(record)
    problems = []
    if not record.source.strip():
        hint = "a price or a power is only as good as its source"
        problems.append(Problem("source", "the source of the figure", shown(record.source), hint))
    if DATE.fullmatch(record.date) is None:
        problems.append(
            Problem("date", "a date such as 2025, 2025-06 or 2025-06-05", shown(record.date))
        )
    if problems:
        raise SpecError(type(record).__name__, problems)


# Power draw of processors and nodes; no time depends on it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Power of a processor: by its data sheet and, if measured, by activity."""

    tdp: float = declare("thermal design power of a processor", unit="W", above=0)
    source: str = declare(SOURCE)
    date: str = declare(DAY)
    idle: float | None = declare(
        "measured power of an idle processor", unit="W", at_least=0, default=None
    )
    load: float | None = declare(
        "measured power of a processor that computes layers", unit="W", above=0, default=None
    )
    spin: float | None = declare(
        "measured power of a processor that polls for other ranks, including idle power",
        unit="W",
        above=0,
        default=None,
    )
    overhead: float | None = declare(
        "measured power of the rest of a node: hosts, memory, network cards, fans",
        unit="W",
        at_least=0,
        default=None,
    )

    overhead_share: float | None = declare(
        "power of the rest of a node relative to its processors, if overhead was not measured; by default 0.4, as in "
        "air-cooled nodes of 8",
        at_least=0,
        default=None,
    )

    def __post_init__(self) -> None:
        """Check source and date, and that power rises from idle through waiting to load."""
        check_dated(self)
        if (self.idle is None) != (self.load is None):
            one, other = ("idle", "load") if self.idle is None else ("load", "idle")
            hint = (
                f"powers between idle and load need both; without {other} as well, the tdp is used"
            )
            raise SpecError(
                "ext.power", [Problem(one, f"a number, since {other} is stated", "nothing", hint)]
            )
        rising = [("idle", self.idle), ("spin", self.spin), ("load", self.load)]
        known = [(name, watts) for name, watts in rising if watts is not None]
        problems = [
            Problem(name, f"at least {lower}={least:g} W", f"{watts:g} W")
            for (lower, least), (name, watts) in pairwise(known)
            if watts < least
        ]
        if problems:
            raise SpecError("ext.power", problems)

    @property
    def measured(self) -> bool:
        """True if idle and load power were measured; otherwise only the data sheet is known."""
        return self.load is not None


# Cost of processors: rented by the hour, or bought; no time depends on it.

OPEX_SHARE = 0.08
"""Yearly upkeep of a bought node as a share of its price: spare parts, staff, support. Source: an assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rent:
    """Price of a rented processor."""

    usd: float = declare("price of a processor-hour", unit="USD/h", above=0)
    source: str = declare(SOURCE)
    date: str = declare(DAY)

    def __post_init__(self) -> None:
        """Check source and date."""
        check_dated(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Price of a processor that the provider may reclaim."""

    usd: float = declare("price of a processor-hour", unit="USD/h", above=0)
    source: str = declare(SOURCE)
    date: str = declare(DAY)
    mtbf_hours: float | None = declare(
        "mean hours until a processor is reclaimed; if absent, runs on spot processors must state it",
        unit="h",
        above=0,
        default=None,
    )

    def __post_init__(self) -> None:
        """Check source and date."""
        check_dated(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """Cost of bought processors: capital over the hours of use, and upkeep."""

    node_usd: float = declare("price of a node", unit="USD", above=0)
    years: float = declare("years until a node is worth nothing", above=0)
    utilization: float = declare("share of these years in which it is in use", above=0, at_most=1)
    source: str = declare(SOURCE)
    date: str = declare(DAY)
    opex_share: float = declare(
        "upkeep per year (parts, staff, support) as a share of the price; the default is an assumption",
        at_least=0,
        default=OPEX_SHARE,
    )
    network_usd: float = declare(
        "price of switches, cables and storage per node", unit="USD", at_least=0, default=0.0
    )
    usd_per_kw: float = declare(
        "price of the building and its cooling, per kW of node power and year",
        unit="USD/(kW year)",
        at_least=0,
        default=0.0,
    )
    processors: int | None = declare(
        "processors per bought node; by default those that share its innermost network or its host",
        at_least=1,
        default=None,
    )

    def __post_init__(self) -> None:
        """Check source and date."""
        check_dated(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Price of storage for checkpoints."""

    usd: float = declare("price of a TB (1e12 bytes) per month", unit="USD/month", above=0)
    source: str = declare(SOURCE)
    date: str = declare(DAY)

    def __post_init__(self) -> None:
        """Check source and date."""
        check_dated(self)


RENTS = ("on_demand", "reserved", "spot")
"""Kinds of rent, as fields of :class:`Price`."""

PRICE_KINDS = (*RENTS, "own")
"""Fields of :class:`Price` that pay for processors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Cost of processors and storage, by contract; there are no default prices."""

    on_demand: Rent | None = declare("rent without a contract", default=None)
    reserved: Rent | None = declare(
        "rent with a contract, of one year unless the source states another term", default=None
    )
    spot: Spot | None = declare("rent of processors that may be reclaimed", default=None)
    own: Own | None = declare("purchase", default=None)
    storage: Storage | None = declare("storage for checkpoints", default=None)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Stated ways of paying for processors, in the order of :data:`PRICE_KINDS`."""
        return tuple(kind for kind in PRICE_KINDS if getattr(self, kind) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionKernel:
    """The fused attention kernel (*flash attention*) in one datatype."""

    efficiency: Curve = declare(
        "achieved share of the matrix engine's peak by mean keys per query: [threshold, efficiency], falling",
        unit="tokens",
    )


STEP_LATENCY = {"nvlink": 3.4e-6, "pcie": 5.7e-6, "net": 14e-6}
"""Seconds per ring step by link kind. Source: NCCL, src/graph/tuning.cc, protocol Simple."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Additions to the published fields of a network."""

    kind: str | None = declare(
        "link type: it selects the latencies of NCCL's tuner for collectives by algorithm, unless they are stated here",
        choices=tuple(STEP_LATENCY),
        default=None,
    )
    step_latency: float | None = declare(
        "latency per ring step, for executions with latency per step; by default set by kind, or the network's latency",
        unit="s",
        at_least=0,
        default=None,
    )
    ramp: float = declare(
        "ramp of messages to the full rate: it adds 2 * sqrt(ramp * bytes moved / rate) to an operation",
        unit="s",
        at_least=0,
        default=0.0,
    )
    in_network_reduction: bool | None = declare(
        "switches reduce (NVLS, SHARP), for `calculon collective`; by default if all_reduce of ops is [1, 1]",
        default=None,
    )
    operations: dict[str, CollectiveLaw] = declare(
        "measured collectives by operation, for groups on this network; groups that span networks use the rates only",
        choices=MEASURABLE,
        default=None,
    )
    processor_usage: float | None = declare(
        "share of the compute engines lost while communicating; by default the network's",
        at_least=0,
        below=1,
        default=None,
    )
    torus: Torus | None = declare(
        "the network is a torus: collectives use the links of their group, for executions with a coll_algo "
        "other than published",
        default=None,
    )

    synchronous: bool = declare(
        "all-reduces between replicas of hybrid sharding (dp_shard, zero_stage 3 and fsdp) on this network do not "
        "overlap with computation",
        default=False,
    )
    uplink: Uplink | None = declare(
        "switches inside the network: groups that cross their uplinks share them, for executions with a coll_algo "
        "other than published; by default groups do not slow each other down",
        default=None,
    )

    def step(self, latency: float) -> float:
        """Return the ring step latency of a network: stated, by link kind, or the network's own latency."""
        if self.step_latency is not None:
            return self.step_latency
        return latency if self.kind is None else STEP_LATENCY[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLibrary:
    """Rates of an expert-parallel library (DeepEP, HybridEP), which sends tokens to nodes and forwards them there."""

    nvlink_efficiency: float = declare(
        "share of the innermost network's bandwidth that copies within a node reach",
        above=0,
        at_most=1,
    )
    nic_efficiency: float = declare(
        "share of the other networks' bandwidth that copies between nodes reach",
        above=0,
        at_most=1,
    )
    num_sms: int = declare("multiprocessors that its kernels occupy", at_least=0)
    multiprocessors: int = declare("multiprocessors per processor", at_least=1)

    def __post_init__(self) -> None:
        """Check that the library leaves multiprocessors for compute."""
        check_record(self)
        if np.any(np.asarray(self.num_sms) >= self.multiprocessors):
            wanted = f"less than multiprocessors={self.multiprocessors}"
            hint = "matrix products run on the remaining multiprocessors"
            raise SpecError("ext.ep_library", [Problem("num_sms", wanted, str(self.num_sms), hint)])

    @property
    def engine_share(self) -> float:
        """Share of the compute engines that the library occupies."""
        return self.num_sms / self.multiprocessors


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """Additions to the published format; the published tool still loads files with additions and ignores ``ext``."""

    unknown_keys: ClassVar[str] = "warning"

    kernels: StatedKernels = declare(
        "rates of kernels by kind and type: a law, a curve or a measured table; by default the engine's efficiency "
        "curve",
        choices=tuple(FAMILY),
        default=StatedKernels({}),
    )
    traffic: Stream | None = declare(
        "rate of traffic in mem1, and of memory-bound kernels that kernels does not state; by default the curve of "
        "mem1",
        default=None,
    )
    attention: dict[str, AttentionKernel] = declare(
        "fused attention kernel by type of arithmetic; equivalent to kernels.attention with a curve over keys",
        choices=tuple(MATMUL_BYTES),
        default=None,
    )
    matrix: dict[str, Engine] = declare(
        "matrix engine for types that the published format lacks: tfloat32, float4",
        choices=tuple(name for name in ENGINE_BYTES if name not in DATATYPE_BYTES),
        default=None,
    )
    gemm: dict[str, Gemm] = declare(
        "rate of matrix products by shape, by type; equivalent to kernels.product with the law tiles",
        choices=tuple(ENGINE_BYTES),
        default=None,
    )
    processing_mode: str | None = declare(
        "combination of arithmetic and memory time of layers, instead of the file's processing_mode: roofline if whole "
        "kernels were measured",
        choices=("roofline", "no_overlap"),
        default=None,
    )
    launch: Launch = declare("cost of launching kernels", default=Launch(kernel=0.0))
    networks: tuple[Link, ...] = declare("additions to the networks, in order", default=())
    memory: MemoryUse = declare(
        "memory of both tiers that is not available to the model", default=MemoryUse()
    )
    ep_library: ExpertLibrary | None = declare(
        "expert-parallel dispatch and combine with moe_dispatcher deepep or hybridep; by default at the efficiency "
        "and processor_usage of the networks",
        default=None,
    )
    linear_efficiency: float = declare(
        "share of the matrix engine's peak that the linear-attention state reaches; the default is that of measured "
        "Triton kernels of the gated delta rule on six processors (0.035 to 0.06)",
        above=0,
        at_most=1,
        default=0.05,
    )
    recipes: dict[str, RecipeUse] = declare(
        "8-bit and 4-bit recipes (fp8_recipe) that the system runs; by default the recipes with per-tensor scales, "
        "if the matrix engine has float8",
        choices=tuple(RECIPES),
        default=None,
    )
    host: Host | None = declare(
        "host of a node; offloading shares its memory and links with other traffic", default=None
    )
    power: Power | None = declare(
        "power of a processor and a node, for the energy of a whole run", default=None
    )
    price: Price | None = declare("price of processors, for the cost of a whole run", default=None)
    serving: Serving = declare(
        "serving kernels: floors, decode attention, small all-reduces", default=Serving()
    )
    rates: dict[tuple[str, str], Rate] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Collect the rates of kernels from all keys that state one."""
        stated = self.kernels.rates
        # Older files state rates under ``attention`` and ``gemm``; formulas only read the merged mapping.
        former: dict[tuple[str, str], Rate] = {
            ("attention", name): StatedCurve(curve=kernel.efficiency, over="keys")
            for name, kernel in (self.attention or {}).items()
        } | {("product", name): gemm for name, gemm in (self.gemm or {}).items()}
        if twice := [key for key in former if key in stated]:
            keys = {"attention": "attention", "product": "gemm"}
            hint = "keep one; in an overlay, null removes the base's"
            raise SpecError(
                "ext",
                [
                    Problem(f"kernels.{kind}.{name}", "one rate", f"{keys[kind]}.{name} too", hint)
                    for kind, name in twice
                ],
            )
        object.__setattr__(self, "rates", {**former, **stated})

    def with_rates(self, rates: dict[tuple[str, str], Rate]) -> "Extension":
        """Return the same extension with other kernel rates."""
        unset: dict[str, None] = {"attention": None, "gemm": None}
        return replace(self, kernels=StatedKernels(rates), **unset)  # type: ignore[arg-type]
