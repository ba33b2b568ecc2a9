"""Layers of experts of single inference engines: laws of grouped GEMM of kernels other than the fastest ones."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from calculon.base.units import Array, Seconds
from calculon.calibrate.kernels.experts import (
    GROUP,
    SAME_CHIP,
    SHAPE,
    WEIGHTS,
    dense_law,
    grouped_law,
    layers_of,
    processor_of,
    stated_law,
)
from calculon.calibrate.kernels.fitted_part import held_out
from calculon.calibrate.steps import rounded
from calculon.hardware.kernels.laws import Gemm
from calculon.hardware.serving import ENGINE_KERNELS
from calculon.hardware.system import System

PREFIXES = {
    "vllm": ("vllm_",),
    "sglang": ("sglang_",),
    "tensorrt-llm": ("moe_torch_flow", "wideep_compute", "deepgemm"),
}
"""Beginnings of the names of kernels in the table by engine."""

LEAST_ROWS = 6
"""Least fitted layers of a type; a law has five constants."""

TYPICAL = (0.7, 32.0, 500.0, 0.8, 2.5e-6)
"""Prior: rate relative to other products, rows lost per tile, half depth, share of the bandwidth, start in s."""

LEAST = (0.03, 2.0, 10.0, 0.1, 5e-7)
MOST = (1.0, 400.0, 1500.0, 1.0, 6e-5)
"""Bounds of the same constants. The largest half depth is that of the widest layers: beyond it the law would predict
narrow parts of layers, which few measured layers have, from wide ones."""

_SCALE = 0.03  # log error above which a row counts linearly instead of squared
_WEIGHT = 3.0  # weight of the prior: a factor of e counts like a row with an error of 9 %
_DIGITS = 3
_STARTS = ((1.0, 1.0, 1.0, 1.0, 1.0), (0.4, 3.0, 1.0, 0.8, 4.0), (1.0, 0.25, 0.2, 1.0, 2.0))


def engine_kernels(
    table: pd.DataFrame, gpu: str, system: System
) -> tuple[dict[str, Any], dict[str, str], list[str], pd.DataFrame] | None:
    """Fit the law of grouped GEMM by engine and type of weights; None if no layer was measured.

    Everything else of a layer, and the floor of the kernels around the products, is that of the fastest kernels.

    Args:
        table: Measured layers of engines other than the fastest (systems/measured/README.md).
        gpu: Name of the processor in the table.
        system: System with the fitted law of products, and the fitted routing floor.
    """
    pool = [one for one in (gpu, SAME_CHIP.get(gpu)) if one is not None]
    some = table[table.gpu.isin(pool) & table.dtype.isin(list(WEIGHTS))].reset_index(drop=True)
    if not (some.gpu == gpu).any():
        return None
    stated: dict[str, Any] = {}
    sources: dict[str, str] = {}
    tables = []
    for engine in ENGINE_KERNELS:
        laws: dict[str, Any] = {}
        for dtype, rows in _types_of(some, engine):
            kept = held_out(rows[SHAPE])
            law, predicted = _fitted(rows, ~kept, system)
            laws[WEIGHTS[dtype]] = stated_law(law)
            own = (rows.gpu == gpu).to_numpy()
            columns = {"measured": rows.time_s[own], "predicted": predicted[own]}
            label = [f"{GROUP} of {engine}"] * int(own.sum())
            tables.append(pd.DataFrame({"group": label, "held_out": kept[own]} | columns))
        if laws:
            if "bfloat16" in laws:
                laws["float16"] = laws["bfloat16"]
            stated[engine] = {"grouped": laws}
            used = ", ".join(sorted(_of_engine(some, engine).source.unique()))
            text = f"fitted to expert layers of systems/measured/moe_engines.csv: {used}"
            sources[f"ext.serving.expert_kernels.{engine}.*"] = text
    return {"expert_kernels": stated}, sources, [], pd.concat(tables, ignore_index=True)


def _of_engine(table: pd.DataFrame, engine: str) -> pd.DataFrame:
    """Return the layers of an engine."""
    return table[table.kernel.str.startswith(PREFIXES[engine])]


def _types_of(table: pd.DataFrame, engine: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each type with enough layers of an engine, and these layers."""
    for dtype, rows in _of_engine(table, engine).groupby("dtype"):
        if (~held_out(rows[SHAPE])).sum() >= LEAST_ROWS:
            yield str(dtype), rows.reset_index(drop=True)


def _fitted(rows: pd.DataFrame, used: Array, system: System) -> tuple[Gemm, Seconds]:
    """Return the law of a type, and the predicted times of all rows.

    Robust least squares of the log errors of the `used` rows, with a prior: few shapes leave some constants open.
    """
    dtype = WEIGHTS[rows["dtype"].iloc[0]]
    layers, seconds = layers_of(rows, system), rows.time_s.to_numpy(float)
    dense, on = dense_law(system, dtype), processor_of(system, dtype)
    floor, at = system.ext.serving.routing_floor, np.flatnonzero(used)
    typical = np.log(np.array(TYPICAL) * _scales(dense))

    def errors(found: Array) -> Array:
        times = layers.times(_law(found, dense), floor, at, on)
        off = np.log(times / seconds[at]) / _SCALE
        return np.concatenate([off, _WEIGHT * (found - typical)])

    bounds = tuple(np.log(np.array(one) * _scales(dense)) for one in (LEAST, MOST))
    solved = min(
        (
            least_squares(
                errors, typical + np.log(start), bounds=bounds, loss="soft_l1", diff_step=0.02
            )
            for start in _STARTS
        ),
        key=lambda one: float(one.cost),
    )
    law = _law(solved.x, dense)
    return law, layers.times(law, floor, np.arange(len(rows)), on)


def _scales(dense: Gemm) -> Array:
    return np.array([dense.max_efficiency, 1, 1, 1, 1])


def _law(found: Array, dense: Gemm) -> Gemm:
    """Return the law of the logarithms of its constants."""
    rate, lost, depth, memory, start = np.exp(found).tolist()
    return replace(grouped_law(rate, lost, depth, memory, dense), start=rounded(start, _DIGITS))
