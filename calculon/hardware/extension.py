"""Extensions of a system file beyond the published format: everything under its key ``ext``."""

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
from calculon.hardware.stated_networks import MEASURABLE, CollectiveLaw, Torus

# Numbers that are as good as where and when they were seen: each is stated with its source and its date.

DATE = re.compile(r"(19|20)\d\d(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")
"""A year, a month or a day, as ``2025``, ``2025-06``, ``2025-06-05``."""

SOURCE = "who says so; 'recalled' where it was not looked up"
DAY = "when it was so: year, year-month or year-month-day"
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
    """Check the plain fields of a record, that it has a source, and that its date is valid.

    Raises:
        SpecError: With all invalid fields.
    """
    check_record(record)
    problems = []
    if not record.source.strip():
        hint = "a price, or a power, is worth what its source is"
        problems.append(Problem("source", "who says so", shown(record.source), hint))
    if DATE.fullmatch(record.date) is None:
        problems.append(
            Problem("date", "a date such as 2025, 2025-06 or 2025-06-05", shown(record.date))
        )
    if problems:
        raise SpecError(type(record).__name__, problems)


# The power that processors and nodes draw; no time depends on it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """The power of a processor by its data sheet and, where somebody measured it, by what it does."""

    tdp: float = declare("thermal design power of a processor", unit="W", above=0)
    source: str = declare(SOURCE)
    date: str = declare(DAY)
    idle: float | None = declare(
        "measured power of a processor without work", unit="W", at_least=0, default=None
    )
    load: float | None = declare(
        "measured power of a processor while layers are computed", unit="W", above=0, default=None
    )
    spin: float | None = declare(
        "measured power of a processor whose rank waits for others, polling, idle power included",
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
        "power of the rest of a node over that of its processors, if that was not measured; if absent too, 0.4, of "
        "air-cooled nodes of 8",
        at_least=0,
        default=None,
    )

    def __post_init__(self) -> None:
        """Check source and date, and that load draws more power than waiting, and waiting more than nothing."""
        check_dated(self)
        if (self.idle is None) != (self.load is None):
            one, other = ("idle", "load") if self.idle is None else ("load", "idle")
            hint = f"the power between idle and load needs both; without {other} too the tdp counts"
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
        """Whether idle and load power were measured; otherwise only the data sheet is known."""
        return self.load is not None


# What the processors of a system cost: rented by the hour, or bought; no time depends on it.

