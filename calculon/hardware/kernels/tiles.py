"""The law ``tiles``: time of matrix products by shape, from tiles, waves, alignment, depth and traffic."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from calculon.base.arrays import occurs, over_passes
from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, Count, Flops, Fraction, Seconds
from calculon.declarations.fields import Declaration, declare
from calculon.hardware.curve import Curve, decode_rows, rows_schema
from calculon.hardware.kernels.kernel import LONGEST_START, Shapes, Times, of_passes
from calculon.hardware.processor import Engine, Memory

_FASTEST = 1.25
"""Rate of gradient products over other products above which a file is wrong; measured values are 0.91 to 0.96."""

_SIDE = Declaration(help="side of a tile of the result", unit="elements", above=0)
_SHARE = Declaration(help="rate of a kernel of such tiles beside the fastest", above=0, at_most=1)
_TILE = (_SIDE, _SIDE, _SHARE)

LEAST_RESULT = 2
"""Least bytes of an element of the result: 8-bit products have 16-bit results (arXiv 2209.05433, section 3)."""

SPLITS = (1, 2, 4, 8, 16)
"""Numbers of parts that a product may be split into along its depth (*split-K*)."""

_SUM_BYTES = 8
"""Bytes per element of a partial result: a 32-bit sum, written and read again."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of the result that one multiprocessor computes, and its kernel's peak efficiency."""

    m: float
    n: float
    efficiency: float


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles that a library has kernels for."""

    tiles: tuple[Tile, ...]

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float) -> Any:
        """Decode ``[[m, n, efficiency], ...]``."""
        found = decode_rows(raw, path, problems, "tile [m, n, efficiency]", _TILE)
        return None if found is None else cls(tuple(Tile(*one) for one in found))

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the raw list."""
        return rows_schema(*_TILE)


DEFAULT_TILES = Tiles(
    tuple(
        Tile(*tile)
        for tile in (
            (256, 128, 1.0),
            (128, 256, 1.0),
            (128, 128, 0.96),
            (128, 64, 0.85),
            (64, 64, 0.7),
        )
    )
)
"""Tiles of NVIDIA's libraries, large ones first."""


