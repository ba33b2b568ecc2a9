"""The law ``fused`` of attention kernels (FlashAttention, cuDNN; ``ext.kernels.attention``), fitted to measurements."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from calculon.architecture.layer import Flags, Layer
from calculon.architecture.layers import flash_attention
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Seconds
from calculon.calibrate.kernels.fitted_part import FittedPart, held_out
from calculon.calibrate.steps import rounded
from calculon.declarations.named_values import MATMUL_BYTES
from calculon.hardware.kernels.kernel import Shapes
from calculon.hardware.kernels.laws import (
    EXACT,
    QUERY_TILE,
    AttentionKernel,
    AttentionPass,
    FusedAttention,
    Widths,
)
from calculon.hardware.processor import Engine
from calculon.hardware.system import System

PATH = "ext.kernels.attention"


class Gpu(NamedTuple):
    """Facts about a processor that its system file does not state.

    Attributes:
        multiprocessors: Number of enabled multiprocessors.
        default: Kernel that runs unless an execution names one.
        why: Reason for the default.
        borrowed: By kernel, processors of the same architecture with their peak relative to this one's; their rows are
            used for passes and head widths that were not measured here.
    """

    multiprocessors: int
    default: str
    why: str
    borrowed: Mapping[str, Mapping[str, float]]


_PYTORCH = "FlashAttention-2, which PyTorch and Transformer Engine use on an A100"
_ENGINE = (
    "cuDNN, which Transformer Engine uses on Hopper and Blackwell; PyTorch uses FlashAttention-2"
)
_H100 = {name: {"H100-SXM5-80GB": 1.0} for name in ("flash2", "flash3", "cudnn")}

GPUS: Mapping[str, Gpu] = {
    "A100-SXM4-80GB": Gpu(108, "flash2", _PYTORCH, {}),
    "H100-SXM5-80GB": Gpu(132, "cudnn", _ENGINE, {}),
    "H200-SXM5-141GB": Gpu(132, "cudnn", _ENGINE, _H100),
    "B200-SXM-180GB": Gpu(148, "cudnn", _ENGINE, {"cudnn": {"GB200": 2500 / 2250}}),
}

NAMES: Mapping[str, Sequence[str]] = {
    "flash2": ("FA2", "FA2 (PyTorch SDPA)", "flash_attention"),
    "flash3": ("FA3", "fa3"),
    "cudnn": ("cudnn",),
    "trtllm": ("trtllm_mha",),
}
"""Kernel names in the table by our name. vLLM's kernels read a paged cache and TensorRT-LLM's chain does extra work."""

_SERVING = ("trtllm",)
"""Serving kernels without a backward pass, which provide the last three constants for kernels without small rows."""

OLDER: Mapping[str, Mapping[float, tuple[float, float]]] = {
    "flash1": {64.0: (1.7, 1.7), 128.0: (2.8, 2.8)},
    "triton": {64.0: (1.5, 1.95), 128.0: (1.5, 1.95)},
}
"""Speedup of FlashAttention-2 over older kernels, forward and backward, by head width.

