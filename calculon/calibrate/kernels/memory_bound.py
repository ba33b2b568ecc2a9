"""Rates of memory-bound kernels, fitted to measured kernels by the traffic of each implementation.

The tables count the minimum traffic of an operation. Implementations move more: a framework that runs operators one by
one reads and writes every intermediate value, and a row that does not fit on chip is read twice.
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
    "B300": 126e6,
    "GB300": 126e6,
    "L40S": 96e6,
}
"""Bytes of the L2 cache by the first word of a processor's name. Source: NVIDIA's architecture whitepapers."""

_BLACKWELL = {"B200-SXM-180GB": 8000e9, "GB200": 8000e9}

SIBLINGS = {
    "A100-SXM4-80GB": {"A100-PCIe-80GB": 1935e9},
    "B200-SXM-180GB": {"GB200": 8000e9},
    **dict.fromkeys(("GB200", "GB300", "B300-SXM-288GB"), _BLACKWELL),
}
"""Processors with the same chip and memory, and their datasheet bandwidth: kernels reach the same share of it."""

CACHES, HOST_CACHES = 3, 6
"""Minimum traffic, in multiples of the L2 cache, of rows that are fitted.

Above it cached and dirty lines matter little. Passes that a host launches one by one (through autograd, or in
NeuSight's timer) need more traffic, so that their launches matter little too.
"""

STARTS = np.arange(0.0, 8.1e-6, 0.25e-6)
"""Candidate start times of a kernel in seconds; a longer one would describe a slow kernel and not all of them."""

MOST = 0.95
"""Largest share of the bandwidth that a kernel may reach: the best measured copy reaches 0.93."""

_GRAPHS, _GRAPH_CACHES, _FEW = "aic-", 1, 5
"""Source prefix of kernels timed in CUDA graphs, without gaps. If there are a few, short ones determine the start."""


class Passes(NamedTuple):
    """Traffic per element of the result: values of the operand's type, extra bytes, and the number of kernels."""

    values: float
    more: float = 0.0
    kernels: int = 1


class Implementation(NamedTuple):
    """Traffic of one implementation of an operation; `kind` is a kind of ``ext.kernels``, or ``memory`` for all others.

    A pass that is None is left out of the fit. `short` replaces `forward` for rows of up to :data:`SHORT` bytes.
    """

    kind: str
    forward: Passes | None
    backward: Passes | None = None
    short: Passes | None = None


def _plain(forward: float) -> Implementation:
    return Implementation("memory", Passes(forward))


SHORT = 8192
"""Bytes of a row that stays in the L1 cache between two reads: 16 blocks of 128 threads share 192 KiB on an A100."""

_TORCH_NORM = Implementation("norm", Passes(3), Passes(7, kernels=3), short=Passes(2))
"""PyTorch's kernel reads a row twice, once for its sums; backward reads both inputs twice, once for the weights."""

_FUSED_NORM = Implementation("norm", Passes(2), Passes(5, kernels=2))
"""A row is read once; the weight gradient is a sum over tokens that reads both inputs again."""

_LIGER_NORM = Implementation("norm", Passes(2))
"""Only forward: the backward pass runs one program per multiprocessor, which is bound by latency, not bandwidth."""

_ONCE_NORM = Implementation("norm", Passes(2), Passes(3, kernels=2))
"""As above, but the kernel that already holds both inputs makes the partial sums for the weights."""

_TORCH_LOSS = Implementation("loss", Passes(0, 16), Passes(0, 20, kernels=3))
"""Log-softmax of long rows reads three times and writes; backward zeroes, reads gradient and result, and writes."""

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
    # These backward passes begin with a sum over the result, whose gradient is written: 2 values more.
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
"""Traffic by operation and implementation of the table. Left out are inference kernels (vLLM's norms and activations),
TorchScript, PyTorch's SwiGLU of the halves of one tensor (not contiguous, so half the rate), Liger's loss per token,
and Liger's product with the gradient of the loss, which is 1 in training.

Sources: PyTorch's kernels (aten/src/ATen/native/cuda, layer_norm_kernel.cu and SoftMax.cu), the benchmark scripts and
norms of linkedin/Liger-Kernel (benchmark/scripts, src/liger_kernel/ops/layer_norm.py: a grid of ``sm_count``),
megatron/core/tensor_parallel/cross_entropy.py.
"""

_FLOAT_INPUTS = ("cross_entropy",)
"""Operations of Liger's table whose inputs are created without a type, hence in 4 bytes, whatever the table says."""

_FORWARD_TOO = "megatron_"
"""Prefix of operations whose ``bwd`` rows include the forward pass, by their scripts: they repeat the other rows."""


def fit(tables: Mapping[str, pd.DataFrame], gpu: str, system: System) -> FittedPart | None:
    """Fit the start and the bandwidth shares of a processor's memory-bound kernels; None without rows.

    All kernels share one start, found if some were timed without gaps. Shares are medians over the fitted rows;
    backward shares come second, because many rows time both passes and the forward time must be subtracted.
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
            "ext.traffic.start, ext.kernels.*.start: time of the smallest kernel in a CUDA graph (launches.csv)"
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
    """Yield the usable rows, with the seconds of their passes at full bandwidth and the number of kernels."""
    for row in table.to_dict("records"):
        moves = IMPLEMENTATIONS.get((row["op"], row["impl"]))
        if moves is None or row["gpu"] not in bandwidths:
            continue
        forward, backward = row["pass"] != "bwd", row["pass"] != "fwd"
        if backward and (not forward and row["op"].startswith(_FORWARD_TOO)):
            continue
        liger = row["source"].startswith("liger")
        width = 4 if liger and row["op"] in _FLOAT_INPUTS else BYTES[row["dtype"]]
        first = moves.short if moves.short and row["cols"] * width <= SHORT else moves.forward
        timed = [first] * forward + [moves.backward] * backward
        passes = [one for one in timed if one is not None]
        if len(passes) < len(timed):
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
            "kind": moves.kind,
            "forward": ideal[0] if forward else 0.0,
            "backward": ideal[-1] if backward else 0.0,
            "kernels": sum(one.kernels for one in passes),
            "graph": graph,
            "hosted": hosted,
            "measured": row["time_s"],
        }


def _start(rows: pd.DataFrame) -> float | None:
    """Return the start with the least error, with the best share of each kind; None without kernels in CUDA graphs."""
    if rows["graph"].sum() < _FEW:
        return None
    rows = rows[~rows["hosted"]]
    errors = [_error(rows, start) for start in STARTS]
    return float(STARTS[int(np.argmin(errors))])


def _error(rows: pd.DataFrame, start: float) -> float:
    """Return the mean over kinds of the log error, with the best shares of each kind for a given start."""
    errors = []
    for _, some in rows.groupby("kind"):
        shares = _shares(some, start)
        found = np.array([_predicted(row, *shares, start) for row in some.itertuples()])
        errors.append(np.abs(np.log(found / some["measured"])).mean())
    return float(np.mean(errors))


def _least(launches: pd.DataFrame, gpu: str) -> float:
    """Return the time of a processor's smallest kernel in a CUDA graph; 0 if there is none."""
    small = launches["what"].str.startswith("smallest") & ~launches["what"].str.contains(
        "all-reduce"
    )
    times = launches["time_s"][small & (launches["gpu"] == gpu)]
    return float(times.min()) if len(times) else 0.0


def _shares(rows: pd.DataFrame, start: float) -> tuple[float, float]:
    """Return the shares of the bandwidth of forward and backward passes."""
    rest = rows["measured"] - start * rows["kernels"]
    alone = rows["backward"] == 0
    forward = _share((rows["forward"] / rest)[alone].to_numpy())
    with_backward = rest - rows["forward"] / (forward or 1.0)
    backward = _share((rows["backward"] / with_backward)[~alone].to_numpy())
    forward = forward or backward
    return forward, backward or forward


def _share(shares: Array) -> float:
    """Return the median as a share of a peak; 0 if there is none."""
    return round(min(MOST, float(np.median(shares))), 3) if shares.size else 0.0


def _predicted(row: Any, forward: float, backward: float, start: float) -> float:
    return float(start * row.kernels + row.forward / forward + row.backward / backward)


def _fragment(rates: Mapping[str, tuple[float, float]], start: float) -> dict[str, Any]:
    """Return the fields under ``ext`` of a system file."""
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
    """Return the sources of the shares by path."""
    result = {}
    for kind, rows in measured.groupby("kind", sort=False):
        path = "ext.traffic.*" if kind == "memory" else f"ext.kernels.{kind}.*"
        names = ", ".join(sorted(set(rows["source"])))
        more = " and kernels of the same chip" if gpu in SIBLINGS else ""
        result[path] = (
            f"median over {len(rows)} measured kernels of {gpu}{more} (systems/measured/memory_bound.csv: {names}), "
            "using the bytes that each implementation moves"
        )
    return result