class Processor(NamedTuple):
    """Properties that products depend on: peak in FLOP/s, tier-1 bandwidth in B/s, bytes per operand element."""

    peak: float
    bandwidth: float
    element_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """The time of matrix products in one type, by their shape.

    A product takes its start, and then the larger of its arithmetic and of the traffic of its operands, rounded where
    they are alike: the cube root of the sum of their cubes. It is nowhere faster with more to do: rows, columns, depth
    or products of a call; only the alignment of rows makes an exception.

    Source of tiles and waves: NVIDIA, *Matrix Multiplication Background User's Guide*, DU-09799, section 3; of waves
    that overlap: Osama et al., *Stream-K*, PPoPP'23, doi:10.1145/3572848.3577479. The other constants are fitted to
    measured products: ``calculon calibrate --kernels``.
    """

    max_efficiency: float = declare(
        "share of the peak that large, aligned products reach in short calls", above=0, at_most=1
    )
    multiprocessors: int = declare("multiprocessors, each of which computes a tile", at_least=1)
    half_depth: float = declare(
        "depth of a product at which half the rate is left, beside begin and end of a tile",
        unit="elements",
        at_least=0,
        default=64.0,
    )
    wave_overlap: float = declare(
        "share of the idle multiprocessors in the last wave of tiles that is not lost (stream-K, persistent kernels)",
        at_least=0,
        at_most=1,
        default=0.0,
    )
    start: float = declare(
        "start and end of a kernel, which nothing hides",
        unit="s",
        at_least=0,
        at_most=LONGEST_START,
        default=0.0,
    )
    memory_efficiency: float | None = declare(
        "share of the bandwidth of mem1 at which operands are read and the result is written, once each; if absent "
        "the law is of the arithmetic alone",
        above=0,
        default=None,
    )
    sustained: float = declare(
        "rate in continuous work beside that of short calls, as the clock falls with the power",
        above=0,
        at_most=1,
        default=1.0,
    )
    weight_gradients: float = declare(
        "rate of the gradients of weights beside that of other products: their operands lie across, and 32-bit sums "
        "are added to",
        above=0,
        at_most=_FASTEST,
        default=1.0,
    )
    gradients: float = declare(
        "rate of both gradients beside that of forward products: their 8-bit products add sums of 128 terms up in 32 "
        "bits, where forward ones keep all in the tensor core",
        above=0,
        at_most=_FASTEST,
        default=1.0,
    )
    alignment: Curve = declare(
        "share of the rate by the largest power of two that divides every row: [bytes, share], falling",
        unit="B",
        default=None,
    )
    tiles: Tiles = declare("tiles of the kernels: [m, n, efficiency]", default=DEFAULT_TILES)

    def seconds(
        self,
        batch: Count,
        m: Count,
        n: Count,
        depth: Count,
        aligned: Bytes,
        on: Processor,
        slowed: Array | float = 1.0,
        moved: Bytes | None = None,
    ) -> Seconds:
        """Return the time of products with an ``m x n`` result and a sum over `depth`.

        Args:
            batch, m, n, depth: Products of one call, and their sizes.
            aligned: Bytes from :func:`alignment`.
            slowed: Factor on the arithmetic time.
            moved: Bytes of operands and results of all products, if operands differ in width; default: bytes by `on`.
        """
        arithmetic, memory = self.parts(batch, m, n, depth, aligned, on, slowed, moved)
        if memory is None:
            return self.start + arithmetic
        return self.start + np.cbrt(arithmetic**3 + memory**3)

    def parts(
        self,
        batch: Count,
        m: Count,
        n: Count,
        depth: Count,
        aligned: Bytes,
        on: Processor,
        slowed: Array | float = 1.0,
        moved: Bytes | None = None,
    ) -> tuple[Seconds, Seconds | None]:
        """Return arithmetic and traffic times, None without a traffic rate; arguments as in :meth:`seconds`."""
        rate = on.peak * self.max_efficiency * self.sustained / slowed
        if self.alignment is not None:
            rate = rate * self.alignment.at(aligned)
        arithmetic = self._arithmetic(batch, m, n, depth, rate, on)
        if self.memory_efficiency is None:
            return arithmetic, None
        if moved is None:
            result = max(on.element_bytes, LEAST_RESULT) * m * n
            moved = batch * (on.element_bytes * (m + n) * depth + result)
        return arithmetic, moved / self._bandwidth(on)

    def efficiency(
        self,
        batch: Count,
        m: Count,
        n: Count,
        depth: Count,
        aligned: Bytes,
        on: Processor,
        slowed: Array | float = 1.0,
    ) -> Fraction:
        """Return the share of the peak that whole products reach; arguments as in :meth:`seconds`."""
        at_peak = 2 * batch * m * n * depth / on.peak
        return at_peak / self.seconds(batch, m, n, depth, aligned, on, slowed)

    def of_passes(self, shapes: Array, activations: Array, on: Processor) -> Fraction:
        """Return the efficiency of the three passes of products; other arguments as in :func:`of_passes`."""
        aligned = alignment(list(shapes[2:]), on.element_bytes)
        beside = partial(over_passes, axes=aligned.ndim)
        of_pass = beside(1.0, 1.0, 1 / self.weight_gradients)
        of_pass = of_pass / beside(1.0, self.gradients, self.gradients)
        share = partial(self.efficiency, aligned=aligned, on=on, slowed=of_pass)
        return of_passes(share, shapes, activations)

    def times(self, shapes: Shapes, engine: Engine, memory: Memory, element_bytes: float) -> Times:
        """Return the times of products: see :meth:`~calculon.hardware.kernels.kernel.Rate.times`.

        If the law states how fast operands are read, the arithmetic time covers the whole kernel, and the memory time
        uses that rate too.
        """
        flops: Flops = shapes.flops()
        on = Processor(engine.peak, memory.bandwidth, element_bytes)
        times = flops / (engine.peak * self.of_passes(shapes.products(), flops[2] == 0, on))
        if self.memory_efficiency is None:
            return times, None
        return times, shapes.accessed() / self._bandwidth(on)

    def slowed(self, factor: float, start: float, end: float) -> "Gemm":
        """Return the rate of products that take `factor` times as long; a spread of small ones changes nothing."""
        if end < np.inf:
            return self  # memory and launches bind those
        return replace(
            self.slowed_beside_engine(factor), max_efficiency=self.max_efficiency / factor
        )

    def slowed_beside_engine(self, factor: float) -> "Gemm":
        """Return the rate of products that take `factor` times as long on an engine slowed by the same factor."""
        share = self.memory_efficiency
        slower = None if share is None else share / factor
        return replace(self, start=self.start * factor, memory_efficiency=slower)

    @property
    def promoted(self) -> "Gemm":
        """The rate of products that accumulate partial sums in 32 bits in every pass, not only for gradients."""
        share = self.max_efficiency * self.gradients
        return replace(self, max_efficiency=share, gradients=1.0)

    @property
    def follows_engine(self) -> bool:
        """Whether times are in shares of the engine's peak."""
        return True

    def _bandwidth(self, on: Processor) -> float:
        """Return the bandwidth for operands and partial sums, in B/s."""
        share = self.memory_efficiency
        return on.bandwidth if share is None else on.bandwidth * share

    def _arithmetic(
        self, batch: Count, m: Count, n: Count, depth: Count, rate: Array | float, on: Processor
    ) -> Seconds:
        """Return the arithmetic time, for a rate of the fastest tiles in FLOP/s.

        The best tile is taken. Work is lost where tiles reach beyond the result, in multiprocessors without a tile in
        the last wave, and at the start and end of every tile. A product may be split along its depth into parts whose
        results another kernel sums. Every choice takes longer for more work, and so does the fastest.
        """
        best = np.full(np.broadcast_shapes(*map(np.shape, (batch, m, n, depth))), np.inf)
        joins = batch * m * n * (_SUM_BYTES / self._bandwidth(on))
        splits = [
            (parts, depth / parts + self.half_depth, self.start + parts * joins) for parts in SPLITS
        ]
        for tile in self.tiles.tiles:
            waves = batch * np.ceil(m / tile.m) * np.ceil(n / tile.n) / self.multiprocessors
            full = 2 * tile.m * tile.n * self.multiprocessors / (rate * tile.efficiency)
            for parts, deep, joined in splits:
                time = self._waves(waves * parts) * (full * deep)
                if parts > 1:
                    time += joined
                np.minimum(best, time, out=best)
        return best

    def _waves(self, waves: Array) -> Array:
        """Return the number of waves of tiles, at least one; the last wave counts fully or partly."""
        full: Array = np.ceil(waves)
        if not occurs(self.wave_overlap):
            return full
        return full + self.wave_overlap * (np.maximum(1.0, waves) - full)


def alignment(widths: Sequence[Count], element_bytes: float) -> Bytes:
    """Return the largest power of two in bytes that divides every row of n elements.

    >>> alignment([np.array([768.0, 768.0]), np.array([50257.0, 50304.0])], 2)
    array([  2., 256.])
    """
    lowest: Array = np.bitwise_or.reduce([np.asarray(width, np.int64) for width in widths])
    return (lowest & -lowest) * float(element_bytes)
