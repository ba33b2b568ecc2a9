"""The measured runs that are nearest to an execution, and what of it lies outside of all of them."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from calculon.base.units import Array
from calculon.declarations.execution import Execution
from calculon.declarations.presets import COMMON, PUBLISHED_FORMS
from calculon.estimate.run_table import COMPARED, RANGES, Run, Runs, kind, peak
from calculon.hardware.system import System
from calculon.plan.columns import DEFAULTS

NEAREST = 3
"""Runs that a belief names."""

UNNAMED = "system"
"""The name of a system that has none."""

_ALIKE_PEAK, _ALIKE_BANDWIDTH, _ROUNDING = 0.02, 0.25, 1e-6
_WEIGHTS = np.array([0.5, 1, 0.5, 0.5, 0.25, 4, 1, 0.5])  # per factor of two; the last: tokens
_OTHER_KIND, _OTHER_PRESET, _OTHER_CLASS, _SAME_SOURCE = 2.0, 1.0, 4.0, 4.0


def distance(some: Runs, facts: Mapping[str, Any]) -> Array:
    """Return how far each run is from an execution.

    A factor of two counts 1 in parameters, 1/2 in processors, length of sequences, tokens of a processor and
    tensor-parallel degree, 1/4 in stages; 4 in the peak rate of 16-bit arithmetic, 1 in the bandwidth of memory; 2
    are added for arithmetic of another width, 1 for another preset, 4 where only one of both models has experts.

    Args:
        some: The runs.
        facts: What :func:`about` says of the execution.
    """
    tokens = facts["batch_size"] * facts["seq_size"] / facts["num_procs"]
    here = np.log2([*(float(facts[name]) for name in COMPARED), tokens])
    away = _WEIGHTS @ np.abs(some.features - here[:, None])
    other = some.kinds != kind(facts["type"])
    away = away + _OTHER_CLASS * ((some.numbers("experts") > 0) != (facts["experts"] > 0))
    return away + _OTHER_KIND * other + _OTHER_PRESET * ~some.where("preset", facts["preset"])


def nearest(some: Runs, away: Array) -> tuple[Run, ...]:
    """Return the nearest runs; a second one of a source counts as farther, by 4, so that several sources speak."""
    away, found = away.copy(), []
    for _ in range(min(NEAREST, len(some))):
        number = int(away.argmin())
        found.append(some[number])
        away += _SAME_SOURCE * some.where("source", found[-1].source)
        away[number] = math.inf
    return tuple(found)


def same_processor(some: Runs, system: System) -> Array:
    """Return which runs were measured on the processor of a system, shape (runs,).

    The system file names its processor; similar figures make no two processors the same. With other figures the same
    processor is another machine (one with half the bandwidth, say): peak rates must agree within 2 %, and memory
    bandwidths within 25 %.
    """
    named = some.where("accelerator", system.provenance.processor)
    memory = np.abs(np.log(some.numbers("bandwidth") / system.mem1.bandwidth)) < _ALIKE_BANDWIDTH
    arithmetic = np.abs(np.log(some.numbers("peak") / peak(system))) < _ALIKE_PEAK
    return named & memory & arithmetic & bool(system.provenance.processor)


def relatives(some: Runs, system: System) -> Array:
    """Return which runs were measured on the processor whose kernels a system borrows, shape (runs,)."""
    lender = system.provenance.borrowed.get("kernels", "")
    of_lender = some.where("system", lender)
    names = {name for name, one in zip(some.columns["accelerator"], of_lender, strict=True) if one}
    return np.array([one in names for one in some.columns["accelerator"]], bool)


_CHOICES = {
    "schedule": "pipeline schedule",
    "zero_stage": "zero_stage",
    "recompute": "activation_recompute",
    "overlap": "tensor_par_overlap",
    "preset": "preset",
}


def outside(
    some: Runs, facts: Mapping[str, Any], execution: Execution, here: Array
) -> Iterator[str]:
    """Yield what of an execution no measured run has, each in a sentence.

    Args:
        some: The runs.
        facts: What :func:`about` says of the execution.
        execution: The execution.
        here: The runs of its processor (:func:`same_processor`).
    """
    if not execution.training:
        yield "inference (validated runs are training steps)"
    if not here.any():
        yield f"no validated run on {called(facts)}"
    elif not (here & (some.kinds == kind(facts["type"]))).any():
        yield f"no validated run in {facts['type']} on {called(facts)}"
    for name, text in RANGES.items():
        scale = 1e9 if name == "parameters" else 1
        known, value = some.numbers(name) / scale, facts[name] / scale
        number = text[: text.index("}") + 1].rpartition("{")[2]
        if value > known.max():
            yield f"{text.format(value)} (validated up to {('{' + number).format(known.max())})"
        elif value < known.min() * (1 - _ROUNDING):
            yield f"{text.format(value)} (validated from {('{' + number).format(known.min())})"
    for name, text in _CHOICES.items():
        if facts[name] not in some.columns[name] and facts[name] not in (PUBLISHED_FORMS, COMMON):
            yield f"{text} {facts[name]} never validated"
    if facts["experts"] and not (here & (some.numbers("experts") > 0)).any():
        yield f"no validated run of a model with experts on {called(facts)}"
    if execution.weight_offload or execution.activations_offload or execution.optimizer_offload:
        yield "offloading never validated"


def fitted(some: Runs, facts: Mapping[str, Any], execution: Execution) -> Iterator[str]:
    """Yield fields of an execution that were fitted to runs of models that are all larger, or all smaller.

    Arguments as in :func:`outside`. A field counts where its value is not the default.
    """
    for name in sorted({one for text in set(some.columns["fitted"]) for one in text.split()}):
        value = getattr(execution, name, None)
        if value is None or value == DEFAULTS[name]:
            continue
        rows = [i for i, text in enumerate(some.columns["fitted"]) if name in text.split()]
        sizes = some.numbers("parameters")[rows]
        ends = sizes.min() * (1 - _ALIKE_SIZE), sizes.max() * (1 + _ALIKE_SIZE)
        if not ends[0] <= facts["parameters"] <= ends[1]:
            billions = " to ".join(
                dict.fromkeys(f"{n / 1e9:.3g}" for n in (min(sizes), max(sizes)))
            )
            sources = ", ".join(dict.fromkeys(some.columns["source"][i] for i in rows))
            yield f"{name} {value:,}, on {billions} billion parameters ({sources})"


_ALIKE_SIZE = 0.01


def called(facts: Mapping[str, Any]) -> str:
    """Return what to call the system of an execution; one that was given as a mapping has no name of its own."""
    name: str = facts["system"]
    return "this system" if name == UNNAMED else name


def remark(some: Runs, facts: Mapping[str, Any], here: Array, related: Array, mfu: float) -> str:
    """Return a sentence if a utilization is above every comparable measured one; else an empty string.

    Comparable runs are of the processor and the width of arithmetic, and dense as the model is, or with experts as it
    is. If there are none, those of a relative of the processor count.

    Args:
        some, facts, here: As in :func:`outside`.
        related: The runs of the relative (:func:`relatives`).
        mfu: The utilization of the prediction, with causal attention.
    """
    dense = facts["experts"] == 0
    alike = (some.kinds == kind(facts["type"])) & ((some.numbers("experts") == 0) == dense)
    own = (here & alike).any()
    comparable = np.flatnonzero((here if own else related) & alike)
    if not len(comparable):
        return ""
    best = some[int(comparable[some.numbers("mfu_causal")[comparable].argmax()])]
    if round(100 * mfu) <= round(100 * best.mfu_causal):
        return ""
    where = f"on {best.processor}" if own else f"on its relative {best.processor}"
    return (
        f"MFU {100 * mfu:.0f} % causal, {100 * (mfu / best.mfu_causal - 1):.0f} % above the best validated run "
        f"{'' if dense else 'with experts '}{where} in {best.type}: {100 * best.mfu_causal:.0f} % ({best.study}, "
        f"{best.label})"
    )
