"""Studies: the declared fields of ``study.yaml``, and the studies of a folder or the catalog."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.base.records import columns
from calculon.base.units import GIB, GIGA
from calculon.declarations import catalog
from calculon.declarations.decode import decode
from calculon.declarations.execution import Execution
from calculon.declarations.expression import Expression
from calculon.declarations.fields import declare, spec_fields
from calculon.declarations.files import SUFFIXES, document_suffix, read_document
from calculon.declarations.named_values import CORRECTED, EDITION_NAMES, PUBLISHED
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.declarations.statistics import Stats
from calculon.validate.published_fields import (
    DeploymentFields,
    ExecutionFields,
    Formulas,
    Limits,
    ModelFields,
    Names,
    Texts,
    Values,
    WorkloadFields,
)

FILE = "study.yaml"

UNITS = {
    "s": ("s", 1.0),
    "ms": ("s", 1e-3),
    "min": ("s", 60.0),
    "h": ("s", 3600.0),
    "B": ("B", 1.0),
    "GB": ("B", GIGA),
    "GiB": ("B", GIB),
    "samples/s": ("samples/s", 1.0),
    "tokens/s": ("tokens/s", 1.0),
    "%": ("fraction", 0.01),
}
"""Units of measured values, each with the unit of the compared statistics and the factor to it."""

ALL_EDITIONS = "all"
"""Name for all editions."""

STATISTICS = {column.name: column.unit.symbol for column in columns(Stats)}
"""Unit of every statistic."""

SERVED = {name: column.unit.symbol for name, column in SERVING_FIGURES.items()}
"""Unit of every figure of a deployment."""


_EXECUTION_FIELDS = {one.key for one in spec_fields(Execution)}
STAGES = {"first": 0, "last": -1}
"""Stages whose memory a quantity can name, with their places in the list of stages."""


def of_stage(stage: str, name: str) -> str:
    """Return the key of a statistic for a stage of :data:`STAGES`."""
    return f"{stage} {name}"


def is_of_stage(key: str) -> bool:
    """Return True for the key of a statistic for a stage of :data:`STAGES`."""
    return key.partition(" ")[0] in STAGES


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Layout of a quantity as its own table: one row and one column per value of two columns."""

    title: str = declare("first line of the table")
    rows: str = declare("column with the names of the rows")
    columns: str = declare("column with the names of the columns")
    beside: str = declare("additional statistic in GiB, which is not compared", default="")

    def problems(self, path: str) -> list[Problem]:
        """Return the problem of an unknown additional statistic."""
        known = not self.beside or self.beside in STATISTICS
        return [] if known else [_unknown_statistic(f"{path}.beside", self.beside)]


