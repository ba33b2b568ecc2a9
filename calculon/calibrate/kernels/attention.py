"""The law ``fused`` (``ext.kernels.attention``), fitted to measured kernels of fused attention."""

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
    """What is known of a processor beside its system file.

    Attributes:
        multiprocessors: Multiprocessors that are enabled.
        default: The kernel that runs unless an execution names one.
        why: Why that.
        borrowed: By kernel, other processors of the same architecture, whose rows count for passes and head widths
            without rows of its own, and their peak beside this one's.
    """

    multiprocessors: int
    default: str
    why: str
    borrowed: Mapping[str, Mapping[str, float]]


_PYTORCH = "FlashAttention-2, which PyTorch and Transformer Engine run on an A100"
_ENGINE = "that of cuDNN, which Transformer Engine takes on Hopper and Blackwell; PyTorch runs FlashAttention-2"
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
"""Kernels of the table by our name; those of vLLM read a paged cache, and TensorRT-LLM's chain does more."""

_SERVING = ("trtllm",)
"""Kernels of serving, without a backward pass: they tell the last constants of those not measured with few tiles."""

OLDER: Mapping[str, Mapping[float, tuple[float, float]]] = {
    "flash1": {64.0: (1.7, 1.7), 128.0: (2.8, 2.8)},
    "triton": {64.0: (1.5, 1.95), 128.0: (1.5, 1.95)},
}
"""How many times as fast FlashAttention-2 is as older kernels, forward and backward, by head width.

Source: Dao, arXiv 2307.08691, section 4.1: both passes together 1.7 to 3.0 times as fast as FlashAttention, 1.3 to 2.5
times as fast as FlashAttention in Triton. By width as read in its figure 4 (73 against 203 TFLOP/s at 128, about 5 %).
Triton: 0.37 of the peak forward and 0.25 backward with 4,096 keys at width 64 (its regression test of 2023, an A100).
"""

_TOLD = {
    "flash1": "1.7 times at width 64 and 2.8 times at 128: 1.7 to 3.0 times in Dao 2023 (arXiv:2307.08691), section "
    "4.1, by width as read in its figure 4, about 5 %",
    "triton": "1.5 times forward and 1.95 times backward: 0.37 and 0.25 of the peak of an A100 at width 64 in "
    "python/test/regression/test_performance.py of triton-lang/triton, 2023; both passes 1.3 to 2.5 times in Dao 2023 "
    "(arXiv:2307.08691), section 4.1",
}

SAG_TIME = 0.03
"""Seconds of repeated calls after which half of the fall of the clock is there; of 3 to 100 ms it fits an H100 best."""

_FEW_RUNS, _RUNS = "aic-", (9, 30)
"""Calls of one measurement: those of aiconfigurator (3 to warm up, 6 timed), and usual ones of other benchmarks."""

FEW_WAVES = 4
"""Tiles of every multiprocessor below which a kernel's tail and start are seen."""

LEAST_SMALL = 10
"""Rows with so few tiles that a kernel needs for a tail and start of its own."""

_MOST_HELD = 0.6
"""Share of the rows of a pass and a head width beyond which they are too few to hold any out."""

_PRIOR = 0.03
"""Weight of the prior of a constant: little beside any measured row that depends on it."""

_TIE = 0.3
"""Weight of equal shares forward and backward, which rows of both passes together do not tell apart."""

