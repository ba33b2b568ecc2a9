"""Mixture-of-experts layers of inference engines: the law of grouped GEMM, and the floor of the kernels around it."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from calculon.base.units import Array, Count, Seconds
from calculon.calibrate.kernels.fitted_part import PROCESSORS, held_out
from calculon.calibrate.steps import rounded
from calculon.declarations.model import Model
from calculon.declarations.named_values import ENGINE_BYTES
from calculon.hardware.kernels.laws import Gemm, Processor, Tile, Tiles
from calculon.hardware.system import System
from calculon.serving.passes.exchange import EVEN
from calculon.serving.passes.pass_rows import Row, pass_rows
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.passes.row_times import pass_times
from calculon.serving.records.number_types import NumberTypes

GROUP = "serving, layers of experts"
"""Label of these layers in the table of residuals."""

WEIGHTS = {
    "bfloat16": "bfloat16",
    "fp8": "float8",
    "fp8_block": "float8_block",
    "nvfp4": "nvfp4",
    "w4a16_mxfp4": "mxfp4",
    "w4a8_mxfp4_mxfp8": "mxfp4_mxfp8",
}
"""Types of the tables, as deployments name them."""

SAME_CHIP = {"H100-SXM5-80GB": "H200-SXM5-141GB", "H200-SXM5-141GB": "H100-SXM5-80GB"}
"""Processor whose layers are fitted together with those of another one, by shares of peak and bandwidth."""

SIDES = (8, 16, 32, 64, 128)
"""Rows of a tile. The weights are the rows of the tensor core's instruction, so that a tile may have 8 rows of tokens.