def _unknown_statistic(place: str, name: str) -> Problem:
    hint = nearest(name, [*STATISTICS, *SERVED]) or "see: calculon describe stats"
    return Problem(place, "a statistic", f"the unknown {name!r}", hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """Measured quantity: its column, the statistics to compare with, and the accepted error."""

    name: str = declare("short name of the quantity")
    measured: str = declare("column of the measured values")
    unit: str = declare("unit of the measured values", choices=tuple(UNITS))
    estimate: Expression = declare("statistic, or sum of statistics, to compare with")
    stage: str = declare(
        "pipeline stage whose memory was measured: the fullest, the first, or the last, whose ranks log in Megatron-LM",
        choices=("fullest", *STAGES),
        default="fullest",
    )
    bound: Limits = declare(
        "largest mean absolute error that passes in percent, or an object with one for each edition"
    )
    relative_to: Expression | None = declare(
        "condition of the row that this one is a percentage of", default=None
    )
    within: Names = declare("columns with equal values in both rows", default=Names())
    times: Expression | None = declare(
        "number of estimates in the measured value: the steps of a run, or steps times processors",
        default=None,
    )
    parts_of: Names = declare(
        "columns with equal values in the parts of a run, whose rows add up to the measured value of one of them",
        default=Names(),
    )
    fitted: Expression | None = declare(
        "condition of rows of served models that a fit of this figure used: no evidence for ranges",
        default=None,
    )
    table: Layout | None = declare("layout of a separate table", default=None)
    cause: str = declare("likely cause of the largest errors", default="")

    @property
    def keys(self) -> dict[str, str]:
        """Statistics of the quantity, each with its key in a prediction; keys for a named stage differ."""
        # A study may compare the same statistic on several stages, so the keys must differ.
        return {
            n: of_stage(self.stage, n) if self.stage in STAGES else n for n in self.estimate.names
        }

    @property
    def is_step(self) -> bool:
        """True for the time of a whole training step."""
        return self.estimate.text == "total_time" and not (self.relative_to or self.times)

    @property
    def is_run(self) -> bool:
        """True for a figure of a whole run, including failures, checkpoints and evaluation."""
        return self.times is not None and self.relative_to is None

    @property
    def is_memory(self) -> bool:
        """True for the total memory of a processor."""
        return self.estimate.text == "proc_mem_tier1_cap_req" and self.relative_to is None

    @property
    def is_served(self) -> bool:
        """True for a figure of a deployment."""
        return any(name in SERVED for name in self.estimate.names)

    @property
    def is_time(self) -> bool:
        """True for a time, for which smaller is better."""
        return UNITS[self.unit][0] == "s"

    def problems(self, path: str) -> list[Problem]:
        """Return the problem of an unknown statistic, or of a unit that differs from the statistics."""
        where = f"{path}.estimate"
        for name in self.estimate.names:
            if name not in STATISTICS and name not in SERVED:
                return [_unknown_statistic(where, name)]
        if self.stage in STAGES and UNITS[self.unit][0] != "B":
            wanted = "fullest, unless bytes are measured: only memory is known by stage"
            return [Problem(f"{path}.stage", wanted, self.stage)]
        wanted = "fraction" if self.relative_to else UNITS[self.unit][0]
        units_of = STATISTICS | SERVED
        found = {"fraction" if self.relative_to else units_of[n] for n in self.estimate.names}
        if found != {wanted}:
            units = ", ".join(sorted(found)) or "no unit"
            text = f"statistics in {wanted}, as the measured values in {self.unit}"
            return [Problem(where, text, f"{self.estimate.text} in {units}")]
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """Rows that are not compared under one or all editions of the cost model, and the reason."""

    when: Expression = declare("condition that selects the rows")
    reason: str = declare("reason for the exclusion")
    edition: str = declare(
        "edition under which they are not compared",
        choices=(ALL_EDITIONS, *EDITION_NAMES),
        default=ALL_EDITIONS,
    )

    def concerns(self, edition: str) -> bool:
        """Return True if the rows are excluded under an edition."""
        return self.edition in (ALL_EDITIONS, edition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Conversion of a measured row to a model, execution and system.

    Text is an expression over the columns of the row, unless a field takes named values and the text is one of them.
    Specs are named by templates, in which ``{column}`` stands for a cell.
    """

    system: str = declare("system, by name", default="")
    override: Values = declare("system values to replace, by path", default=Values())
    derive: Formulas = declare("columns computed from other columns", default=Formulas())
    model: ModelFields = declare("model, by name or field by field", default=ModelFields())
    execution: ExecutionFields = declare(
        "execution, by file of the study or field by field", default=ExecutionFields()
    )
    deployment: DeploymentFields = declare(
        "deployment of a served model instead of an execution, by name or field by field",
        default=DeploymentFields(),
    )
    workload: WorkloadFields = declare(
        "workload of a deployment, by name or field by field", default=WorkloadFields()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative(Recipe):
    """Another interpretation of the source, to show the effect of the choice."""

    name: str = declare("name of the alternative")
    why: str = declare("the change, and the reason for it")

    @property
    def changes(self) -> tuple[str, ...]:
        """Paths of the replaced fields."""
        parts = ("model", "execution", "deployment", "workload")
        specs = {part: getattr(self, part) for part in parts}
        return (
            *(("system",) if self.system else ()),
            *(f"override.{key}" for key in self.override),
            *(f"derive.{key}" for key in self.derive),
            *(part for part, one in specs.items() if one.source),
            *(f"{part}.{key}" for part, one in specs.items() for key in one.values),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Study(Recipe):
    """Folder with measured values, and all inputs to estimate them."""

    title: str = declare("subject of the measurements")
    source: str = declare("source of the values: citation, table")
    evidence: str = declare(
        "measured; derived from a measured rate that the source prints; or the source's own formula",
        choices=("measured", "derived", "formula"),
    )
    calibration: str = declare("rows that a calibration of the model or system has used")
    measured: str = declare("file of the measured values, CSV with a header")
    whole_steps: bool = declare(
        "true if its times of whole training steps are evidence for intervals; false for times of layers, and of a "
        "system that was tuned on them",
        default=True,
    )
    fitted: Names = declare(
        "fields of executions whose preset values were fitted to these rows",
        default=Names(),
    )
    functional_test: bool = declare(
        "true for functional tests of a framework in deterministic mode, which were not tuned for speed",
        default=False,
    )
    parts: Formulas = declare(
        "groups of its rows with different known mechanisms, by name: the condition of the rows of each",
        default=Formulas(),
    )
    label: str = declare(
        "name of a row, in which {column} stands for a cell; by default the first column",
        default="",
    )
    sweep: Names = declare(
        "columns with equal values in rows that are ranked against each other", default=Names()
    )
    by: Names = declare("columns whose values define groups with separate errors", default=Names())
    exclude: tuple[Exclusion, ...] = declare("rows that are not compared", default=())
    choices: Texts = declare(
        "choices that the source leaves open: the value, and the reason", default=Texts()
    )
    chosen: ExecutionFields = declare(
        "values that `choices` states for execution fields that a preset or a default fills in",
        default=ExecutionFields(),
    )
    alternatives: tuple[Alternative, ...] = declare(
        "other choices, to show their effect", default=()
    )
    quantities: tuple[Quantity, ...] = declare("quantities to compare")
    is_alternative: bool = field(default=False, compare=False)
    name: str = field(default="study", compare=False)
    folder: Path = field(default=Path(), compare=False)

    @property
    def origin(self) -> str:
        """Source of the values: the outermost folder of the study. Rows of one source have similar errors."""
        return self.name.partition("/")[0]

    @property
    def file(self) -> str:
        """File of the study."""
        return str(self.folder / FILE)

    @property
    def serves(self) -> bool:
        """True if the rows are deployments instead of training steps."""
        return bool(self.deployment.source or self.deployment.values)

    @property
    def usual_edition(self) -> str:
        """Default edition: the published one, unless it has none of the figures."""
        beyond = self.serves or all(one.is_run for one in self.quantities)
        return CORRECTED if beyond else PUBLISHED

    def problems(self, path: str) -> list[Problem]:
        """Return the problems of a missing system, choices without a value, and quantities of the wrong kind of row."""
        missing = [] if self.system else [Problem("system", "the name of a system", "nothing")]
        kind = "figures of deployments" if self.serves else "statistics of executions"
        return [*missing, *self._open_choices()] + [
            Problem(f"quantities[{i}].estimate", kind, one.estimate.text)
            for i, one in enumerate(self.quantities)
            if one.is_served is not self.serves
        ]

    def _open_choices(self) -> list[Problem]:
        """Return problems of fields in ``choices`` whose value would come unchecked from a preset or a default."""
        if self.chosen.source:
            return [Problem("chosen", "an object with a value for each field", self.chosen.source)]
        if self.execution.source or self.serves:
            return []
        named = [name for key in self.choices for name in key.split(", ")]
        # Otherwise a later change of a preset would silently change a documented choice.
        stated = self.execution.values.keys() | self.chosen.values.keys()
        return [
            Problem(
                f"chosen.{name}",
                "the value of a field that `choices` names",
                "nothing",
                "state it here or under `execution`",
            )
            for name in named
            if name in _EXECUTION_FIELDS and name not in stated
        ]

    def changed(self, by: Alternative) -> "Study":
        """Return the study under an alternative, which may differ from the study's own choices."""
        return replace(
            self,
            is_alternative=True,
            chosen=ExecutionFields(),
            system=by.system or self.system,
            override=self.override.changed(by.override),
            derive=self.derive.changed(by.derive),
            model=self.model.changed(by.model),
            execution=self.execution.changed(by.execution),
            deployment=self.deployment.changed(by.deployment),
            workload=self.workload.changed(by.workload),
        )

    def published(self) -> "Study":
        """Return the study as seen by the published edition."""
        return replace(self, model=self.model.published(), execution=self.execution.published())


def read_study(folder: Path, name: str = "") -> Study:
    """Read the study of a folder.

    Raises:
        SpecError: When the file is missing or invalid.
    """
    path = str(folder / FILE)
    return decode(Study, read_document(path), path, name=name or folder.name, folder=folder)


# Studies of a folder or the catalog, and the specs that they name.

FOLDER = "validation"
_COLUMN = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Library:
    """Studies and specs in a folder, in addition to the catalog.

    Attributes:
        base: Folder with ``validation``, and optionally ``models`` and ``systems``, whose files take precedence over
            the catalog. If its ``validation`` contains executions only, as in the published tool, the studies of the
            catalog are used.
    """

    base: Path

    @classmethod
    def at(cls, base: str | Path | None = None) -> "Library":
        """Return the library of a folder; by default of the catalog.

        Raises:
            SpecError: When the folder contains no validation studies.
        """
        result = cls(catalog.root() if base is None else Path(base))
        if not (result.base / FOLDER).is_dir():
            wanted = f"a folder that holds the folder {FOLDER!r}"
            missing = "no such folder" if not result.base.is_dir() else f"none in {result.base}"
            raise SpecError(str(base), Problem("", wanted, missing))
        return result

    @property
    def studies_folder(self) -> Path:
        """Folder of the studies."""
        own = self.base / FOLDER
        return own if any(own.rglob(FILE)) else catalog.root() / FOLDER

    def names(self) -> list[str]:
        """Return the names of all studies: their folders, relative to the folder of studies."""
        return sorted(
            path.parent.relative_to(self.studies_folder).as_posix()
            for path in self.studies_folder.rglob(FILE)
        )

    def studies(self, name: str = "") -> list[Study]:
        """Read all studies, or studies by name: a full name, a folder with several, or the last part of a name.

        Raises:
            SpecError: For an unknown name, and for an invalid study.
        """
        known = self.names()
        chosen = [one for one in known if not name or f"{one}/".startswith(f"{name}/")]
        chosen = chosen or [one for one in known if one.rpartition("/")[2] == name]
        if not chosen:
            hint = self._with_source(name, known) or nearest(
                name, [*known, *(one.rpartition("/")[2] for one in known)]
            )
            listing = hint or "known studies: " + ", ".join(known)
            raise SpecError(
                str(self.studies_folder), Problem("", "a study", f"no study {name!r}", listing)
            )
        return [read_study(self.studies_folder / one, one) for one in chosen]

    def _with_source(self, name: str, known: Sequence[str]) -> str:
        """Return a hint with studies whose title or source has most words of a name, at least two; else empty."""
        words = set(re.findall("[a-z0-9]+", name.lower()))
        counts = {}
        for one in known:
            text = (self.studies_folder / one / FILE).read_text(errors="replace").lower()
            lines = " ".join(re.findall("^(?:title|source):.*", text, re.MULTILINE))
            counts[one] = len(words & set(re.findall("[a-z0-9]+", lines)))
        most = max(counts.values(), default=0)
        found = [one for one, count in counts.items() if count == most > 1]
        return f"these words are in the title or source of {', '.join(found)}" if found else ""

    def spec(self, kind: str, source: str, study: Study) -> tuple[str, Any]:
        """Read a spec that a study names: a file of the study, or a name in this folder or the catalog.

        Args:
            kind: ``model``, ``system`` or ``execution``.
            source: A file name with a suffix, or a name.
            study: The study that names it.

        Returns:
            Path of the document, and the document.
        """
        if document_suffix(source) in SUFFIXES:
            places = (self.base / FOLDER / study.name, study.folder)
            path = next((p / source for p in places if (p / source).is_file()), None)
            if path is None:
                wanted = f"a {kind} file in {study.folder}"
                raise SpecError(study.file, Problem(kind, wanted, f"no file {source!r}"))
            return str(path), catalog.resolved_document(kind, read_document(str(path)), str(path))
        own = self.base / catalog.KINDS[kind] / f"{source}.json"
        if own.is_file():
            return str(own), catalog.resolved_document(kind, read_document(str(own)), str(own))
        try:
            return source, catalog.load(kind, source)[1]
        except SpecError as error:
            known = list(catalog.names(kind))
            hint = nearest(source, known) or "known names: " + ", ".join(known)
            problem = Problem(kind, f"the name of a {kind}", repr(source), hint)
            raise SpecError(study.file, problem) from error


def fill(template: str, cells: Mapping[str, object]) -> str:
    """Replace every ``{column}`` of a template by its cell; raise KeyError for an unknown column.

    >>> fill("{model}_{mode}.json", {"model": "gpt3-175B", "mode": "full"})
    'gpt3-175B_full.json'
    """
    return _COLUMN.sub(lambda match: str(cells[match[1]]), template)
