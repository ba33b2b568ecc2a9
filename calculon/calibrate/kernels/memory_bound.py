"""Rates of memory-bound kernels fitted to measured ones, by what each implementation moves.

The tables count the least traffic of an operation. What an implementation moves is more: a framework that runs
operators one by one reads and writes every value between them, and a row that does not fit on chip is read twice.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from calculon.base.units import Array
from calculon.calibrate.kernels.fitted_part import FittedPart, held_out
from calculon.hardware.system import System

BYTES = {"float8": 1, "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}

CACHE = {
    "A100": 40e6,
    "H100": 50e6,
    "H200": 50e6,
    "B200": 126e6,
    "GB200": 126e6,
    "L40S": 96e6,
}
"""Bytes of the L2 cache by the first word of a processor's name. Source: NVIDIA's architecture whitepapers."""

SIBLINGS = {"A100-SXM4-80GB": {"A100-PCIe-80GB": 1935e9}, "B200-SXM-180GB": {"GB200": 8000e9}}
"""Processors with the same chip and memory, and their bandwidth by datasheet: kernels reach the same share of it."""

CACHES, HOST_CACHES = 3, 6
"""Least traffic of a row that counts, in caches: what is left of the cache, or dirty in it, is then a small part; and
of passes that a host launches one by one (through autograd, or in NeuSight's timer), its launches too."""

STARTS = np.arange(0.0, 8.1e-6, 0.25e-6)
"""Seconds among which the start of a kernel is found; more is not that of all kernels, but of a slow one."""

MOST = 0.95
"""Largest share of the bandwidth that a kernel is taken to reach: the best copy measured reaches 0.93."""

_GRAPHS, _GRAPH_CACHES, _FEW = "aic-", 1, 5
"""Sources of kernels in CUDA graphs, without gaps: short ones tell the start, of some caches, if there are a few."""


class Passes(NamedTuple):
    """What kernels move per element of the result: values of the operand's type, more bytes, and how many kernels."""

    values: float
    more: float = 0.0
    kernels: int = 1


class Implementation(NamedTuple):
    """How one implementation runs an operation; `kind` is that of ``ext.kernels``, or ``memory`` for all others.

    Passes that are None are left out of the fit. `short` is `forward` for rows of up to :data:`SHORT` bytes, where it
    is another.
    """

    kind: str
    forward: Passes | None
    backward: Passes | None = None
    short: Passes | None = None


def _plain(forward: float) -> Implementation:
    return Implementation("memory", Passes(forward))


SHORT = 8192
"""Bytes of rows that stay in the L1 cache between two reads: 16 blocks of 128 threads share its 192 KiB on an A100."""

_TORCH_NORM = Implementation("norm", Passes(3), Passes(7, kernels=3), short=Passes(2))
"""PyTorch's kernel reads a row for its sums and once more; backward likewise both inputs, and again for the weights."""

_FUSED_NORM = Implementation("norm", Passes(2), Passes(5, kernels=2))
"""A row is read once; the gradient of the weights is a sum over tokens that reads both inputs again."""

_LIGER_NORM = Implementation("norm", Passes(2))
"""Backward it runs one program on each multiprocessor, which waits for its loads: no rate of the memory."""

_ONCE_NORM = Implementation("norm", Passes(2), Passes(3, kernels=2))
"""The same, with partial sums for the weights made in the kernel that has both inputs."""

_TORCH_LOSS = Implementation("loss", Passes(0, 16), Passes(0, 20, kernels=3))
"""Log-softmax of long rows reads three times and writes; backward: zeros, two reads of gradient and result, a write."""

IMPLEMENTATIONS: Mapping[tuple[str, str], Implementation] = {
    **{(op, "torch"): _plain(3) for op in ("add", "mul", "div")},
    ("add", "vllm"): _plain(3),
    **{(f"{op}_scalar", "torch"): _plain(2) for op in ("add", "mul", "div")},
    ("relu", "torch"): _plain(2),
    ("tanh", "torch"): _plain(2),
    ("quantize_fp8", "trtllm"): _plain(1.5),  # reads 2 bytes, writes 1
    **{
        (f"stream_{op}", block): _plain(values)
        for op, values in (("copy", 2), ("scale", 2), ("add", 3), ("triad", 3))
        for block in ("block128", "block256")
    },
    ("gelu", "torch"): Implementation("activation", Passes(2)),
    ("relu_squared", "liger"): Implementation("activation", Passes(2), Passes(3)),
    ("relu_squared", "torch"): Implementation(
        "activation", Passes(4, kernels=2), Passes(10, kernels=4)
    ),
    # the measured passes begin with a sum over the result, whose gradient is written
    ("megatron_swiglu", "liger"): Implementation("activation", Passes(3), Passes(5 + 2)),
    ("megatron_swiglu", "liger_in_place"): Implementation("activation", Passes(3), Passes(5 + 2)),
    ("softmax", "torch"): Implementation("softmax", Passes(2), Passes(3)),
    ("softmax", "liger_triton"): Implementation("softmax", Passes(2), Passes(3)),
    ("softmax", "liger_cutile"): Implementation("softmax", Passes(2), Passes(3)),
    **{("layer_norm", name): _TORCH_NORM for name in ("torch", "huggingface", "pytorch")},
    **{("rms_norm", name): _TORCH_NORM for name in ("torch", "pytorch")},
    **{
        (op, name): _LIGER_NORM
        for op in ("layer_norm", "rms_norm")
        for name in ("liger", "liger_triton", "liger_cutile")
    },
    **{(op, "torch_compile"): _FUSED_NORM for op in ("layer_norm", "rms_norm")},
    ("layer_norm", "cudnn"): _ONCE_NORM,
    ("rms_norm", "cudnn"): _ONCE_NORM,
    ("megatron_rms_norm", "liger"): _LIGER_NORM,
    ("megatron_rms_norm", "torch"): Implementation("norm", Passes(3), Passes(7 + 2, kernels=4)),
    ("megatron_rms_norm", "megatron"): Implementation("norm", Passes(3), Passes(7 + 2, kernels=4)),
    ("fused_add_rms_norm", "liger_fused_add_rms_norm"): Implementation("norm", Passes(4)),
    ("fused_add_rms_norm", "liger_rms_norm"): Implementation("norm", Passes(7, kernels=3)),
    ("fused_add_rms_norm", "huggingface"): Implementation(
        "norm", Passes(10, kernels=6), Passes(26, kernels=13)
    ),
    ("cross_entropy", "huggingface"): _TORCH_LOSS,
    ("cross_entropy", "torch"): _TORCH_LOSS,
    ("megatron_cross_entropy", "megatron-unfused"): Implementation(
        "loss", Passes(1, 4 + 32, kernels=6), Passes(1, 4 + 8, kernels=2)
    ),
    **{
        ("cross_entropy", name): Implementation("loss", Passes(3))
        for name in ("liger", "liger_triton", "liger_cutile", "liger_cutedsl")
    },
}
"""By operation and implementation of the table; others are left out: inference kernels (vLLM's norms and activations),
TorchScript, PyTorch's SwiGLU of the halves of one tensor (half the rate, as they are not contiguous), Liger's loss per
token, and Liger's product with the gradient of the loss, which is 1 in training.

Sources: PyTorch's kernels (aten/src/ATen/native/cuda, layer_norm_kernel.cu and SoftMax.cu), the benchmark scripts and
norms of linkedin/Liger-Kernel (benchmark/scripts, src/liger_kernel/ops/layer_norm.py: a grid of ``sm_count``),
megatron/core/tensor_parallel/cross_entropy.py.
"""

_FLOAT_INPUTS = ("cross_entropy",)
"""Operations of Liger's table whose inputs are made without a type, and so in 4 bytes, whatever the table says."""

_FORWARD_TOO = "megatron_"
"""Operations whose backward rows time the forward pass again, as their scripts say: the rows of both say the same."""


def fit(tables: Mapping[str, pd.DataFrame], gpu: str, system: System) -> FittedPart | None:
    """Fit start and shares of the bandwidth of a processor's memory-bound kernels; None without rows of it.

    The start is one for all kernels, found where some were timed without gaps between them. Shares are medians over the
    rows that are not held out, of backward passes after those of forward passes.
    """
    if "memory_bound" not in tables:
        return None
    bandwidths = {gpu: system.mem1.bandwidth, **SIBLINGS.get(gpu, {})}
    measured = pd.DataFrame(_counted(tables["memory_bound"], bandwidths))
    if measured.empty:
        return None
    measured["held_out"] = held_out(measured[["op", "rows", "cols"]])
    seen = measured[~measured["held_out"]]
    start = _start(seen)
    assumed = []
    if start is None:
        start = _least(tables["launches"], gpu)
        assumed = [
            "ext.traffic.start, ext.kernels.*.start: the smallest kernel in a CUDA graph (launches.csv)"
        ]
    rates = {}
    for kind, rows in seen.groupby("kind", sort=False):
        rates[str(kind)] = _shares(rows, start)
    predicted = [_predicted(row, *rates[str(row.kind)], start) for row in measured.itertuples()]
    measured = measured.assign(
        predicted=predicted,
        group="memory-bound, " + measured["kind"].replace("memory", "elementwise"),
    )
    return FittedPart(
        fragment={"ext": _fragment(rates, start)},
        sources=_sources(measured, gpu),
        assumed=assumed,
        rows=measured[["group", "measured", "predicted", "held_out"]],
    )


def _counted(table: pd.DataFrame, bandwidths: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """Yield the rows that count, with seconds of their passes at the whole bandwidth, and kernels."""
    for row in table.to_dict("records"):
        how = IMPLEMENTATIONS.get((row["op"], row["impl"]))
        if how is None or row["gpu"] not in bandwidths:
            continue
        forward, backward = row["pass"] != "bwd", row["pass"] != "fwd"
        if backward and (not forward and row["op"].startswith(_FORWARD_TOO)):
            continue
        liger = row["source"].startswith("liger")
        width = 4 if liger and row["op"] in _FLOAT_INPUTS else BYTES[row["dtype"]]
        first = how.short if how.short and row["cols"] * width <= SHORT else how.forward
        wanted = [first] * forward + [how.backward] * backward
        passes = [one for one in wanted if one is not None]
        if len(passes) < len(wanted):
            continue
        elements = row["rows"] * row["cols"]
        moved = [elements * (width * one.values + one.more) for one in passes]
        graph = row["source"].startswith(_GRAPHS)
        hosted = (liger and backward) or row["source"].startswith("neusight")
        caches = _GRAPH_CACHES if graph else HOST_CACHES if hosted else CACHES
        if sum(moved) < CACHE[row["gpu"].split("-")[0]] * caches:
            continue
        ideal = [one / bandwidths[row["gpu"]] for one in moved]
        yield {
            **{name: row[name] for name in ("source", "op", "impl", "rows", "cols")},
            "kind": how.kind,
            "forward": ideal[0] if forward else 0.0,
            "backward": ideal[-1] if backward else 0.0,
            "kernels": sum(one.kernels for one in passes),
            "graph": graph,
            "hosted": hosted,
            "measured": row["time_s"],
        }


def _start(rows: pd.DataFrame) -> float | None:
    """Return the start with which a share by kind fits rows best; None where no kernels were timed in graphs."""
    if rows["graph"].sum() < _FEW:
        return None
    rows = rows[~rows["hosted"]]
    errors = [_error(rows, start) for start in STARTS]
    return float(STARTS[int(np.argmin(errors))])


def _error(rows: pd.DataFrame, start: float) -> float:
    """Return the error with a start and shares of their own: the mean of those of kinds."""
    errors = []
    for _, some in rows.groupby("kind"):
        shares = _shares(some, start)
        found = np.array([_predicted(row, *shares, start) for row in some.itertuples()])
        errors.append(np.abs(np.log(found / some["measured"])).mean())
    return float(np.mean(errors))


def _least(launches: pd.DataFrame, gpu: str) -> float:
    """Return the time of the smallest kernel of a processor in a CUDA graph; 0 where there is none."""
    small = launches["what"].str.startswith("smallest") & ~launches["what"].str.contains(
        "all-reduce"
    )
    times = launches["time_s"][small & (launches["gpu"] == gpu)]
    return float(times.min()) if len(times) else 0.0


def _shares(rows: pd.DataFrame, start: float) -> tuple[float, float]:
    """Return the shares of the bandwidth that forward and backward passes reach."""
    rest = rows["measured"] - start * rows["kernels"]
    alone = rows["backward"] == 0
    forward = _share((rows["forward"] / rest)[alone].to_numpy())
    with_backward = rest - rows["forward"] / (forward or 1.0)
    backward = _share((rows["backward"] / with_backward)[~alone].to_numpy())
    forward = forward or backward
    return forward, backward or forward


def _share(shares: Array) -> float:
    """Return the median as a share of a peak; 0 of none."""
    return round(min(MOST, float(np.median(shares))), 3) if shares.size else 0.0


def _predicted(row: Any, forward: float, backward: float, start: float) -> float:
    return float(start * row.kernels + row.forward / forward + row.backward / backward)


def _fragment(rates: Mapping[str, tuple[float, float]], start: float) -> dict[str, Any]:
    """Return what the system file states under ``ext``."""
    stated: dict[str, Any] = {}
    kernels: dict[str, Any] = {}
    for kind, (forward, backward) in rates.items():
        rate = {"efficiency": forward, "start": float(f"{start:.3g}")}
        if backward != forward:
            rate["backward"] = backward
        if kind == "memory":
            stated["traffic"] = rate
        else:
            kernels[kind] = {"any": {"law": "stream", **rate}}
    return stated | ({"kernels": kernels} if kernels else {})


def _sources(measured: pd.DataFrame, gpu: str) -> dict[str, str]:
    """Return where the shares come from, by path."""
    found = {}
    for kind, rows in measured.groupby("kind", sort=False):
        path = "ext.traffic.*" if kind == "memory" else f"ext.kernels.{kind}.*"
        names = ", ".join(sorted(set(rows["source"])))
        more = " and kernels of the same chip" if gpu in SIBLINGS else ""
        found[path] = (
            f"median over {len(rows)} measured kernels of {gpu}{more} (systems/measured/memory_bound.csv: {names}), "
            "by what each implementation moves"
        )
    return found
