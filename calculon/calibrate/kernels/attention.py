"""The law ``fused`` of attention kernels (FlashAttention, cuDNN; ``ext.kernels.attention``), fitted to measurements."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from calculon.base.units import Array
from calculon.calibrate.kernels.attention_kernel import (
    DIGITS,
    OLDER,
    Kernels,
    fit_kernel,
    law_of,
    older,
)
from calculon.calibrate.kernels.clocks import CONTINUOUS, relative_speed
from calculon.calibrate.kernels.fitted_part import PROCESSORS, FittedPart, held_out
from calculon.calibrate.steps import rounded
from calculon.declarations.named_values import MATMUL_BYTES
from calculon.hardware.kernels.laws import EXACT, AttentionKernel, AttentionPass, Widths
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
_H200 = {"cudnn": {"H200-SXM5-141GB": 1.0}}

GPUS: Mapping[str, Gpu] = {
    "A100-SXM4-80GB": Gpu(108, "flash2", _PYTORCH, {}),
    "H100-SXM5-80GB": Gpu(132, "cudnn", _ENGINE, _H200),
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

_WIDE, _NARROW = ("bfloat16", "float16"), ("fp8",)
"""Types of measured rows in 16 and in 8 bits."""

_LASTING, _LASTING_LEAST = "TE (FA2/cuDNN)", 0.02
"""Kernel of the sources of continuous work, and the least seconds of a call that is as slow as continuous work."""

_TIMED_IN_16_BITS = ("tail", "start", "sustained")
"""Constants of kernels in 8 bits that are those of 16 bits."""

_SERVING = ("trtllm",)
"""Serving kernels without a backward pass, which provide the last three constants for kernels without small rows."""

_OLDER_SOURCES = {
    "flash1": "1.7 times at width 64 and 2.8 times at 128: 1.7 to 3.0 times in Dao 2023 (arXiv:2307.08691), section "
    "4.1, by width as read in its figure 4, about 5 %",
    "triton": "1.5 times forward and 1.95 times backward: 0.37 and 0.25 of the peak of an A100 at width 64 in "
    "python/test/regression/test_performance.py of triton-lang/triton, 2023; both passes 1.3 to 2.5 times in Dao 2023 "
    "(arXiv:2307.08691), section 4.1",
}

_WIDEST = 256.0
"""Widest heads of models; kernels of heads of 192 were measured with values of 128 only."""

_ROUNDED = 1.002
"""Factor that keeps wider heads slower when shares are rounded."""

MIN_SMALL = 10
"""Rows with few tiles that a kernel needs so that its own tail and start are fitted."""

_MAX_HELD = 0.6
"""Held-out share of the rows of a pass and head width above which too few are left, so that none is held out."""


def fit(tables: Mapping[str, pd.DataFrame], gpu: str, system: System) -> FittedPart | None:
    """Fit the fused-attention kernels of a processor.

    Args:
        tables: Measured kernels by table name; only ``attention`` is used.
        gpu: Name of the processor in the tables.
        system: Memory, processing mode and bfloat16 peak, which are not fitted.

    Returns:
        The fitted part; None without rows of this processor.
    """
    sibling = PROCESSORS[gpu].sibling if gpu in PROCESSORS else ""
    about, table = GPUS.get(sibling or gpu), tables.get("attention")
    if about is None or table is None or (sibling and not (table.gpu == gpu).any()):
        return None
    engine = system.product_engine("bfloat16")
    measured = {name: _measured(table, sibling or gpu, name, about) for name in NAMES}
    measured = {name: rows for name, rows in measured.items() if len(rows.rows)}
    few = {name: rows.few(about.multiprocessors) for name, rows in measured.items()}
    kernels, kept = _fitted(measured, few, system, engine, about)
    narrow = _in_8_bits(table, sibling or gpu, kernels, system, about)
    speed, used = 1.0, measured
    if sibling:
        speed, own = _speed(table, gpu, sibling)
        kernels = {name: _faster(kernel, speed) for name, kernel in kernels.items()}
        narrow = {
            name: one._replace(kernel=_faster(one.kernel, speed)) for name, one in narrow.items()
        }
        about = about._replace(multiprocessors=PROCESSORS[gpu].multiprocessors)
        used = {name: Kernels.of(own, {gpu: 1.0}) for name in _SERVING}
        kept = {name: _held_out(rows.rows) for name, rows in used.items()}
    rows = pd.concat(
        [
            *(
                _compared(name, used[name], kept[name], kernels[name], system, engine, about)
                for name in used
            ),
            *(one.compared for one in narrow.values() if not sibling),
        ],
        ignore_index=True,
    )
    lasting = _lasting(table, sibling or gpu, about)
    if len(lasting.rows):
        sustained = _continuous(lasting, kernels[about.default], speed, system, engine, about)
        kernels[about.default] = replace(kernels[about.default], sustained=sustained)
    narrow = {name: one.at_clock(kernels[name]) for name, one in narrow.items()}
    for name in _SERVING:
        kernels.pop(name, None)
    if "flash2" in kernels:
        kernels |= {name: older(kernels["flash2"], name) for name in OLDER}
    sources = _sources(measured, kernels) | _sources_of_8_bits(narrow)
    assumed = _assumed(sibling or gpu, system, kernels, few, narrow)
    if sibling:
        sources[f"{PATH}.*.kernels.*"] = (
            f"kernels of {sibling}, {speed:.3f} times as fast: median over equal forward passes of "
            f"{', '.join(_SERVING)} (systems/measured/attention.csv)"
        )
        text = f"faster than on {sibling} by the same ratio as forward"
        assumed.append(f"{PATH}.*.backward.*: {text}")
    return FittedPart(_fragment(kernels, narrow, about, system), sources, assumed, rows)


class Narrow(NamedTuple):
    """Kernel fitted to passes in 8 bits, the names of its sources and number of its rows, and their errors."""

    kernel: AttentionKernel
    sources: str
    rows: int
    compared: pd.DataFrame

    def at_clock(self, wide: AttentionKernel) -> "Narrow":
        """Return the kernel at the clock of continuous work of the one in 16 bits."""
        return self._replace(kernel=replace(self.kernel, sustained=wide.sustained))


def _in_8_bits(
    table: pd.DataFrame,
    gpu: str,
    kernels: Mapping[str, AttentionKernel],
    system: System,
    about: Gpu,
) -> dict[str, Narrow]:
    """Fit the kernels that were measured in 8 bits; clock, tail and start are those of 16 bits."""
    found = {}
    for name in kernels:
        measured = _measured(table, gpu, name, about, _NARROW)
        if name not in EXACT or not len(measured.rows):
            continue
        wide, engine = kernels[name], system.product_engine("float8")
        kept, known = _held_out(measured.rows), (wide.sustained, wide.tail, wide.start)
        count = about.multiprocessors
        kernel = fit_kernel(name, measured, ~kept, system, engine, count, known)
        kernel = _with_wide_heads(kernel, measured)
        compared = _compared(
            name, measured, kept, kernel, system, engine, about, suffix=" in 8 bits"
        )
        names = ", ".join(sorted(set(measured.rows.source)))
        found[name] = Narrow(kernel, names, len(measured.rows), compared)
    return found


def _fitted(
    measured: Mapping[str, Kernels],
    few: Mapping[str, int],
    system: System,
    engine: Engine,
    about: Gpu,
) -> tuple[dict[str, AttentionKernel], dict[str, Array]]:
    """Return the fitted kernels, and the masks of their held-out rows."""
    kept = {name: _held_out(rows.rows) for name, rows in measured.items()}
    run = partial(_run, measured, kept, system, engine, about)
    # Kernels with the most small rows come first: the first fit lends its last three constants to kernels without.
    order = sorted(measured, key=lambda name: -few[name])
    kernels: dict[str, AttentionKernel] = {}
    first: tuple[float, float, float] | None = None
    for name in order:
        enough = few[name] >= MIN_SMALL
        kernels[name] = run(name, None if enough or first is None else first)
        fitted = kernels[name]
        first = first or (fitted.sustained, fitted.tail, fitted.start)
    return kernels, kept


def _speed(table: pd.DataFrame, gpu: str, sibling: str) -> tuple[float, pd.DataFrame]:
    """Return the speed relative to a sibling by the rows that are not held out, and this processor's rows."""
    rows = pd.concat([_rows(table, name, (gpu, sibling)) for name in _SERVING], ignore_index=True)
    return relative_speed(rows[~_held_out(rows)], gpu, sibling), rows[rows.gpu == gpu]


