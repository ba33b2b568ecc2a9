"""The system: engines, two memory tiers, networks, and the roofline that combines compute and memory time."""

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any, ClassVar, get_args

import numpy as np

from calculon.base.display import Displayed
from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Bytes, Count, Flops, Seconds
from calculon.declarations.fields import declare
from calculon.declarations.machine_provenance import Provenance
from calculon.declarations.named_values import (
    DATATYPE_BYTES,
    ENGINE_BYTES,
    MATMUL_BYTES,
    MIN_RESULT_BYTES,
    arithmetic_type,
)
from calculon.declarations.origin import Origin
from calculon.declarations.recipes import RECIPES
from calculon.hardware.extension import Extension, Link
from calculon.hardware.kernels.kernel import (
    ENGINE_RATE,
    Kernel,
    KernelKind,
    Rate,
    Types,
    VectorKind,
)
from calculon.hardware.kernels.laws import FusedAttention, Gemm
from calculon.hardware.kernels.stated_rates import ExpertCalls, ShareOfPeak
from calculon.hardware.network import Fabric, Network
from calculon.hardware.processor import OF_EVERY_ENGINE, Engine, Memory, RecipeUse
from calculon.hardware.residuals import Residuals
from calculon.hardware.stated_networks import CollectiveLaw


@dataclass(frozen=True, slots=True, kw_only=True)
class System(Displayed):
    """A machine of equal processors, or a column of ``variants`` that differ in parameters.

    Parameters that differ in a column are arrays of shape (variants,): variant *i* is the machine of row *i* of the
    executions that are evaluated on it (:mod:`calculon.hardware.figures`).
    """

    unknown_keys: ClassVar[str] = "warning"
    silent_keys: ClassVar[tuple[str, ...]] = ("about",)
    overlays: ClassVar[bool] = True
    base_hint: ClassVar[str] = 'a system of the catalog, such as "base": "h100", fills in the rest'

    matrix: dict[str, Engine] = declare("matrix engine by datatype", choices=tuple(DATATYPE_BYTES))
    vector: dict[str, Engine] = declare("vector engine by datatype", choices=tuple(DATATYPE_BYTES))
    mem1: Memory = declare("memory of a processor (HBM)")
    mem2: Memory = declare("host memory, for offloading")
    processing_mode: str = declare(
        "combination of arithmetic and memory time of a layer: the larger of the two, or their sum",
        choices=("roofline", "no_overlap"),
    )
    networks: tuple[Network, ...] = declare("networks, numbered from 0, fastest first")
    ext: Extension = declare("additions to the published format", default=Extension())
    calibration: Residuals = declare(
        "result of `calibrate`: its residuals give the prediction interval of the iteration time",
        default=Residuals(),
        forgiving=True,
    )
    name: str = field(default="system", compare=False)
    provenance: Provenance = field(default=Provenance(unmeasured=True), repr=False, compare=False)
    variants: int = field(default=0, repr=False, compare=False)
    origin: Origin | None = field(default=None, init=False, repr=False, compare=False)
    fabric: Fabric = field(init=False, repr=False, compare=False)

    published: "System" = field(init=False, repr=False, compare=False)

    @classmethod
    def from_silent_keys(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the provenance, which a file states in ``about``."""
        return {"provenance": Provenance.of(document)}

    def __post_init__(self) -> None:
        """Arrange the networks as columns, and keep the system without extensions, as the published tool sees it."""
        object.__setattr__(self, "origin", None)
        self._check_tori()
        plain = Extension()
        fabric = Fabric.of(self.networks, self.ext.networks, self.ext.launch.kernel)
        object.__setattr__(self, "fabric", fabric)
        same = self if self.ext == plain else replace(self, ext=plain)
        object.__setattr__(self, "published", same)

    def _check_tori(self) -> None:
        """Raise SpecError if a network has more endpoints than its torus."""
        pairs = enumerate(zip(self.networks, self.ext.networks, strict=False))
        if wrong := [
            Problem(
                f"ext.networks[{i}].torus.sides",
                f"sides with a product of at least {network.size:,}, the size of networks[{i}]",
                f"{list(link.torus.sides)}, {link.torus.size:,} processors",
            )
            for i, (network, link) in pairs
            if link.torus is not None and link.torus.size < network.size
        ]:
            raise SpecError("system", wrong)

    @property
    def datatypes(self) -> tuple[str, ...]:
        """Datatypes that both engines have."""
        return tuple(name for name in self.matrix if name in self.vector)

    @property
    def mode(self) -> str:
        """Combination of arithmetic and memory time: from ``ext``, or from the published format."""
        return self.ext.processing_mode or self.processing_mode

    def combine(self, arithmetic: Seconds, memory: Seconds) -> Seconds:
        """Combine arithmetic and memory time of the same work.

        Source: Williams et al., *Roofline*, CACM 52(4), 2009, doi:10.1145/1498765.1498785; ``no_overlap`` adds.
        """
        if self.mode == "roofline":
            return np.maximum(arithmetic, memory)
        return arithmetic + memory

    def overlappable_time(self, arithmetic: Seconds, memory: Seconds) -> Seconds:
        """Return the time of some work that a collective can hide behind: all of it, or only its arithmetic."""
        return np.maximum(arithmetic, memory) if self.mode == "roofline" else arithmetic

    def move_time(self, size: Bytes) -> Seconds:
        """Return the time to move bytes in tier-1 memory in one pass (0 for none): from ``ext.traffic``, or mem1."""
        stream = self.ext.traffic
        return self.mem1.time(size) if stream is None else stream.move(size, self.mem1)

    def vector_time(self, datatype: str, flops: Flops) -> Seconds:
        """Return the arithmetic time on the vector engine of a pass over tier-1 memory."""
        engine = self.vector[datatype]
        return engine.time(flops) if self.ext.traffic is None else engine.long_time(flops)

    @property
    def node(self) -> int:
        """Processors of a node, or of the innermost network if it joins more."""
        host = self.ext.host
        return max(self.networks[0].size, 0 if host is None else host.processors)

    @property
    def usable(self) -> tuple[float, float]:
        """Bytes of both tiers that an execution may use."""
        use = self.ext.memory
        left, host = self.mem1.capacity - use.withheld, self.mem2.capacity * use.host_share
        return (np.maximum(0.0, left) if self.variants else max(0.0, left)), host

    @property
    def matmul_types(self) -> tuple[str, ...]:
        """Types of matrix arithmetic, except types for recipes only."""
        return (*self.matrix, *(name for name in self.ext.matrix or {} if name in MATMUL_BYTES))

    @property
    def recipes(self) -> Mapping[str, RecipeUse]:
        """Narrow-precision recipes that the system runs, and how it runs them."""
        stated = self.ext.recipes or OF_EVERY_ENGINE
        known = {*self.matrix, *(self.ext.matrix or {})}
        return {name: use for name, use in stated.items() if RECIPES[name].product in known}

    def transposes(self, recipe: str) -> bool:
        """Return true if operands of a recipe without block scales also need a transposed copy."""
        use = self.recipes.get(recipe)
        return use is None or use.transposes

    def product_engine(self, matmul_type: str) -> Engine:
        """Return the matrix engine for a type of arithmetic."""
        return (
            self.matrix[matmul_type] if matmul_type in self.matrix else self.ext.matrix[matmul_type]
        )

    def core_type(self, datatype: str, matmul_dtype: str) -> str:
        """Return the type of attention's arithmetic: its operand type, or 16 bits for 8-bit products."""
        if matmul_dtype != "float8":
            return arithmetic_type(datatype, matmul_dtype)
        if DATATYPE_BYTES[datatype] <= MIN_RESULT_BYTES:
            return datatype
        known = (name for name in ("bfloat16", "float16") if name in self.matrix)
        return next(known, datatype)

    def attention_kernels(self, datatype: str, matmul_dtype: str) -> tuple[str, ...]:
        """Return the names of the fused attention kernels that the file states, the default first."""
        return self.fused_kernels(self.core_type(datatype, matmul_dtype))

    def fused_kernels(self, datatype: str) -> tuple[str, ...]:
        """Return the names of the fused attention kernels stated for a type of arithmetic, the default first."""
        rate = self.rate("attention", datatype)
        if not isinstance(rate, FusedAttention):
            return ()
        return (rate.default, *(name for name in rate.kernels if name != rate.default))

    def rate(self, kind: str, datatype: str) -> Rate | None:
        """Return the rate that the file states for a kind of kernel in a type; None if it states none."""
        return self.ext.rates.get((kind, datatype))

    def gemm(self, matmul_type: str) -> Gemm | None:
        """Return the constants of the product law by shape; None if the system states none."""
        rate = self.rate("product", matmul_type)
        return rate if isinstance(rate, Gemm) else None

    def link(self, network: int) -> Link:
        """Return the extension of a network; empty if the file states none."""
        links = self.ext.networks
        return links[network] if network < len(links) else Link()

    def law(self, network: int, operation: str) -> CollectiveLaw | None:
        """Return the measured law of an operation in groups on a network; None if ``ext`` states none."""
        stated = self.link(network).operations
        return stated.get(operation) if stated else None

    def small_reduce(self, size: Bytes, ranks: Count) -> Seconds:
        """Return the time of a single-kernel all-reduce over the innermost network, from ``ext.serving``.

        It is infinite without such a kernel: on a network that is not stated to be NVLink or similar, and in groups
        that reach beyond it; the collectives library remains. Arguments as in
        :meth:`~calculon.hardware.serving.SmallReduce.time`.
        """
        inner = self.networks[0]
        time = self.ext.serving.small_reduce.time(size, ranks, inner.bandwidth)
        able = (self.link(0).kind == "nvlink") & (np.asarray(ranks) <= inner.size)
        return np.where(able | (time == 0), time, np.inf)

    def reduces_in_network(self, network: int) -> bool:
        """Return true if a network reduces in its switches: stated in ``ext``, or from the bytes of its all-reduce."""
        stated = self.link(network).in_network_reduction
        traffic = self.networks[network].ops.all_reduce
        return (traffic.scalar, traffic.offset) == (1, 1) if stated is None else stated


# Kernels by kind: the rate, engine and element size that determine their times.


def product(system: System, types: Types) -> Kernel:
    """Return the kernel of matrix products with weights.

    If a recipe scales partial sums, forward products accumulate them in 32 bits like gradient products, at the rate of
    gradient products. Source: DeepSeek-V3, arXiv 2412.19437, section 3.3.2; 8-bit products scaled by blocks of 128
    reach 0.86 of the rate of others on H100 (systems/measured/gemm.csv, ``fp8_block`` compared with ``fp8``). Source of
    the rate by FLOP: Isaev et al., SC'23, doi:10.1145/3581784.3607102, section 3.2.
    """
    result = _on_matrix_engine(system, types.product, "product")
    if types.promoted and isinstance(result.rate, Gemm):
        return result._replace(rate=result.rate.promoted)
    return result


def grouped_product(system: System, types: Types) -> Kernel:
    """Return the kernel of expert products (grouped GEMM): at a stated rate, or as a batch of ordinary products.

    One kernel for all experts computes tiles with the rows of one expert, and fills the multiprocessors with tiles of
    the next one (Gale et al., *MegaBlocks*, arXiv 2211.15841, section 5). Errors of the law ``tiles``, without a
    constant for experts: DeepGEMM on H800 in 8 bits, 256 to 8,192 rows (5), 5 %; forward layers of aiconfigurator in
    bfloat16 with balanced experts of at least 16 rows, above 0.1 ms: H100 7 % of 16, H200 11 % of 7, B200 13 % of 9;
    8-bit layers with small experts are predicted 23 to 34 % too fast. Products that Transformer Engine launches one by
    one follow :class:`~calculon.hardware.kernels.stated_rates.ExpertCalls`: those of an A100 overlap on four streams
    (12 in all passes, 1 to 4 %); kernels of Hopper and Blackwell occupy all multiprocessors and do not.
    """
    stated = system.rate("grouped_product", types.product)
    if stated is not None and not isinstance(stated, ExpertCalls):
        return _on_matrix_engine(system, types.product, "grouped_product")
    result = product(system, types)
    if stated is None:
        return result
    return result._replace(rate=replace(stated, products=result.rate))


def router(system: System, types: Types) -> Kernel:
    """Return the kernel of the router's product: in 4 bytes if the matrix engine supports such a type.

    Source: Megatron-LM, ``moe/router.py``, ``--moe-router-dtype fp32``.
    """
    known = system.matmul_types
    wide = next((name for name in ("tfloat32", "float32") if name in known), types.product)
    return _on_matrix_engine(system, wide, "router", "product")


def batched_product(system: System, types: Types) -> Kernel:
    """Return the kernel of products of two activations (unfused attention), at the rate of other products."""
    return _on_matrix_engine(system, types.attention, "batched_product", "product")


def attention(system: System, types: Types) -> Kernel:
    """Return the kernel of fused attention (*flash attention*), selected by name.

    Source: its efficiency grows with the sequence: Dao, *FlashAttention-2*, arXiv 2307.08691, figures 4 to 6.
    """
    result = _on_matrix_engine(system, types.fused or types.attention, "attention")
    if isinstance(result.rate, FusedAttention) and types.attention_kernel != "auto":
        return result._replace(rate=result.rate.running(types.attention_kernel))
    return result


def linear_attention(system: System, types: Types) -> Kernel:
    """Return the kernel of the linear-attention state: at its stated rate, or at a share of the peak.

    It runs in attention's type. Its products have the size of a chunk and a head, and pass states between chunks. The
    default share is that of measured kernels of the gated delta rule (``systems/measured/state.csv``).
    """
    datatype = types.attention
    assumed = ShareOfPeak(share=system.ext.linear_efficiency)
    rate = system.rate("linear_attention", datatype) or assumed
    return Kernel(rate, system.product_engine(datatype), ENGINE_BYTES[datatype])


def _on_matrix_engine(system: System, datatype: str, *kinds: str) -> Kernel:
    """Return a kernel at the rate stated for the first possible kind, else at the engine's rate."""
    stated = (system.rate(kind, datatype) for kind in kinds)
    rate = next((one for one in stated if one is not None), ENGINE_RATE)
    return Kernel(rate, system.product_engine(datatype), ENGINE_BYTES[datatype])


def vector(kind: VectorKind, system: System, types: Types) -> Kernel:
    """Return the kernel of an elementwise operator or reduction, usually memory-bound.

    The rate is the first one stated for: its kind, all tier-1 memory traffic, the engine.
    """
    datatype = types.vector
    rate = system.rate(kind, datatype) or system.ext.traffic or ENGINE_RATE
    return Kernel(rate, system.vector[datatype], DATATYPE_BYTES[datatype])


def mul_sum_fused(system: System, types: Types) -> Kernel:
    """Return the kernel of products on the vector engine, multiplied and summed in one kernel.

    Without a stated rate it follows the matrix engine's GEMM law, at the peak of the vector engine: tiles and waves are
    the same, and tiles take as long to start and finish.
    """
    result, datatype = vector("mul_sum_fused", system, types), types.vector
    law = system.rate("product", datatype)
    if system.rate("mul_sum_fused", datatype) is not None or not isinstance(law, Gemm):
        return result
    relative_peak = result.engine.peak / system.product_engine(datatype).peak
    return result._replace(rate=replace(law, half_depth=law.half_depth * relative_peak))


KERNELS: Mapping[KernelKind, Callable[[System, Types], Kernel]] = {
    "product": product,
    "grouped_product": grouped_product,
    "router": router,
    "batched_product": batched_product,
    "attention": attention,
    "linear_attention": linear_attention,
    **{kind: partial(vector, kind) for kind in get_args(VectorKind)},
    "mul_sum_fused": mul_sum_fused,
}
"""Function from a system and its arithmetic types to a kernel, by kind of kernel.

A new kind of kernel needs a name in :mod:`calculon.hardware.kernels.kernel`, and an entry here unless it runs on the
vector engine.
"""
