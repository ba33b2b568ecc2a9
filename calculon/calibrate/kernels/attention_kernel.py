"""One fused-attention kernel: its measured passes as layers, and its constants fitted to them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from calculon.architecture.layer import Flags, Layer
from calculon.architecture.layers import flash_attention
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Seconds
from calculon.calibrate.steps import rounded
from calculon.declarations.named_values import ATTENTION_KERNELS
from calculon.hardware.kernels.kernel import Shapes
from calculon.hardware.kernels.laws import (
    QUERY_TILE,
    AttentionKernel,
    AttentionPass,
    FusedAttention,
    Widths,
)
from calculon.hardware.processor import Engine
from calculon.hardware.system import System

OLDER: Mapping[str, Mapping[float, tuple[float, float]]] = {
    "flash1": {64.0: (1.7, 1.7), 128.0: (2.8, 2.8)},
    "triton": {64.0: (1.5, 1.95), 128.0: (1.5, 1.95)},
}
"""Speedup of FlashAttention-2 over older kernels, forward and backward, by head width.

Source: Dao, arXiv 2307.08691, section 4.1: both passes together 1.7 to 3.0 times as fast as FlashAttention, 1.3 to 2.5
times as fast as FlashAttention in Triton. By width as read in its figure 4 (73 against 203 TFLOP/s at 128, about 5 %).
Triton: 0.37 of the peak forward and 0.25 backward with 4,096 keys at width 64 (its regression test of 2023, an A100).
"""

SAG_TIME = 0.03
"""Seconds of repeated calls after which the clock has fallen half-way; of 3 to 100 ms, 30 ms fit an H100 best."""

_FEW_RUNS, _RUNS = "aic-", (9, 30)
"""Calls per measurement: aiconfigurator (3 to warm up, 6 timed), and other benchmarks."""

FEW_WAVES = 4
"""Tiles per multiprocessor below which the tail and the start of a kernel show in its time."""

_PRIOR = 0.03
"""Weight of the prior of a constant; any measured row that depends on the constant outweighs it."""

_TIE = 0.3
"""Weight of equal forward and backward shares, which rows that time both passes together cannot separate."""

_SHARE, _LEAD, _CAUSAL, _SUSTAINED, _TAIL, _START = 0.5, 50.0, 100.0, 0.9, 1.0, 5e-6
DIGITS = 3
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
        dtype_bytes=1.0 if (rows.dtype == "fp8").all() else 2.0,
        flags=Flags(),
    )


def _passes(layer: Layer, count: int) -> tuple[list[Array], list[Array]]:
    """Return FLOP and bytes of each pass of a layer as columns."""
    whole = np.ones(count)
    return [one * whole for one in layer.flops], [one * whole for one in layer.accessed]


def _third(passes: Array) -> Array:
    """Append the empty third pass: attention has no weight gradient."""
    return np.concatenate([passes, np.zeros_like(passes[:1])])


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
    name: str,
    measured: Kernels,
    used: Array,
    system: System,
    engine: Engine,
    multiprocessors: int,
    known: tuple[float, float, float] | None,
) -> AttentionKernel:
    """Fit the constants of one kernel by robust least squares of log times.

    Args:
        name: Name of the kernel, which determines the head widths that it pads.
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
        law = law_of(name, form.kernel(at), multiprocessors)
        off = np.log(rows.times(law, system, engine) / seconds)
        return np.concatenate([off, _PRIOR * (at - prior), _TIE * form.tied(at)])

    high = np.full(len(prior), np.inf)
    shares = len(widths[0]) + len(widths[1])
    high[:shares] = 0.0  # logarithms: the shares are at most 1
    if known is None:
        high[shares + 4] = 0.0  # the sustained rate is at most 1
    bounds = (np.full(len(prior), -np.inf), high)
    found = least_squares(errors, prior, bounds=bounds, loss="soft_l1", f_scale=_HUBER)
    return _rising(form.kernel(found.x, DIGITS))


def law_of(name: str, kernel: AttentionKernel, multiprocessors: int) -> FusedAttention:
    """Return the law with a single kernel; serving kernels pad narrow values, like FlashAttention-2."""
    name = name if name in ATTENTION_KERNELS else "flash2"
    return FusedAttention(default=name, multiprocessors=multiprocessors, kernels={name: kernel})


def older(kernel: AttentionKernel, name: str) -> AttentionKernel:
    """Derive an older kernel of :data:`OLDER` from FlashAttention-2."""
    slower = OLDER[name]
    widths = list(slower)

    def one(which: AttentionPass, i: int) -> AttentionPass:
        shares = [
            rounded(width / float(which.shares.cost(np.array(width))) / slower[width][i], DIGITS)
            for width in widths
        ]
        return _pass(widths, shares, which.lead, which.causal_lead)

    return _rising(
        replace(kernel, forward=one(kernel.forward, 0), backward=one(kernel.backward, 1))
    )