def _faster(kernel: AttentionKernel, speed: float) -> AttentionKernel:
    """Return a kernel whose arithmetic takes less time by a factor; no share of the peak exceeds 1."""

    def one(which: AttentionPass) -> AttentionPass:
        widths, costs = which.shares.widths, which.shares.costs
        faster = tuple(max(cost / speed, width) for width, cost in zip(widths, costs, strict=True))
        return replace(which, shares=Widths(widths, faster))

    return replace(kernel, forward=one(kernel.forward), backward=one(kernel.backward))


def _lasting(table: pd.DataFrame, gpu: str, about: Gpu) -> Kernels:
    """Return the rows of continuous work of a processor."""
    rows = table[
        (table.source == CONTINUOUS.get(gpu))
        & (table.kernel == _LASTING)
        & (table.time_s >= _LASTING_LEAST)
        & (table.dim_qk == table.dim_v)
    ]
    return Kernels.of(rows, {gpu: 1.0})


def _continuous(
    rows: Kernels,
    kernel: AttentionKernel,
    speed: float,
    system: System,
    engine: Engine,
    about: Gpu,
) -> float:
    """Return the rate of continuous work relative to short calls; `speed` is the kernel's, relative to the rows."""
    law = law_of(about.default, replace(kernel, sustained=1.0), about.multiprocessors)
    short = rows.times(law, system, engine) * speed
    return rounded(float(np.median(short / rows.rows.time_s.to_numpy())), DIGITS)