Source: Dao, arXiv 2307.08691, section 4.1: both passes together 1.7 to 3.0 times as fast as FlashAttention, 1.3 to 2.5
times as fast as FlashAttention in Triton. By width as read in its figure 4 (73 against 203 TFLOP/s at 128, about 5 %).
Triton: 0.37 of the peak forward and 0.25 backward with 4,096 keys at width 64 (its regression test of 2023, an A100).
"""

_OLDER_SOURCES = {
    "flash1": "1.7 times at width 64 and 2.8 times at 128: 1.7 to 3.0 times in Dao 2023 (arXiv:2307.08691), section "
    "4.1, by width as read in its figure 4, about 5 %",
    "triton": "1.5 times forward and 1.95 times backward: 0.37 and 0.25 of the peak of an A100 at width 64 in "
    "python/test/regression/test_performance.py of triton-lang/triton, 2023; both passes 1.3 to 2.5 times in Dao 2023 "
    "(arXiv:2307.08691), section 4.1",
}

SAG_TIME = 0.03
"""Seconds of repeated calls after which the clock has fallen half-way; of 3 to 100 ms, 30 ms fit an H100 best."""

_FEW_RUNS, _RUNS = "aic-", (9, 30)
"""Calls per measurement: aiconfigurator (3 to warm up, 6 timed), and other benchmarks."""

FEW_WAVES = 4
"""Tiles per multiprocessor below which the tail and the start of a kernel show in its time."""

MIN_SMALL = 10
"""Rows with few tiles that a kernel needs so that its own tail and start are fitted."""

_MAX_HELD = 0.6
"""Held-out share of the rows of a pass and head width above which too few are left, so that none is held out."""

_PRIOR = 0.03
"""Weight of the prior of a constant; any measured row that depends on the constant outweighs it."""

_TIE = 0.3
"""Weight of equal forward and backward shares, which rows that time both passes together cannot separate."""

_SHARE, _LEAD, _CAUSAL, _SUSTAINED, _TAIL, _START = 0.5, 50.0, 100.0, 0.9, 1.0, 5e-6
_DIGITS = 3
_HUBER = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Kernels:
    """Measured passes of one kernel, as layers grouped by mask and head widths.

    Attributes:
        rows: Rows of the measured table.
        peaks: Peak of each processor relative to the system's.
        groups: Row indices of each group, its layer (whose sizes are columns), and the relative peak of its processor.
    """

    rows: pd.DataFrame
    peaks: Mapping[str, float]
    groups: tuple[tuple[Array, Layer, float], ...]

    @classmethod
    def of(cls, rows: pd.DataFrame, peaks: Mapping[str, float]) -> "Kernels":
        """Return the layers of rows; `peaks` is by processor."""
        rows = rows.reset_index(drop=True)
        alike: Any = rows.groupby(["dim_qk", "dim_v", "causal", "gpu"])
        groups = tuple(
            (found.index.to_numpy(), _layer(found, (width, value), bool(causal)), peaks[gpu])
            for (width, value, causal, gpu), found in alike
        )
        return cls(rows, peaks, groups)

    def times(self, law: FusedAttention, system: System, engine: Engine) -> Seconds:
        """Return the times of the rows, of one pass or combined, at the clock rate of their measurement."""
        result, sustained = np.zeros(len(self.rows)), law.kernels[law.default].sustained
        runs = np.where(self.rows.source.str.startswith(_FEW_RUNS), *_RUNS)
        passes = self.rows["pass"].to_numpy()
        for rows, layer, peak in self.groups:
            flops, accessed = (np.array(one)[:2, None] for one in _passes(layer, len(rows)))
            shapes = Shapes(_third(flops), _third(accessed), [layer], np.array([0]))
            faster = replace(engine, peak=engine.peak * peak)
            arithmetic, _ = law.times(shapes, faster, system.mem1, 2.0)
            arithmetic = arithmetic[:2, 0] * _burst(arithmetic[:2, 0], runs[rows], sustained)
            combined = system.combine(arithmetic, system.mem1.time(accessed[:, 0]))
            which = passes[rows]
            result[rows] = combined[0] * (which != "bwd") + combined[1] * (which != "fwd")
        return result

    def widths(self, which: str) -> list[float]:
        """Return the head widths of rows that time a pass, ``fwd`` or ``bwd``."""
        has = self.rows["pass"].isin([which, "fwd_bwd"])
        return sorted({float(width) for width in self.rows.dim_qk[has]})

    def few(self, multiprocessors: int) -> int:
        """Return the number of rows with few tiles."""
        rows = self.rows
        tiles = rows.batch * rows.heads_q * rows.seq_q / QUERY_TILE
        return int((tiles < FEW_WAVES * multiprocessors).sum())


def _burst(time: Seconds, runs: Array, sustained: float) -> Array:
    """Return the clock correction of a measurement: time of calls relative to the sustained rate.

    The clock falls while calls repeat: after :data:`SAG_TIME` it is half-way to the rate of continuous work.
    """
    lasts = time * runs
    result: Array = sustained * (1 + (1 / sustained - 1) * lasts / (lasts + SAG_TIME))
    return result


def _layer(rows: pd.DataFrame, widths: tuple[int, int], causal: bool) -> Layer:
    """Return a fused-attention layer with the sizes of rows; `widths` are the head widths of keys and values."""
    width, value = (int(one) for one in widths)
    sequences, heads, queries = (
        rows[name].to_numpy(float) for name in ("batch", "heads_q", "seq_q")
    )
    keys = rows.seq_kv.to_numpy(float)
    # A causal query attends to (keys + 1) / 2 keys on average, itself included.
    return flash_attention(
        "attention",
        sequences * queries,
        heads,
        rows.heads_kv.to_numpy(float),
        width,
        value_size=0 if value == width else value,
        keys=(keys + 1) / 2 if causal else keys,
        causal=causal,
        dtype_bytes=2.0,
        flags=Flags(),
    )


def _passes(layer: Layer, count: int) -> tuple[list[Array], list[Array]]:
    """Return FLOP and bytes of each pass of a layer as columns."""
    whole = np.ones(count)
    return [one * whole for one in layer.flops], [one * whole for one in layer.accessed]


def _third(passes: Array) -> Array:
    """Append the empty third pass: attention has no weight gradient."""
    return np.concatenate([passes, np.zeros_like(passes[:1])])


# -- the fit of one kernel --------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """Coordinates of a kernel's constants: head widths of both passes, and the last three constants if known."""

    forward: Sequence[float]
    backward: Sequence[float]
    known: tuple[float, float, float] | None

    def prior(self) -> Array:
        """Return the log constants assumed in the absence of measurements."""
        shares = [_SHARE] * (len(self.forward) + len(self.backward))
        small = [] if self.known else [_SUSTAINED, _TAIL, _START]
        return np.log([*shares, _LEAD, _CAUSAL, _LEAD, _CAUSAL, *small])

    def tied(self, at: Array) -> Array:
        """Return the log difference between the forward and backward share of each common head width."""
        forward, backward = at[: len(self.forward)], at[len(self.forward) :]
        pairs = [
            forward[i] - backward[j]
            for i, one in enumerate(self.forward)
            for j, other in enumerate(self.backward)
            if one == other
        ]
        return np.array(pairs)

    def kernel(self, at: Array, digits: int = 0) -> AttentionKernel:
        """Return the kernel at given coordinates, with constants rounded to `digits` unless 0."""
        values = [rounded(one, digits) if digits else one for one in np.exp(at).tolist()]
        forward, rest = values[: len(self.forward)], values[len(self.forward) :]
        backward, rest = rest[: len(self.backward)], rest[len(self.backward) :]
        sustained, tail, start = self.known or rest[4:]
        return AttentionKernel(
            forward=_pass(self.forward, forward, rest[0], rest[1]),
            backward=_pass(self.backward, backward, rest[2], rest[3]),
            tail=tail,
            start=start,
            sustained=sustained,
        )


