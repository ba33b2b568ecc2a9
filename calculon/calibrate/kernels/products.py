"""Constants of the law ``tiles`` of matrix products, fitted to measured products."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares, minimize

from calculon.base.units import Array, Seconds
from calculon.calibrate.kernels.fitted_part import PROCESSORS, FittedPart, held_out
from calculon.calibrate.steps import rounded
from calculon.declarations.named_values import ENGINE_BYTES
from calculon.hardware.kernels.laws import Gemm, Processor, Tile, Tiles, alignment
from calculon.hardware.system import System

LARGE = 1024
"""Least m, n and k of a group of residuals: products of training are of this kind."""

BURST_RANGE = 100.0
"""Factor of the duration over which the clock falls from that of short calls to that of continuous work.

Products of the A100, H100 and H200 that take 10 ms and more keep their rate. Where a source of :data:`CONTINUOUS` tells
where the clock ends, the factor is fitted.
"""

CONTINUOUS = {"B200-SXM-180GB": "simumax-b200_bf16_ceperm"}
"""Source of products that follow each other until the clock no longer falls, by processor: another machine than that of
the other sources. Every source then counts the same, whatever its number of rows.

A B200 has no other that tells. Those of nine calls fall on to the longest one: beside short ones 1.17 times the time at
10 to 30 ms, 1.25 at 42, 1.30 at 69 to 87 and 1.34 at 141 ms. Another one, from 1,965 to 1,580 MHz, falls after 5 ms of
work and gives 15 % less after 0.15 s (flashinfer-ai/flashinfer pull request 2899). The rows of this source have 1.39
times at 0.2 to 0.5 ms, and 1.43 to 1.48 above.
"""

CONTINUOUS_LEAST = 2e-4
"""Seconds of a product of :data:`CONTINUOUS` from which it counts: shorter ones run at a higher clock."""

_DIGITS = 4
_SCALE = 0.03  # logarithmic error from which rows count by their error, no longer by its square
_ROUNDS = 2


class Kind(NamedTuple):
    """Products of one width of arithmetic.

    Attributes:
        words: Its name in residuals.
        types: Types of arithmetic of a system file that have these constants.
        measured: Types of the measured rows.
        beside: Constants of what a measured time has in it beside the product. With 8 and 4 bits that is the cast of
            the left operand: its largest value is searched, and it is written again. With 32 bits it is the host: no
            graph held these launches.
        aligned: Whether the rate depends on the alignment of rows, as it does on tensor cores.
        alike: Constants that are those of the kind before: one product in 4 bits takes more than 10 ms, which alone
            would tell how far the rate falls in continuous work.
    """

    words: str
    types: tuple[str, ...]
    measured: tuple[str, ...]
    beside: tuple[str, ...] = ()
    aligned: bool = True
    alike: tuple[str, ...] = ()


KINDS = (
    Kind("16-bit products", ("float16", "bfloat16"), ("float16", "bfloat16")),
    Kind("8-bit products", ("float8",), ("fp8",), ("beside_start", "beside_bytes")),
    Kind(
        "4-bit products",
        ("float4",),
        ("nvfp4",),
        ("beside_start", "beside_bytes"),
        alike=("sustained",),
    ),
    Kind("32-bit products", ("float32",), ("float32",), ("beside_start",), aligned=False),
)


ALIGNMENT = ((128, 1.0), (16, 0.95), (8, 0.84), (4, 0.63), (0, 0.42))
"""Share of the rate by the alignment of rows in bytes, which no row of the tables tells.

Source: A. Karpathy, nanoGPT, 3 February 2023: GPT-2 124M trains 25 % faster on an A100 with a vocabulary of 50,304 than
of 50,257, which is a share of 0.42; between that and 16 bytes by the number of loads.
"""


PROMOTED = {"H100-SXM5-80GB": 0.91, "H200-SXM5-141GB": 0.91}
"""Rate of 8-bit products whose sums of 128 terms are added up in 32 bits, as frameworks have gradients, by processor.

