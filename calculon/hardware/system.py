"""The system: engines, two tiers of memory, networks, and how compute and memory time combine."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np

from calculon.base.display import Displayed
from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Bytes, Count, Flops, Seconds
from calculon.declarations.fields import declare
from calculon.declarations.machine_provenance import Provenance
from calculon.declarations.named_values import (
    DATATYPE_BYTES,
    LEAST_RESULT_BYTES,
    MATMUL_BYTES,
    arithmetic_type,
)
from calculon.declarations.origin import Origin
from calculon.declarations.recipes import RECIPES
from calculon.hardware.collective_law import CollectiveLaw
from calculon.hardware.engine import Engine
from calculon.hardware.extension import Extension, Link
from calculon.hardware.kernels.fused_attention import FusedAttention
from calculon.hardware.kernels.kernel import Rate
from calculon.hardware.kernels.tiles import Gemm
from calculon.hardware.memory import Memory
from calculon.hardware.network import Fabric, Network
from calculon.hardware.recipe_use import OF_EVERY_ENGINE, RecipeUse
from calculon.hardware.residuals import Residuals


@dataclass(frozen=True, slots=True, kw_only=True)
class System(Displayed):
    """A machine of equal processors, or a column of ``variants`` that differ in figures.

    Figures of a column are arrays of shape (variants,) wherever they differ: variant *i* is the machine of row *i* of
    what is evaluated on it (:mod:`calculon.hardware.figures`).
    """

    unknown_keys: ClassVar[str] = "warning"
    silent_keys: ClassVar[tuple[str, ...]] = ("about",)
    overlays: ClassVar[bool] = True

    matrix: dict[str, Engine] = declare("matrix engine by datatype", choices=tuple(DATATYPE_BYTES))
    vector: dict[str, Engine] = declare("vector engine by datatype", choices=tuple(DATATYPE_BYTES))
    mem1: Memory = declare("tier-1 memory, next to the engines (HBM)")
    mem2: Memory = declare("tier-2 memory, for offloading")
    processing_mode: str = declare(
        "how arithmetic and memory time of a layer combine: the larger of the two, or their sum",
        choices=("roofline", "no_overlap"),
    )
    networks: tuple[Network, ...] = declare("networks, numbered from 0, fastest first")
    ext: Extension = declare("additions to the published format", default=Extension())
    calibration: Residuals = declare(
        "what `calibrate` wrote: from its residuals follows the interval of the iteration time",
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
        """Lay the networks out, and keep the system as the published tool sees it: without its additions."""
        object.__setattr__(self, "origin", None)
        self._check_tori()
        plain = Extension()
        fabric = Fabric.of(self.networks, self.ext.networks, self.ext.launch.kernel)
        object.__setattr__(self, "fabric", fabric)
        same = self if self.ext == plain else replace(self, ext=plain)
        object.__setattr__(self, "published", same)

    def _check_tori(self) -> None:
        """Raise SpecError where a network has more endpoints than its torus."""
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
        """How arithmetic and memory time combine: as ``ext`` says, or as the published format does."""
        return self.ext.processing_mode or self.processing_mode

    def combine(self, arithmetic: Seconds, memory: Seconds) -> Seconds:
        """Combine arithmetic and memory time of the same work.

        Source: Williams et al., *Roofline*, CACM 52(4), 2009, doi:10.1145/1498765.1498785; ``no_overlap`` adds.
        """
        if self.mode == "roofline":
            return np.maximum(arithmetic, memory)
        return arithmetic + memory

    def beside_collective(self, arithmetic: Seconds, memory: Seconds) -> Seconds:
        """Time of some work that a collective can hide behind: all of it, or without overlap its arithmetic."""
        return np.maximum(arithmetic, memory) if self.mode == "roofline" else arithmetic

    def move_time(self, size: Bytes) -> Seconds:
        """Return the time to move bytes in tier-1 memory in one pass (0 for none): as ``ext.traffic`` says, or mem1."""
        stream = self.ext.traffic
        return self.mem1.time(size) if stream is None else stream.move(size, self.mem1)

    def vector_time(self, datatype: str, flops: Flops) -> Seconds:
        """Return the arithmetic time of a pass over tier-1 memory on the vector engine."""
        engine = self.vector[datatype]
        return engine.time(flops) if self.ext.traffic is None else engine.long_time(flops)

    @property
    def node(self) -> int:
        """Processors of a node, or of the innermost network where that joins more."""
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
        """Types of matrix arithmetic, but those that only recipes use."""
        return (*self.matrix, *(name for name in self.ext.matrix or {} if name in MATMUL_BYTES))

    @property
    def recipes(self) -> Mapping[str, RecipeUse]:
        """Recipes of narrow products that it runs, and how."""
        stated = self.ext.recipes or OF_EVERY_ENGINE
        known = {*self.matrix, *(self.ext.matrix or {})}
        return {name: use for name, use in stated.items() if RECIPES[name].product in known}

    def transposes(self, recipe: str) -> bool:
        """Whether operands of a recipe without scales of blocks exist in a transposed copy, too."""
        use = self.recipes.get(recipe)
        return use is None or use.transposes

    def product_engine(self, matmul_type: str) -> Engine:
        """Return the matrix engine for a type of arithmetic."""
        return (
            self.matrix[matmul_type] if matmul_type in self.matrix else self.ext.matrix[matmul_type]
        )

    def core_type(self, datatype: str, matmul_dtype: str) -> str:
        """Return the type of attention's arithmetic: that of its operands, which products in 8 bits make in 16."""
        if matmul_dtype != "float8":
            return arithmetic_type(datatype, matmul_dtype)
        if DATATYPE_BYTES[datatype] <= LEAST_RESULT_BYTES:
            return datatype
        known = (name for name in ("bfloat16", "float16") if name in self.matrix)
        return next(known, datatype)

    def attention_kernels(self, datatype: str, matmul_dtype: str) -> tuple[str, ...]:
        """Return the names of the kernels of fused attention that the file states, the default first."""
        rate = self.rate("attention", self.core_type(datatype, matmul_dtype))
        if not isinstance(rate, FusedAttention):
            return ()
        return (rate.default, *(name for name in rate.kernels if name != rate.default))

    def rate(self, kind: str, datatype: str) -> Rate | None:
        """Return the rate that the file states for a kind of kernel in a type, if it does."""
        return self.ext.rates.get((kind, datatype))

    def gemm(self, matmul_type: str) -> Gemm | None:
        """Return the constants of the law of products by their shape, if the system states them."""
        rate = self.rate("product", matmul_type)
        return rate if isinstance(rate, Gemm) else None

    def link(self, network: int) -> Link:
        """Return the additions of ``ext`` to a network."""
        links = self.ext.networks
        return links[network] if network < len(links) else Link()

    def law(self, network: int, operation: str) -> CollectiveLaw | None:
        """Return what ``ext`` states of an operation in groups on a network, if it does."""
        stated = self.link(network).operations
        return stated.get(operation) if stated else None

    def small_reduce(self, size: Bytes, ranks: Count) -> Seconds:
        """Return the time of an all-reduce by one kernel over the innermost network, as ``ext.serving`` says.

        It is infinite where there is no such kernel: on a network that is not stated to be NVLink or its like, and in
        groups that reach beyond it; the library of collectives is left. Arguments as in
        :meth:`~calculon.hardware.serving.SmallReduce.time`.
        """
        inner = self.networks[0]
        time = self.ext.serving.small_reduce.time(size, ranks, inner.bandwidth)
        able = (self.link(0).kind == "nvlink") & (np.asarray(ranks) <= inner.size)
        return np.where(able | (time == 0), time, np.inf)

    def reduces_in_network(self, network: int) -> bool:
        """Return whether the switches of a network reduce: as ``ext`` states, or as its all-reduce counts bytes."""
        stated = self.link(network).in_network_reduction
        traffic = self.networks[network].ops.all_reduce
        return (traffic.scalar, traffic.offset) == (1, 1) if stated is None else stated
