"""Layers of experts, as engines of inference run them: the rate of their products beside that of others."""

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
"""What the rows of these layers are called."""

_WEIGHTS = {"bfloat16": "bfloat16", "fp8": "float8"}  # types of the table, as deployments name them
_SHAPE = ["hidden", "ffn", "topk", "experts", "tp"]
_KEY = ["dtype", *_SHAPE[:4]]
_BOUND = 1.5  # arithmetic over reading from which the rate of arithmetic shows in a time
_LEAST = 10  # rows that are bound by arithmetic, from which on they tell a rate
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
"""A model whose layers of experts are those of a table, once their sizes are set."""


def share_of_products(
    table: pd.DataFrame, gpu: str, system: System
) -> tuple[dict[str, Any], dict[str, str], list[str], pd.DataFrame] | None:
    """Return the share of the rate of products that those of experts reach; None where no layer was measured.

    A layer is timed by the model as a rank that has all experts runs it: the choice of experts, permutations, products
    and the activation. Where its products take much longer to multiply than to read, the time that is left for them
    tells their rate; the share is the median. Rows that split experts over ranks are left out, since what the exchange
    does is not in them, and so are processors with few rows that tell it.

    Args:
        table: Measured layers.
        gpu: The processor, as the table names it.
        system: With the law of its products.
    """
    rows = table[(table.gpu == gpu) & (table.ep == 1) & table.dtype.isin(list(_WEIGHTS))]
    if rows.empty:
        return None
    whole = replace(
        system,
        ext=replace(system.ext, serving=replace(system.ext.serving, grouped_efficiency=1.0)),
    )
    time, arithmetic, reading = layer_times(rows, whole)
    seconds, kept = rows.time_s.to_numpy(float), held_out(rows[_SHAPE])
    tells = arithmetic > _BOUND * reading
    fragment: dict[str, Any] = {}
    sources: dict[str, str] = {}
    if tells.sum() >= _LEAST:
        left = seconds - (time - np.maximum(arithmetic, reading))
        share = rounded(min(1.0, float(np.median((arithmetic / left)[tells & ~kept]))), _DIGITS)
        fragment["grouped_efficiency"] = share
        used = ", ".join(sorted(rows.source.unique()))
        sources["ext.serving.grouped_efficiency"] = (
            f"median of {int((tells & ~kept).sum())} layers of experts bound by arithmetic, of {len(rows)} in "
            f"systems/measured/moe.csv: {used}"
        )
        slower = replace(whole.ext.serving, grouped_efficiency=share)
        time, *_ = layer_times(rows, replace(whole, ext=replace(whole.ext, serving=slower)))
    columns = {"measured": seconds, "predicted": time, "held_out": kept}
    return fragment, sources, [], pd.DataFrame({"group": [GROUP] * len(rows)} | columns)


def layer_times(rows: pd.DataFrame, system: System) -> tuple[Seconds, Seconds, Seconds]:
    """Return the times of layers by the model, and those of the arithmetic and the reading of their products."""
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
    """Return the kernels of a layer of experts without its router, which the table does not have."""
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
