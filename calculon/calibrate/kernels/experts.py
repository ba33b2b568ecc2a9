"""Mixture-of-experts layers of inference engines: the rate of grouped GEMM relative to other products."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from calculon.base.units import Array, Seconds
from calculon.calibrate.kernels.fitted_part import held_out
from calculon.calibrate.steps import rounded
from calculon.declarations.model import Model
from calculon.hardware.system import System
from calculon.serving.passes.pass_rows import pass_rows
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.passes.row_times import RowTime, pass_times
from calculon.serving.records.number_types import NumberTypes

GROUP = "serving, layers of experts"
"""Label of these layers in the table of residuals."""

_WEIGHTS = {"bfloat16": "bfloat16", "fp8": "float8"}  # types of the table, as deployments name them
_SHAPE = ["hidden", "ffn", "topk", "experts", "tp"]
_KEY = ["dtype", *_SHAPE[:4]]
_BOUND = (
    1.5  # ratio of arithmetic to reading time above which a time depends on the arithmetic rate
)
_LEAST = 10  # arithmetic-bound rows needed for a rate
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


def share_of_products(
    table: pd.DataFrame, gpu: str, system: System
) -> tuple[dict[str, Any], dict[str, str], list[str], pd.DataFrame] | None:
    """Return the rate of grouped GEMM relative to other products; None if no layer was measured.

    The model times each layer on a rank that holds all experts: gating, permutation, grouped GEMM and activation. If a
    layer's products are clearly bound by arithmetic, subtracting everything else from the measured time leaves their
    time and so their rate; the share is the median. Rows with expert parallelism are left out, since they contain no
    all-to-all, and so are processors with too few arithmetic-bound rows.

    Args:
        table: Measured layers.
        gpu: Name of the processor in the table.
        system: System with the fitted GEMM law.
    """
    rows = table[(table.gpu == gpu) & (table.ep == 1) & table.dtype.isin(list(_WEIGHTS))]
    if rows.empty:
        return None
    full_rate = replace(
        system,
        ext=replace(system.ext, serving=replace(system.ext.serving, grouped_efficiency=1.0)),
    )
    time, arithmetic, reading = layer_times(rows, full_rate)
    seconds, kept = rows.time_s.to_numpy(float), held_out(rows[_SHAPE])
    bound = arithmetic > _BOUND * reading
    fragment: dict[str, Any] = {}
    sources: dict[str, str] = {}
    if bound.sum() >= _LEAST:
        product_time = seconds - (time - np.maximum(arithmetic, reading))
        share = rounded(
            min(1.0, float(np.median((arithmetic / product_time)[bound & ~kept]))), _DIGITS
        )
        fragment["grouped_efficiency"] = share
        used = ", ".join(sorted(rows.source.unique()))
        sources["ext.serving.grouped_efficiency"] = (
            f"median of {int((bound & ~kept).sum())} compute-bound expert layers, of {len(rows)} in "
            f"systems/measured/moe.csv: {used}"
        )
        slower = replace(full_rate.ext.serving, grouped_efficiency=share)
        time, *_ = layer_times(rows, replace(full_rate, ext=replace(full_rate.ext, serving=slower)))
    columns = {"measured": seconds, "predicted": time, "held_out": kept}
    return fragment, sources, [], pd.DataFrame({"group": [GROUP] * len(rows)} | columns)


def layer_times(rows: pd.DataFrame, system: System) -> tuple[Seconds, Seconds, Seconds]:
    """Return the predicted times of layers, and the arithmetic and reading times of their products."""
    time, arithmetic, reading = (np.zeros(len(rows)) for _ in range(3))
    places = np.arange(len(rows))
    for dtype, hidden, width, each, experts in {tuple(one) for one in rows[_KEY].to_numpy()}:
        group = rows.assign(place=places)
        for name, value in zip(_KEY, (dtype, hidden, width, each, experts), strict=True):
            group = group[group[name] == value]
        model = replace(
            _OTHER,
            hidden=int(hidden),
            expert_feedforward=int(width),
            experts_per_token=int(each),
            num_experts=int(experts),
        )
        at = group.place.to_numpy()
        for layer in _layers(model, _WEIGHTS[str(dtype)], group, system):
            time[at] += layer.time
            if layer.name == "experts":
                arithmetic[at] += layer.arithmetic
                reading[at] += layer.memory
    return time, arithmetic, reading


def _layers(model: Model, weights: str, rows: pd.DataFrame, system: System) -> list[RowTime]:
    """Return the timed kernels of an expert layer without its router, which the table does not include."""
    types = NumberTypes.of(system, weights, weights, "bfloat16", "bfloat16")
    tokens: Array = rows.tokens.to_numpy(float)
    sizes = PassSizes.of(tensor_par=rows.tp.to_numpy(float), decoded=tokens, context=1)
    kernels = pass_rows(model, types, sizes)
    timed = pass_times(model, system, kernels, sizes).rows
    return [
        found
        for one, found in zip(kernels, timed, strict=False)
        if one.layer is not None
        and (
            one.layer.kernel in ("grouped_product", "routing", "activation")
            or one.layer.name.startswith("MlpBlock_Experts")
        )
    ]
