"""Constants of the GEMM law ``tiles``, fitted to measured matrix products."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares, minimize

from calculon.base.units import Array, Seconds
from calculon.calibrate.kernels.clocks import CONTINUOUS
from calculon.calibrate.kernels.fitted_part import PROCESSORS, FittedPart, held_out
from calculon.calibrate.steps import rounded
from calculon.declarations.named_values import ENGINE_BYTES
from calculon.hardware.kernels.laws import Gemm, Processor, Tile, Tiles, alignment
from calculon.hardware.system import System

LARGE = 1024
"""Least m, n and k of the group of large products in the residuals; products in training are large."""

BURST_RANGE = 100.0
"""Ratio of the durations at which the clock has fallen to its sustained rate and at which it begins to fall.

Products of the A100, H100 and H200 that take 10 ms and more keep their rate. The ratio is fitted if a source of
:data:`CONTINUOUS` shows the sustained rate; every source then has the same weight, whatever its number of rows.
"""

CONTINUOUS_LEAST = 2e-4
"""Least duration in seconds of a row of :data:`CONTINUOUS`: shorter ones run at a higher clock."""

_DIGITS = 4
_SCALE = 0.03  # log error above which a row counts linearly instead of squared
_ROUNDS = 2


class Kind(NamedTuple):
    """Products with one width of arithmetic.

    Attributes:
        words: Label in the residuals.
        types: Types of a system file that have these constants.
        measured: Types of the measured rows.
        overhead: Constants of work that a measured time includes in addition to the product. With 8 and 4 bits it is
            the cast of the left operand, which finds its largest value and rewrites it. With 32 bits it is the host, as
            no CUDA graph hides the launches.
        aligned: True if the rate depends on the alignment of rows, as on tensor cores.
        alike: Constants taken from the previous kind: a single 4-bit product takes more than 10 ms, too few to fit the
            sustained rate.
    """

    words: str
    types: tuple[str, ...]
    measured: tuple[str, ...]
    overhead: tuple[str, ...] = ()
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
"""Relative rate by alignment of the rows in bytes, which no row of the tables determines.

Source: A. Karpathy, nanoGPT, 3 February 2023: GPT-2 124M trains 25 % faster on an A100 with a vocabulary of 50,304 than
of 50,257, which is a share of 0.42; between that and 16 bytes by the number of loads.
"""


PROMOTED = {"H100-SXM5-80GB": 0.91, "H200-SXM5-141GB": 0.91}
"""Relative rate of 8-bit products that accumulate blocks of 128 terms in 32 bits, as frameworks do for gradients.

Tensor cores of Hopper need this for exact sums; Blackwell's keep 32 bits. Transformer Engine requests it by
``_2X_ACC_DGRAD`` and ``_2X_ACC_WGRAD``; torchao's ``Float8LinearConfig`` sets ``use_fast_accum`` for the forward
product alone. Cost: 1.1 to 1.2 times the time (pytorch/ao issue 2377). The smaller value is used, because products with
128-block scaling, which accumulate the same way, reach 0.86 of the rate in ``gemm.csv`` (H100, ``fp8_block`` against
``fp8``), scaling overhead included.
"""

PROMOTED_SOURCE = (
    "pytorch/ao issue 2377: gradients take 1.1 to 1.2 times as long if sums of 128 terms are accumulated in 32 bits, "
    "as in frameworks; the smaller slowdown"
)


class Unknown(NamedTuple):
    """A constant to fit: start of the search, and bounds. With a lower bound above 0 its logarithm is searched."""

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
"""Constants of the law, and of its measurement.

``medium``, ``narrow`` and ``small`` are the efficiencies of tiles of 128 x 128, 128 x 64 and 64 x 64 relative to larger
tiles. ``burst`` is the duration in seconds up to which a call runs at the full clock; within ``burst_range`` times that
duration the rate falls to ``sustained``. System files state only the sustained rate, as training is continuous work.
``beside_start`` (seconds) and ``beside_bytes`` (per element of the left operand) describe work that was timed together
with a product and is not part of it.
"""

LASTING: Mapping[str, Unknown] = {
    "sustained": Unknown(0.8, 0.5, 1.0),
    "burst_range": Unknown(300, 30, 1e4),
}
"""Constants with different bounds, or searched only, if a source of :data:`CONTINUOUS` determines them."""

OWN: Mapping[str, Unknown] = {
    "max_efficiency": UNKNOWNS["max_efficiency"],
    "sustained": LASTING["sustained"],
}
"""Constants that a processor does not share with its sibling.

