"""Measured training steps with their predictions: the rows of ``validation/runs.csv``.

The runs come from the studies under ``validation/``: one for each measured whole training step with which edition
``corrected`` was compared. ``calculon lv --edition corrected --runs FILE`` writes them.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache, cached_property
from typing import Any

import numpy as np

from calculon.architecture.parameters import parameter_count
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations import catalog
from calculon.declarations.execution import Execution
from calculon.declarations.files import document_stem
from calculon.declarations.machine_provenance import short_name
from calculon.declarations.model import Model
from calculon.declarations.named_values import ENGINE_BYTES, SPLIT_WEIGHTS
from calculon.declarations.origin import plain_name
from calculon.declarations.presets import PUBLISHED_FORMS
from calculon.declarations.statistics import ALL_PARTS_OF_TIME
from calculon.estimate.memory_error import MemoryErrors, memory_errors
from calculon.estimate.source_errors import SourceErrors, equal_weights
from calculon.hardware.system import System
from calculon.plan.plan import NAMES

FILE = "validation/runs.csv"
"""File of runs, relative to the root of the catalog."""

FACTORS = {
    "software": 1.25,
    "generation of processors": 1.25,
    "width of arithmetic": 1.25,
    "size of the model": 1.25,
    "sharding of weights": 1.25,
    "experts": 8.0,
}
"""Weight of a run that shares each feature with an execution, relative to a run that does not.