def _rows(
    table: pd.DataFrame, name: str, gpus: Iterable[str], types: Sequence[str] = _WIDE
) -> pd.DataFrame:
    """Return the prefill and training rows of a kernel in some types, by default in 16 bits."""
    return table[
        table.kernel.isin(NAMES[name])
        & table.gpu.isin(list(gpus))
        & table["pass"].isin(["fwd", "bwd", "fwd_bwd"])
        & table.dtype.isin(types)
    ]


def _measured(
    table: pd.DataFrame, gpu: str, name: str, about: Gpu, types: Sequence[str] = _WIDE
) -> Kernels:
    """Return the prefill and training rows of a kernel, by default in 16 bits.

    Values that are narrower than keys (MLA) determine the share of a width only in kernels that do not pad them.
    """
    peaks = {gpu: 1.0, **about.borrowed.get(name, {})}
    rows = _rows(table, name, peaks, types)
    rows = rows[(rows.dim_qk == rows.dim_v) | (name in EXACT) & (rows["pass"] != "fwd_bwd")]
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
    kernel = fit_kernel(name, one, ~kept[name], system, engine, about.multiprocessors, known)
    return _with_wide_heads(kernel, one)


def _with_wide_heads(kernel: AttentionKernel, measured: Kernels) -> AttentionKernel:
    """Return a kernel whose widest heads, if measured with narrower values only, say nothing about wider ones.

    Heads of :data:`_WIDEST` run at the share of the widest heads with equal values, and take as long as narrower ones.
    """
    rows, result = measured.rows, {}
    for of_row, of_kernel in (("fwd", "forward"), ("bwd", "backward")):
        one = getattr(kernel, of_kernel)
        equal = rows[(rows["pass"] == of_row) & (rows.dim_qk == rows.dim_v)].dim_qk
        widths, costs = one.shares.widths, one.shares.costs
        if len(equal) and widths[-1] > equal.max() and widths[-1] < _WIDEST:
            share = equal.max() / float(one.shares.cost(np.array(float(equal.max()))))
            costs = (*costs, max(costs[-1] * _ROUNDED, _WIDEST / share))
            one = replace(one, shares=Widths((*widths, _WIDEST), costs))
        result[of_kernel] = one
    return replace(kernel, **result)