def _pass(
    widths: Sequence[float], shares: Sequence[float], lead: float, causal: float
) -> AttentionPass:
    costs = tuple(width / share for width, share in zip(widths, shares, strict=True))
    return AttentionPass(shares=Widths(tuple(widths), costs), lead=lead, causal_lead=causal)


def _rising(kernel: AttentionKernel) -> AttentionKernel:
    """Return a kernel in which a wider head never takes less time, as system files require."""

    def one(which: AttentionPass) -> AttentionPass:
        costs = tuple(np.maximum.accumulate(which.shares.costs).tolist())
        return replace(which, shares=Widths(which.shares.widths, costs))

    return replace(kernel, forward=one(kernel.forward), backward=one(kernel.backward))


def fit_kernel(
    measured: Kernels,
    used: Array,
    system: System,
    engine: Engine,
    multiprocessors: int,
    known: tuple[float, float, float] | None,
) -> AttentionKernel:
    """Fit the constants of one kernel by robust least squares of log times.

    Args:
        measured: Rows of the kernel.
        used: Mask of the rows that are not held out.
        system, engine: Memory, processing mode and peak, which are not fitted.
        multiprocessors: Multiprocessors over which tiles are spread.
        known: Sustained rate, tail and start to use if too few rows are small enough to determine them.
    """
    widths = [measured.widths(one) or measured.widths("fwd") for one in ("fwd", "bwd")]
    form = Form(widths[0], widths[1], known)
    prior = form.prior()
    rows = Kernels.of(measured.rows[used], measured.peaks)
    seconds = rows.rows.time_s.to_numpy()

    def errors(at: Array) -> Array:
        law = _law(form.kernel(at), multiprocessors)
        off = np.log(rows.times(law, system, engine) / seconds)
        return np.concatenate([off, _PRIOR * (at - prior), _TIE * form.tied(at)])

    high = np.full(len(prior), np.inf)
    shares = len(widths[0]) + len(widths[1])
    high[:shares] = 0.0  # logarithms: the shares are at most 1
    if known is None:
        high[shares + 4] = 0.0  # the sustained rate is at most 1
    bounds = (np.full(len(prior), -np.inf), high)
    found = least_squares(errors, prior, bounds=bounds, loss="soft_l1", f_scale=_HUBER)
    return _rising(form.kernel(found.x, _DIGITS))


