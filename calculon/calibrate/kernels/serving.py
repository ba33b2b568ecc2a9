"""Constants of ``ext.serving``: decode attention, small all-reduces, and the floor of small kernels in CUDA graphs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from calculon.base.units import Array, Seconds
from calculon.calibrate.kernels.engine_kernels import engine_kernels
from calculon.calibrate.kernels.experts import grouped_products
from calculon.calibrate.kernels.fitted_part import PROCESSORS, FittedPart, held_out
from calculon.calibrate.networks import disturbed
from calculon.calibrate.steps import rounded
from calculon.hardware.serving import DecodeAttention, LatencyByRanks, SmallReduce
from calculon.hardware.system import System

PATH = "ext.serving"

SMALL = 4 * 2**20
"""Largest message in bytes that counts as small: beyond it NCCL is as fast."""

FLOOR = "smallest elementwise kernel (fp8 quantization) in a CUDA graph: median"
"""Entry of the table of launches with the floor of a small kernel."""

SAME_LINKS = {
    "H200-SXM5-141GB": "H100-SXM5-80GB",
    "GB200": "B200-SXM-180GB",
    "GB300": "B200-SXM-180GB",
}
"""Processor whose small all-reduces are used for one without measured ones, as the links are the same."""

BETTER_KERNELS = {"A100-SXM4-80GB": "H100-SXM5-80GB"}
"""Processor whose decode attention is used for one with measurements of a single, unrepresentative engine.