It is what the tensor cores of Hopper need for exact sums; those of Blackwell keep 32 bits. Who asks for it:
Transformer Engine, ``_2X_ACC_DGRAD`` and ``_2X_ACC_WGRAD``; torchao, ``Float8LinearConfig``, ``use_fast_accum`` of the
forward product alone. Its cost: pytorch/ao issue 2377, 1.1 to 1.2 times the time; the smaller, as products scaled by
blocks of 128, which add up so, have 0.86 of the rate in ``gemm.csv`` (H100, ``fp8_block`` beside ``fp8``), with all
that scaling takes.
"""

PROMOTED_SOURCE = (
    "pytorch/ao issue 2377: gradients take 1.1 to 1.2 times as long with sums of 128 terms added up in 32 bits, as "
    "frameworks have them; the smaller"
)


class Unknown(NamedTuple):
    """A constant to fit: where the search begins, and its bounds; those above 0 are searched by their logarithm."""

    start: float
    low: float
    high: float


UNKNOWNS: Mapping[str, Unknown] = {
    "max_efficiency": Unknown(0.8, 0.3, 1.0),
    "half_depth": Unknown(80, 1, 3000),
    "wave_overlap": Unknown(0.5, 0, 1),
    "start": Unknown(2e-6, 3e-7, 8e-6),
    "memory_efficiency": Unknown(0.85, 0.3, 1.0),
    "sustained": Unknown(0.92, 0.75, 1.0),
    "burst": Unknown(1e-3, 1e-4, 1e-2),
    "medium": Unknown(0.95, 0.5, 1.0),
    "narrow": Unknown(0.9, 0.3, 1.0),
    "small": Unknown(0.8, 0.2, 1.0),
    "beside_start": Unknown(8e-6, 1e-7, 3e-5),
    "beside_bytes": Unknown(5, 0, 10),
}
"""Constants of the law, and of how it was measured.

``medium``, ``narrow`` and ``small`` are the efficiencies of tiles of 128 x 128, 128 x 64 and 64 x 64 beside the others.
``burst`` is the duration in seconds of a call up to which the clock stays; within ``burst_range`` times that the rate
falls to ``sustained``. A system file has the latter alone: training is continuous work. ``beside_start`` (seconds)
and ``beside_bytes`` (for an element of the left operand) are of what was timed with a product, and is no part of it.
"""

LASTING: Mapping[str, Unknown] = {
    "sustained": Unknown(0.8, 0.5, 1.0),
    "burst_range": Unknown(300, 30, 1e4),
}
"""Constants that are searched otherwise, or only, where a source of :data:`CONTINUOUS` tells them."""

TFLOAT32 = ("tfloat32", "bfloat16")
"""A type that no table has, and the one whose constants it has instead: tensor cores compute both, of the same tiles.