With the others free, large 8-bit products fit better (1.5 % on a GB300), but those held out are off by 9.0 % instead of
3.6 %, and on a B300 by 14.5 % instead of 6.7 % (medians).
"""

OWN_4_BITS = {**OWN, "half_depth": UNKNOWNS["half_depth"]}
"""With 4 bits the peaks differ by up to 1.67, so the start and end of a tile take as long as other depths."""

LASTS = 5e-3
"""Seconds of a call from which on it shows the sustained share: the clock of a B200 falls after 5 ms of work
(flashinfer-ai/flashinfer pull request 2899).
"""

TFLOAT32 = ("tfloat32", "bfloat16")
"""TF32, which no table has, and the type whose constants it takes: tensor cores compute both with the same tiles.

Its half depth scales with the peak: prologue and epilogue of a tile take the same time in any type.
"""

_SHARED = ("wave_overlap", "start", "memory_efficiency", "burst", "burst_range")
"""Constants found from 16-bit products, which have the most rows, and used for all types."""


class Rows(NamedTuple):
    """Measured products ``(m, k) x (k, n)``, and the processor that ran them.

    `continuous` marks rows of :data:`CONTINUOUS`. `weight` is the weight of a row in the fit, with a mean of 1.
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
        """Return the rows of a mask."""
        columns = {name: one[which] for name, one in self._asdict().items() if name in _COLUMNS}
        return self._replace(**columns)

    @property
    def groups(self) -> Array:
        """Mask of rows that are large in all dimensions."""
        large: Array = np.minimum(np.minimum(self.m, self.n), self.k) >= LARGE
        return large


_COLUMNS = tuple(name for name in Rows._fields if name not in ("on", "multiprocessors"))


def fit(tables: Mapping[str, pd.DataFrame], gpu: str, system: System) -> FittedPart | None:
    """Fit the GEMM law to the forward products of a processor.

    The constants of a type minimize the mean absolute log error. Robust least squares gives the start, and a search
    along each constant in turn refines it (Powell, *Computer Journal* 7(2), 1964). Rows of low or medium certainty,
    grouped products, and products of zeros are left out.

    Args:
        tables: Measured kernels; ``gemm`` and ``sources`` of ``systems/measured`` are used.
        gpu: Name of the processor in the tables.
        system: Peaks of the engines and memory bandwidth.
    """
    if gpu not in PROCESSORS or "gemm" not in tables:
        return None
    products: dict[str, Any] = {}
    sources: dict[str, str] = {}
    parts: list[pd.DataFrame] = []
    engines, sibling = _engines(system), PROCESSORS[gpu].sibling
    transposed, transposed_source = _weight_gradients(tables, gpu)
    for kind, (rows, values, chosen, name) in _solutions(tables, gpu, system).items():
        parts.append(_residuals(rows, kind, values))
        promoted = PROMOTED.get(gpu, 1.0) if kind.types == ("float8",) else 1.0
        law = _stated(values, rows, transposed, promoted, aligned=kind.aligned)
        if promoted < 1:
            sources["ext.kernels.product.float8.gradients"] = PROMOTED_SOURCE
        products |= {one: law for one in kind.types if one in engines}
        used = ", ".join(sorted(chosen.source.unique()))
        path = "*16" if len(kind.types) > 1 else kind.types[0]
        of_law = f" the law of {sibling}, its rate" if sibling else ""
        sources[f"ext.kernels.product.{path}.*"] = (
            f"fitted{of_law} to {len(chosen)} products measured on {name} (systems/measured/gemm.csv: {used})"
        )
    if not products:
        return None
    type_, like = TFLOAT32
    if type_ in system.matmul_types and like in products:
        products[type_] = _slower(products[like], system, like, type_)
    sources["ext.kernels.product.*.weight_gradients"] = transposed_source
    sources["ext.kernels.product.*.multiprocessors"] = "NVIDIA, architecture whitepaper"
    sources["ext.processing_mode"] = "measured product times include arithmetic and memory traffic"
    return FittedPart(
        {"ext": {"processing_mode": "roofline", "kernels": {"product": products}}},
        sources,
        _assumed(products, gpu),
        pd.concat(parts, ignore_index=True),
    )