def _compared(
    name: str,
    measured: Kernels,
    kept: Array,
    kernel: AttentionKernel,
    system: System,
    engine: Engine,
    about: Gpu,
    suffix: str = "",
) -> pd.DataFrame:
    """Return measured and predicted times of a kernel; `suffix` follows its name in the groups."""
    words = {"fwd": "forward", "bwd": "backward", "fwd_bwd": "both passes"}
    predicted = measured.times(law_of(name, kernel, about.multiprocessors), system, engine)
    return pd.DataFrame(
        {
            "group": [
                f"attention, {name}{suffix}, {words[which]}" for which in measured.rows["pass"]
            ],
            "measured": measured.rows.time_s.to_numpy(),
            "predicted": predicted,
            "held_out": kept,
        }
    )


def _fragment(
    kernels: Mapping[str, AttentionKernel],
    narrow: Mapping[str, Narrow],
    about: Gpu,
    system: System,
) -> dict[str, Any]:
    """Return the law by type; 8-bit types run at the 16-bit rate unless measured, so their share is lower."""
    peak = system.product_engine("bfloat16").peak
    by_type = {}
    for name in system.matmul_types:
        if MATMUL_BYTES[name] > 2:
            continue
        relative_peak = system.product_engine(name).peak / peak
        constants = {one: _constants(kernels[one], relative_peak) for one in sorted(kernels)}
        if MATMUL_BYTES[name] == 1:
            constants |= {one: _constants(fitted.kernel, 1.0) for one, fitted in narrow.items()}
        by_type[name] = {
            "law": "fused",
            "default": about.default,
            "multiprocessors": about.multiprocessors,
            "kernels": constants,
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
    return {
        "shares": [
            [int(width), rounded(width / cost / relative_peak, DIGITS)] for width, cost in pairs
        ],
        "lead": attention_pass.lead,
        "causal_lead": attention_pass.causal_lead,
    }


def _sources_of_8_bits(narrow: Mapping[str, Narrow]) -> dict[str, str]:
    """Return the sources of the constants in 8 bits."""
    return {
        f"{PATH}.float8.kernels.{name}.*": (
            f"fitted to {one.rows} measured kernels in 8 bits of systems/measured/attention.csv: {one.sources}"
        )
        for name, one in narrow.items()
    }


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
    gpu: str,
    system: System,
    kernels: Mapping[str, AttentionKernel],
    few: Mapping[str, int],
    narrow: Mapping[str, Narrow],
) -> list[str]:
    """Return the assumptions that no measurement supports."""
    result = [f"{PATH}.*.default: {GPUS[gpu].why}"]
    if "float8" in system.matrix:
        others = [name for name in sorted(kernels) if name not in narrow]
        if others:
            paths = ", ".join(f"{PATH}.float8.kernels.{name}.*" for name in others)
            result.append(
                f"{paths}: not measured; at the rate of 16 bits: half the share of twice the peak"
            )
        for name in narrow:
            paths = ", ".join(f"{PATH}.float8.kernels.{name}.{one}" for one in _TIMED_IN_16_BITS)
            result.append(f"{paths}: as in 16 bits")
    if lent := [name for name in sorted(kernels) if few.get(name, 0) < MIN_SMALL]:
        names = ", ".join(lent)
        lent_paths = [f"{PATH}.*.{one}" for one in ("tail", "start", "sustained")]
        paths = ", ".join(lent_paths[:2] if gpu in CONTINUOUS else lent_paths)
        text = f"for {names}, as the kernel that was measured with few tiles and short calls"
        result.append(f"{paths}: {text}")
    if gpu in CONTINUOUS:
        text = "measured on another machine; as products, attention is slower in continuous work"
        result.append(
            f"{PATH}.*.sustained: at the clock of {CONTINUOUS[gpu]}, calls with 131,072 tokens, {text}"
        )
    if "triton" in kernels and not gpu.startswith("A100"):
        text = "slower than flash2 by the same ratio as on an A100"
        result.append(f"{PATH}.*.flash1.*, {PATH}.*.triton.*: {text}")
    return result
