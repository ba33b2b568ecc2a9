"""Roofline of the operators of a block: the bound of each pass, and its distance from the roof.

Source: Williams et al., *Roofline*, CACM 52(4), 2009, doi:10.1145/1498765.1498785.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from calculon.base.frozen import dataclass
from calculon.cost.layer_cost import kernel_types
from calculon.editions import EDITIONS
from calculon.estimate.layer_list import OperatorTable, operator_tables
from calculon.estimate.operators import AGAIN, FORWARD, INPUTS, WEIGHTS, WORK_PASSES, Block
from calculon.hardware.kernels.kernel import Kernel, Rate
from calculon.hardware.processor import Engine
from calculon.hardware.system import KERNELS, System
from calculon.plan.plan import Plan

ARITHMETIC, MEMORY, LAUNCH, COLLECTIVE = BOUNDS_OF_TIME = (
    "arithmetic",
    "memory",
    "launch",
    "collective",
)
"""Limits of the time of a pass: matrix or vector engine, tier-1 memory, kernel launches, concurrent collective."""

_PHASES = {FORWARD: 0, INPUTS: 1, WEIGHTS: 2, AGAIN: 0}
"""Row of times of each pass; activation recomputation repeats the forward pass."""

_SAME = 1e-9  # relative: times that differ by rounding only


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPass:
    """Pass over one operator for one microbatch on one processor.

    Attributes:
        operator, kind: Name, and kind of block; empty if there is one kind.
        work: Pass: one of :data:`~calculon.estimate.operators.WORK_PASSES`.
        kernel, engine, datatype: Kind of kernel, the engine that runs it, and the type of its arithmetic.
        rate: Speed of such kernels in the system.
        peak, bandwidth: Peak of the engine in FLOP/s, bandwidth of tier-1 memory in B/s.
        flops, moved, time: FLOP, bytes moved in tier-1 memory, and seconds.
        arithmetic, memory: Seconds of arithmetic and of memory traffic, before the system combines them.
        product: For a matrix product: batch, rows and columns of the result, and the depth of each sum.
        keys: Mean keys per query of fused attention; 0 for other operators.
        bound: One of :data:`BOUNDS_OF_TIME`.
    """

    operator: str
    kind: str
    work: str
    kernel: str
    engine: str
    datatype: str
    rate: Rate
    peak: float
    bandwidth: float
    flops: float
    moved: float
    time: float
    arithmetic: float
    memory: float
    product: tuple[float, float, float, float] | None
    keys: float
    bound: str

    @property
    def intensity(self) -> float | None:
        """Arithmetic intensity in FLOP per byte; None without arithmetic or traffic."""
        return self.flops / self.moved if self.flops and self.moved else None

    @property
    def achieved(self) -> float:
        """Achieved FLOP per second."""
        return self.flops / self.time

    @property
    def roof(self) -> float:
        """Attainable FLOP/s of the machine at this arithmetic intensity."""
        return (
            self.peak
            if not self.moved
            else min(self.peak, self.flops / self.moved * self.bandwidth)
        )

    @property
    def at_roof(self) -> float:
        """Seconds at the roof: the longer of arithmetic at the peak and traffic at the full bandwidth."""
        return max(self.flops / self.peak, self.moved / self.bandwidth)

    @property
    def share_of_roof(self) -> float:
        """Fraction of the roof: the time at the roof over the time."""
        return self.at_roof / self.time


def operator_passes(shown_block: Block) -> list[OperatorPass]:
    """Return the passes of the operators of a block that take time, in the order of the operators.

    Collectives are not included, because their time is separate.

    Args:
        shown_block: The block, with its FLOP, bytes and times.
    """
    plan, edition = Plan.of(shown_block.execution), EDITIONS[shown_block.edition]
    rows = iter(shown_block.operators)
    return [
        one
        for table in operator_tables(shown_block.model, shown_block.system, plan, edition)
        for one in _of_table(table, rows)
    ]


def _of_table(table: OperatorTable, rows: Iterable[Mapping[str, Any]]) -> Iterator[OperatorPass]:
    """Yield the passes of one kind of block."""
    system, choice, times = table.layout.system, table.choice, table.cost.times
    types = kernel_types(system, choice.layout)
    halves = 2 if choice.in_halves else 1
    launched = system.ext.launch.kernel * table.layout.table.launches()
    for i, (layer, row) in enumerate(zip(table.layout.table.layers, rows, strict=False)):
        kernel = KERNELS[layer.kernel](system, types)
        for work in WORK_PASSES:
            time, phase = row["time"][work], _PHASES[work]
            if not time:
                continue
            # Recomputation may be less than a forward pass (selective): scale the parts of the time with it.
            whole = row["time"][FORWARD] if work == AGAIN else time
            share = halves * time / whole if whole else 0.0
            arithmetic, memory, starting = (
                float(one[phase, i, 0]) * share
                for one in (times.arithmetic, times.memory, launched)
            )
            yield OperatorPass(
                operator=row["name"],
                kind=row.get("kind", ""),
                work=work,
                kernel=layer.kernel,
                engine=layer.engine,
                datatype=_datatype(kernel, system),
                rate=kernel.rate,
                peak=kernel.engine.peak,
                bandwidth=system.mem1.bandwidth,
                flops=row["flops"][work],
                moved=row["bytes"][work],
                time=time,
                arithmetic=arithmetic,
                memory=memory,
                product=None if layer.product is None else _sizes(layer.product, phase),
                keys=float(_only(layer.keys)),
                bound=_bound(system, time, arithmetic, memory, starting),
            )


def _bound(system: System, time: float, arithmetic: float, memory: float, starting: float) -> str:
    """Return the largest contribution to a time."""
    alone = float(system.combine(np.array(arithmetic), np.array(memory)))
    if time > max(alone, starting) * (1 + _SAME):
        return COLLECTIVE
    if starting > alone:
        return LAUNCH
    return ARITHMETIC if arithmetic >= memory else MEMORY


def _sizes(product: Any, phase: int) -> tuple[float, float, float, float]:
    """Return batch, rows, columns and depth of the products ``(m, n) x (n, k)`` of a pass."""
    batch, m, n, k = (float(_only(size)) for size in product)
    return ((batch, m, k, n), (batch, m, n, k), (batch, n, k, m))[phase]


def _only(size: Any) -> Any:
    """Return a size of the only execution."""
    return size.flat[0] if hasattr(size, "flat") else size


def _datatype(kernel: Kernel, system: System) -> str:
    """Return the arithmetic type of a kernel."""
    known: list[tuple[str, Engine]] = [
        *system.matrix.items(),
        *(system.ext.matrix or {}).items(),
        *system.vector.items(),
    ]
    return next(name for name, engine in known if engine is kernel.engine)


def roofs(passes: Iterable[OperatorPass]) -> dict[tuple[str, str], float]:
    """Return the peaks in FLOP/s of passes by kind of engine and type, highest first.

    Fused attention runs on the matrix engine.
    """
    peaks = {
        ("vector" if one.engine == "vector" else "matrix", one.datatype): one.peak for one in passes
    }
    return dict(sorted(peaks.items(), key=lambda peak: -peak[1]))
