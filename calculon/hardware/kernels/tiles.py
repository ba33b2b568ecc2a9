"""The law ``tiles``: the rate of matrix products by their shape, from tiles, waves, alignment and depth."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from calculon.errors import Problem
from calculon.frozen import dataclass
from calculon.hardware.curve import Curve
from calculon.hardware.engine import Engine
from calculon.hardware.kernels.kernel import Shapes, Times
from calculon.hardware.kernels.product_passes import of_passes
from calculon.hardware.memory import Memory
from calculon.hardware.number_rows import decode_rows, rows_schema
from calculon.spec.fields import Declaration, declare
from calculon.units import Array, Bytes, Count, Flops, Fraction

_SIDE = Declaration(help="side of a tile of the result", unit="elements", above=0)
_SHARE = Declaration(help="rate of a kernel of such tiles beside the fastest", above=0, at_most=1)
_TILE = (_SIDE, _SIDE, _SHARE)

SPLIT_DEPTHS = 4
"""Least half depths of a part of a split product: in shorter parts prologues would eat the gain."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of the result that one multiprocessor computes, and how fast its kernel can be."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """How fast matrix products run in one type, by their shape.

    Source of tiles and waves: NVIDIA, *Matrix Multiplication Background User's Guide*, DU-09799, section 3.
    """

    max_efficiency: float = declare(
        "share of the peak that large, aligned products reach", above=0, at_most=1
    )
    multiprocessors: int = declare("multiprocessors, each of which computes a tile", at_least=1)
    half_depth: float = declare(
        "depth of a product at which half the rate is left, beside begin and end of a tile",
        unit="elements",
        at_least=0,
        default=64.0,
    )
    alignment: Curve = declare(
        "share of the rate by the largest power of two that divides every row: [bytes, share], falling",
        unit="B",
        default=None,
    )
    tiles: Tiles = declare("tiles of the kernels: [m, n, efficiency]", default=DEFAULT_TILES)

    def efficiency(
        self, batch: Count, m: Count, n: Count, depth: Count, aligned: Bytes
    ) -> Fraction:
        """Return the share of the peak of products with an ``m x n`` result and a sum over `depth`.

        Parameters
        ----------
        batch, m, n, depth : array
            Products of one call, and their sizes.
        aligned : array
            Bytes of :func:`alignment`.

        The best tile is taken: tiles that reach beyond the result and multiprocessors without a tile in the last wave
        are lost, and so is begin and end of every tile. Products with few tiles are split along their depth.
        """
        best = np.zeros_like(m)
        for tile in self.tiles.tiles:
            count = np.ceil(m / tile.m) * np.ceil(n / tile.n)
            filled = tile.efficiency * (m * n) / (count * (tile.m * tile.n))
            for parts in (1.0, self._parts(batch * count, depth)):
                waves = batch * count * parts / self.multiprocessors
                part = depth / parts
                share = filled * (waves / np.ceil(waves)) * (part / (part + self.half_depth))
                best = np.maximum(best, share)
        if self.alignment is not None:
            best = best * self.alignment.at(aligned)
        return self.max_efficiency * best

    def of_passes(self, shapes: Array, activations: Array, element_bytes: float) -> Fraction:
        """Return the efficiency of the three passes of products; arguments as in :func:`of_passes`."""
        aligned = alignment(list(shapes[2:]), element_bytes)
        return of_passes(partial(self.efficiency, aligned=aligned), shapes, activations)

    def times(self, shapes: Shapes, engine: Engine, memory: Memory, element_bytes: float) -> Times:
        """Return the arithmetic time of products: see :meth:`~calculon.hardware.kernels.kernel.Rate.times`."""
        flops: Flops = shapes.flops()
        efficiency = self.of_passes(shapes.products(), flops[2] == 0, element_bytes)
        return flops / (engine.peak * efficiency), None

    def slowed(self, factor: float, start: float, end: float) -> "Gemm":
        """Return the rate of products that take `factor` times as long: all of them, but for a spread of small ones."""
        if end < np.inf:
            return self  # memory and launches bind those
        return replace(self, max_efficiency=self.max_efficiency / factor)

    @property
    def follows_engine(self) -> bool:
        """Whether times are in shares of the engine's peak."""
        return True

    def _parts(self, count: Count, depth: Count) -> Count:
        """Return into how many parts the depth is split, so that most multiprocessors have a tile (*split-K*)."""
        idle = np.floor(self.multiprocessors / count)
        deepest = np.floor(depth / max(1.0, SPLIT_DEPTHS * self.half_depth))
        return np.maximum(1.0, np.minimum(idle, deepest))


def alignment(widths: Sequence[Count], element_bytes: float) -> Bytes:
    """Return the largest power of two in bytes that divides every row of n elements.

    >>> alignment([np.array([768.0, 768.0]), np.array([50257.0, 50304.0])], 2)
    array([  2., 256.])
    """
    lowest: Array = np.bitwise_or.reduce([np.asarray(width, np.int64) for width in widths])
    return (lowest & -lowest) * float(element_bytes)