OPEX_SHARE = 0.08
"""Yearly upkeep of a bought node as a share of its price: spare parts, staff, support. Source: an assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rent:
    """The price of a rented processor."""

    usd: float = declare("price of an hour of a processor", unit="USD/h", above=0)
    source: str = declare(SOURCE)
    date: str = declare(DAY)

    def __post_init__(self) -> None:
        """Check source and date."""
        check_dated(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """The price of a processor that its owner may take back."""

    usd: float = declare("price of an hour of a processor", unit="USD/h", above=0)
    source: str = declare(SOURCE)
    date: str = declare(DAY)
    mtbf_hours: float | None = declare(
        "mean hours until a processor is taken back; without it whoever runs on spot processors has to say",
        unit="h",
        above=0,
        default=None,
    )

    def __post_init__(self) -> None:
        """Check source and date."""
        check_dated(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What bought processors cost: capital over the hours that they are used, and upkeep."""

    node_usd: float = declare("price of a node", unit="USD", above=0)
    years: float = declare("years until a node is worth nothing", above=0)
    utilisation: float = declare(
        "share of these years in which somebody uses it", above=0, at_most=1
    )
    source: str = declare(SOURCE)
    date: str = declare(DAY)
    opex_share: float = declare(
        "upkeep per year (parts, staff, support) as a share of the price; the default is an assumption",
        at_least=0,
        default=OPEX_SHARE,
    )
    network_usd: float = declare(
        "price of switches, cables and storage, for each node", unit="USD", at_least=0, default=0.0
    )
    usd_per_kw: float = declare(
        "price of the building with its cooling, for a kW of the nodes and a year",
        unit="USD/(kW year)",
        at_least=0,
        default=0.0,
    )
    processors: int | None = declare(
        "processors of a node that is bought; if absent those that share its innermost network or its host",
        at_least=1,
        default=None,
    )

    def __post_init__(self) -> None:
        """Check source and date."""
        check_dated(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The price of storage, where checkpoints are kept."""

    usd: float = declare("price of a TB (1e12 bytes) for a month", unit="USD/month", above=0)
    source: str = declare(SOURCE)
    date: str = declare(DAY)

    def __post_init__(self) -> None:
        """Check source and date."""
        check_dated(self)


RENTS = ("on_demand", "reserved", "spot")
"""Kinds of rent, as fields of :class:`Price`."""

PRICE_KINDS = (*RENTS, "own")
"""Ways to pay for processors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What processors and storage cost, each in the ways that are known; no default is anybody's price."""

    on_demand: Rent | None = declare("rent without a contract", default=None)
    reserved: Rent | None = declare(
        "rent by a contract, of a year unless its source says another", default=None
    )
    spot: Spot | None = declare("rent of what may be taken back", default=None)
    own: Own | None = declare("bought", default=None)
    storage: Storage | None = declare("storage of checkpoints", default=None)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Stated ways to pay for processors, in the order of :data:`PRICE_KINDS`."""
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
        "kind of its links: latencies of collectives by algorithm are those of NCCL's tuner, unless one is stated here",
        choices=tuple(STEP_LATENCY),
        default=None,
    )
    step_latency: float | None = declare(
        "latency of a step of a ring, where executions ask for latency per step; if absent by kind, or of the network",
        unit="s",
        at_least=0,
        default=None,
    )
    ramp: float = declare(
        "ramp of messages to the full rate: 2 * sqrt(ramp * bytes moved / rate) more per operation",
        unit="s",
        at_least=0,
        default=0.0,
    )
    in_network_reduction: bool | None = declare(
        "its switches reduce (NVLS, SHARP), for `calculon collective`; if absent, where all_reduce of ops is [1, 1]",
        default=None,
    )
    operations: dict[str, CollectiveLaw] = declare(
        "measured collectives in groups on this network alone, by operation; in groups that span networks its rates",
        choices=MEASURABLE,
        default=None,
    )
    processor_usage: float | None = declare(
        "share of the compute engines lost while communicating; if absent, that of the network",
        at_least=0,
        below=1,
        default=None,
    )
    torus: Torus | None = declare(
        "the network is a torus: collectives have the links that their group does, for executions with a coll_algo "
        "other than published",
        default=None,
    )

    def step(self, latency: float) -> float:
        """Return the ring step latency of a network: stated, by link kind, or the network's own latency."""
        if self.step_latency is not None:
            return self.step_latency
        return latency if self.kind is None else STEP_LATENCY[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLibrary:
    """What a library of experts (DeepEP, HybridEP) reaches, which copies tokens to nodes and forwards them to ranks."""

    nvlink_efficiency: float = declare(
        "share of the bandwidth of the innermost network that copies in a node reach",
        above=0,
        at_most=1,
    )
    nic_efficiency: float = declare(
        "share of the bandwidth of other networks that copies between nodes reach",
        above=0,
        at_most=1,
    )
    num_sms: int = declare("multiprocessors that its kernels take while they run", at_least=0)
    multiprocessors: int = declare("multiprocessors of a processor", at_least=1)

    def __post_init__(self) -> None:
        """Check that some multiprocessors remain for compute."""
        check_record(self)
        if np.any(np.asarray(self.num_sms) >= self.multiprocessors):
            wanted = f"less than multiprocessors={self.multiprocessors}"
            hint = "products have what the library leaves"
            raise SpecError("ext.ep_library", [Problem("num_sms", wanted, str(self.num_sms), hint)])

    @property
    def engine_share(self) -> float:
        """Share of the compute engines that the library occupies."""
        return self.num_sms / self.multiprocessors


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """Optional additions; files that have them still load in the published tool, which ignores ``ext``."""

    unknown_keys: ClassVar[str] = "warning"

    kernels: StatedKernels = declare(
        "rates of kernels by kind and type: a law, a curve or a measured table; the engine's own curve where there is "
        "none",
        choices=tuple(FAMILY),
        default=StatedKernels({}),
    )
    traffic: Stream | None = declare(
        "rate of traffic in mem1, and of memory-bound kernels of all kinds that kernels does not state; the steps of "
        "mem1 if absent",
        default=None,
    )
    attention: dict[str, AttentionKernel] = declare(
        "fused attention kernel by type of arithmetic, as kernels.attention says it with a curve over keys",
        choices=tuple(MATMUL_BYTES),
        default=None,
    )
    matrix: dict[str, Engine] = declare(
        "matrix engine of types that the published format lacks: tfloat32, float4",
        choices=tuple(name for name in ENGINE_BYTES if name not in DATATYPE_BYTES),
        default=None,
    )
    gemm: dict[str, Gemm] = declare(
        "rate of matrix products by shape, by type, as kernels.product says it with the law tiles",
        choices=tuple(ENGINE_BYTES),
        default=None,
    )
    processing_mode: str | None = declare(
        "how arithmetic and memory time of a layer combine, instead of processing_mode of the file: where times of "
        "kernels were measured as a whole, roofline",
        choices=("roofline", "no_overlap"),
        default=None,
    )
    launch: Launch = declare("what launching kernels costs", default=Launch(kernel=0.0))
    networks: tuple[Link, ...] = declare("additions to the networks, in their order", default=())
    memory: MemoryUse = declare(
        "what others than the model take of both tiers", default=MemoryUse()
    )
    ep_library: ExpertLibrary | None = declare(
        "dispatch and combine of tokens of experts by moe_dispatcher deepep or hybridep; if absent at the efficiency "
        "and processor_usage of the networks",
        default=None,
    )
    linear_efficiency: float = declare(
        "share of the matrix engine's peak that the state of linear attention reaches; the default is an assumption",
        above=0,
        at_most=1,
        default=0.3,
    )
    recipes: dict[str, RecipeUse] = declare(
        "recipes of products in 8 and 4 bits that it runs (fp8_recipe), and how; if absent those with factors of whole "
        "tensors, where the matrix engine has float8",
        choices=tuple(RECIPES),
        default=None,
    )
    host: Host | None = declare(
        "host of a node, whose memory and links offloading shares with other traffic", default=None
    )
    power: Power | None = declare(
        "power of a processor and of a node, for the energy of a whole run", default=None
    )
    price: Price | None = declare("what processors cost, for the cost of a whole run", default=None)
    serving: Serving = declare(
        "kernels of serving: their floors, decode attention, small reductions", default=Serving()
    )
    rates: dict[tuple[str, str], Rate] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Gather the rates of kernels from all keys that state one."""
        stated = self.kernels.rates
        former: dict[tuple[str, str], Rate] = {
            ("attention", name): StatedCurve(curve=kernel.efficiency, over="keys")
            for name, kernel in (self.attention or {}).items()
        } | {("product", name): gemm for name, gemm in (self.gemm or {}).items()}
        if twice := [key for key in former if key in stated]:
            keys = {"attention": "attention", "product": "gemm"}
            hint = "keep one; in an overlay, null removes that of the base"
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