def _law(kernel: AttentionKernel, multiprocessors: int) -> FusedAttention:
    return FusedAttention(
        default="flash2", multiprocessors=multiprocessors, kernels={"flash2": kernel}
    )


def older(kernel: AttentionKernel, name: str) -> AttentionKernel:
    """Derive an older kernel of :data:`OLDER` from FlashAttention-2."""
    slower = OLDER[name]
    widths = list(slower)

    def one(which: AttentionPass, i: int) -> AttentionPass:
        shares = [
            rounded(width / float(which.shares.cost(np.array(width))) / slower[width][i], _DIGITS)
            for width in widths
        ]
        return _pass(widths, shares, which.lead, which.causal_lead)

    return _rising(
        replace(kernel, forward=one(kernel.forward, 0), backward=one(kernel.backward, 1))
    )


# -- the fit of a processor -------------------------------------------------------------------------------------------


def fit(tables: Mapping[str, pd.DataFrame], gpu: str, system: System) -> FittedPart | None:
    """Fit the fused-attention kernels of a processor.

    Args:
        tables: Measured kernels by table name; only ``attention`` is used.
        gpu: Name of the processor in the tables.
        system: Memory, processing mode and bfloat16 peak, which are not fitted.

    Returns:
        The fitted part; None without rows of this processor.
    """
    about, table = GPUS.get(gpu), tables.get("attention")
    if about is None or table is None:
        return None
    engine = system.product_engine("bfloat16")
    measured = {name: _measured(table, gpu, name, about) for name in NAMES}
    measured = {name: rows for name, rows in measured.items() if len(rows.rows)}
    kept = {name: _held_out(rows.rows) for name, rows in measured.items()}
    run = partial(_run, measured, kept, system, engine, about)
    few = {name: rows.few(about.multiprocessors) for name, rows in measured.items()}
    # Kernels with the most small rows come first: the first fit lends its last three constants to kernels without.
    order = sorted(measured, key=lambda name: -few[name])
    kernels: dict[str, AttentionKernel] = {}
    first: tuple[float, float, float] | None = None
    for name in order:
        enough = few[name] >= MIN_SMALL
        kernels[name] = run(name, None if enough or first is None else first)
        fitted = kernels[name]
        first = first or (fitted.sustained, fitted.tail, fitted.start)
    rows = pd.concat(
        [
            _compared(name, measured[name], kept[name], kernels[name], system, engine, about)
            for name in measured
        ],
        ignore_index=True,
    )
    narrow = {name: _narrow(table, gpu, name, about) for name in EXACT if name in kernels}
    for name, of_name in narrow.items():
        kernels[name] = filled(kernels[name], name, of_name, system, engine, about.multiprocessors)
    for name in _SERVING:
        kernels.pop(name, None)
    if "flash2" in kernels:
        kernels |= {name: older(kernels["flash2"], name) for name in OLDER}
    return FittedPart(
        _fragment(kernels, about, system),
        _sources(measured, kernels) | _sources_of_filled(narrow, kernels),
        _assumed(gpu, system, kernels, few),
        rows,
    )


