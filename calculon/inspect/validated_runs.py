"""How far a prediction may be believed: measured training steps, their errors, and what lies outside of them.

The runs are those of the studies under ``validation/``: one row of ``validation/runs.csv`` for each measured whole
training step that edition ``corrected`` was compared with. ``calculon lv --edition corrected --runs FILE`` writes it.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache, cached_property
from typing import Any

import numpy as np

from calculon.architecture.parameters import parameter_count
from calculon.frozen import dataclass
from calculon.hardware.residuals import TRAINING, Spread
from calculon.hardware.system import System
from calculon.inspect.group_conformal import FEWEST, LEVEL, Groups, equal_weights
from calculon.inspect.kernel_residuals import Sides, kernel_sides
from calculon.plan.choices import distinct
from calculon.plan.columns import field_of
from calculon.plan.plan import NAMES, Plan
from calculon.spec import catalog
from calculon.spec.execution import MATMUL_BYTES, PUBLISHED, Execution, arithmetic_type
from calculon.spec.model import Model
from calculon.units import Array

FILE = "validation/runs.csv"
"""The file of runs, below the root of the catalog."""

NEAREST = 3
"""Runs that a belief names."""

NO_PRESET = "published"
"""The preset of an execution that has no field for it."""

GAINS = (3.0, 1.0, 1.0, 1.0)
"""How much more a run counts of the same framework, generation of processors, width of arithmetic and class of models.

Software makes more of a difference than anything else, and no run counts for less than a seventh of one that has all in
common. They were not tuned: shares of steps held are within 3 points of each other with and without each.
"""

UNNAMED = "system"
"""The name of a system that has none."""

SMALL_MODEL = 1e9
"""Parameters below which a model is small: its kernels wait for the host."""

ALIKE_PEAK, _ALIKE_BANDWIDTH = 0.02, 0.25
_BITS_16 = ("bfloat16", "float16")
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A measured training step, and what the model says about it.

    Attributes
    ----------
    source, study, label : str
        Where it was published: the source, its study under ``validation/``, and the row.
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
    fitted : str
        Fields of executions whose values in a preset were fitted with the run in sight, separated by spaces.
    citation : str
        Author, year, title, table.
    """

    source: str
    study: str
    label: str
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
    fitted: str
    citation: str

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
        return Run(**{f.name: _value(f.type, self.columns[f.name][number]) for f in fields(Run)})

    def numbers(self, name: str) -> Array:
        """Return a column of numbers."""
        if name not in self._numbers:
            self._numbers[name] = np.array(list(map(float, self.columns[name])))
        return self._numbers[name]

    def where(self, name: str, value: str) -> Array:
        """Return which runs have a value in a column."""
        return np.array([one == value for one in self.columns[name]], bool)

    @classmethod
    def of(cls, some: Sequence[Run]) -> "Runs":
        """Return the columns of some runs."""
        names = [field.name for field in fields(Run)]
        return cls({name: [_text(getattr(run, name)) for run in some] for name in names})

    def of_framework(self, preset: str) -> Array:
        """Return which runs are of the framework of a preset."""
        names = [framework(one) for one in self.columns["preset"]]
        return np.array([one == framework(preset) for one in names])

    def sources(self, rows: Array) -> int:
        """Return how many sources some runs are of."""
        return len(set(np.array(self.columns["source"])[rows].tolist()))

    @cached_property
    def kinds(self) -> Array:
        """The kind of arithmetic of each run, as a code (:func:`kind`)."""
        return np.array([kind(one) for one in self.columns["type"]])

    @cached_property
    def groups(self) -> Groups:
        """The runs of each source as a group, with what makes runs alike (:data:`GAINS`)."""
        ratios = np.log(self.numbers("measured") / self.numbers("predicted"))
        codes: dict[str, int] = {}
        group = np.array([codes.setdefault(one, len(codes)) for one in self.columns["source"]], int)
        weight = equal_weights(self.columns["source"], self.columns["study"])
        presets, peaks = self._presets, {peak: i for i, peak in enumerate(self._generations)}
        context = (
            [presets[framework(one)] for one in self.columns["preset"]],
            [peaks[one] for one in self.numbers("peak").tolist()],
            self.kinds,
            self.numbers("parameters") < SMALL_MODEL,
        )
        return Groups(ratios, group, weight, np.array(context, int), GAINS)

    def context(self, preset: str, peak: float, datatype: str, parameters: float) -> Array:
        """Return the context of an execution, with the code -1 for what no run has."""
        near = [
            i for i, one in enumerate(self._generations) if abs(math.log(one / peak)) < ALIKE_PEAK
        ]
        generation = near[0] if near else -1
        small = parameters < SMALL_MODEL
        return np.array(
            [self._presets.get(framework(preset), -1), generation, kind(datatype), small]
        )

    @cached_property
    def features(self) -> Array:
        """What :func:`distance` compares of each run, shape (features, runs)."""
        named = [self.numbers(name) for name in _NUMBERS]
        return np.log2(np.array([*named, self.numbers("batch_size") * named[2] / named[0]]))

    @cached_property
    def _numbers(self) -> dict[str, Array]:
        return {}

    @cached_property
    def _presets(self) -> dict[str, int]:
        return {
            one: i for i, one in enumerate(dict.fromkeys(map(framework, self.columns["preset"])))
        }

    @cached_property
    def _generations(self) -> list[float]:
        return sorted(set(self.numbers("peak").tolist()))


