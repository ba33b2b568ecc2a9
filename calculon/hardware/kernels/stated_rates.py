"""Rates stated in a system file: a share of the peak, a curve, a table of measured kernels, or a simple law."""

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple

import numpy as np

from calculon.base.arrays import over_passes
from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, Seconds
from calculon.declarations.fields import Declaration, declare
from calculon.hardware.curve import Curve, decode_rows
from calculon.hardware.kernels.kernel import (
    ENGINE_RATE,
    LONGEST_START,
    Rate,
    Shapes,
    Times,
    of_passes,
)
from calculon.hardware.processor import Engine, Memory

# A constant share of the engine's peak, whatever the size: used when no curve is known.


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOfPeak:
    """Arithmetic at a share of the engine's peak."""

    share: float

    def times(self, shapes: Shapes, engine: Engine, memory: Memory, element_bytes: float) -> Times:
        """Return the times of layers: see :meth:`~calculon.hardware.kernels.kernel.Rate.times`."""
        return shapes.flops() / (engine.peak * self.share), None

    def slowed(self, factor: float, start: float, end: float) -> "ShareOfPeak":
        """Return the rate of operations that take `factor` times as long; spreads of a size range change nothing."""
        return self if end < np.inf else replace(self, share=self.share / factor)

    @property
    def follows_engine(self) -> bool:
        """Always true: times are shares of the engine's peak."""
        return True


# A curve over the size of the operation.

OVER = ("flops", "keys", "bytes")
"""Sizes that a curve may depend on: FLOP of a pass, mean keys per query, bytes that a pass moves in tier-1 memory."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StatedCurve:
    """Share of a peak by the size of the operation, as a step function.

    Over FLOP or keys it is a share of the engine's peak and gives the arithmetic time. Over bytes it is a share of the
    tier-1 bandwidth and gives the memory time; the arithmetic then runs at the engine's rate.
    """

    curve: Curve = declare(
        "achieved share of the peak by size: [threshold, share], falling; in FLOP, keys per query or bytes",
    )
    over: str = declare(
        "unit of the thresholds: shares over bytes refer to the bandwidth of mem1, others to the engine's peak",
        choices=OVER,
    )

    def times(self, shapes: Shapes, engine: Engine, memory: Memory, element_bytes: float) -> Times:
        """Return the times of layers: see :meth:`~calculon.hardware.kernels.kernel.Rate.times`."""
        flops = shapes.flops()
        if self.over == "bytes":
            accessed = shapes.accessed()
            return engine.time(flops), accessed / (memory.bandwidth * self.curve.at(accessed))
        share = self.curve.at(shapes.keys() if self.over == "keys" else flops)
        return flops / (engine.peak * share), None

    def slowed(self, factor: float, start: float, end: float) -> "StatedCurve":
        """Return the rate of operations that take `factor` times as long; over keys, small ones stay unchanged."""
        if self.over != "keys":
            return replace(self, curve=self.curve.scaled(1 / factor, start, end))
        return self if end < np.inf else replace(self, curve=self.curve.scaled(1 / factor))

    @property
    def follows_engine(self) -> bool:
        """True if arithmetic times scale with the engine's peak."""
        return self.over != "bytes"