_SHARE, _LEAD, _CAUSAL, _SUSTAINED, _TAIL, _START = 0.5, 50.0, 100.0, 0.9, 1.0, 5e-6
_DIGITS = 3
_HUBER = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Kernels:
    """Measured passes of one kernel: the layers that they are, in groups of one mask, and of widths that are equal.

    Attributes:
        rows: Of the measured table.
        peaks: Peak of each processor beside that of the system.
        groups: Rows of each group, its layer, whose sizes are columns, and its processor's peak.
    """

    rows: pd.DataFrame
    peaks: Mapping[str, float]
    groups: tuple[tuple[Array, Layer, float], ...]

    @classmethod
    def of(cls, rows: pd.DataFrame, peaks: Mapping[str, float]) -> "Kernels":
        """Return the layers of rows; peaks are by processor."""
        rows = rows.reset_index(drop=True)
        alike: Any = rows.groupby(["dim_qk", "dim_v", "causal", "gpu"])
        groups = tuple(
            (found.index.to_numpy(), _layer(found, (width, value), bool(causal)), peaks[gpu])
            for (width, value, causal, gpu), found in alike
        )
        return cls(rows, peaks, groups)

    def times(self, law: FusedAttention, system: System, engine: Engine) -> Seconds:
        """Return the times of the rows: of one pass, or of both, at the clock that they were measured at."""
        found, sustained = np.zeros(len(self.rows)), law.kernels[law.default].sustained
        runs = np.where(self.rows.source.str.startswith(_FEW_RUNS), *_RUNS)
        passes = self.rows["pass"].to_numpy()
        for rows, layer, peak in self.groups:
            flops, accessed = (np.array(one)[:2, None] for one in _passes(layer, len(rows)))
            shapes = Shapes(_third(flops), _third(accessed), [layer], np.array([0]))
            faster = replace(engine, peak=engine.peak * peak)
            arithmetic, _ = law.times(shapes, faster, system.mem1, 2.0)
            arithmetic = arithmetic[:2, 0] * _burst(arithmetic[:2, 0], runs[rows], sustained)
            both = system.combine(arithmetic, system.mem1.time(accessed[:, 0]))
            kind = passes[rows]
            found[rows] = both[0] * (kind != "bwd") + both[1] * (kind != "fwd")
        return found

    def widths(self, one: str) -> list[float]:
        """Return the head widths of rows with a pass, ``fwd`` or ``bwd``."""
        has = self.rows["pass"].isin([one, "fwd_bwd"])
        return sorted({float(width) for width in self.rows.dim_qk[has]})

    def few(self, multiprocessors: int) -> int:
        """Return the number of rows that have few tiles."""
        rows = self.rows
        tiles = rows.batch * rows.heads_q * rows.seq_q / QUERY_TILE
        return int((tiles < FEW_WAVES * multiprocessors).sum())


def _burst(time: Seconds, runs: Array, sustained: float) -> Array:
    """Return the time of calls at the clock of their measurement beside that of continuous work.

    The clock falls while they are repeated: with 30 ms half-way to that of continuous work.
    """
    lasts = time * runs
    found: Array = sustained * (1 + (1 / sustained - 1) * lasts / (lasts + SAG_TIME))
    return found


def _layer(rows: pd.DataFrame, widths: tuple[int, int], causal: bool) -> Layer:
    """Return a layer of fused attention whose sizes are those of rows; widths of keys and of values."""
    width, value = (int(one) for one in widths)
    sequences, heads, queries = (
        rows[name].to_numpy(float) for name in ("batch", "heads_q", "seq_q")
    )
    keys = rows.seq_kv.to_numpy(float)
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
    """Return FLOP and bytes of the passes of a layer as columns."""
    whole = np.ones(count)
    return [one * whole for one in layer.flops], [one * whole for one in layer.accessed]


def _third(passes: Array) -> Array:
    """Return the passes with the third one, which does nothing."""
    return np.concatenate([passes, np.zeros_like(passes[:1])])