def _rows(table: pd.DataFrame, name: str, gpus: Iterable[str]) -> pd.DataFrame:
    """Return the prefill and training rows of a kernel in 16 bits."""
    return table[
        table.kernel.isin(NAMES[name])
        & table.gpu.isin(list(gpus))
        & table["pass"].isin(["fwd", "bwd", "fwd_bwd"])
        & table.dtype.isin(["bfloat16", "float16"])
    ]


def _narrow(table: pd.DataFrame, gpu: str, name: str, about: Gpu) -> Kernels:
    """Return the rows of a kernel whose value heads are narrower than its query heads (MLA), each of one pass."""
    peaks = {gpu: 1.0, **about.borrowed.get(name, {})}
    rows = _rows(table, name, peaks)
    return Kernels.of(rows[(rows.dim_v < rows.dim_qk) & (rows["pass"] != "fwd_bwd")], peaks)


def filled(
    kernel: AttentionKernel,
    name: str,
    rows: Kernels,
    system: System,
    engine: Engine,
    multiprocessors: int,
) -> AttentionKernel:
    """Return the kernel with value padding enabled in each pass if that fits the rows of the pass better."""
    for of_row, of_kernel in (("fwd", "forward"), ("bwd", "backward")):
        some = Kernels.of(rows.rows[rows.rows["pass"] == of_row], rows.peaks)
        if not len(some.rows):
            continue
        one = getattr(kernel, of_kernel)
        both = [replace(kernel, **{of_kernel: replace(one, fills_values=x)}) for x in (False, True)]
        off = []
        for each in both:
            law = FusedAttention(
                default=name, multiprocessors=multiprocessors, kernels={name: each}
            )
            predicted = some.times(law, system, engine)
            off.append(float(np.median(np.abs(np.log(predicted / some.rows.time_s.to_numpy())))))
        kernel = both[int(off[1] < off[0])]
    return kernel


def _measured(table: pd.DataFrame, gpu: str, name: str, about: Gpu) -> Kernels:
    """Return the prefill and training rows of a kernel in 16 bits with equal head widths of keys and values."""
    peaks = {gpu: 1.0, **about.borrowed.get(name, {})}
    rows = _rows(table, name, peaks)
    rows = rows[rows.dim_qk == rows.dim_v]
    # Rows of other processors only fill gaps: passes and head widths that this processor was not measured at.
    own, what = rows.gpu == gpu, rows["pass"] + rows.dim_qk.astype(str)
    rows = rows[own | ~what.isin(set(what[own]))]
    return Kernels.of(rows, peaks)


def _held_out(rows: pd.DataFrame) -> Array:
    """Return a mask of held-out rows, chosen by shape; head widths that would keep too few rows hold out none."""
    found = held_out(rows[["heads_q", "heads_kv", "dim_qk", "dim_v", "seq_kv"]])
    share = pd.Series(found).groupby([rows["pass"], rows.dim_qk], sort=False).transform("mean")
    kept: Array = found & (share < _MAX_HELD).to_numpy()
    return kept


def _run(
    measured: Mapping[str, Kernels],
    kept: Mapping[str, Array],
    system: System,
    engine: Engine,
    about: Gpu,
    name: str,
    known: tuple[float, float, float] | None,
) -> AttentionKernel:
    one = measured[name]
    return fit_kernel(one, ~kept[name], system, engine, about.multiprocessors, known)


def _compared(
    name: str,
    measured: Kernels,
    kept: Array,
    kernel: AttentionKernel,
    system: System,
    engine: Engine,
    about: Gpu,
) -> pd.DataFrame:
    """Return measured and predicted times of a kernel."""
    words = {"fwd": "forward", "bwd": "backward", "fwd_bwd": "both passes"}
    predicted = measured.times(_law(kernel, about.multiprocessors), system, engine)
    return pd.DataFrame(
        {
            "group": [f"attention, {name}, {words[which]}" for which in measured.rows["pass"]],
            "measured": measured.rows.time_s.to_numpy(),
            "predicted": predicted,
            "held_out": kept,
        }
    )