# The law ``stream``: memory-bound kernels take a start and move their bytes at one rate.


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Law of memory-bound kernels: a start per kernel, and bytes at a share of the tier-1 bandwidth.

    More bytes never take less time, as they may with a share that rises in steps. Data is assumed to be in memory and
    not in the cache: a training kernel reads data that was written many megabytes earlier.
    Source: Hockney and Jesshope, *Parallel Computers 2*, 1988, section 1.3 (start-up and asymptotic rate).
    """

    efficiency: float = declare(
        "share of the bandwidth of mem1 that long kernels reach", above=0, at_most=1
    )
    backward: float | None = declare(
        "share for backward passes, which also reduce over tokens; by default as forward",
        above=0,
        at_most=1,
        default=None,
    )
    start: float = declare(
        "time of a kernel that moves nothing",
        unit="s",
        at_least=0,
        at_most=LONGEST_START,
        default=0.0,
    )

    def move(
        self,
        size: Bytes,
        memory: Memory,
        kernels: Array | float = 1.0,
        share: Array | float | None = None,
    ) -> Seconds:
        """Return the time of kernels that move a number of bytes together (0 for none)."""
        share = self.efficiency if share is None else share
        return size / (memory.bandwidth * share) + np.where(size > 0, self.start * kernels, 0.0)

    def times(self, shapes: Shapes, engine: Engine, memory: Memory, element_bytes: float) -> Times:
        """Return the times of layers: see :meth:`~calculon.hardware.kernels.kernel.Rate.times`."""
        backward = self.efficiency if self.backward is None else self.backward
        share = over_passes(self.efficiency, backward, backward)
        moved = self.move(shapes.accessed(), memory, shapes.launches(), share)
        return engine.long_time(shapes.flops()), moved

    def slowed(self, factor: float, start: float, end: float) -> "Stream":
        """Return the rate of operations that take `factor` times as long: small ones are slowed in their start only."""
        if end < np.inf:
            return replace(self, start=self.start * factor)
        slower = replace(self, efficiency=self.efficiency / factor)
        if self.backward is not None:
            slower = replace(slower, backward=self.backward / factor)
        return slower if start > 0 else replace(slower, start=self.start * factor)

    @property
    def follows_engine(self) -> bool:
        """False: arithmetic times hide behind memory times here."""
        return False


# The law ``calls``: a loop of calls, one per expert, instead of one grouped kernel for all experts.


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertCalls:
    """Law of expert products that the host launches one by one.

    On several streams, `together` products share the multiprocessors; the others wait. Each is as fast as any other
    product of its shape, and calls cannot follow each other faster than the host makes them. In a graph of the whole
    iteration, the host makes no calls: one kernel multiplies the rows of all experts.

    Source: Transformer Engine, ``common/gemm/cublaslt_gemm.cu``, ``nvte_multi_stream_cublas_gemm``, which
    ``GroupedLinear`` calls.
    """

    together: int = declare("products of experts that run at the same time", at_least=1)
    call: float = declare("host time per call", unit="s", at_least=0, at_most=LONGEST_START)
    products: Rate = field(default=ENGINE_RATE, repr=False)

    def times(self, shapes: Shapes, engine: Engine, memory: Memory, element_bytes: float) -> Times:
        """Return the times of layers: see :meth:`~calculon.hardware.kernels.kernel.Rate.times`."""
        if not shapes.looped():
            return self.products.times(shapes, engine, memory, element_bytes)
        experts = shapes.products()[0]
        turns = experts / np.minimum(experts, self.together)
        flops, accessed = shapes.all_flops.copy(), shapes.all_accessed.copy()
        flops[:, shapes.rows] /= turns
        accessed[:, shapes.rows] /= turns
        one = shapes._replace(all_flops=flops, all_accessed=accessed, together=self.together)
        # One turn is a batch of `together` products with its share of FLOP and bytes.
        arithmetic, own = self.products.times(one, engine, memory, element_bytes)
        runs = (shapes.flops() > 0) & (experts > 1)
        busy = np.maximum(arithmetic * turns, np.where(runs, experts * self.call, 0.0))
        return busy, None if own is None else own * turns

    def slowed(self, factor: float, start: float, end: float) -> "ExpertCalls":
        """Return the law with a host that takes `factor` times as long; products are slowed with all other products."""
        return replace(self, call=self.call * factor)

    @property
    def follows_engine(self) -> bool:
        """True: product times scale with the engine's peak; host times do not."""
        return True


# A table of measured kernels.

VALUES = ("share", "seconds")
"""Last number of a row: a share of the peak, or the time of the whole kernel."""

PRODUCT, ATTENTION, MEMORY = ("m", "n", "k"), ("keys", "width"), ("bytes",)
"""Table columns: products (an ``m x n`` result and a sum over k), attention, and memory-bound operators."""

_SIZE = Declaration(help="size", above=0)
_SHARE = Declaration(help="share of the peak", above=0, at_most=1)
_SECONDS = Declaration(help="time of the kernel", unit="s", above=0)
_SMALLEST = 1e-30  # size of an empty pass, whose logarithm must be finite
CORNERS = 8
"""Number of rows to interpolate between for shapes of several sizes: the corners of a grid cell."""

_SAME = 1e-12  # difference of the logarithms of equal sizes
_AT_ONCE = 2**20  # distances per lookup, so that they stay in the cache