Its half depth is in proportion to the peak: begin and end of a tile take as long in any type.
"""

_SHARED = ("wave_overlap", "start", "memory_efficiency", "burst", "burst_range")
"""Constants that are found from 16-bit products, of which there are most, and hold for other types."""


class Rows(NamedTuple):
    """Measured products ``(m, k) x (k, n)``, and what they ran on.

    `continuous` rows are of :data:`CONTINUOUS`. `weight` is that of a row in the fit, 1 in the mean.
    """

    batch: Array
    m: Array
    n: Array
    k: Array
    seconds: Seconds
    held_out: Array
    aligned: Array
    continuous: Array
    weight: Array
    on: Processor
    multiprocessors: int

    def kept(self, which: Array) -> "Rows":
        """Return some of the rows."""
        columns = {name: one[which] for name, one in self._asdict().items() if name in _COLUMNS}
        return self._replace(**columns)

    @property
    def groups(self) -> Array:
        """Whether a row is large in all of its sizes."""
        large: Array = np.minimum(np.minimum(self.m, self.n), self.k) >= LARGE
        return large


_COLUMNS = tuple(name for name in Rows._fields if name not in ("on", "multiprocessors"))


def fit(tables: Mapping[str, pd.DataFrame], gpu: str, system: System) -> FittedPart | None:
    """Fit the rate of products by shape to the forward products of a processor.

    The constants of a type have the least mean absolute error of the logarithm of the times: least squares that do not
    follow outliers come near, and a search along each constant in turn goes on from there (Powell, *Computer Journal*
    7(2), 1964). Rows of low or medium certainty, grouped products, and products of zeros do not count.

    Args:
        tables: Tables ``gemm`` and ``sources`` of ``systems/measured``.
        gpu: The processor's name in the tables.
        system: Peaks of its engines and bandwidth of its memory.
    """
    if gpu not in PROCESSORS or "gemm" not in tables:
        return None
    products: dict[str, Any] = {}
    sources: dict[str, str] = {}
    parts: list[pd.DataFrame] = []
    known = {} if gpu in CONTINUOUS else {"burst_range": BURST_RANGE}
    values, engines = dict[str, float](), _engines(system)
    across, across_where = _weight_gradients(tables, gpu)
    for kind in KINDS:
        measured = _measured(tables, gpu, kind)
        if measured is None or not engines.intersection(kind.types):
            continue
        chosen, name = measured
        rows = _rows(chosen, kind, name, system)
        told = {**known, **{one: values[one] for one in kind.alike if one in values}}
        values = _solved(rows, _unknowns(kind, gpu, told), told)
        known = {**{name: values[name] for name in _SHARED}, **known}
        parts.append(_residuals(rows, kind, values))
        promoted = PROMOTED.get(gpu, 1.0) if kind.types == ("float8",) else 1.0
        law = _stated(values, rows, across, promoted, aligned=kind.aligned)
        if promoted < 1:
            sources["ext.kernels.product.float8.gradients"] = PROMOTED_SOURCE
        products |= {one: law for one in kind.types if one in engines}
        used = ", ".join(sorted(chosen.source.unique()))
        path = "*16" if len(kind.types) > 1 else kind.types[0]
        sources[f"ext.kernels.product.{path}.*"] = (
            f"fitted to {len(chosen)} products measured on {name} (systems/measured/gemm.csv: {used})"
        )
    if not products:
        return None
    type_, like = TFLOAT32
    if type_ in system.matmul_types and like in products:
        products[type_] = _slower(products[like], system, like, type_)
    sources["ext.kernels.product.*.weight_gradients"] = across_where
    sources["ext.kernels.product.*.multiprocessors"] = "NVIDIA, architecture whitepaper"
    sources["ext.processing_mode"] = (
        "times of measured products have arithmetic and traffic in them"
    )
    return FittedPart(
        {"ext": {"processing_mode": "roofline", "kernels": {"product": products}}},
        sources,
        _assumed(products, gpu),
        pd.concat(parts, ignore_index=True),
    )


def _engines(system: System) -> set[str]:
    """Return the types that the matrix engine has a peak of."""
    return {*system.matrix, *(system.ext.matrix or {})}


def _unknowns(kind: Kind, gpu: str, known: Mapping[str, float]) -> dict[str, Unknown]:
    """Return the constants of products that are not known yet, those of what is timed beside them last."""
    every = {**UNKNOWNS, **(LASTING if gpu in CONTINUOUS else {})}
    own = [name for name in every if not name.startswith("beside") and name not in known]
    return {name: every[name] for name in (*own, *kind.beside)}


def _measured(
    tables: Mapping[str, pd.DataFrame], gpu: str, kind: Kind
) -> tuple[pd.DataFrame, str] | None:
    """Return the rows of a processor that count, or of one with the same chip, and its name.

    Those of :data:`CONTINUOUS` count, whatever their certainty.
    """
    table, sources = tables["gemm"], tables["sources"]
    certain = sources.source[sources.certainty == "high"]
    lasting = (table.source == CONTINUOUS.get(gpu)) & (table.time_s >= CONTINUOUS_LEAST)
    used = table[
        table.dtype.isin(kind.measured)
        & (table.source.isin(certain) | lasting)
        & (table.layout == "TN")
        & ~table.kernel.str.contains("grouped")
    ]
    for name in (gpu, *PROCESSORS[gpu].alike):
        chosen = used[used.gpu == name]
        if len(chosen):
            return chosen, name
    return None


def _rows(chosen: pd.DataFrame, kind: Kind, name: str, system: System) -> Rows:
    known = PROCESSORS[name]
    known_types = _engines(system)
    peak = next(system.product_engine(one).peak for one in kind.types if one in known_types)
    batch, m, n, k, seconds = (
        chosen[column].to_numpy(float) for column in ("batch", "m", "n", "k", "time_s")
    )
    width = ENGINE_BYTES[kind.types[0]]
    aligned = alignment([chosen[name].to_numpy() for name in ("n", "k")], width)
    on = Processor(peak, known.bandwidth, width)
    held = held_out(chosen[["n", "k"]])
    continuous = (chosen.source == CONTINUOUS.get(name)).to_numpy()
    weight = _weight(chosen.source) if continuous.any() else np.ones(len(chosen))
    return Rows(
        batch, m, n, k, seconds, held, aligned, continuous, weight, on, known.multiprocessors
    )


def _weight(source: pd.Series) -> Array:
    """Return weights of rows with which every source weighs the same, 1 in the mean."""
    weight = 1 / source.map(source.value_counts()).to_numpy(float)
    in_mean: Array = weight / weight.mean()
    return in_mean


def _weight_gradients(tables: Mapping[str, pd.DataFrame], gpu: str) -> tuple[float, str]:
    """Return the rate of weight gradients beside that of the forward products of the same sizes, and where from.

    Of the processor or one with the same chip, else of all that were measured; 1 without any.
    """
    table = tables["gemm"]
    table = table[(table.kernel == "TE") & table.layout.isin(("TN", "NT"))]
    names = (gpu, *PROCESSORS[gpu].alike)
    own = next((table[table.gpu == name] for name in names if (table.gpu == name).any()), table)
    sizes = ["/".join(map(str, sorted(row))) for row in own[["m", "n", "k"]].to_numpy().tolist()]
    each = own.assign(sizes=sizes).pivot_table(
        index=["gpu", "sizes"], columns="layout", values="tflops"
    )
    if not {"NT", "TN"} <= set(each.columns):
        return 1.0, "no pair of products was measured: as other products"
    ratios = (each["NT"] / each["TN"]).dropna()
    measured = " and ".join(sorted(own.gpu.unique()))
    used = ", ".join(sorted(own.source.unique()))
    text = (
        f"median of {len(ratios)} pairs of products, {measured} (systems/measured/gemm.csv: {used})"
    )
    return rounded(float(ratios.median()), 3), text


def _law(values: Mapping[str, float], rows: Rows) -> Gemm:
    """Return the law in short calls."""
    medium, narrow, small = (values[name] for name in ("medium", "narrow", "small"))
    tiles = (
        (256, 128, 1.0),
        (128, 256, 1.0),
        (128, 128, medium),
        (128, 64, narrow),
        (64, 128, narrow),
        (64, 64, small),
    )
    return Gemm(
        max_efficiency=values["max_efficiency"],
        multiprocessors=rows.multiprocessors,
        half_depth=values["half_depth"],
        wave_overlap=values["wave_overlap"],
        start=values["start"],
        memory_efficiency=values["memory_efficiency"],
        tiles=Tiles(tuple(Tile(*tile) for tile in tiles)),
    )


def _predicted(rows: Rows, values: Mapping[str, float]) -> Seconds:
    """Return the times of rows as they were measured: in short or continuous calls, and with what was timed beside."""
    gemm = _law(values, rows)
    time = partial(gemm.seconds, rows.batch, rows.m, rows.n, rows.k, rows.aligned, rows.on)
    passed = np.log(time() / values["burst"]) / np.log(values["burst_range"])
    fallen = np.where(rows.continuous, 1.0, np.clip(passed, 0, 1))
    times: Seconds = time(1 + (1 / values["sustained"] - 1) * fallen)
    moved = rows.batch * rows.m * rows.k * values.get("beside_bytes", 0.0)
    bandwidth = rows.on.bandwidth * values["memory_efficiency"]
    return times + values.get("beside_start", 0.0) + moved / bandwidth


def _solved(
    rows: Rows, unknowns_of: Mapping[str, Unknown], known: Mapping[str, float]
) -> dict[str, float]:
    """Return the constants that suit the rows which are not held out, beside known ones."""
    seen = rows.kept(~rows.held_out)
    names, unknowns = list(unknowns_of), list(unknowns_of.values())
    low, high, start = (
        np.array([_inside(one, value) for one, value in zip(unknowns, values, strict=True)])
        for values in zip(*((one.low, one.high, one.start) for one in unknowns), strict=True)
    )

    def constants(at: Array) -> dict[str, float]:
        found = {
            name: _outside(one, value)
            for name, one, value in zip(names, unknowns, at.tolist(), strict=True)
        }
        return {**known, **found}

    def errors(at: Array) -> Array:
        found: Array = np.log(_predicted(seen, constants(np.clip(at, low, high))) / seen.seconds)
        return found * seen.weight

    at = least_squares(
        errors, start, bounds=(low, high), loss="soft_l1", f_scale=_SCALE, diff_step=0.01
    ).x
    for _ in range(_ROUNDS):
        at = minimize(
            lambda at: float(np.abs(errors(at)).mean()),
            at,
            method="Powell",
            bounds=list(zip(low, high, strict=True)),
            options={"maxiter": 4, "xtol": 1e-3, "ftol": 1e-4},
        ).x
    return {name: rounded(value, _DIGITS) for name, value in constants(at).items()}


def _inside(one: Unknown, value: float) -> float:
    return float(np.log(value)) if one.low > 0 else value


def _outside(one: Unknown, coordinate: float) -> float:
    return float(np.exp(coordinate)) if one.low > 0 else coordinate


def _residuals(rows: Rows, kind: Kind, values: Mapping[str, float]) -> pd.DataFrame:
    sizes = f"m, n, k from {LARGE:,}", "smaller"
    rows = rows.kept(np.argsort(~rows.groups, kind="stable"))
    return pd.DataFrame(
        {
            "group": [f"{kind.words}, {sizes[0] if one else sizes[1]}" for one in rows.groups],
            "measured": rows.seconds,
            "predicted": _predicted(rows, values),
            "held_out": rows.held_out,
        }
    )


def _stated(
    values: Mapping[str, float], rows: Rows, across: float, gradients: float, *, aligned: bool
) -> dict[str, Any]:
    """Return the members of a rate in a system file."""
    gemm = replace(_law(values, rows), sustained=values["sustained"], weight_gradients=across)
    names = ("max_efficiency", "multiprocessors", "half_depth", "wave_overlap", "start")
    more = ("memory_efficiency", "sustained", "weight_gradients")
    return {
        "law": "tiles",
        **{name: getattr(gemm, name) for name in (*names, *more)},
        **({"gradients": gradients} if gradients < 1 else {}),
        **({"alignment": [list(pair) for pair in ALIGNMENT]} if aligned else {}),
        "tiles": [[tile.m, tile.n, tile.efficiency] for tile in gemm.tiles.tiles],
    }


def _slower(law: Mapping[str, Any], system: System, like: str, type_: str) -> dict[str, Any]:
    """Return the constants of a type for one with another peak."""
    beside = system.product_engine(type_).peak / system.product_engine(like).peak
    return dict(law) | {"half_depth": rounded(law["half_depth"] * beside, _DIGITS)}


def _assumed(products: Mapping[str, Any], gpu: str) -> list[str]:
    """Return what no measurement says."""
    warm = "as the longest measured products"
    if gpu in CONTINUOUS:
        warm = (
            f"as the products of {CONTINUOUS[gpu]}, from another machine, which are taken to follow each other; those "
            "of nine calls, up to 1.3 s of work, get slower up to the longest"
        )
    lines = [
        f"ext.kernels.product.*.sustained: all of training is continuous work, as warm {warm}",
        "ext.kernels.product.*.alignment: of an A100 (A. Karpathy, nanoGPT, 3 February 2023: GPT-2 124M trains 25 % "
        "faster with a vocabulary of 50,304 than of 50,257: 0.42), between by the number of loads; the fit has it as 1",
        "ext.kernels.product.*.tiles: sizes of the kernels of NVIDIA's libraries; their rates were fitted",
    ]
    for name, text in (
        ("float8", "scaled by tensor; the cast that is measured with a product was taken out"),
        ("float4", "the cast that is measured with a product was taken out"),
        ("float32", "the time of the host that is measured with a product was taken out"),
    ):
        if name in products:
            shared = [one for one in _SHARED if one in products[name]]
            paths = ", ".join(f"ext.kernels.product.{name}.{one}" for one in shared)
            lines.append(f"{paths}: those of 16-bit products; {text}")
    if gpu in CONTINUOUS and "float8" in products:
        lines.append(
            "ext.kernels.product.float8.sustained: no 8-bit products followed each other; of nine calls, none above "
            "15 ms, along the fall of 16-bit products"
        )
    if "float4" in products:
        lines.append(
            "ext.kernels.product.float4.sustained: that of 8-bit products: one product in 4 bits takes more than 10 "
            "ms, and alone does not tell it"
        )
    if TFLOAT32[0] in products:
        lines.append(
            "ext.kernels.product.tfloat32.*: no kernel was measured: those of bfloat16, with half_depth in proportion "
            "to the peak, as begin and end of a tile take as long in any type"
        )
    return lines