def _fragment(kernels: Mapping[str, AttentionKernel], about: Gpu, system: System) -> dict[str, Any]:
    """Return the law by type; 8-bit types run at the 16-bit rate, so their share of the higher peak is lower."""
    peak = system.product_engine("bfloat16").peak
    by_type = {}
    for name in system.matmul_types:
        if MATMUL_BYTES[name] > 2:
            continue
        relative_peak = system.product_engine(name).peak / peak
        by_type[name] = {
            "law": "fused",
            "default": about.default,
            "multiprocessors": about.multiprocessors,
            "kernels": {one: _constants(kernels[one], relative_peak) for one in sorted(kernels)},
        }
    return {"ext": {"kernels": {"attention": by_type}}}


def _constants(kernel: AttentionKernel, relative_peak: float) -> dict[str, Any]:
    return {
        "forward": _of_pass(kernel.forward, relative_peak),
        "backward": _of_pass(kernel.backward, relative_peak),
        "tail": kernel.tail,
        "start": kernel.start,
        "sustained": kernel.sustained,
    }


def _of_pass(attention_pass: AttentionPass, relative_peak: float) -> dict[str, Any]:
    pairs = zip(attention_pass.shares.widths, attention_pass.shares.costs, strict=True)
    found = {
        "shares": [
            [int(width), rounded(width / cost / relative_peak, _DIGITS)] for width, cost in pairs
        ],
        "lead": attention_pass.lead,
        "causal_lead": attention_pass.causal_lead,
    }
    return found | ({"fills_values": True} if attention_pass.fills_values else {})


def _sources_of_filled(
    narrow: Mapping[str, Kernels], kernels: Mapping[str, AttentionKernel]
) -> dict[str, str]:
    """Return the sources of value padding: the rows that show it."""
    result = {}
    for name, of_name in narrow.items():
        for of_row, of_kernel in (("fwd", "forward"), ("bwd", "backward")):
            rows = of_name.rows[of_name.rows["pass"] == of_row]
            if len(rows) and getattr(kernels[name], of_kernel).fills_values:
                names = ", ".join(sorted(set(rows.source)))
                result[f"{PATH}.*.kernels.{name}.{of_kernel}.fills_values"] = (
                    f"closer to {len(rows)} measured kernels of systems/measured/attention.csv: {names}"
                )
    return result


def _sources(
    measured: Mapping[str, Kernels], kernels: Mapping[str, AttentionKernel]
) -> dict[str, str]:
    """Return the sources of each kernel's constants."""
    result = {
        f"{PATH}.*.law": "Dao 2023, arXiv:2307.08691, sections 3.1 and 3.2: tiles of queries over multiprocessors",
        f"{PATH}.*.multiprocessors": "NVIDIA's whitepaper or datasheet of the architecture: enabled multiprocessors",
    }
    for name in sorted(kernels):
        if name in OLDER:
            text = f"flash2 slowed down {_OLDER_SOURCES[name]}"
        else:
            rows = measured[name].rows
            names = ", ".join(sorted(set(rows.source)))
            text = (
                f"fitted to {len(rows)} measured kernels of systems/measured/attention.csv: {names}"
            )
        result[f"{PATH}.*.kernels.{name}.*"] = text
    return result


def _assumed(
    gpu: str, system: System, kernels: Mapping[str, AttentionKernel], few: Mapping[str, int]
) -> list[str]:
    """Return the assumptions that no measurement supports."""
    result = [f"{PATH}.*.default: {GPUS[gpu].why}"]
    if "float8" in system.matrix:
        text = "attention runs in 16 bits: half the share of twice the peak"
        result.append(f"{PATH}.float8.*: {text}")
    if lent := [name for name in sorted(kernels) if few.get(name, 0) < MIN_SMALL]:
        names = ", ".join(lent)
        text = f"for {names}, as the kernel that was measured with few tiles and short calls"
        result.append(f"{PATH}.*.tail, {PATH}.*.start, {PATH}.*.sustained: {text}")
    if "triton" in kernels and not gpu.startswith("A100"):
        text = "slower than flash2 by the same ratio as on an A100"
        result.append(f"{PATH}.*.flash1.*, {PATH}.*.triton.*: {text}")
    return result
