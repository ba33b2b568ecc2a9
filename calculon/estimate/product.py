"""Time of a matrix product, alone or concurrent with a host-device copy on a second stream."""

from dataclasses import replace

import numpy as np

from calculon.architecture.layer import Flags, Widths
from calculon.architecture.layers import linear
from calculon.architecture.segments import ONE_RANK
from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.cost.layer_cost import LayerTable, layer_times
from calculon.declarations.named_values import DATATYPE_BYTES
from calculon.hardware.system import System

PREFERRED = ("bfloat16", "float16")
"""Default types of a product, if a system has them."""

_STORED = {"tfloat32": "float32"}
"""Storage type of types that exist in arithmetic only."""


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """Product ``(m, k) x (k, n)`` on a processor.

    Attributes:
        m, n, k: Rows and columns of the result, and the depth of each sum.
        datatype: Type of the arithmetic.
        flops, accessed: FLOP, and bytes moved in tier-1 memory: both operands and the result once.
        arithmetic, memory, time: Seconds of arithmetic, of memory traffic, and of both as the system combines them.
    """

    system: System
    m: int
    n: int
    k: int
    datatype: str
    flops: float
    accessed: float
    arithmetic: float
    memory: float
    time: float

    @property
    def share_of_peak(self) -> float:
        """Achieved rate as a fraction of the peak of the engine."""
        return self.flops / self.time / self.system.product_engine(self.datatype).peak


@dataclass(frozen=True, slots=True)
class ConcurrentCopy:
    """Product and copy that start together on two streams; times in seconds.

    Attributes:
        size: Bytes of the copy between tier 2 (host) and tier 1.
        copy: Time of the copy.
        share: Fraction of tier-1 bandwidth that the copy takes while it runs.
        product: Time until the product ends.
        together: Time until both have ended.
        hidden: Time that the overlap saves: the sum of both times alone, minus `together`.
    """

    size: float
    copy: float
    share: float
    product: float
    together: float
    hidden: float


def datatype_of(system: System, asked: str | None = None) -> str:
    """Return the requested type of arithmetic, or the default type of a system.

    Raises:
        SpecError: For a type that the matrix engine lacks.
    """
    known = system.matmul_types
    if asked is None:
        return next((name for name in PREFERRED if name in known), known[0])
    if asked not in known:
        wanted = f"a type of the matrix engine of {system.name}: {', '.join(known)}"
        raise SpecError("--datatype", Problem("", wanted, repr(asked)))
    return asked


def matrix_product(system: System, m: int, n: int, k: int, datatype: str) -> MatrixProduct:
    """Return the time of a product as a layer of a model: :func:`calculon.cost.layer_cost.layer_times`."""
    stored = _STORED.get(datatype, datatype)
    choice = replace(
        ONE_RANK, datatype=stored, matmul_dtype="same" if stored == datatype else datatype
    )
    width = DATATYPE_BYTES[stored]
    one = linear(
        "Product", float(m), float(k), float(n), widths=Widths(width, width, width), flags=Flags()
    )
    table = LayerTable([one], 1)
    times = layer_times(table, system, choice)
    forward = (times.arithmetic, times.memory, times.processing)
    return MatrixProduct(
        *(system, m, n, k, datatype),
        *(float(values[0, 0, 0]) for values in (table.flops, table.accessed, *forward)),
    )


def copy_time(system: System, size: float) -> float:
    """Return the time of a copy between tier 2 and tier 1 on its own stream."""
    moved = system.mem2.time(np.array([float(size)]))
    return float(system.ext.launch.bounded(moved, 1.0)[0])


def with_concurrent_copy(product: MatrixProduct, size: float) -> ConcurrentCopy:
    """Return the times of a product and a concurrent copy.

    Copy engines use no multiprocessors, so arithmetic is not slowed down. The copy takes its share of tier-1 bandwidth
    while it runs, and the product gets the rest; after the copy ends, the remaining product runs at full speed.

    Source: NVIDIA, *CUDA C++ Best Practices Guide*, *Asynchronous and Overlapping Transfers with Computation*: copies
    from and to pinned host memory overlap with kernels of other streams.
    """
    system = product.system
    copy = copy_time(system, size)
    share = min(1.0, float(system.mem1.time(np.array([float(size)]))[0]) / copy)
    slowed = _slowed_time(product, share)
    finished = copy / slowed  # fraction of the product that is done when the copy ends
    ends = slowed if finished >= 1 else copy + (1 - finished) * product.time
    together = max(ends, copy)
    return ConcurrentCopy(
        size=size,
        copy=copy,
        share=share,
        product=ends,
        together=together,
        hidden=product.time + copy - together,
    )


def _slowed_time(product: MatrixProduct, share: float) -> float:
    """Return the time of a product while another stream takes a share of tier-1 bandwidth."""
    if share == 1 and product.memory:
        return np.inf
    system = product.system
    memory = np.array([product.memory / (1 - share) if product.memory else 0.0])
    combined = system.combine(np.array([product.arithmetic]), memory)
    return float(system.ext.launch.bounded(combined, 1.0)[0])