# -- the fit of one kernel --------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """The constants of a kernel as coordinates: head widths of both passes; the last three if they are known."""

    forward: Sequence[float]
    backward: Sequence[float]
    known: tuple[float, float, float] | None

    def prior(self) -> Array:
        """Return logarithms of what constants are where no row tells."""
        shares = [_SHARE] * (len(self.forward) + len(self.backward))
        small = [] if self.known else [_SUSTAINED, _TAIL, _START]
        return np.log([*shares, _LEAD, _CAUSAL, _LEAD, _CAUSAL, *small])

    def tied(self, at: Array) -> Array:
        """Return by how much forward and backward shares of a width are apart, in logarithms."""
        forward, backward = at[: len(self.forward)], at[len(self.forward) :]
        pairs = [
            forward[i] - backward[j]
            for i, one in enumerate(self.forward)
            for j, other in enumerate(self.backward)
            if one == other
        ]
        return np.array(pairs)

    def kernel(self, at: Array, digits: int = 0) -> AttentionKernel:
        """Return the kernel at some coordinates, with rounded constants if asked."""
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
    """Return a kernel in which no wider head takes less time, as it must be in a system file."""

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
    """Fit the constants of one kernel by robust least squares of logarithms of times.

    Args:
        measured: Its rows.
        used: Rows that are not held out.
        system, engine: Memory, mode and peak are taken as they are.
        multiprocessors: Over which tiles are spread.
        known: Sustained rate, tail and start, where too few rows have few tiles and are short.
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
    high[:shares] = 0.0  # at most 1
    if known is None:
        high[shares + 4] = 0.0  # the sustained rate
    bounds = (np.full(len(prior), -np.inf), high)
    found = least_squares(errors, prior, bounds=bounds, loss="soft_l1", f_scale=_HUBER)
    return _rising(form.kernel(found.x, _DIGITS))


def _law(kernel: AttentionKernel, multiprocessors: int) -> FusedAttention:
    return FusedAttention(
        default="flash2", multiprocessors=multiprocessors, kernels={"flash2": kernel}
    )


def older(kernel: AttentionKernel, name: str) -> AttentionKernel:
    """Return an older kernel of :data:`OLDER` from FlashAttention-2."""
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
    """Fit the kernels of fused attention of a processor.

    Args:
        tables: Measured kernels by name of their table; ``attention`` is used.
        gpu: Name of the processor in the tables.
        system: Its memory, mode and peak in bfloat16 are taken as they are.

    Returns:
        None without rows of this processor.
    """
    about, table = GPUS.get(gpu), tables.get("attention")
    if about is None or table is None:
        return None
    engine = system.product_engine("bfloat16")
    measured = {name: _measured(table, gpu, name, about) for name in NAMES}
    measured = {name: one for name, one in measured.items() if len(one.rows)}
    kept = {name: _held_out(one.rows) for name, one in measured.items()}
    run = partial(_run, measured, kept, system, engine, about)
    few = {name: one.few(about.multiprocessors) for name, one in measured.items()}
    order = sorted(measured, key=lambda name: -few[name])
    kernels: dict[str, AttentionKernel] = {}
    first: tuple[float, float, float] | None = None
    for name in order:
        own = few[name] >= LEAST_SMALL
        kernels[name] = run(name, None if own or first is None else first)
        one = kernels[name]
        first = first or (one.sustained, one.tail, one.start)
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
    """Return the rows of a kernel in 16 bits, without decoding."""
    return table[
        table.kernel.isin(NAMES[name])
        & table.gpu.isin(list(gpus))
        & table["pass"].isin(["fwd", "bwd", "fwd_bwd"])
        & table.dtype.isin(["bfloat16", "float16"])
    ]


def _narrow(table: pd.DataFrame, gpu: str, name: str, about: Gpu) -> Kernels:
    """Return the rows of a kernel with values narrower than queries and keys, each of one pass."""
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
    """Return a kernel whose passes fill narrower values up where that is nearer to the rows of the pass."""
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
    """Return the rows of a kernel in 16 bits, without decoding, and with values as wide as keys."""
    peaks = {gpu: 1.0, **about.borrowed.get(name, {})}
    rows = _rows(table, name, peaks)
    rows = rows[rows.dim_qk == rows.dim_v]
    own, what = rows.gpu == gpu, rows["pass"] + rows.dim_qk.astype(str)
    rows = rows[own | ~what.isin(set(what[own]))]
    return Kernels.of(rows, peaks)


def _held_out(rows: pd.DataFrame) -> Array:
    """Return which rows are kept from the fit by their shape; where a head width would have none left, none of it."""
    found = held_out(rows[["heads_q", "heads_kv", "dim_qk", "dim_v", "seq_kv"]])
    share = pd.Series(found).groupby([rows["pass"], rows.dim_qk], sort=False).transform("mean")
    kept: Array = found & (share < _MOST_HELD).to_numpy()
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
    one: Kernels,
    kept: Array,
    kernel: AttentionKernel,
    system: System,
    engine: Engine,
    about: Gpu,
) -> pd.DataFrame:
    """Return the measured and predicted times of a kernel."""
    words = {"fwd": "forward", "bwd": "backward", "fwd_bwd": "both passes"}
    predicted = one.times(_law(kernel, about.multiprocessors), system, engine)
    return pd.DataFrame(
        {
            "group": [f"attention, {name}, {words[which]}" for which in one.rows["pass"]],
            "measured": one.rows.time_s.to_numpy(),
            "predicted": predicted,
            "held_out": kept,
        }
    )


def _fragment(kernels: Mapping[str, AttentionKernel], about: Gpu, system: System) -> dict[str, Any]:
    """Return the law for the types of 16 bits, and for 8 bits, which run at the same rate, half the share of a peak."""
    peak = system.product_engine("bfloat16").peak
    by_type = {}
    for name in system.matmul_types:
        if MATMUL_BYTES[name] > 2:
            continue
        beside = system.product_engine(name).peak / peak
        by_type[name] = {
            "law": "fused",
            "default": about.default,
            "multiprocessors": about.multiprocessors,
            "kernels": {one: _constants(kernels[one], beside) for one in sorted(kernels)},
        }
    return {"ext": {"kernels": {"attention": by_type}}}


def _constants(kernel: AttentionKernel, beside: float) -> dict[str, Any]:
    return {
        "forward": _of_pass(kernel.forward, beside),
        "backward": _of_pass(kernel.backward, beside),
        "tail": kernel.tail,
        "start": kernel.start,
        "sustained": kernel.sustained,
    }


def _of_pass(one: AttentionPass, beside: float) -> dict[str, Any]:
    pairs = zip(one.shares.widths, one.shares.costs, strict=True)
    found = {
        "shares": [[int(width), rounded(width / cost / beside, _DIGITS)] for width, cost in pairs],
        "lead": one.lead,
        "causal_lead": one.causal_lead,
    }
    return found | ({"fills_values": True} if one.fills_values else {})


def _sources_of_filled(
    narrow: Mapping[str, Kernels], kernels: Mapping[str, AttentionKernel]
) -> dict[str, str]:
    """Return which rows say that a pass fills narrower values up."""
    found = {}
    for name, of_name in narrow.items():
        for of_row, of_kernel in (("fwd", "forward"), ("bwd", "backward")):
            rows = of_name.rows[of_name.rows["pass"] == of_row]
            if len(rows) and getattr(kernels[name], of_kernel).fills_values:
                names = ", ".join(sorted(set(rows.source)))
                found[f"{PATH}.*.kernels.{name}.{of_kernel}.fills_values"] = (
                    f"nearer to {len(rows)} measured kernels of systems/measured/attention.csv: {names}"
                )
    return found


def _sources(
    measured: Mapping[str, Kernels], kernels: Mapping[str, AttentionKernel]
) -> dict[str, str]:
    """Return where the constants of each kernel come from."""
    found = {
        f"{PATH}.*.law": "Dao 2023, arXiv:2307.08691, sections 3.1 and 3.2: tiles of queries over multiprocessors",
        f"{PATH}.*.multiprocessors": "NVIDIA's whitepaper or data sheet of the architecture: those that are enabled",
    }
    for name in sorted(kernels):
        if name in OLDER:
            text = f"flash2, slower {_TOLD[name]}"
        else:
            rows = measured[name].rows
            names = ", ".join(sorted(set(rows.source)))
            text = (
                f"fitted to {len(rows)} measured kernels of systems/measured/attention.csv: {names}"
            )
        found[f"{PATH}.*.kernels.{name}.*"] = text
    return found


def _assumed(
    gpu: str, system: System, kernels: Mapping[str, AttentionKernel], few: Mapping[str, int]
) -> list[str]:
    """Return what no measurement says."""
    found = [f"{PATH}.*.default: {GPUS[gpu].why}"]
    if "float8" in system.matrix:
        text = "runs attention in 16 bits: half the share of twice the peak"
        found.append(f"{PATH}.float8.*: {text}")
    if lent := [name for name in sorted(kernels) if few.get(name, 0) < LEAST_SMALL]:
        names = ", ".join(lent)
        text = f"of {names} those of the kernel that was measured with few tiles and short calls"
        found.append(f"{PATH}.*.tail, {PATH}.*.start, {PATH}.*.sustained: {text}")
    if "triton" in kernels and not gpu.startswith("A100"):
        text = "as much slower than flash2 as on an A100"
        found.append(f"{PATH}.*.flash1.*, {PATH}.*.triton.*: {text}")
    return found