def _solutions(
    tables: Mapping[str, pd.DataFrame], gpu: str, system: System
) -> dict[Kind, tuple[Rows, dict[str, float], pd.DataFrame, str]]:
    """Return rows, constants, table rows and name of the measured processor for each kind of products measured.

    A processor with a sibling has its constants, except the rate, and in 16 bits the sustained share, which has too few
    long products in other types: there it falls in the same proportion. The constants do not depend on the peak, so the
    sibling's are found with the peak of `system`, which only scales its rate.
    """
    found: dict[Kind, tuple[Rows, dict[str, float], pd.DataFrame, str]] = {}
    sibling = PROCESSORS[gpu].sibling
    of_sibling = _solutions(tables, sibling, system) if sibling else {}
    known = {} if gpu in CONTINUOUS else {"burst_range": BURST_RANGE}
    values, hotter, engines = dict[str, float](), 0.0, _engines(system)
    for kind in KINDS:
        measured = _measured(tables, gpu, kind)
        if measured is None or not engines.intersection(kind.types):
            continue
        chosen, name = measured
        rows = _rows(chosen, kind, name, system)
        if kind in of_sibling and name == gpu:
            theirs = of_sibling[kind][1]
            values = _solved_with_sibling(rows, theirs, hotter)
            hotter = values["sustained"] / theirs["sustained"]
        else:
            given = {**known, **{one: values[one] for one in kind.alike if one in values}}
            values = _solved(rows, _unknowns(kind, gpu, given), given)
            known = {**{name: values[name] for name in _SHARED}, **known}
        found[kind] = rows, values, chosen, name
    return found


def _solved_with_sibling(
    rows: Rows, theirs: Mapping[str, float], hotter: float
) -> dict[str, float]:
    """Return a sibling's constants with this processor's own :data:`OWN`.

    `hotter` is the sustained share relative to the sibling's; 0 fits it to the products that take :data:`LASTS`.
    """
    own = OWN_4_BITS if rows.on.element_bytes < 1 else OWN
    given = {key: value for key, value in theirs.items() if key not in own}
    if hotter:
        given["sustained"] = min(1.0, theirs["sustained"] * hotter)
        return _solved(rows, {one: own[one] for one in own if one not in given}, given)
    values = _solved(rows, own, given)
    given["max_efficiency"] = values["max_efficiency"]
    lasting = rows.kept((rows.seconds >= LASTS) & ~rows.held_out)
    if not len(lasting.seconds):
        return values
    return _solved(lasting, {"sustained": own["sustained"]}, given)


def _engines(system: System) -> set[str]:
    """Return the types for which the matrix engine has a peak."""
    return {*system.matrix, *(system.ext.matrix or {})}


def _unknowns(kind: Kind, gpu: str, known: Mapping[str, float]) -> dict[str, Unknown]:
    """Return the constants that are not known yet; constants of the measurement overhead come last."""
    every = {**UNKNOWNS, **(LASTING if gpu in CONTINUOUS else {})}
    law = [name for name in every if not name.startswith("beside") and name not in known]
    return {name: every[name] for name in (*law, *kind.overhead)}