Source: FlashInfer, ``trtllm_batched_gemm_runner``, transposed MMA output and ``tileN`` 8 to 128.
"""

WIDTH = 128
"""Columns of a tile."""

SHAPE = ["hidden", "ffn", "topk", "experts", "tp"]
"""Columns whose hash decides which layers are held out."""

_KEY = ["dtype", *SHAPE[:4], "distribution"]
_SCALE = 0.03  # log error above which a row counts linearly instead of squared
_DIGITS = 3

_OTHER = Model(
    hidden=1024,
    feedforward=1024,
    seq_size=1024,
    attn_heads=8,
    attn_size=128,
    num_blocks=1,
    vocab=1024,
    activation="swiglu",
    norm="rmsnorm",
)
"""Template of a model with one expert layer; its expert sizes are set from the table."""


class Layers(NamedTuple):
    """Sizes of measured layers, one per row of a table.

    Attributes:
        rest: Seconds of all kernels except products, with a routing floor of 0.
        routing: Kernels with a routing floor.
        products (shape (5, 2, rows)): Experts, rows of an expert, result width, depth, and bytes moved by the products.
        bandwidth: Memory bandwidth in B/s.
    """

    rest: Seconds
    routing: Count
    products: Array
    bandwidth: Array

    def times(self, law: Gemm, floor: float, rows: Array, on: Processor) -> Seconds:
        """Return the times of some rows whose products follow a law."""
        batch, m, n, depth, moved = self.products[:, :, rows]
        on = on._replace(bandwidth=self.bandwidth[rows])
        aligned = np.full(batch.shape, float(WIDTH))
        seconds = law.seconds(batch, m, n, depth, aligned, on, moved=moved)
        result: Seconds = self.rest[rows] + floor * self.routing[rows] + seconds.sum(axis=0)
        return result


def grouped_law(rate: float, lost: float, depth: float, memory: float, dense: Gemm) -> Gemm:
    """Return the law of grouped GEMM.

    Args:
        rate: Share of the peak that large products reach; at most that of other products, since weights of zeros, with
            which most layers were measured, draw less power than others (systems/measured/README.md).
        lost: Rows of a tile that take as long as its start and end.
        depth: Depth at which the start and end of a tile halve its rate.
        memory: Share of the bandwidth at which weights are read.
        dense: Law of other products of this type, whose start, multiprocessors and waves this law has.
    """
    tiles = Tiles(
        tuple(Tile(side, WIDTH, rounded(side / (side + lost), _DIGITS)) for side in SIDES)
    )
    return Gemm(
        max_efficiency=rounded(min(rate, dense.max_efficiency), _DIGITS),
        multiprocessors=dense.multiprocessors,
        half_depth=rounded(depth, _DIGITS),
        wave_overlap=dense.wave_overlap,
        start=dense.start,
        memory_efficiency=rounded(memory, _DIGITS),
        tiles=tiles,
    )


def grouped_products(
    table: pd.DataFrame, gpu: str, system: System
) -> tuple[dict[str, Any], dict[str, str], list[str], pd.DataFrame] | None:
    """Fit the law of grouped GEMM by type of weights, and the routing floor; None if no layer was measured.

    Everything except products and the routing floor has the serving model's own time. A rank's share of experts and
    rows follows from the distribution of tokens. All types share the routing floor and the rate of reading weights.

    Args:
        table: Measured layers of the fastest engine by type (systems/measured/README.md).
        gpu: Name of the processor in the table.
        system: System with the fitted law of products.
    """
    pool = [one for one in (gpu, SAME_CHIP.get(gpu)) if one is not None]
    rows = table[table.gpu.isin(pool) & table.dtype.isin(list(WEIGHTS))].reset_index(drop=True)
    if not (rows.gpu == gpu).any():
        return None
    kept = held_out(rows[SHAPE])
    floor, laws, predicted = _fitted(rows, ~kept, system)
    own, used = (rows.gpu == gpu).to_numpy(), ", ".join(sorted(rows.source.unique()))
    text = f"fitted to {int((~kept).sum())} expert layers of systems/measured/moe.csv: {used}"
    stated = {WEIGHTS[one]: stated_law(law) for one, law in laws.items()}
    seconds = rows.time_s.to_numpy(float)
    columns = {"measured": seconds[own], "predicted": predicted[own], "held_out": kept[own]}
    return (
        {"routing_floor": floor, "grouped": stated | {"float16": stated["bfloat16"]}},
        {"ext.serving.grouped.*": text, "ext.serving.routing_floor": text},
        [],
        pd.DataFrame({"group": [GROUP] * int(own.sum())} | columns),
    )


def _fitted(
    rows: pd.DataFrame, used: Array, system: System
) -> tuple[float, dict[str, Gemm], Seconds]:
    """Return the routing floor, the law of each type, and the predicted times of all rows.

    Robust least squares of the log errors of the `used` rows: some layers take 3 to 5 times as long as their neighbors,
    because their kernels were not tuned.
    """
    layers, seconds = layers_of(rows, system), rows.time_s.to_numpy(float)
    dense = {one: dense_law(system, WEIGHTS[one]) for one in sorted(rows.dtype.unique())}
    places = {one: np.flatnonzero((rows.dtype == one).to_numpy()) for one in dense}

    def laws(found: Array) -> dict[str, Gemm]:
        _, memory, *own = np.exp(found).tolist()
        each = zip(dense, own[0::3], own[1::3], own[2::3], strict=True)
        return {
            one: grouped_law(rate, lost, depth, memory, dense[one])
            for one, rate, lost, depth in each
        }

    def times(found: Array, selected: Array) -> Seconds:
        result = np.zeros(len(rows))
        for one, law in laws(found).items():
            some = places[one][selected[places[one]]]
            floor = float(np.exp(found[0]))
            result[some] = layers.times(law, floor, some, processor_of(system, WEIGHTS[one]))
        return result[selected]

    def errors(found: Array) -> Array:
        result: Array = np.log(times(found, used) / seconds[used])
        return result

    low, start, high = (
        np.log([*shared, *(x for law in dense.values() for x in (law.max_efficiency * rate, *own))])
        for shared, rate, own in (
            ((1e-6, 0.5), 0.1, (4.0, 10.0)),
            ((5e-6, 0.8), 0.7, (32.0, 500.0)),
            ((3e-5, 1.0), 1.0, (200.0, 3000.0)),
        )
    )
    solved = least_squares(
        errors, start, bounds=(low, high), loss="soft_l1", f_scale=_SCALE, diff_step=0.02
    ).x
    floor = rounded(float(np.exp(solved[0])), _DIGITS)
    solved[0] = np.log(floor)
    return floor, laws(solved), times(solved, np.ones(len(rows), bool))


def stated_law(law: Gemm) -> dict[str, Any]:
    """Return a law as a system file states it."""
    names = ("max_efficiency", "multiprocessors", "half_depth", "wave_overlap", "start")
    tiles = [[one.m, one.n, one.efficiency] for one in law.tiles.tiles]
    return {
        **{name: getattr(law, name) for name in names},
        "memory_efficiency": law.memory_efficiency,
        "tiles": tiles,
    }


def _engine(system: System, weights: str) -> str:
    """Return the type of the arithmetic of the products of experts with a type of weights."""
    return _types(system, weights).engines[1]


def dense_law(system: System, weights: str) -> Gemm:
    """Return the law of other products with a type of weights."""
    law = system.rate("product", _engine(system, weights))
    assert isinstance(law, Gemm)
    return law


def processor_of(system: System, weights: str) -> Processor:
    """Return what products with a type of weights depend on."""
    engine = _engine(system, weights)
    peak = system.product_engine(engine).peak
    return Processor(peak, system.mem1.bandwidth, ENGINE_BYTES[engine])


def _types(system: System, weights: str) -> NumberTypes:
    return NumberTypes.of(system, weights, weights, "bfloat16", "bfloat16")


def layer_times(rows: pd.DataFrame, system: System) -> Seconds:
    """Return the predicted times of layers on a system that states a law of grouped GEMM for their types."""
    serving, rows = system.ext.serving, rows.reset_index(drop=True)
    layers, result = layers_of(rows, system), np.zeros(len(rows))
    assert serving.grouped is not None
    for one in rows.dtype.unique():
        some, law = np.flatnonzero((rows.dtype == one).to_numpy()), serving.grouped[WEIGHTS[one]]
        result[some] = layers.times(
            law, serving.routing_floor, some, processor_of(system, WEIGHTS[one])
        )
    return result


def layers_of(rows: pd.DataFrame, system: System) -> Layers:
    """Return the sizes of measured layers, and the times of their other kernels."""
    rest, routing = np.zeros(len(rows)), np.zeros(len(rows))
    products, bandwidth = np.zeros((5, 2, len(rows))), np.zeros(len(rows))
    serving = replace(system.ext.serving, routing_floor=0.0)
    for gpu in rows.gpu.unique():
        memory = replace(system.mem1, bandwidth=PROCESSORS[gpu].bandwidth)
        machine = replace(system, mem1=memory, ext=replace(system.ext, serving=serving))
        for _, group in rows[rows.gpu == gpu].groupby(_KEY):
            at = group.index.to_numpy()
            bandwidth[at] = memory.bandwidth
            rest[at], routing[at], products[:, :, at] = _of_model(group, machine)
    return Layers(rest, routing, products, bandwidth)


def _of_model(group: pd.DataFrame, system: System) -> tuple[Seconds, int, Array]:
    """Return rest, routing kernels and products of the measured layers of one model, without its router."""
    first = group.iloc[0]
    model = replace(
        _OTHER,
        hidden=int(first.hidden),
        expert_feedforward=int(first.ffn),
        experts_per_token=int(first.topk),
        num_experts=int(first.experts),
    )
    groups = group.ep.to_numpy(float)
    sizes = PassSizes.of(
        tensor_par=group.tp.to_numpy(float) * groups,
        expert_par=groups,
        decoded=group.tokens.to_numpy(float),
        context=1,
    )
    # layers called balanced have exactly as many tokens for each expert
    routing = str(first.distribution).replace("law_", "law:").replace("balanced", EVEN)
    kernels = [
        row
        for row in pass_rows(model, _types(system, WEIGHTS[first["dtype"]]), sizes, routing=routing)
        if _measured(row)
    ]
    timed = pass_times(model, system, kernels, sizes).rows
    both = list(zip(kernels, timed, strict=False))
    rest = np.zeros(len(group)) + sum(time.time for row, time in both if row.name != "experts")
    products = [_product(row, group) for row in kernels if row.name == "experts"]
    floors = sum(row.layer is not None and row.layer.kernel == "routing" for row in kernels)
    return rest, floors, np.stack(products, axis=1)


def _measured(row: Row) -> bool:
    """Return whether a row of a pass belongs to the measured layers."""
    layer = row.layer
    return layer is not None and (
        layer.kernel in ("grouped_product", "routing", "activation")
        or layer.name.startswith("MlpBlock_Experts")
    )


def _product(row: Row, group: pd.DataFrame) -> Array:
    """Return experts, rows, width, depth and bytes of a product."""
    assert row.layer is not None
    assert row.layer.product is not None
    sizes = np.broadcast_arrays(*(np.asarray(one, float) for one in row.layer.product), row.moved)
    batch, m, depth, n, moved = (np.broadcast_to(one, len(group)) for one in sizes)
    return np.stack([batch, m, n, depth, moved])