SGLang's kernel of release 0.5.10 on an A100 loses time in waves of blocks that are not full: fitted alone it reads at
0.543 of the bandwidth with a tail of 0.374, after 13.7 us. With it, static batches of Llama 2 7B on TensorRT-LLM
(`validation/serving/trtllm_static`, which was known when this was chosen) come out 24 % too slow; with the H100's
kernel they are within 5 %.
"""

_DIGITS = 3
_SCALE = 0.03  # log error above which a row counts linearly instead of squared
_ELEMENT = 2  # bytes of KV cache, queries and results in measured decode attention


class Unknown(NamedTuple):
    """A constant to fit: start and bounds of the search, which runs over its logarithm."""

    start: float
    low: float
    high: float


_ATTENTION = {
    "floor": Unknown(1e-5, 1e-6, 5e-5),
    "efficiency": Unknown(0.8, 0.2, 1.0),
    "key_tile": Unknown(100, 1, 1000),
    "tail": Unknown(0.1, 1e-4, 2.0),
}
_MIN_TAIL = 1e-3  # a smaller tail is dropped
_LATENCY = Unknown(4e-6, 1e-6, 5e-5)
_MORE = Unknown(3e-7, 1e-9, 5e-5)  # latency added by the next larger group, so that latencies rise
_SHARE = Unknown(0.6, 0.1, 1.0)

_NOTHING: Array = np.array([])

KernelFit = tuple[dict[str, Any], dict[str, str], list[str], pd.DataFrame]
"""Constants, their sources, assumptions, and the measured rows."""


def fit(tables: Mapping[str, pd.DataFrame], gpu: str, system: System) -> FittedPart | None:
    """Fit the serving kernels of a processor; None if none was measured.

    Products are not fitted here: the law ``tiles`` of training also holds for products with few rows, and its `start`
    is their floor.

    Args:
        tables: Measured kernels by table name: decode rows of ``attention``, all-reduces of inference engines in CUDA
            graphs of ``collectives``, the least time of a small kernel of ``launches``, and expert layers of the
            fastest engine by type (``moe``) and of others (``moe_engines``).
        gpu: Name of the processor in the tables.
        system: System whose first network has the port bandwidth.
    """
    parts = [
        part
        for one, name in (
            (_attention, "attention"),
            (_reduce, "collectives"),
            (_floor, "launches"),
            (grouped_products, "moe"),
        )
        if name in tables and (part := one(tables[name], gpu, system)) is not None
    ]
    if not parts:
        return None
    fragment: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for stated, origin, _, _ in parts:
        fragment |= stated
        sources |= origin
    if "moe_engines" in tables and "routing_floor" in fragment:
        floor = replace(system.ext.serving, routing_floor=fragment["routing_floor"])
        machine = replace(system, ext=replace(system.ext, serving=floor))
        if (found := engine_kernels(tables["moe_engines"], gpu, machine)) is not None:
            fragment |= found[0]
            sources |= found[1]
            parts.append(found)
    rows = [one for *_, one in parts if len(one)]
    return FittedPart(
        {"ext": {"serving": fragment}},
        sources,
        [line for _, _, assumed, _ in parts for line in assumed],
        pd.concat(rows, ignore_index=True) if rows else _rows("", _NOTHING, _NOTHING, _NOTHING),
    )


# -- decode attention -----------------------------------------------------------------------------------------------


def _attention(table: pd.DataFrame, gpu: str, _: System) -> KernelFit | None:
    name = BETTER_KERNELS.get(gpu, gpu)
    rows = table[(table["pass"] == "decode") & (table.gpu == name)]
    if rows.empty:
        return None
    on = PROCESSORS[name]
    law_of = _decode_law(rows, on.multiprocessors, on.bandwidth)
    kept = held_out(rows[["heads_q", "heads_kv", "dim_qk", "dim_v", "seq_kv"]])
    seconds = rows.time_s.to_numpy(float)
    found = _solved(law_of, list(_ATTENTION.values()), seconds, ~kept)
    floor, efficiency, key_tile, tail = (rounded(one, _DIGITS) for one in found)
    tail = tail if tail > _MIN_TAIL else 0.0
    predicted = law_of(np.array([floor, efficiency, key_tile, tail]))
    stated: dict[str, Any] = {"efficiency": efficiency, "key_tile": key_tile}
    if tail:
        stated |= {"tail": tail, "multiprocessors": on.multiprocessors}
    used = ", ".join(sorted(rows.source.unique()))
    kernels = ", ".join(sorted(rows.kernel.unique()))
    text = f"fitted to {len(rows)} measured kernels ({kernels}) of systems/measured/attention.csv: {used}"
    paths = f"{PATH}.decode_attention.*, {PATH}.attention_floor"
    assumed = (
        f"{paths}: kernels of other engines, and 8-bit caches, take the same time per byte as these ({kernels}, 16 "
        "bits, heads of 128)"
    )
    if name != gpu:
        assumed += f"; values of {name}, because the only kernel measured on {gpu} is slower than in other engines"
    return (
        {"attention_floor": floor, "decode_attention": stated},
        {f"{PATH}.attention_floor": text, f"{PATH}.decode_attention.*": text},
        [assumed],
        _rows("serving, attention of one new token", seconds, predicted, kept),
    )


def _decode_law(
    rows: pd.DataFrame, multiprocessors: int, bandwidth: float
) -> Callable[[Array], Seconds]:
    """Return a function from floor, efficiency, tile and tail to the times of rows."""
    names = ("batch", "heads_q", "heads_kv", "seq_kv", "dim_qk", "dim_v")
    batch, heads, kv_heads, keys, key_width, value_width = (
        rows[name].to_numpy(float) for name in names
    )
    key_bytes = (key_width + value_width) * _ELEMENT
    other = batch * heads * key_bytes  # queries are as wide as keys, results as values

    def times(constants: Array) -> Seconds:
        floor, efficiency, key_tile, tail = constants.tolist()
        law = DecodeAttention(
            efficiency=efficiency, key_tile=key_tile, tail=tail, multiprocessors=multiprocessors
        )
        result: Seconds = floor + law.reading(batch, keys, kv_heads, key_bytes, other, bandwidth)
        return result

    return times


# -- small reductions -------------------------------------------------------------------------------------------------


def _reduce(table: pd.DataFrame, gpu: str, system: System) -> KernelFit | None:
    which = (table.op == "all_reduce") & (table.nodes == 1) & (table.bytes <= SMALL)
    table = table[which & table.library.str.endswith("CustomAllReduce_graph")]
    name = next((one for one in (gpu, SAME_LINKS.get(gpu)) if (table.gpu == one).any()), None)
    if name is None:
        return None
    rows = table[table.gpu == name]
    # Disturbed rows are found within a group size: larger groups are slower anyway.
    strange = np.zeros(len(rows), bool)
    for ranks in rows.num_gpus.unique():
        group = (rows.num_gpus == ranks).to_numpy()
        some = rows[group]
        strange[group] = disturbed(some.bytes.to_numpy(float), some.time_s.to_numpy(float))
    rows = rows[~strange]
    size, members, seconds = (rows[one].to_numpy(float) for one in ("bytes", "num_gpus", "time_s"))
    ranks = tuple(sorted(set(members.tolist())))
    port = system.networks[0].bandwidth

    def times(constants: Array) -> Seconds:
        *steps, share = constants.tolist()
        latency = LatencyByRanks(ranks, tuple(np.cumsum(steps).tolist()))
        result: Seconds = SmallReduce(latency=latency, efficiency=share).time(size, members, port)
        return result

    kept = held_out(pd.DataFrame({"op": rows.op, "bytes": np.log2(rows.bytes).round().astype(int)}))
    unknowns = [_LATENCY, *([_MORE] * (len(ranks) - 1)), _SHARE]
    *steps, share = _solved(times, unknowns, seconds, ~kept)
    share = rounded(share, _DIGITS)
    latencies = [rounded(one, _DIGITS) for one in np.cumsum(steps).tolist()]
    used = ", ".join(sorted(rows.source.unique()))
    text = f"fitted to {len(rows)} all-reduces up to 4 MiB in CUDA graphs, systems/measured/collectives.csv: {used}"
    if strange.any():
        count = int(strange.sum())
        text += f"; {count} that took longer than two larger messages excluded"
    path = f"{PATH}.small_reduce.*"
    assumed = [] if name == gpu else [f"{path}: as {name}, which has the same links"]
    stated = {"latency": [list(pair) for pair in zip(map(int, ranks), latencies, strict=True)]}
    constants = np.array([*np.diff(latencies, prepend=0.0), share])
    return (
        {"small_reduce": stated | {"efficiency": share}},
        {path: text},
        assumed,
        _rows("serving, all-reduce up to 4 MiB", seconds, times(constants), kept),
    )


# -- small kernels ----------------------------------------------------------------------------------------------------


def _floor(table: pd.DataFrame, gpu: str, _: System) -> KernelFit | None:
    own = table[(table.gpu == gpu) & (table.what == FLOOR)].time_s
    if own.empty:
        return None
    stated = {"vector_floor": rounded(float(own.iloc[0]), _DIGITS)}
    source = f"{FLOOR} (systems/measured/launches.csv)"
    return stated, {f"{PATH}.vector_floor": source}, [], _rows("", _NOTHING, _NOTHING, _NOTHING)


# -- all of them ------------------------------------------------------------------------------------------------------


def _solved(
    law_of: Callable[[Array], Seconds], unknowns: Sequence[Unknown], seconds: Seconds, used: Array
) -> list[float]:
    """Return the constants by robust least squares of log times."""
    start, low, high = np.log(np.array(unknowns, dtype=float).T)

    def errors(at: Array) -> Array:
        result: Array = np.log(law_of(np.exp(at)) / seconds)[used]
        return result

    at = least_squares(errors, start, bounds=(low, high), loss="soft_l1", f_scale=_SCALE).x
    result: list[float] = np.exp(at).tolist()
    return result


def _rows(group: str, measured: Seconds, predicted: Seconds, kept: Array) -> pd.DataFrame:
    columns = {"measured": measured, "predicted": predicted, "held_out": kept}
    return pd.DataFrame({"group": [group] * len(measured)} | columns)