def framework(preset: str) -> str:
    """Return the framework of a preset, of which there may be several.

    >>> framework("megatron-lm-ub"), framework("torchtitan")
    ('megatron-lm', 'torchtitan')
    """
    return "-".join(preset.split("-")[:2])


def kind(datatype: str) -> int:
    """Return a code for a type of arithmetic: those of one width are one kind, but for TF32."""
    return 19 if datatype == "tfloat32" else int(8 * MATMUL_BYTES[datatype])


def _value(annotation: Any, text: str) -> Any:
    if annotation is str:
        return text[1:-1].replace('""', '"') if text.startswith('"') else text
    if annotation is int:
        return int(text)
    return float(text) if text else None


def _text(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


@cache
def runs() -> Runs:
    """Return the runs of the catalog; none where the file is not there."""
    names = [field.name for field in fields(Run)]
    try:
        lines = (catalog.root() / FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return Runs(dict.fromkeys(names, ()))
    cells = [_cells(line, len(names) - 1) for line in lines]
    return Runs(dict(zip(cells[0], zip(*cells[1:], strict=True), strict=True)))


def _cells(line: str, commas: int) -> list[str]:
    """Split a line of CSV; quotes of its last cell stay: a reader of CSV takes longer."""
    if line.partition('"')[0].count(",") >= commas or '"' not in line:
        return line.split(",", commas)
    import csv  # which takes as long to load as the file

    return next(csv.reader([line]))


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
_OTHER_KIND, _OTHER_PRESET, _SAME_SOURCE = 2.0, 1.0, 4.0


def about(model: Model, system: System, execution: Execution) -> dict[str, Any]:
    """Return the fields of a :class:`Run` that follow from an execution, without what was measured."""
    same = ("num_procs", "tensor_par", "pipeline_par", "data_par", "microbatch_size", "batch_size")
    return {
        "preset": getattr(execution, "preset", NO_PRESET),
        "system": re.sub(r"\.(json|ya?ml)$", "", system.name),
        "type": execution.matmul_type,
        "peak": peak(system),
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


def peak(system: System) -> float:
    """Return the rate of matrix arithmetic in 16 bits in FLOP/s; without one, the highest."""
    known = [system.matrix[name].peak for name in _BITS_16 if name in system.matrix]
    return max(known or [engine.peak for engine in system.matrix.values()])


def distance(some: Runs, facts: Mapping[str, Any]) -> Array:
    """Return how far each run is from an execution.

    A factor of two counts 1 in parameters, 1/2 in processors, length of sequences, tokens of a processor and
    tensor-parallel degree, 1/4 in stages; 4 in the peak rate of 16-bit arithmetic, 1 in the bandwidth of memory; 2
    are added for arithmetic of another width, 1 for another preset.

    Parameters
    ----------
    some : Runs
        The runs.
    facts : mapping
        What :func:`about` says of the execution.
    """
    tokens = facts["batch_size"] * facts["seq_size"] / facts["num_procs"]
    here = np.log2([*(float(facts[name]) for name in _NUMBERS), tokens])
    away = _WEIGHTS @ np.abs(some.features - here[:, None])
    other = some.kinds != kind(facts["type"])
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


def same_processor(some: Runs, rate: float, system: System) -> Array:
    """Return which runs are of the processor: a peak rate within 2 %, and a memory bandwidth within 25 %."""
    memory = np.abs(np.log(some.numbers("bandwidth") / system.mem1.bandwidth)) < _ALIKE_BANDWIDTH
    return memory & (np.abs(np.log(some.numbers("peak") / rate)) < ALIKE_PEAK)


_RANGES = {
    "num_procs": "{:,.0f} processors",
    "parameters": "{:.3g} billion parameters",
    "seq_size": "sequences of {:,.0f} tokens",
    "tensor_par": "tensor-parallel degree {:,.0f}",
    "pipeline_par": "{:,.0f} pipeline stages",
    "microbatch_size": "microbatches of {:,.0f} sequences",
    "domain": "{:,.0f} processors on the fastest network",
}
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

    Parameters
    ----------
    some : Runs
        The runs.
    facts : mapping
        What :func:`about` says of the execution.
    execution : Execution
        The execution.
    here : array of bool
        The runs of its processor (:func:`same_processor`).
    """
    if not execution.training:
        yield "inference; validated runs are training steps"
    if not here.any():
        yield f"no validated run on {_called(facts)}"
    elif not (here & (some.kinds == kind(facts["type"]))).any():
        yield f"no validated run in {facts['type']} on {_called(facts)}"
    for name, text in _RANGES.items():
        scale = 1e9 if name == "parameters" else 1
        known, value = some.numbers(name) / scale, facts[name] / scale
        number = text[: text.index("}") + 1].rpartition("{")[2]
        if value > known.max():
            yield f"{text.format(value)}; validated up to {('{' + number).format(known.max())}"
        elif value < known.min() * (1 - _ROUNDING):
            yield f"{text.format(value)}; validated from {('{' + number).format(known.min())}"
    for name, text in _CHOICES.items():
        if facts[name] not in some.columns[name]:
            yield f"{text} {facts[name]} never validated"
    if execution.weight_offload or execution.activations_offload or execution.optimizer_offload:
        yield "offloading never validated"


def _called(facts: Mapping[str, Any]) -> str:
    """Return what to call the system of an execution; one that was given as a mapping has no name of its own."""
    name: str = facts["system"]
    return "this system" if name == UNNAMED else name


def remark(some: Runs, facts: Mapping[str, Any], here: Array, mfu: float) -> str:
    """Return a sentence where a utilisation is above every measured one of the processor and type of arithmetic.

    Arguments as in :func:`outside`; the utilisation counts causal attention only.
    """
    same = np.flatnonzero(here & (some.kinds == kind(facts["type"])))
    if not len(same):
        return ""
    best = some[int(same[some.numbers("mfu_causal")[same].argmax()])]
    if round(100 * mfu) <= round(100 * best.mfu_causal):
        return ""
    return (
        f"MFU {100 * mfu:.0f} % causal; the best validated run on {best.processor} in {best.type} has "
        f"{100 * best.mfu_causal:.0f} % ({best.study}, {best.label})"
    )


# -- how sure ---------------------------------------------------------------------------------------------------------


def factors(
    model: Model, system: System, plan: Plan, stats: Mapping[str, Any]
) -> tuple[Array, Array]:
    """Return measured over predicted time at both ends of the interval of each execution.

    Residuals of whole iterations that a user calibrated the system on take precedence over validated runs. On a
    processor without a validated run the residuals of its kernels join in quadrature
    (:mod:`calculon.inspect.kernel_residuals`).

    Parameters
    ----------
    model, system : Model, System
        Of all executions.
    plan : Plan, with n rows
        The executions.
    stats : mapping of str to array, shape (n,)
        Their statistics by name; those of time are needed on a processor without a validated run only.

    Returns
    -------
    low, high : array, shape (n,)
        Not-a-number in rows of edition ``sc23``, and everywhere without enough runs.
    """
    some = runs()
    columns = [getattr(plan, name) for name in _DECISIVE]
    named, row_of, _ = distinct([np.broadcast_to(column, len(plan)) for column in columns])
    ends = np.array([_ends(some, model, system, codes) for codes in named.tolist()])[row_of].T
    low, middle, high = np.where(plan.malformed < 0, ends, np.nan)
    if whole_iterations(system) or same_processor(some, peak(system), system).any():
        return np.exp(low), np.exp(high)
    for number, codes in enumerate(named.tolist()):
        sides = kernel_sides(system, _datatype(codes))
        rows = np.flatnonzero((row_of == number) & np.isfinite(middle))
        if sides and len(rows):
            down, up = sides.of({name: _rows(stats[name], rows) for name in Sides.statistics})
            low[rows] = middle[rows] - np.hypot(middle[rows] - low[rows], down)
            high[rows] = middle[rows] + np.hypot(high[rows] - middle[rows], up)
    return np.exp(low), np.exp(high)


def _rows(values: Any, rows: Array) -> Array:
    """Return some rows of a statistic, which may be that of one execution."""
    column = np.atleast_1d(np.asarray(values, float))
    return column[rows]


_PRESET = ("preset",) if "preset" in NAMES else ()
_DECISIVE = ("edition", "datatype", "matmul_dtype", *_PRESET)


def _value_of(name: str, code: int) -> Any:
    return field_of(name).declaration.choices[code]


def _datatype(codes: Sequence[int]) -> str:
    return arithmetic_type(_value_of("datatype", codes[1]), _value_of("matmul_dtype", codes[2]))


def _ends(
    some: Runs, model: Model, system: System, codes: Sequence[int]
) -> tuple[float, float, float]:
    """Return lower end, median and upper end of log measured over predicted time for codes of what decides it."""
    edition = _value_of("edition", codes[0])
    if edition == PUBLISHED:
        return math.nan, math.nan, math.nan
    if own := whole_iterations(system):
        return math.log(min(one.low for one in own)), 0.0, math.log(max(one.high for one in own))
    if some.groups.count < FEWEST:
        return math.nan, math.nan, math.nan
    preset = _value_of("preset", codes[3]) if _PRESET else NO_PRESET
    size = parameter_count(model)
    return some.groups.limits(some.context(preset, peak(system), _datatype(codes), size))


def whole_iterations(system: System) -> list[Spread]:
    """Return the residuals of whole iterations that a calibration of the system states."""
    return [
        one
        for one in system.calibration.spreads
        if one.part == TRAINING and one.edition != PUBLISHED
    ]


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
    if execution.edition == PUBLISHED or some.groups.count < FEWEST:
        return None
    low, high = factors(model, system, Plan.of(execution), stats)
    facts = about(model, system, execution)
    here = same_processor(some, facts["peak"], system)
    own = whole_iterations(system)
    time = float(stats["total_time"])
    return Belief(
        level=min((one.level for one in own), default=LEVEL),
        low=float(low[0]) * time,
        high=float(high[0]) * time,
        nearest=nearest(some, distance(some, facts)),
        outside=tuple(outside(some, facts, execution, here)),
        remark=remark(some, facts, here, float(stats["mfu_causal"])),
        basis=_basis(some, system, facts, here),
    )


def _basis(some: Runs, system: System, facts: Mapping[str, Any], here: Array) -> str:
    """Say what an interval rests on."""
    if whole_iterations(system):
        return f"whole iterations that {_called(facts)} was calibrated on"
    names = {
        framework(facts["preset"]): some.of_framework(facts["preset"]),
        _called(facts): here,
        facts["type"]: some.kinds == kind(facts["type"]),
    }
    counts = ", ".join(f"{some.sources(rows)} of {name}" for name, rows in names.items())
    text = f"{len(some):,} measured steps of {some.groups.count} sources ({counts})"
    if here.any():
        return text
    if sides := kernel_sides(system, facts["type"]):
        return f"{text}, with the residuals of kernels of {_called(facts)}: {sides}"
    return f"{text}; kernels of {_called(facts)} were not measured"
