"""Measured runs that are nearest to an execution, and properties of the execution that no run has."""

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
"""Number of nearest runs to report."""

UNNAMED = "system"
"""Placeholder name of a system without a name."""

_ALIKE_PEAK, _ALIKE_BANDWIDTH, _ROUNDING = 0.02, 0.25, 1e-6
# Per factor of two; the last is for tokens
_WEIGHTS = np.array([0.5, 1, 0.5, 0.5, 0.25, 4, 1, 0.5])
_OTHER_KIND, _OTHER_PRESET, _OTHER_CLASS, _SAME_SOURCE = 2.0, 1.0, 4.0, 4.0


def distance(some: Runs, facts: Mapping[str, Any]) -> Array:
    """Return the distance of each run from an execution.

    A factor of two counts 1 in parameters; 1/2 in processors, sequence length, tokens per processor and
    tensor-parallel degree; 1/4 in stages; 4 in the 16-bit peak; 1 in memory bandwidth. Another width of arithmetic adds
    2, another preset 1, and 4 if only one of the models is MoE.

    Args:
        some: The runs.
        facts: Result of :func:`about` for the execution.
    """
    tokens = facts["batch_size"] * facts["seq_size"] / facts["num_procs"]
    here = np.log2([*(float(facts[name]) for name in COMPARED), tokens])
    away = _WEIGHTS @ np.abs(some.features - here[:, None])
    other = some.kinds != kind(facts["type"])
    away = away + _OTHER_CLASS * ((some.numbers("experts") > 0) != (facts["experts"] > 0))
    return away + _OTHER_KIND * other + _OTHER_PRESET * ~some.where("preset", facts["preset"])


def nearest(some: Runs, away: Array) -> tuple[Run, ...]:
    """Return the nearest runs; further runs of a source count as farther by 4, so that several sources appear."""
    away, found = away.copy(), []
    for _ in range(min(NEAREST, len(some))):
        number = int(away.argmin())
        found.append(some[number])
        away += _SAME_SOURCE * some.where("source", found[-1].source)
        away[number] = math.inf
    return tuple(found)


def same_processor(some: Runs, system: System) -> Array:
    """Return a mask of the runs that were measured on the processor of a system, shape (runs,).

    The system file names its processor; similar figures do not identify a processor. With other figures the same
    processor is another machine (such as one with half the bandwidth): peaks must agree within 2 %, and memory
    bandwidths within 25 %.
    """
    named = some.where("accelerator", system.provenance.processor)
    memory = np.abs(np.log(some.numbers("bandwidth") / system.mem1.bandwidth)) < _ALIKE_BANDWIDTH
    arithmetic = np.abs(np.log(some.numbers("peak") / peak(system))) < _ALIKE_PEAK
    return named & memory & arithmetic & bool(system.provenance.processor)


def relatives(some: Runs, system: System) -> Array:
    """Return a mask of the runs on the processor whose kernels a system borrows, shape (runs,)."""
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
    """Yield properties of an execution that no measured run has, as sentences.

    Args:
        some: The runs.
        facts: Result of :func:`about` for the execution.
        execution: The execution.
        here: Mask of the runs on its processor (:func:`same_processor`).
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
    """Yield fields of an execution that were fitted only to larger models, or only to smaller ones.

    Arguments as in :func:`outside`. Fields with default values are ignored.
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
    """Return the name of the system of an execution; systems given as a mapping have no name."""
    name: str = facts["system"]
    return "this system" if name == UNNAMED else name
