"""Additions of a system file to the published format: everything under its key ``ext``."""

from dataclasses import field, replace
from typing import ClassVar

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.fields import check_record, declare
from calculon.declarations.named_values import DATATYPE_BYTES, ENGINE_BYTES, MATMUL_BYTES
from calculon.declarations.recipes import RECIPES
from calculon.hardware.collective_law import MEASURABLE, CollectiveLaw
from calculon.hardware.curve import Curve
from calculon.hardware.engine import Engine
from calculon.hardware.host import Host
from calculon.hardware.kernels.kernel import Rate
from calculon.hardware.kernels.launch import Launch
from calculon.hardware.kernels.stated_curve import StatedCurve
from calculon.hardware.kernels.stated_kernels import FAMILY, StatedKernels
from calculon.hardware.kernels.stream import Stream
from calculon.hardware.kernels.tiles import Gemm
from calculon.hardware.memory_use import MemoryUse
from calculon.hardware.power import Power
from calculon.hardware.price import Price
from calculon.hardware.recipe_use import RecipeUse
from calculon.hardware.serving import Serving
from calculon.hardware.torus import Torus


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionKernel:
    """The fused attention kernel (*flash attention*) in one datatype."""

    efficiency: Curve = declare(
        "achieved share of the matrix engine's peak by mean keys per query: [threshold, efficiency], falling",
        unit="tokens",
    )


STEP_LATENCY = {"nvlink": 3.4e-6, "pcie": 5.7e-6, "net": 14e-6}
"""Seconds of one step of a ring by kind of link. Source: NCCL, src/graph/tuning.cc, protocol Simple."""


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
        """Return the latency of a step of a ring on a network with this latency: as stated, by kind, or the same."""
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
        """Check that multiprocessors are left."""
        check_record(self)
        if np.any(np.asarray(self.num_sms) >= self.multiprocessors):
            wanted = f"less than multiprocessors={self.multiprocessors}"
            hint = "products have what the library leaves"
            raise SpecError("ext.ep_library", [Problem("num_sms", wanted, str(self.num_sms), hint)])

    @property
    def engine_share(self) -> float:
        """Share of the compute engines that it takes."""
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
        """Return the same additions with other rates of kernels."""
        unset: dict[str, None] = {"attention": None, "gemm": None}
        return replace(self, kernels=StatedKernels(rates), **unset)  # type: ignore[arg-type]