class Rows(NamedTuple):
    """The rows of a table: sizes, shape (rows, columns), and shares of a peak or seconds, shape (rows,)."""

    sizes: Array
    values: Array

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float) -> Any:
        """Decode ``[[size, ..., value], ...]``, all of equal length."""
        first = raw[0] if isinstance(raw, (list, tuple)) and raw else ()
        width = len(first) if isinstance(first, (list, tuple)) else 0
        row = f"row of {width} numbers" if width > 1 else "row [size, ..., value]"
        found = decode_rows(raw, path, problems, row, (_SIZE,) * max(2, width))
        if found is None:
            return None
        rows = np.array(found)
        return cls(rows[:, :-1].copy(), rows[:, -1].copy())

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the raw list."""
        row = {"type": "array", "items": _SIZE.schema(float), "minItems": 2, "maxItems": 4}
        return {"type": "array", "minItems": 1, "items": row}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredTable:
    """Measured kernels by size.

    For products and attention, shares refer to the engine's peak; for memory-bound kernels, to the tier-1 bandwidth.
    The other resource is timed as usual. Seconds cover the whole kernel.

    The table reproduces every row, and is never faster than its best row, between the rows or beyond them. Between
    rows, the logarithm of the rate is interpolated in logarithms of sizes, as both span orders of magnitude.

    In one size, interpolation is linear and the last rate continues beyond the ends: between two rows the time is a
    power of the size, so it grows whenever the rows' times do. Shapes of several sizes form no grid. There the result
    is the mean of the nearest rows, each weighted by the inverse of its distance minus the inverse distance of the
    first row left out, which makes it continuous. Rows also bound it: a kernel takes at least as long as any row that
    is nowhere larger, and at most as long as any row that is nowhere smaller, unless two such rows contradict each
    other. For measured products with half of the weight shapes left out (aiconfigurator, six GPUs), the mean error of
    the logarithm of the rate is 0.31, compared with 0.33 without bounds and 0.43 with the nearest row alone.

    Source: Franke and Nielson, *Smooth interpolation of large sets of scattered data*, Int. J. Numer. Meth. Eng. 15,
    1980, doi:10.1002/nme.1620151110 (inverse distances to nearby points, with weights that vanish at the next).
    """

    table: Rows = declare(
        "measured kernels: [m, n, k, value] of products (m x n results, sums over k), [keys, head width, share] of "
        "fused attention, [bytes, value] of others"
    )
    values: str = declare(
        "meaning of the last number of a row: share of the peak (of mem1's bandwidth if rows are in bytes), or "
        "seconds of the whole kernel",
        choices=VALUES,
    )

    def wrong(self, columns: Sequence[str], place: str) -> list[Problem]:
        """Return the problems of a table for a kind of kernel with these columns."""
        sizes, values = self.table
        names = ", ".join(columns)
        if sizes.shape[1] != len(columns):
            found = f"a row of {sizes.shape[1] + 1} numbers"
            return [Problem(f"{place}.table[0]", f"a row [{names}, {self.values}]", found)]
        if self.values == "seconds" and columns == ATTENTION:
            hint = "keys and head width do not determine the amount of work"
            return [Problem(f"{place}.values", "share for attention", "'seconds'", hint)]
        problems = []
        last, rule = len(columns), _SHARE if self.values == "share" else _SECONDS
        for i, value in enumerate(values.tolist()):
            if problem := rule.problem(float, value, f"{place}.table[{i}][{last}]"):
                problems.append(problem)
        seen: dict[tuple[float, ...], int] = {}
        for i, row in enumerate(map(tuple, sizes.tolist())):
            if seen.setdefault(row, i) != i:
                text = f"the same as row {seen[row]}"
                problems.append(Problem(f"{place}.table[{i}]", f"each [{names}] once", text))
        return problems

    def at(self, *sizes: Array) -> Array:
        """Return the rates of kernels of given sizes, one array per column: shares, or work per second.

        Work is the product of the columns; twice that for matrix products.
        """
        shape = np.broadcast_shapes(*(np.shape(size) for size in sizes))
        columns = [np.broadcast_to(size, shape).ravel() for size in sizes]
        points = np.log(np.maximum(_SMALLEST, np.stack(columns, axis=1)))
        # Layers repeat: interpolate each distinct size once.
        each, back = np.unique(points, axis=0, return_inverse=True)
        rows, rates = np.log(self.table.sizes), self.rates
        step = max(1, _AT_ONCE // len(rates))
        parts = [_interpolated(rows, rates, each[i : i + step]) for i in range(0, len(each), step)]
        return np.concatenate(parts)[back.ravel()].reshape(shape)

    @property
    def rates(self) -> Array:
        """Shares of the rows, or their work per second."""
        sizes, values = self.table
        if self.values == "share":
            return values
        return _work(sizes) / values

    def times(self, shapes: Shapes, engine: Engine, memory: Memory, element_bytes: float) -> Times:
        """Return the times of layers: see :meth:`~calculon.hardware.kernels.kernel.Rate.times`."""
        flops, columns = shapes.flops(), self.table.sizes.shape[1]
        seconds = self.values == "seconds"
        if columns == len(MEMORY):
            accessed = shapes.accessed()
            rate = self.at(accessed) * (1.0 if seconds else memory.bandwidth)
            return np.zeros_like(flops) if seconds else engine.time(flops), accessed / rate
        if columns == len(ATTENTION):
            return flops / (engine.peak * self.at(shapes.keys(), shapes.head_widths())), None
        rate = of_passes(self._product, shapes.products(), flops[2] == 0)
        if seconds:
            return flops / rate, np.zeros_like(flops)
        return flops / (engine.peak * rate), None

    def _product(self, batch: Array, m: Array, n: Array, depth: Array) -> Array:
        """Return the rate of products: a batch fills the processor like one product with as many times the rows."""
        return self.at(batch * m, n, depth)

    def slowed(self, factor: float, start: float, end: float) -> "MeasuredTable":
        """Return the table with rows of work in [`start`, `end`) that take `factor` times as long."""
        sizes, values = self.table
        work = _work(sizes)
        times = factor if self.values == "seconds" else 1 / factor
        changed = values * np.where((work >= start) & (work < end), times, 1.0)
        return replace(self, table=Rows(sizes, changed))

    @property
    def follows_engine(self) -> bool:
        """True if arithmetic times scale with the engine's peak."""
        return self.values == "share" and self.table.sizes.shape[1] != len(MEMORY)