def _measured(
    tables: Mapping[str, pd.DataFrame], gpu: str, kind: Kind
) -> tuple[pd.DataFrame, str] | None:
    """Return the usable rows of a processor, or of one with the same chip, and its name.

    Rows of :data:`CONTINUOUS` are used whatever their certainty.
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
    """Return row weights with which every source has the same total weight; their mean is 1."""
    weight = 1 / source.map(source.value_counts()).to_numpy(float)
    in_mean: Array = weight / weight.mean()
    return in_mean


def _weight_gradients(tables: Mapping[str, pd.DataFrame], gpu: str) -> tuple[float, str]:
    """Return the rate of weight gradients relative to forward products of the same sizes, and its source.

    Rows of the processor or one with the same chip count; else all measured pairs; without any the rate is 1.
    """
    table = tables["gemm"]
    table = table[(table.kernel == "TE") & table.layout.isin(("TN", "NT"))]
    names = (gpu, *PROCESSORS[gpu].alike)
    pairs = next((table[table.gpu == name] for name in names if (table.gpu == name).any()), table)
    # Pairs must have the same three dimensions; transposition permutes them.
    sizes = ["/".join(map(str, sorted(row))) for row in pairs[["m", "n", "k"]].to_numpy().tolist()]
    rates = pairs.assign(sizes=sizes).pivot_table(
        index=["gpu", "sizes"], columns="layout", values="tflops"
    )
    if not {"NT", "TN"} <= set(rates.columns):
        return 1.0, "no pair of products was measured: as other products"
    ratios = (rates["NT"] / rates["TN"]).dropna()
    measured = " and ".join(sorted(pairs.gpu.unique()))
    used = ", ".join(sorted(pairs.source.unique()))
    text = (
        f"median of {len(ratios)} pairs of products, {measured} (systems/measured/gemm.csv: {used})"
    )
    return rounded(float(ratios.median()), 3), text


def _law(values: Mapping[str, float], rows: Rows) -> Gemm:
    """Return the law for short calls, without throttling."""
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
    """Return the times of rows as measured: throttled as far as the clock fell, with the overhead timed with them."""
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
    """Return the constants that fit the rows which are not held out, together with known ones."""
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
    # Powell alternates between constants, so a second round can still improve the first.
    for _ in range(_ROUNDS):
        at = minimize(
            lambda at: float(np.abs(errors(at)).mean()),
            at,
            method="Powell",
            bounds=list(zip(low, high, strict=True)),
            options={"maxiter": 4, "xtol": 1e-3, "ftol": 1e-4},
        ).x
    return {name: rounded(value, _DIGITS) for name, value in constants(at).items()}


def _inside(unknown: Unknown, value: float) -> float:
    return float(np.log(value)) if unknown.low > 0 else value


def _outside(unknown: Unknown, coordinate: float) -> float:
    return float(np.exp(coordinate)) if unknown.low > 0 else coordinate


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
    values: Mapping[str, float], rows: Rows, transposed: float, gradients: float, *, aligned: bool
) -> dict[str, Any]:
    """Return the fields of a rate in a system file."""
    gemm = replace(_law(values, rows), sustained=values["sustained"], weight_gradients=transposed)
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
    """Return the constants of a type for another type with a different peak."""
    relative_peak = system.product_engine(type_).peak / system.product_engine(like).peak
    return dict(law) | {"half_depth": rounded(law["half_depth"] * relative_peak, _DIGITS)}


def _assumed(products: Mapping[str, Any], gpu: str) -> list[str]:
    """Return the assumptions that no measurement supports."""
    longest = "the longest measured products"
    if gpu in CONTINUOUS:
        longest = (
            f"the products of {CONTINUOUS[gpu]}, measured on another machine and assumed to run back to back; the "
            "nine calls measured here, up to 1.3 s of work, are still slowing down at the longest"
        )
    lines = [
        f"ext.kernels.product.*.sustained: training is continuous work, at the clock of {longest}",
        "ext.kernels.product.*.alignment: from an A100 (A. Karpathy, nanoGPT, 3 February 2023: GPT-2 124M trains 25 % "
        "faster with a vocabulary of 50,304 than with 50,257: 0.42); in between, by the number of loads; the fit uses "
        "1",
        "ext.kernels.product.*.tiles: tile sizes of NVIDIA's libraries; their rates were fitted",
    ]
    for name, text in (
        (
            "float8",
            "scaled per tensor; the cast measured together with the product was subtracted",
        ),
        ("float4", "the cast measured together with the product was subtracted"),
        ("float32", "the host time measured together with the product was subtracted"),
    ):
        if name in products:
            shared = [one for one in _SHARED if one in products[name]]
            paths = ", ".join(f"ext.kernels.product.{name}.{one}" for one in shared)
            lines.append(f"{paths}: as 16-bit products; {text}")
    if gpu in CONTINUOUS and "float8" in products:
        lines.append(
            "ext.kernels.product.float8.sustained: no back-to-back 8-bit products were measured; the nine calls up to "
            "15 ms follow the slowdown of 16-bit products"
        )
    if "float4" in products:
        lines.append(
            "ext.kernels.product.float4.sustained: as 8-bit products; only one 4-bit product takes more than 10 ms, "
            "too few to determine it"
        )
    if TFLOAT32[0] in products:
        lines.append(
            "ext.kernels.product.tfloat32.*: no kernel was measured; as bfloat16, with half_depth in proportion to "
            "the peak, because the start and end of a tile take equally long in every type"
        )
    return lines
