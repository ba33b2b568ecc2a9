"""Laws of measured kernels: GEMM by tiles, and fused attention (FlashAttention, cuDNN)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from calculon.base.arrays import is_nonzero, over_passes
from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, Count, Flops, Fraction, Seconds
from calculon.declarations.fields import Declaration, declare
from calculon.declarations.named_values import ATTENTION_KERNELS
from calculon.hardware.curve import Curve, decode_rows, rows_schema
from calculon.hardware.kernels.kernel import LONGEST_START, Shapes, Times, of_passes
from calculon.hardware.processor import Engine, Memory

# The law ``tiles``: time of matrix products by shape, from tiles, waves, alignment, depth and traffic.

_FASTEST = 1.25
"""Plausible limit of the rate of gradient products relative to other products; measured values are 0.91 to 0.96."""

_SIDE = Declaration(help="side of a tile of the result", unit="elements", above=0)
_TILE_RATE = Declaration(
    help="rate of the tile's kernel relative to the fastest", above=0, at_most=1
)
_TILE = (_SIDE, _SIDE, _TILE_RATE)

MIN_RESULT = 2
"""Least bytes of an element of the result: 8-bit products have 16-bit results (arXiv 2209.05433, section 3)."""

SPLITS = (1, 2, 4, 8, 16)
"""Numbers of parts that a product may be split into along its depth (*split-K*)."""

_SUM_BYTES = 8
"""Bytes per element of a partial result: a 32-bit sum that is written and read."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of the result that one multiprocessor computes, and its kernel's peak efficiency."""

    m: float
    n: float
    efficiency: float


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles for which a library has kernels."""

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
"""Tiles of NVIDIA's libraries, largest first."""


