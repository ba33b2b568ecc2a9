"""Calibration of ``ext.gemm``: the rate of matrix products (GEMM) by shape, fitted to measured products."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Seconds
from calculon.calibrate.readers import Row
from calculon.calibrate.solve import Unknown, solve
from calculon.calibrate.steps import rounded
from calculon.declarations.named_values import MATMUL_BYTES
from calculon.hardware.curve import Curve
from calculon.hardware.kernels.laws import MIN_RESULT, Gemm, Processor, alignment
from calculon.hardware.system import System

PART = "ext.gemm."

WHOLE = 128
"""Bytes of a cache line: rows with at least this alignment reach the full rate."""

CLASSES = (16, 8, 4, 2)
"""Smallest alignment in bytes of each further class; the last class includes everything below."""

BOUND = 0.5
"""Least ratio of arithmetic time at the peak to memory or launch time for a product that is fitted."""

_EFFICIENCY, _SHARE, _DEPTH = (0.02, 1.0), (0.02, 1.0), (1.0, 4096.0)
_DEPTHS = (16.0, 64.0, 256.0)
_DIGITS = 5


@dataclass(frozen=True, slots=True)
class Products:
    """Measured products of an ``m x k`` and a ``k x n`` matrix in one type on a system.

    Attributes:
        m, n, k: Sizes.
        aligned: Alignment in bytes of the rows of both operands, whose strides are n and k elements.
        least: Lower bound of the time of a kernel: its tier-1 memory traffic or its launch.
        at_peak: Arithmetic time at the peak rate.
        on: Processor that runs them.
    """

    m: Array
    n: Array
    k: Array
    aligned: Array
    least: Seconds
    at_peak: Seconds
    on: Processor

    @classmethod
    def of(cls, system: System, matmul_type: str, rows: Sequence[Row]) -> "Products":
        """Return the products of measured rows."""
        m, n, k = np.array([row.shape for row in rows], dtype=float).T
        width = MATMUL_BYTES[matmul_type]
        moved = width * k * (m + n) + max(width, MIN_RESULT) * m * n
        least = np.maximum(system.mem1.time(moved), system.ext.launch.kernel)
        peak = system.product_engine(matmul_type).peak
        on = Processor(peak, system.mem1.bandwidth, width)
        return cls(m, n, k, alignment([n, k], width), least, 2 * m * n * k / peak, on)

    def times(self, gemm: Gemm) -> Seconds:
        """Return the times of the products: their arithmetic time, but at least :attr:`least`."""
        # Single calls do not throttle.
        one, gemm = (
            np.ones_like(self.m),
            replace(gemm, sustained=1.0),
        )
        share = gemm.efficiency(one, self.m, self.n, self.k, self.aligned, self.on)
        return np.maximum(self.at_peak / share, self.least)


def product_times(system: System, part: str, rows: Sequence[Row]) -> Seconds:
    """Return the times of products on a system with a rate by shape."""
    matmul_type = part.removeprefix(PART)
    gemm = system.gemm(matmul_type)
    assert gemm is not None
    return Products.of(system, matmul_type, rows).times(gemm)


def fit_shapes(
    system: System, part: str, rows: Sequence[Row], multiprocessors: int | None
) -> tuple[Mapping[str, Any], Array, list[str]]:
    """Fit the largest efficiency, the half depth, and the relative rate of each alignment class that has rows.

    Products bound by memory or by their launch are left out: their times say nothing about the matrix engine.

    Args:
        system: System that provides the peak, the memory and the tile sizes.
        part: ``ext.gemm.`` followed by the type.
        rows: Products of this type.
        multiprocessors: Multiprocessors of the device; None uses the number that the system states.

    Returns:
        Fields of ``ext.gemm``, a mask of the rows left out, and notes.

    Raises:
        SpecError: Without a number of multiprocessors, and for rows that do not determine the parameters.
    """
    matmul_type, file = part.removeprefix(PART), rows[0].file
    base = _base(system, matmul_type, multiprocessors)
    given = Products.of(system, matmul_type, rows)
    seconds = np.array([row.seconds for row in rows])
    # Without a known launch time the shortest measured time is the best estimate of it.
    floor = np.maximum(given.least, 0 if system.ext.launch.kernel else seconds.min())
    left = given.at_peak < BOUND * floor
    used = [row for row, no in zip(rows, left, strict=True) if not no]
    products = Products.of(system, matmul_type, used) if used else given
    classes = _classes(products.aligned)
    if len(used) < 2 + len(classes) or not (products.aligned >= WHOLE).any():
        raise _too_few(file, part, products, len(used), classes)
    unknowns = [
        Unknown("max_efficiency", *_EFFICIENCY, (0.8,)),
        Unknown("half_depth", *_DEPTH, _DEPTHS),
        *(Unknown(f"alignment to {one} bytes", *_SHARE, (0.8,)) for one in classes),
    ]

    def predict(values: Sequence[float]) -> Array:
        return products.times(_gemm(base, classes, values))

    found = solve(predict, seconds[~left], unknowns)
    if undetermined := found.undetermined([one.name for one in unknowns]):
        task, why = undetermined
        hint = "several depths k from 256 to 16384 determine half_depth: see scripts/measure gemm"
        raise SpecError(file, Problem(part, f"products that {task}", why, hint))
    gemm = _gemm(base, classes, [rounded(value, _DIGITS) for value in found.values])
    notes = []
    if left.any():
        notes.append(
            f"{part}: {left.sum()} products are bound by memory or by their launch and were left out"
        )
    return _fields(gemm), left, notes


def _base(system: System, matmul_type: str, multiprocessors: int | None) -> Gemm:
    """Return the rate to start from: the system's for this type, with its multiprocessors or another type's."""
    known = [rate for rate in system.ext.rates.values() if isinstance(rate, Gemm)]
    one = system.gemm(matmul_type)
    count = multiprocessors or next(
        (some.multiprocessors for some in (one, *known) if some is not None), None
    )
    if count is None:
        wanted = "--multiprocessors N, or ext.gemm in the system to start from"
        hint = "an A100 has 108, an H100 SXM or an H200 132"
        raise SpecError("--shapes", Problem("", wanted, "neither", hint))
    if one is None:
        return Gemm(max_efficiency=1.0, multiprocessors=count)
    return replace(one, multiprocessors=count)


def _classes(aligned: Array) -> list[int]:
    """Return the alignment classes that have rows, below full cache lines."""
    edges = [*CLASSES[:-1], 0]
    above = [WHOLE, *CLASSES[:-1]]
    return [
        one
        for one, low, high in zip(CLASSES, edges, above, strict=True)
        if ((aligned >= low) & (aligned < high)).any()
    ]


def _gemm(base: Gemm, classes: Sequence[int], values: Sequence[float]) -> Gemm:
    """Return the rate for values of the unknowns; the share of a class is relative to the next larger class."""
    largest, depth, *shares = values
    curve: Any = _curve(base, classes, shares)
    return replace(base, max_efficiency=largest, half_depth=depth, alignment=curve)


def _curve(base: Gemm, classes: Sequence[int], shares: Sequence[float]) -> Curve | None:
    """Return the relative rate by alignment.

    A class without rows takes the base's share, limited to the range of its neighbors; without a base it takes the
    share of the class above, as no loss was measured.
    """
    if not classes:
        return base.alignment
    found, above = {}, 1.0
    for one, share in zip(classes, shares, strict=True):
        above = found[one] = above * share
    values, above = [1.0], 1.0
    for one in CLASSES:
        if one in found:
            above = found[one]
        elif base.alignment is not None:
            below = max((found[other] for other in classes if other < one), default=0.0)
            above = min(above, max(below, float(base.alignment.at(np.array(float(one))))))
        values.append(above)
    sizes = [0.0, *map(float, CLASSES[-2::-1]), float(WHOLE)]
    return Curve(np.array(sizes), np.array(values[::-1]))


def _fields(gemm: Gemm) -> dict[str, Any]:
    """Return the fields of a system file."""
    fields: dict[str, Any] = {
        "max_efficiency": gemm.max_efficiency,
        "multiprocessors": int(gemm.multiprocessors),
        "half_depth": gemm.half_depth,
    }
    if gemm.alignment is not None:
        pairs = zip(gemm.alignment.sizes, gemm.alignment.efficiencies, strict=True)
        fields["alignment"] = [[int(size), rounded(float(v), _DIGITS)] for size, v in pairs][::-1]
    return fields


def _too_few(
    file: str, part: str, products: Products, used: int, classes: Sequence[int]
) -> SpecError:
    hint = "measure the grid of scripts/measure gemm, or hold none out: --hold-out 0"
    if used and not (products.aligned >= WHOLE).any():
        wanted = f"products whose n and k are aligned to {WHOLE} bytes, for max_efficiency"
        return SpecError(file, Problem(part, wanted, "none", hint))
    count = 2 + len(classes)
    words = ["max_efficiency", "half_depth", *(f"alignment to {one} bytes" for one in classes)]
    wanted = f"at least {count} products that memory and launch do not bind, for {', '.join(words)}"
    return SpecError(file, Problem(part, wanted, str(used), hint))