def _work(sizes: Array) -> Array:
    """Return FLOP or bytes of rows; for attention a proportional measure."""
    work: Array = sizes.prod(axis=1)
    return 2 * work if sizes.shape[1] == len(PRODUCT) else work


def _interpolated(rows: Array, rates: Array, points: Array) -> Array:
    """Return the rates at some points.

    Args:
        rows (shape (rows, columns)): Logarithms of the sizes of the rows.
        rates (shape (rows,)): Rates of the rows.
        points (shape (points, columns)): Logarithms of the requested sizes.
    """
    apart = points[:, None] - rows
    distance = np.sqrt((apart * apart).sum(axis=-1))
    if rows.shape[1] == 1:
        order = rows[:, 0].argsort()
        logs: Array = np.interp(points[:, 0], rows[order, 0], np.log(rates[order]))
    else:
        logs = _of_nearest(np.log(rates), distance)
        logs = _bounded(logs, points.sum(axis=1), rows.sum(axis=1) - np.log(rates), apart)
    found = np.clip(np.exp(logs), rates.min(), rates.max())
    closest = distance.argmin(axis=1)
    exact = distance[np.arange(len(points)), closest] <= _SAME
    return np.where(exact, rates[closest], found)


def _of_nearest(logs: Array, distance: Array) -> Array:
    """Return means of the nearest rows, weighted by inverse distances minus the one of the first omitted row."""
    corners = min(CORNERS, len(logs) - 1)
    near = np.argpartition(distance, corners, axis=1)[:, : corners + 1]
    there = np.take_along_axis(distance, near, axis=1)
    # Multiplying by the distance of the nearest row keeps weights finite when it vanishes.
    nearest = there.min(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):  # a point at a row gets the row's rate
        weights = nearest / there - nearest / there.max(axis=1, keepdims=True)
        total = weights.sum(axis=1, keepdims=True)
        weights = np.where(total > 0, weights / total, 1 / (corners + 1))
    return (weights * logs[near]).sum(axis=1)


def _bounded(logs: Array, work: Array, times: Array, apart: Array) -> Array:
    """Return rates whose times lie between rows that are nowhere larger and rows that are nowhere smaller.

    All arguments are logarithms: rates and work of the points, times of the rows, and point sizes minus row sizes.
    """
    time = work - logs
    least = np.where((apart >= 0).all(axis=-1), times, -np.inf).max(axis=1)
    most = np.where((apart <= 0).all(axis=-1), times, np.inf).min(axis=1)
    agree = least <= most
    return work - np.where(agree, np.clip(time, least, np.where(agree, most, np.inf)), time)
