"""The law ``calls``: products of experts in a loop of calls, one of each expert, instead of one kernel for all."""

from dataclasses import field, replace

import numpy as np

from calculon.base.frozen import dataclass
from calculon.declarations.fields import declare
from calculon.hardware.engine import Engine
from calculon.hardware.kernels.kernel import ENGINE_RATE, LONGEST_START, Rate, Shapes, Times
from calculon.hardware.memory import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertCalls:
    """Products of experts, each of which the host launches on its own.

    So many fill the multiprocessors together, as they are on different streams; the others wait. Each is as fast as
    any other product of its shape, and no call follows another faster than the host makes it.

    Source: Transformer Engine, ``common/gemm/cublaslt_gemm.cu``, ``nvte_multi_stream_cublas_gemm``, which
    ``GroupedLinear`` calls.
    """

    together: int = declare(
        "products of experts that share the multiprocessors at a time", at_least=1
    )
    call: float = declare(
        "time in which the host makes one call", unit="s", at_least=0, at_most=LONGEST_START
    )
    products: Rate = field(default=ENGINE_RATE, repr=False)

    def times(self, shapes: Shapes, engine: Engine, memory: Memory, element_bytes: float) -> Times:
        """Return the times of layers: see :meth:`~calculon.hardware.kernels.kernel.Rate.times`."""
        experts = shapes.products()[0]
        turns = experts / np.minimum(experts, self.together)
        flops, accessed = shapes.all_flops.copy(), shapes.all_accessed.copy()
        flops[:, shapes.rows] /= turns
        accessed[:, shapes.rows] /= turns
        one = shapes._replace(all_flops=flops, all_accessed=accessed, together=self.together)
        arithmetic, own = self.products.times(one, engine, memory, element_bytes)
        runs = shapes.flops() > 0
        busy = np.maximum(arithmetic * turns, np.where(runs, experts * self.call, 0.0))
        return busy, None if own is None else own * turns

    def slowed(self, factor: float, start: float, end: float) -> "ExpertCalls":
        """Return the law where the host takes `factor` times as long; products are slowed with others."""
        return replace(self, call=self.call * factor)

    @property
    def follows_engine(self) -> bool:
        """Whether times are in shares of the engine's peak: those of products are, and a host is not of the engine."""
        return True