MoE models have their own kernels, all-to-all exchanges and load imbalance, about which dense runs say little. The other
features matter less: with factors of 1.25, 1.5, 2 or 3 for each, intervals from other sources contain 0.89 to 0.90 of
the dense rows. The factors were chosen with these shares known.
"""

MEMORY_GAINS = (3.0, 3.0, 3.0)
"""Additional weights of a run for the memory of an execution: of the same framework, with the same sharding of weights,
and with the same class of models (dense or MoE). They were not tuned."""

SMALL_MODEL = 1e9
"""Number of parameters below which a model is small: the host limits its kernels."""

RANGES = {
    "num_procs": "{:,.0f} processors",
    "parameters": "{:.3g} billion parameters",
    "seq_size": "sequences of {:,.0f} tokens",
    "tensor_par": "tensor-parallel degree {:,.0f}",
    "pipeline_par": "pipeline-parallel degree {:,.0f}",
    "microbatch_size": "microbatch size {:,.0f}",
    "domain": "{:,.0f} processors on the fastest network",
}
"""Numbers for which pages report that they are outside the range of all runs, in words."""

COMPARED = (
    *(name for name in RANGES if name not in ("microbatch_size", "domain")),
    "peak",
    "bandwidth",
)
"""Numbers that contribute to the distance between runs."""

BITS_16 = ("bfloat16", "float16")
"""Types that are not distinguished in validated runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Measured training step with its prediction.

    Attributes:
        source, study, label: Publication: the source, its study under ``validation/``, and the row.
        preset, system, type: Preset and system of the study, and type of matrix arithmetic.
        accelerator, family: Processor and generation, as the system file states them (:class:`Provenance`); empty if it
            does not.
        peak, bandwidth: Rate of matrix arithmetic in 16 bits in FLOP/s, and bandwidth of tier-1 memory in B/s.
        domain: Processors of the fastest network.
        num_procs, tensor_par, pipeline_par, data_par, microbatch_size, batch_size, seq_size, hidden: Values of the
            execution and the model; the sequence length is in tokens.
        parameters, experts: Values of the model; 0 experts for dense models.
        schedule, zero_stage, recompute, overlap: Named choices of the execution: ``pp_schedule``, ``zero_stage``,
            ``activation_recompute``, ``tensor_par_overlap``.
        measured, predicted: Seconds of a step.
        mfu, mfu_causal: Measured model FLOP utilization, with full and with causal attention.
        measured_memory, predicted_memory: Bytes of a processor, if measured.
        parts: Percentages of the parts of the predicted time, in the order of
            :data:`~calculon.declarations.statistics.ALL_PARTS_OF_TIME`, separated by spaces.
        fitted: Fields of executions whose preset values were fitted to the run, separated by spaces.
        functional: 1 for a functional test of a framework, in deterministic mode; else 0.
        citation: Author, year, title, table.
    """

    source: str
    study: str
    label: str
    preset: str
    system: str
    accelerator: str
    family: str
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
    experts: int
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
    parts: str = ""
    fitted: str
    functional: int = 0
    citation: str

    @property
    def error(self) -> float:
        """Predicted over measured time, minus 1, in percent."""
        return 100 * (self.predicted / self.measured - 1)

    @property
    def memory_error(self) -> float | None:
        """Predicted over measured memory, minus 1, in percent."""
        if self.measured_memory is None or self.predicted_memory is None:
            return None
        return 100 * (self.predicted_memory / self.measured_memory - 1)

    @property
    def processor(self) -> str:
        """Short name of the processor, such as ``A100``."""
        return short_name(self.system)


@dataclass(frozen=True)
class Runs:
    """Runs of a file, as text columns; records are created on access."""

    columns: Mapping[str, Sequence[str]]

    def __len__(self) -> int:
        return len(self.columns["source"])

    def __getitem__(self, number: int) -> Run:
        return Run(**{f.name: _value(f.type, self.columns[f.name][number]) for f in fields(Run)})

    def numbers(self, name: str) -> Array:
        """Return a numeric column."""
        if name not in self._numbers:
            self._numbers[name] = np.array(list(map(float, self.columns[name])))
        return self._numbers[name]

    def where(self, name: str, value: str) -> Array:
        """Return a mask of the runs with a value in a column."""
        return np.array([one == value for one in self.columns[name]], bool)

    @classmethod
    def of(cls, some: Sequence[Run]) -> "Runs":
        """Return the columns of some runs."""
        names = [field.name for field in fields(Run)]
        return cls({name: [_text(getattr(run, name)) for run in some] for name in names})

    def of_framework(self, preset: str) -> Array:
        """Return a mask of the runs with the framework of a preset."""
        wanted = framework(preset)
        return np.array([one == wanted for one in self._frameworks], bool)

    def sources(self, rows: Array) -> int:
        """Return the number of sources of selected runs."""
        return len(set(np.array(self.columns["source"])[rows].tolist()))

    @cached_property
    def kinds(self) -> Array:
        """Kind of arithmetic of each run, as a code (:func:`kind`)."""
        return np.array([kind(one) for one in self.columns["type"]])

    @cached_property
    def by_source(self) -> SourceErrors:
        """Errors of the runs by source; the studies of a source have equal weights."""
        return self._errors(self.columns["source"], self.columns["study"])

    @cached_property
    def by_processor(self) -> SourceErrors:
        """Errors of the runs by processor, with equal weights of its sources: for processors without runs."""
        return self._errors(self.columns["accelerator"], self.columns["source"])

    def _errors(self, groups: Sequence[str], parts: Sequence[str]) -> SourceErrors:
        return SourceErrors(
            ratios=np.log(self.numbers("measured") / self.numbers("predicted")),
            source=np.unique(groups, return_inverse=True)[1],
            weight=equal_weights(groups, parts),
            context=self.contexts,
            factors=tuple(FACTORS.values()),
            evidence=self.evidence,
        )

    @cached_property
    def evidence(self) -> Array:
        """Mask of the runs that intervals use: not used in the fit of a preset, and not functional tests."""
        return self.where("fitted", "") & self.where("functional", "0")

    @cached_property
    def contexts(self) -> Array:
        """Features that runs may share with an execution, in the order of :data:`FACTORS`, as codes."""
        codes, generations = self._software, self._generations
        context = (
            [codes[software(one)] for one in self.columns["preset"]],
            [generations[one] for one in self.columns["family"]],
            self.kinds,
            self.numbers("parameters") < SMALL_MODEL,
            [one in SPLIT_WEIGHTS for one in self.columns["zero_stage"]],
            self.numbers("experts") > 0,
        )
        return np.array(context, int)

    def memory_errors(
        self, preset: str, *, splits_weights: bool, experts: bool
    ) -> MemoryErrors | None:
        """Return the distribution of measured over predicted memory for a class of executions.

        Runs whose settings were stated by hand instead of a framework's preset do not count: the preset includes what a
        framework stores, gathers and reserves.

        Args:
            preset: Preset of the executions.
            splits_weights: True if weights are sharded.
            experts: True for MoE models.

        Returns:
            None if too few sources measured memory.
        """
        key = preset, splits_weights, experts
        if key not in self._memory_errors:
            self._memory_errors[key] = self._memory_errors_of(*key)
        return self._memory_errors[key]

    def _memory_errors_of(
        self, preset: str, splits_weights: bool, experts: bool
    ) -> MemoryErrors | None:
        columns = self.columns
        pairs = zip(columns["measured_memory"], columns["predicted_memory"], strict=True)
        known = np.array([bool(measured and predicted) for measured, predicted in pairs], bool)
        known &= ~self.where("preset", PUBLISHED_FORMS)
        rows: list[int] = np.flatnonzero(known).tolist()
        split = [columns["zero_stage"][i] in SPLIT_WEIGHTS for i in rows]
        alike = (
            self.of_framework(preset)[rows],
            np.array(split, bool) == splits_weights,
            (self.numbers("experts")[rows] > 0) == experts,
        )
        # Runs that share nothing keep a weight of 1, so that new classes also have a distribution.
        likeness = 1.0 + np.array(MEMORY_GAINS) @ np.array(alike)
        measured, predicted, sources, studies = (
            [columns[name][i] for i in rows]
            for name in ("measured_memory", "predicted_memory", "source", "study")
        )
        ratios = np.log(np.array(measured, float) / np.array(predicted, float))
        weights = equal_weights(sources, studies) * likeness
        return memory_errors(ratios, np.unique(sources, return_inverse=True)[1], weights)

    def context(
        self,
        preset: str,
        family: str,
        datatype: str,
        parameters: float,
        *,
        splits_weights: bool,
        experts: bool,
    ) -> Array:
        """Return the features of an execution that runs may share; -1 for values that no run has."""
        # No run has code -1: unknown values match none, and give all runs the same weight.
        generation = self._generations.get(family, -1) if family else -1
        small = parameters < SMALL_MODEL
        named = self._software.get(software(preset), -1)
        return np.array([named, generation, kind(datatype), small, splits_weights, experts])

    @cached_property
    def shares(self) -> Array:
        """Fractions of the parts in the predicted time, shape (parts, runs)."""
        cells = [float(cell) for one in self.columns["parts"] for cell in one.split()]
        return (
            np.array(cells).reshape(len(self), -1).T / 100
            if cells
            else np.zeros((len(ALL_PARTS_OF_TIME), 0))
        )

    @cached_property
    def features(self) -> Array:
        """Features of each run for :func:`distance`, shape (features, runs)."""
        # Logarithms: a factor of 2 is equally far at 8 and at 8,000 processors.
        named = [self.numbers(name) for name in COMPARED]
        return np.log2(np.array([*named, self.numbers("batch_size") * named[2] / named[0]]))

    @cached_property
    def _numbers(self) -> dict[str, Array]:
        return {}

    @cached_property
    def _memory_errors(self) -> dict[tuple[str, bool, bool], MemoryErrors | None]:
        return {}

    @cached_property
    def _software(self) -> dict[str, int]:
        names = map(software, self.columns["preset"])
        return {one: i for i, one in enumerate(dict.fromkeys(names))}

    @cached_property
    def _frameworks(self) -> list[str]:
        named = {preset: framework(preset) for preset in set(self.columns["preset"])}
        return [named[preset] for preset in self.columns["preset"]]

    @cached_property
    def _generations(self) -> dict[str, int]:
        return {one: i for i, one in enumerate(dict.fromkeys(self.columns["family"]))}


def framework(preset: str) -> str:
    """Return the framework of a preset; several presets may belong to a framework.

    >>> [framework(preset) for preset in ("megatron-lm-ub", "megatron-bridge", "torchtitan")]
    ['megatron-lm', 'megatron-lm', 'torchtitan']
    """
    return "megatron-lm" if preset.startswith("megatron-") else "-".join(preset.split("-")[:2])


def software(preset: str) -> str:
    """Return the framework of a preset, with the year for presets of older versions.

    >>> software("megatron-lm-ub"), software("megatron-lm-2021")
    ('megatron-lm', 'megatron-lm-2021')
    """
    name, year = framework(preset), preset.rpartition("-")[2]
    return f"{name}-{year}" if year.isdigit() else name


def kind(datatype: str) -> int:
    """Return a code for a type of arithmetic: types of equal width are one kind, except TF32."""
    return 19 if datatype == "tfloat32" else int(8 * ENGINE_BYTES[datatype])


def _value(annotation: Any, text: str) -> Any:
    if annotation is str:
        return text
    if annotation is int:
        return int(text)
    return float(text) if text else None


def _text(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


@cache
def runs() -> Runs:
    """Return the runs of the catalog; empty if the file does not exist.

    Columns that the file lacks have their default.
    """
    names = [field.name for field in fields(Run)]
    try:
        with (catalog.root() / FILE).open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
    except FileNotFoundError:
        return Runs(dict.fromkeys(names, ()))
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    absent = [one for one in fields(Run) if one.name not in columns and one.default is not MISSING]
    return Runs({one.name: (_text(one.default),) * len(rows) for one in absent} | columns)


def about(model: Model, system: System, execution: Execution) -> dict[str, Any]:
    """Return the fields of a :class:`Run` that follow from an execution, without measured values."""
    same = (field.name for field in fields(Run) if field.name in NAMES)
    return {
        "system": document_stem(plain_name(system.name)),
        "accelerator": system.provenance.processor,
        "family": system.provenance.family,
        "type": execution.matmul_type,
        "peak": peak(system),
        "bandwidth": system.mem1.bandwidth,
        "domain": system.networks[0].size,
        **{name: getattr(execution, name) for name in same},
        "seq_size": execution.seq_length or model.seq_size,
        "parameters": parameter_count(model),
        "hidden": model.hidden,
        "experts": model.num_experts if model.has_experts else 0,
        "schedule": execution.pp_schedule,
        "recompute": execution.activation_recompute,
        "overlap": execution.tensor_par_overlap,
    }


def peak(system: System) -> float:
    """Return the 16-bit peak rate of matrix arithmetic in FLOP/s; without 16-bit types, the highest peak."""
    known = [system.matrix[name].peak for name in BITS_16 if name in system.matrix]
    return max(known or [engine.peak for engine in system.matrix.values()])
