"""How far a prediction may be believed: measured training steps, their errors, and what lies outside of them.

The runs are those of the studies under ``validation/``: one row of ``validation/runs.csv`` for each measured whole
training step that edition ``corrected`` was compared with. ``calculon lv --edition corrected --runs FILE`` writes it.
"""

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache, cached_property
from typing import Any

import numpy as np

from calculon.architecture.parameters import parameter_count
from calculon.frozen import dataclass
from calculon.hardware.residuals import TRAINING
from calculon.hardware.system import System
from calculon.inspect.group_conformal import Groups
from calculon.plan.plan import Plan
from calculon.spec import catalog
from calculon.spec.execution import PUBLISHED, Execution
from calculon.spec.model import Model
from calculon.units import Array

FILE = "validation/runs.csv"
"""The file of runs, below the root of the catalog."""

NEAREST = 3
"""Runs that a belief names."""

NO_PRESET = "published"
"""The preset of an execution that states none."""

_ALIKE_PEAK, _ALIKE_MEMORY = 0.02, 0.25
_SAME_SOURCE = 4.0
_BITS_16 = ("bfloat16", "float16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A measured training step, and what the model says about it.

    Attributes
    ----------
    source, study, label, citation : str
        Where it was published: the source, its study under ``validation/``, the row, and the citation.
    preset, system, type : str
        The preset and the system of the study, and the type of matrix arithmetic.
    peak, bandwidth : float
        Rate of matrix arithmetic in 16 bits in FLOP/s, and bandwidth of tier-1 memory in B/s.
    domain : int
        Processors of the fastest network.
    num_procs, tensor_par, pipeline_par, data_par, microbatch_size, batch_size, seq_size, hidden : int
        Of the execution and the model; the sequence in tokens.
    parameters : int
        Of the model.
    schedule, zero_stage, recompute, overlap : str
        Named choices of the execution: ``pp_schedule``, ``zero_stage``, ``activation_recompute``,
        ``tensor_par_overlap``.
    measured, predicted : float
        Seconds of a step.
    mfu, mfu_causal : float
        Model FLOP utilisation as measured, with full and with causal attention.
    measured_memory, predicted_memory : float or None
        Bytes of a processor, where measured.
    """

    source: str
    study: str
    label: str
    citation: str
    preset: str
    system: str
    type: str
    peak: float
    bandwidth: float
    domain: int
    num_procs: int
    tensor_par: int
    pipeline_par: int
    data_par: int
    microbatch_size: int
    batch_size: int
    seq_size: int
    parameters: int
    hidden: int
    schedule: str
    zero_stage: str
    recompute: str
    overlap: str
    measured: float
    predicted: float
    mfu: float
    mfu_causal: float
    measured_memory: float | None = None
    predicted_memory: float | None = None

    @property
    def error(self) -> float:
        """Predicted over measured time - 1, in percent."""
        return 100 * (self.predicted / self.measured - 1)

    @property
    def memory_error(self) -> float | None:
        """Predicted over measured memory - 1, in percent."""
        if self.measured_memory is None or self.predicted_memory is None:
            return None
        return 100 * (self.predicted_memory / self.measured_memory - 1)

    @property
    def processor(self) -> str:
        """The processor in short: ``A100``."""
        return short_name(self.system)


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What measured runs say about a prediction.

    Attributes
    ----------
    level : float
        Probability with which the measured time is between `low` and `high`.
    low, high : float
        Seconds of a step.
    nearest : tuple of Run
        The nearest measured runs (:func:`distance`), nearest first.
    outside : tuple of str
        What lies outside of the measured runs.
    remark : str
        That a utilisation is above those measured; else empty.
    basis : str
        What the interval rests on, in one line.
    """

    level: float
    low: float
    high: float
    nearest: tuple[Run, ...]
    outside: tuple[str, ...]
    remark: str
    basis: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, each run with its processor in short and its error."""
        runs = [
            {**asdict(run), "processor": run.processor, "error": run.error} for run in self.nearest
        ]
        return {**asdict(self), "nearest": runs}


def short_name(system: str) -> str:
    """Return the processor of a system in short.

    >>> short_name("h100_80g_sxm")
    'H100'
    """
    return system.partition("_")[0].upper()


@dataclass(frozen=True)
class Runs:
    """The runs of a file, as columns of text; a record is made when it is asked for."""

    columns: Mapping[str, Sequence[str]]

    def __len__(self) -> int:
        return len(self.columns["source"])

    def __getitem__(self, number: int) -> Run:
        kinds = Run.__annotations__
        return Run(**{name: _value(kinds[name], self.columns[name][number]) for name in kinds})

    def numbers(self, name: str) -> Array:
        """Return a column of numbers."""
        return np.array(self.columns[name], float)

    def where(self, name: str, value: str) -> Array:
        """Return which runs have a value in a column."""
        return np.array([one == value for one in self.columns[name]], bool)

    @cached_property
    def groups(self) -> Groups:
        """The runs of each source as a group."""
        ratios = np.log(self.numbers("measured") / self.numbers("predicted"))
        group = np.unique(self.columns["source"], return_inverse=True)[1]
        return Groups(ratios, group, np.zeros((0, len(self)), int), ())

    @cached_property
    def features(self) -> Array:
        """What :func:`distance` compares of each run, shape (features, runs)."""
        named = [self.numbers(name) for name in _NUMBERS]
        return np.log2(np.array([*named, self.numbers("batch_size") * named[2] / named[0]]))


def _value(kind: Any, text: str) -> Any:
    if kind is str:
        return text
    if kind is int:
        return int(text)
    return float(text) if text else None


@cache
def runs() -> Runs:
    """Return the runs of the catalog; none where the file is not there."""
    names = list(Run.__annotations__)
    try:
        with (catalog.root() / FILE).open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            header = next(rows)
            columns = dict(zip(header, zip(*rows, strict=True), strict=False))
    except FileNotFoundError:
        columns = {}
    return Runs({name: columns.get(name, ()) for name in names})


# -- what is near, and what is outside -------------------------------------------------------------------------------

_NUMBERS = (
    "num_procs",
    "parameters",
    "seq_size",
    "tensor_par",
    "pipeline_par",
    "peak",
    "bandwidth",
)
_WEIGHTS = np.array([0.5, 1, 0.5, 0.5, 0.25, 4, 1, 0.5])  # per factor of two; the last: tokens
_OTHER_TYPE, _OTHER_PRESET = 2.0, 1.0


def distance(some: Runs, model: Model, system: System, execution: Execution) -> Array:
    """Return how far each run is from an execution.

    A factor of two counts 1 in parameters, 1/2 in processors, length of sequences, tokens of a processor and
    tensor-parallel degree, 1/4 in stages; 4 in the peak rate of 16-bit arithmetic, 1 in the bandwidth of memory, and 2
    are added for another type of arithmetic, 1 for another preset.
    """
    facts = _facts(model, system, execution)
    here = np.log2([*(float(facts[name]) for name in _NUMBERS), facts["tokens"]])
    away = _WEIGHTS @ np.abs(some.features - here[:, None])
    bits = np.array([_bits(one) for one in some.columns["type"]])
    other = bits != _bits(execution.matmul_type)
    return away + _OTHER_TYPE * other + _OTHER_PRESET * ~some.where("preset", facts["preset"])


def nearest(some: Runs, away: Array) -> tuple[Run, ...]:
    """Return the nearest runs; a second one of a source counts as farther, by 4, so that several sources speak."""
    away, found = away.copy(), []
    for _ in range(min(NEAREST, len(some))):
        number = int(away.argmin())
        found.append(some[number])
        away = away + _SAME_SOURCE * some.where("source", found[-1].source)
        away[number] = math.inf
    return tuple(found)


def _bits(datatype: str) -> str:
    """Return the type of arithmetic, both of 16 bits alike."""
    return "16 bits" if datatype in _BITS_16 else datatype


def _facts(model: Model, system: System, execution: Execution) -> dict[str, Any]:
    """Return what a run states of an execution."""
    facts = about(model, system, execution)
    return {**facts, "tokens": facts["batch_size"] * facts["seq_size"] / facts["num_procs"]}


def about(model: Model, system: System, execution: Execution) -> dict[str, Any]:
    """Return the fields of a :class:`Run` that follow from an execution, without what was measured."""
    same = ("num_procs", "tensor_par", "pipeline_par", "data_par", "microbatch_size", "batch_size")
    return {
        "preset": getattr(execution, "preset", NO_PRESET) or NO_PRESET,
        "system": system.name.removesuffix(".json").removesuffix(".yaml"),
        "type": execution.matmul_type,
        "peak": _peak(system),
        "bandwidth": system.mem1.bandwidth,
        "domain": system.networks[0].size,
        **{name: getattr(execution, name) for name in same},
        "seq_size": execution.seq_length or model.seq_size,
        "parameters": parameter_count(model),
        "hidden": model.hidden,
        "schedule": execution.pp_schedule,
        "zero_stage": execution.zero_stage,
        "recompute": execution.activation_recompute,
        "overlap": execution.tensor_par_overlap,
    }


def _peak(system: System) -> float:
    """Return the rate of matrix arithmetic in 16 bits; without one, the highest."""
    known = [system.matrix[name].peak for name in _BITS_16 if name in system.matrix]
    return max(known or [engine.peak for engine in system.matrix.values()])


def same_processor(some: Runs, facts: Mapping[str, Any]) -> Array:
    """Return which runs are of the processor: a peak rate within 2 %, and a memory bandwidth within 25 %."""
    peak = np.abs(np.log(some.numbers("peak") / facts["peak"])) < _ALIKE_PEAK
    memory = np.abs(np.log(some.numbers("bandwidth") / facts["bandwidth"])) < _ALIKE_MEMORY
    return peak & memory


_RANGES = {
    "num_procs": "{:,} processors",
    "parameters": "{:.3g} billion parameters",
    "seq_size": "sequences of {:,} tokens",
    "tensor_par": "tensor-parallel degree {:,}",
    "pipeline_par": "{:,} pipeline stages",
    "microbatch_size": "microbatches of {:,}",
    "domain": "{:,} processors on the fastest network",
}
_CHOICES = {
    "schedule": "pipeline schedule {}",
    "zero_stage": "zero_stage {}",
    "recompute": "activation_recompute {}",
    "overlap": "tensor_par_overlap {}",
    "preset": "preset {}",
}


def outside(some: Runs, model: Model, system: System, execution: Execution) -> tuple[str, ...]:
    """Return what of an execution no measured run has, each in a sentence."""
    return tuple(_outside(some, _facts(model, system, execution), execution))


def _outside(some: Runs, facts: Mapping[str, Any], execution: Execution) -> Iterator[str]:
    if not execution.training:
        yield "inference; validated runs are training steps"
    here = same_processor(some, facts)
    if not here.any():
        yield f"no validated run on {facts['system']}"
    else:
        alike = [
            _bits(some.columns["type"][i]) == _bits(facts["type"])
            for i in np.flatnonzero(here).tolist()
        ]
        if not any(alike):
            yield f"no validated run in {facts['type']} on {short_name(facts['system'])}"
    for name, text in _RANGES.items():
        known, value = some.numbers(name), facts[name]
        scale: Callable[[float], Any] = int if name != "parameters" else lambda n: n / 1e9
        if value > known.max():
            yield f"{text.format(scale(value))}; validated up to {_bare(text, scale(known.max()))}"
        elif value < known.min():
            yield f"{text.format(scale(value))}; validated from {_bare(text, scale(known.min()))}"
    for name, text in _CHOICES.items():
        if facts[name] not in some.columns[name]:
            yield f"{text.format(facts[name])} never validated"
    if execution.weight_offload or execution.activations_offload or execution.optimizer_offload:
        yield "offloading never validated"


def _bare(text: str, value: float) -> str:
    """Return the number of a sentence alone."""
    form = text[text.index("{") : text.index("}") + 1]
    return form.format(value) + (" billion" if "billion" in text else "")


def remark(some: Runs, facts: Mapping[str, Any], mfu_causal: float) -> str:
    """Return a sentence where a utilisation is above every measured one of the processor and type of arithmetic."""
    bits = np.array([_bits(one) for one in some.columns["type"]])
    here = np.flatnonzero(same_processor(some, facts) & (bits == _bits(facts["type"])))
    if not len(here):
        return ""
    best = some[int(here[some.numbers("mfu_causal")[here].argmax()])]
    if mfu_causal <= best.mfu_causal:
        return ""
    return (
        f"MFU {mfu_causal:.0%} causal; the best of the validated runs on {best.processor} in {best.type} "
        f"is {best.mfu_causal:.0%} ({best.study}, {best.label})"
    )


# -- how sure ---------------------------------------------------------------------------------------------------------


def factors(
    model: Model, system: System, plan: Plan, stats: Mapping[str, Any]
) -> tuple[Array, Array]:
    """Return measured over predicted time at the lower and the upper end of the interval of each execution.

    Parameters
    ----------
    model, system
        Of all executions.
    plan : Plan, with n rows
        The executions.
    stats : mapping of str to array, shape (n,)
        Their statistics by name.

    Returns
    -------
    tuple of array, shape (n,)
        Not-a-number in rows of edition ``sc23``.
    """
    some = runs()
    low, high = np.full(len(plan), np.nan), np.full(len(plan), np.nan)
    rows = ~plan.is_choice("edition", PUBLISHED)
    whole = [one for one in system.calibration.spreads if one.part == TRAINING]
    if whole:
        ends = min(one.low for one in whole), max(one.high for one in whole)
    elif len(some):
        ends = some.groups.limits(np.zeros(0, int))
    else:
        return low, high
    low[rows], high[rows] = ends
    return low, high


def belief(
    model: Model, system: System, execution: Execution, stats: Mapping[str, Any]
) -> Belief | None:
    """Return what measured runs say about a predicted training step; nothing in edition ``sc23``.

    Parameters
    ----------
    model, system, execution
        What was asked.
    stats : mapping of str to float
        The statistics of the prediction.
    """
    some = runs()
    if execution.edition == PUBLISHED or not len(some):
        return None
    low, high = factors(model, system, Plan.of(execution), stats)
    facts = _facts(model, system, execution)
    groups = some.groups
    time = float(stats["total_time"])
    return Belief(
        level=groups.level,
        low=float(low[0]) * time,
        high=float(high[0]) * time,
        nearest=nearest(some, distance(some, model, system, execution)),
        outside=outside(some, model, system, execution),
        remark=remark(some, facts, float(stats["mfu_causal"])),
        basis=f"{len(some):,} measured training steps of {groups.count} sources, each source alike",
    )