class Processor(NamedTuple):
    """Properties that products depend on: peak in FLOP/s, tier-1 bandwidth in B/s, bytes per operand element."""

    peak: float
    bandwidth: Array | float
    element_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """Law of matrix products in one type: their time by shape.

    A product takes its start, and then the larger of its arithmetic and its operand traffic, smoothed near equality:
    the cube root of the sum of their cubes. More work (rows, columns, depth, products per call) never takes less time,
    except for the alignment of rows.

    Source of tiles and waves: NVIDIA, *Matrix Multiplication Background User's Guide*, DU-09799, section 3; of
    overlapping waves: Osama et al., *Stream-K*, PPoPP'23, doi:10.1145/3572848.3577479. The other constants are fitted
    to measured products: ``calculon calibrate --kernels``.
    """

    max_efficiency: float = declare(
        "share of the peak that large, aligned products reach in short calls", above=0, at_most=1
    )
    multiprocessors: int = declare("multiprocessors, each of which computes a tile", at_least=1)
    half_depth: float = declare(
        "depth of a product at which prologue and epilogue of a tile halve its rate",
        unit="elements",
        at_least=0,
        default=64.0,
    )
    wave_overlap: float = declare(
        "share of the last wave's idle multiprocessors that is not lost (stream-K, persistent kernels)",
        at_least=0,
        at_most=1,
        default=0.0,
    )
    start: float = declare(
        "start and end of a kernel, which do not overlap with work",
        unit="s",
        at_least=0,
        at_most=LONGEST_START,
        default=0.0,
    )
    memory_efficiency: float | None = declare(
        "share of mem1's bandwidth at which operands are read and the result is written, once each; if absent, the "
        "law covers arithmetic only",
        above=0,
        default=None,
    )
    sustained: float = declare(
        "rate in continuous work relative to short calls, as the clock falls with the power",
        above=0,
        at_most=1,
        default=1.0,
    )
    weight_gradients: float = declare(
        "rate of weight gradients relative to other products: their operands are transposed, and they accumulate into "
        "32-bit sums",
        above=0,
        at_most=_FASTEST,
        default=1.0,
    )
    gradients: float = declare(
        "rate of both gradients relative to forward products: 8-bit gradients accumulate sums of 128 terms in 32 "
        "bits, forward products in the tensor core",
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
        # A smooth maximum: near the roofline's ridge both resources slow a kernel down.
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
        """Return arithmetic and traffic time (None without a traffic rate); arguments as in :meth:`seconds`."""
        rate = on.peak * self.max_efficiency * self.sustained / slowed
        if self.alignment is not None:
            rate = rate * self.alignment.at(aligned)
        arithmetic = self._arithmetic(batch, m, n, depth, rate, on)
        if self.memory_efficiency is None:
            return arithmetic, None
        if moved is None:
            result = max(on.element_bytes, MIN_RESULT) * m * n
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
        """Return the share of the peak that complete products reach; arguments as in :meth:`seconds`."""
        at_peak = 2 * batch * m * n * depth / on.peak
        return at_peak / self.seconds(batch, m, n, depth, aligned, on, slowed)

    def of_passes(self, shapes: Array, activations: Array, on: Processor) -> Fraction:
        """Return the efficiency of the three passes of products; other arguments as in :func:`of_passes`."""
        aligned = alignment(list(shapes[2:]), on.element_bytes)
        by_pass = partial(over_passes, axes=aligned.ndim)
        of_pass = by_pass(1.0, 1.0, 1 / self.weight_gradients)
        of_pass = of_pass / by_pass(1.0, self.gradients, self.gradients)
        share = partial(self.efficiency, aligned=aligned, on=on, slowed=of_pass)
        return of_passes(share, shapes, activations)

    def times(self, shapes: Shapes, engine: Engine, memory: Memory, element_bytes: float) -> Times:
        """Return the times of products: see :meth:`~calculon.hardware.kernels.kernel.Rate.times`.

        If the law states a traffic rate, the arithmetic time covers the whole kernel, and the memory time uses that
        rate too.
        """
        flops: Flops = shapes.flops()
        on = Processor(engine.peak, memory.bandwidth, element_bytes)
        times = flops / (engine.peak * self.of_passes(shapes.products(), flops[2] == 0, on))
        if self.memory_efficiency is None:
            return times, None
        return times, shapes.accessed() / self._bandwidth(on)

    def slowed(self, factor: float, start: float, end: float) -> "Gemm":
        """Return the rate of products that take `factor` times as long; a spread of small products changes nothing."""
        if end < np.inf:
            return self  # small products are bound by memory and launches
        return replace(self.slowed_with_engine(factor), max_efficiency=self.max_efficiency / factor)

    def slowed_with_engine(self, factor: float) -> "Gemm":
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
        """True: times scale with the engine's peak."""
        return True

    def _bandwidth(self, on: Processor) -> Array | float:
        """Return the bandwidth for operands and partial sums, in B/s."""
        share = self.memory_efficiency
        return on.bandwidth if share is None else on.bandwidth * share

    def _arithmetic(
        self, batch: Count, m: Count, n: Count, depth: Count, rate: Array | float, on: Processor
    ) -> Seconds:
        """Return the arithmetic time, for a rate of the fastest tiles in FLOP/s.

        The best tile is taken. Work is lost in tiles that reach beyond the result, in multiprocessors without a tile in
        the last wave, and at the start and end of every tile. A product may be split along its depth, with a further
        kernel that sums the partial results (split-K). Every choice takes longer for more work, and therefore the
        fastest one does, too.
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
        if not is_nonzero(self.wave_overlap):
            return full
        return full + self.wave_overlap * (np.maximum(1.0, waves) - full)


def alignment(widths: Sequence[Count], element_bytes: float) -> Bytes:
    """Return the largest power of two in bytes that divides every row of n elements.

    >>> alignment([np.array([768.0, 768.0]), np.array([50257.0, 50304.0])], 2)
    array([  2., 256.])
    """
    # The lowest set bit of a bitwise or is the largest power of two that divides all widths.
    lowest: Array = np.bitwise_or.reduce([np.asarray(width, np.int64) for width in widths])
    return (lowest & -lowest) * float(element_bytes)


# The law ``fused``: time of fused attention by kernel, pass, head width, keys and work per multiprocessor.

QUERY_TILE = 128
"""Queries of a head that a multiprocessor processes at a time."""

EXACT = ("cudnn",)
"""Kernels that support values narrower than queries and keys; others pad them. Source: cuDNN frontend, *Attention*."""

_WIDE, _NARROW_VALUES = (128, 192), 128
"""Query widths for which FlashAttention-3 (Hopper) uses this value width.

Source: Dao-AILab/flash-attention, ``hopper/flash_api.cpp``: (192, 128), the heads of DeepSeek.
"""

_WIDTH = Declaration(help="head width", unit="elements", above=0)
_SHARE = Declaration(help="share of the peak for long sequences", above=0, at_most=1)
_ROW = (_WIDTH, _SHARE)


class HeadWidths(NamedTuple):
    """Head widths that a kernel computes, for queries and keys and for values, and the requested `mean`."""

    keys: Count
    values: Count
    mean: Count

    @classmethod
    def of(cls, name: str, keys: Count, values: Count) -> "HeadWidths":
        """Return the head widths of a kernel: most have one width, and pad the narrower side with zeros."""
        mean = (keys + values) / 2
        if name in EXACT:
            return cls(keys, values, mean)
        widest = np.maximum(keys, values)
        if name == "flash3":
            narrow = (keys > _WIDE[0]) & (keys <= _WIDE[1]) & (values <= _NARROW_VALUES)
            return cls(widest, np.where(narrow, float(_NARROW_VALUES), widest), mean)
        return cls(widest, widest, mean)


@dataclass(frozen=True, slots=True)
class Widths:
    """Shares of the peak by head width, stored as the time of a query and a key in multiply-adds at the peak.

    Times between two widths are interpolated linearly. A head narrower than the narrowest takes as long as that,
    because the kernel pads it; one wider than the widest has its share.
    """

    widths: tuple[float, ...]
    costs: tuple[float, ...]

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float) -> Any:
        """Decode ``[[width, share], ...]``, with rising widths; a wider head must not be faster."""
        found = decode_rows(raw, path, problems, "pair [width, share]", _ROW)
        if found is None:
            return None
        widths = tuple(width for width, _ in found)
        costs = tuple(width / share for width, share in found)
        for i in range(1, len(found)):
            if widths[i] <= widths[i - 1]:
                wanted = f"more than {widths[i - 1]:g}, the width before"
                problems.append(Problem(f"{path}[{i}][0]", wanted, f"{widths[i]:g}"))
            elif costs[i] < costs[i - 1]:
                most = widths[i] / costs[i - 1]
                wanted = f"at most {most:.4g}, as wider heads take no less time"
                problems.append(Problem(f"{path}[{i}][1]", wanted, f"{found[i][1]:g}"))
        return cls(widths, costs)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the raw list."""
        return rows_schema(*_ROW)

    def cost(self, width: Count) -> Count:
        """Return the multiply-adds at the peak rate that take as long as one query and key of a head."""
        beyond = np.maximum(width / self.widths[-1], 1.0)
        cost: Count = np.interp(width, self.widths, self.costs) * beyond
        return cost


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionPass:
    """The forward or the backward pass of a kernel."""

    shares: Widths = declare(
        "share of the peak for long sequences by head width: [width, share], rising; times in between are interpolated"
    )
    lead: float = declare(
        "overhead of a query tile in keys: with this many keys, half of the share is reached",
        unit="tokens",
        at_least=0,
    )
    causal_lead: float = declare(
        "additional overhead with a causal mask: tiles on the diagonal are computed completely",
        unit="tokens",
        at_least=0,
        default=0.0,
    )

    def time(
        self, flops: Flops, widths: HeadWidths, keys: Count, causal: Array, peak: float
    ) -> Seconds:
        """Return the arithmetic time if every multiprocessor has many tiles.

        Half of it is query-key products and half value products, each at the rate of its width.
        """
        lead = self.lead + self.causal_lead * causal
        cost = (self.shares.cost(widths.keys) + self.shares.cost(widths.values)) / 2
        result: Seconds = flops * (cost / widths.mean) * (1 + lead / keys) / peak
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionKernel:
    """Constants of one fused-attention kernel."""

    forward: AttentionPass = declare("forward pass")
    backward: AttentionPass = declare("backward pass")
    tail: float = declare(
        "loss from unequal and last tiles, in tiles per multiprocessor",
        at_least=0,
    )
    start: float = declare(
        "time of a pass in addition to its tiles", unit="s", at_least=0, at_most=LONGEST_START
    )
    sustained: float = declare(
        "rate in continuous work relative to short calls, as the clock falls with the power",
        above=0,
        at_most=1,
        default=1.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FusedAttention:
    """Law of fused attention in one type, for every known kernel.

    A pass over `r` queries of all heads, `k` keys each, of width `d` takes ::

        (start + flops / (peak share(d)) (1 + (lead + causal_lead) / k) (1 + tail / w)) / sustained

    with ``w = r / (128 multiprocessors)`` tiles per multiprocessor. FLOP are 4 d per query and key forward and 2.5
    times that backward, so that more queries, heads, keys or sequences always take more time. If values are narrower
    than queries and keys, d is the mean of both widths, and ``d / share(d)`` the mean over the widths that the kernel
    computes (:class:`HeadWidths`). Tier-1 traffic of queries, keys, values and results is combined with it by the
    system's mode.

    All of it is multiplied by `slowness`, which no file states: see :meth:`slowed`.

    Source: tiles of queries are spread over the multiprocessors, and tiles beyond the diagonal are left out: Dao,
    *FlashAttention-2*, arXiv 2307.08691, sections 3.1 and 3.2; shares of the peak that grow with keys and head width:
    its figures 4 to 7, and Shah et al., *FlashAttention-3*, arXiv 2407.08608, figures 5 and 6.
    """

    default: str = declare(
        "kernel that runs unless an execution names one", choices=ATTENTION_KERNELS
    )
    multiprocessors: int = declare("multiprocessors over which tiles are spread", at_least=1)
    kernels: dict[str, AttentionKernel] = declare(
        "constants of each kernel, by name", choices=ATTENTION_KERNELS
    )
    slowness: float = 1.0

    def wrong(self, path: str) -> list[Problem]:
        """Return inconsistencies between the kernels."""
        if self.default in self.kernels:
            return []
        names = ", ".join(self.kernels)
        return [Problem(f"{path}.default", f"one of its kernels: {names}", repr(self.default))]

    def running(self, name: str) -> "FusedAttention":
        """Return the rate with another kernel; the default if there is no kernel of that name."""
        return replace(self, default=name) if name in self.kernels else self

    def times(self, shapes: Shapes, engine: Engine, memory: Memory, element_bytes: float) -> Times:
        """Return the arithmetic time of layers: see :meth:`~calculon.hardware.kernels.kernel.Rate.times`."""
        kernel = self.kernels[self.default]
        flops, keys = shapes.flops(), shapes.keys()
        width = HeadWidths.of(self.default, shapes.head_widths(), shapes.value_widths())
        causal, peak = shapes.causal(), engine.peak
        waves = flops[0] / (4 * keys * width.mean * (QUERY_TILE * self.multiprocessors))
        times = np.stack(
            [
                kernel.forward.time(flops[0], width, keys, causal, peak),
                kernel.backward.time(flops[1], width, keys, causal, peak),
                np.zeros_like(flops[2]),
            ]
        )
        last = np.divide(kernel.tail, waves, out=np.zeros_like(waves), where=waves > 0)
        times = times * (1 + last) + kernel.start * (times > 0)
        return times * (self.slowness / kernel.sustained), None

    def slowed(self, factor: float, start: float, end: float) -> "FusedAttention":
        """Return the rate of kernels that take `factor` times as long; a spread of small operations changes nothing."""
        if end < np.inf:
            return self
        return replace(self, slowness=self.slowness * factor)

    @property
    def follows_engine(self) -> bool:
        """True: times scale with the engine's peak."""
        return True
