"""Studies: the declared fields of ``study.yaml``, and the studies of a folder or of the catalog."""

import re
from collections.abc import Mapping
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
"""Units of measured values: the unit of the statistics to compare with, and the factor to it."""

ALL_EDITIONS = "all"
"""Stands for every edition in place of a name."""

STATISTICS = {column.name: column.unit.symbol for column in columns(Stats)}
"""Unit of every statistic."""

SERVED = {name: column.unit.symbol for name, column in SERVING_FIGURES.items()}
"""Unit of every figure of a deployment."""


_EXECUTION_FIELDS = {one.key for one in spec_fields(Execution)}
_LAST = "last "


def of_last(name: str) -> str:
    """Return the key of a statistic of the last stage."""
    return _LAST + name


def is_of_last(key: str) -> bool:
    """Whether a key is that of a statistic of the last stage."""
    return key.startswith(_LAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The layout of a quantity as a table of its own: one row and one column per value of two columns."""

    title: str = declare("first line of the table")
    rows: str = declare("column with the names of the rows")
    columns: str = declare("column with the names of the columns")
    beside: str = declare("a statistic to show beside, in GiB, without comparing it", default="")

    def problems(self, path: str) -> list[Problem]:
        """Return an unknown statistic beside."""
        known = not self.beside or self.beside in STATISTICS
        return [] if known else [_unknown_statistic(f"{path}.beside", self.beside)]


def _unknown_statistic(place: str, name: str) -> Problem:
    hint = nearest(name, [*STATISTICS, *SERVED]) or "see: calculon describe stats"
    return Problem(place, "a statistic", f"the unknown {name!r}", hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One measured quantity: its column, the statistics it is compared with, and the error that is accepted."""

    name: str = declare("what is compared, in a word or two")
    measured: str = declare("column of the measured values")
    unit: str = declare("unit of the measured values", choices=tuple(UNITS))
    estimate: Expression = declare("statistic, or sum of statistics, that stands for it")
    stage: str = declare(
        "pipeline stage whose memory it is: the fullest, or the last, whose ranks log in Megatron-LM",
        choices=("fullest", "last"),
        default="fullest",
    )
    bound: Limits = declare(
        "largest mean absolute error that passes in percent, or an object with one for each edition"
    )
    relative_to: Expression | None = declare(
        "condition of the row that this one is a percentage of", default=None
    )
    within: Names = declare("columns that both have in common", default=Names())
    times: Expression | None = declare(
        "how many of them the measured value holds: the steps of a run, or these times its processors",
        default=None,
    )
    parts_of: Names = declare(
        "columns that the parts of a run have in common: rows that add up to the value that one of them has measured",
        default=Names(),
    )
    table: Layout | None = declare("how to print a table of its own", default=None)
    cause: str = declare("likely cause of the largest errors", default="")

    @property
    def keys(self) -> dict[str, str]:
        """Its statistics, each with the key of a prediction: that of the last stage is another one."""
        return {n: of_last(n) if self.stage == "last" else n for n in self.estimate.names}

    @property
    def is_step(self) -> bool:
        """Whether it is the time of a whole training step."""
        return self.estimate.text == "total_time" and not (self.relative_to or self.times)

    @property
    def is_run(self) -> bool:
        """Whether it is a figure of a whole run, which failures, checkpoints and evaluation are part of."""
        return self.times is not None and self.relative_to is None

    @property
    def is_memory(self) -> bool:
        """Whether it is all the memory that a processor needs."""
        return self.estimate.text == "proc_mem_tier1_cap_req" and self.relative_to is None

    @property
    def is_served(self) -> bool:
        """Whether it is a figure of a deployment."""
        return any(name in SERVED for name in self.estimate.names)

    @property
    def is_time(self) -> bool:
        """Whether it is a time, so that the smallest is the best."""
        return UNITS[self.unit][0] == "s"

    def problems(self, path: str) -> list[Problem]:
        """Return an unknown statistic, or a unit that is not that of the statistics."""
        where = f"{path}.estimate"
        for name in self.estimate.names:
            if name not in STATISTICS and name not in SERVED:
                return [_unknown_statistic(where, name)]
        if self.stage == "last" and UNITS[self.unit][0] != "B":
            wanted = "fullest, unless bytes are measured: stages have a memory of their own"
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
    """Rows that are not compared, and why; under one edition of the cost model, or under all."""

    when: Expression = declare("condition that picks the rows")
    reason: str = declare("why they are not compared")
    edition: str = declare(
        "edition under which they are not compared",
        choices=(ALL_EDITIONS, *EDITION_NAMES),
        default=ALL_EDITIONS,
    )

    def concerns(self, edition: str) -> bool:
        """Whether the rows are left out under an edition."""
        return self.edition in (ALL_EDITIONS, edition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The model, execution and system of a measured row.

    Text stands for an expression over the columns of the row, except where a field takes named values and the text
    is one of them; specs are named by templates, in which ``{column}`` stands for a cell.
    """

    system: str = declare("system, by name", default="")
    override: Values = declare("values of the system to replace, by path", default=Values())
    derive: Formulas = declare("columns that follow from others", default=Formulas())
    model: ModelFields = declare("model, by name or field by field", default=ModelFields())
    execution: ExecutionFields = declare(
        "execution, by file of the study or field by field", default=ExecutionFields()
    )
    deployment: DeploymentFields = declare(
        "in place of an execution, how a served model is deployed, by name or field by field",
        default=DeploymentFields(),
    )
    workload: WorkloadFields = declare(
        "what is asked of a deployment, by name or field by field", default=WorkloadFields()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative(Recipe):
    """Another reading of the source, to see the effect of the choice."""

    name: str = declare("name of the alternative")
    why: str = declare("what it changes, and what speaks for it")

    @property
    def changes(self) -> tuple[str, ...]:
        """Paths of the fields that it replaces."""
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
    """A folder with measured values, and all that is needed to estimate them."""

    title: str = declare("what was measured")
    source: str = declare("where the values stand: citation, table")
    evidence: str = declare(
        "measured; derived from a measured rate that the source prints; or the source's own formula",
        choices=("measured", "derived", "formula"),
    )
    calibration: str = declare("which of its rows a calibration of the model or system has seen")
    measured: str = declare("file of the measured values, CSV with a header")
    whole_steps: bool = declare(
        "whether its times of whole training steps are evidence of a source, which intervals rest on: not those of "
        "layers, and not those of a system that was tuned on them",
        default=True,
    )
    fitted: Names = declare(
        "fields of executions whose values in a preset were fitted with these rows in sight",
        default=Names(),
    )
    functional_test: bool = declare(
        "whether its rows are functional tests of a framework in deterministic mode, which nobody tuned for speed",
        default=False,
    )
    parts: Formulas = declare(
        "parts of its rows that a known mechanism divides, by name: the condition of the rows of each",
        default=Formulas(),
    )
    label: str = declare(
        "name of a row, in which {column} stands for a cell; the first column if empty", default=""
    )
    sweep: Names = declare(
        "columns that rows to be ranked against each other have in common", default=Names()
    )
    by: Names = declare("columns by whose values errors are shown too", default=Names())
    exclude: tuple[Exclusion, ...] = declare("rows that are not compared", default=())
    choices: Texts = declare(
        "what the source does not say: what was chosen, and why", default=Texts()
    )
    chosen: ExecutionFields = declare(
        "values that `choices` claims for fields of the execution that a preset or a default fills in",
        default=ExecutionFields(),
    )
    alternatives: tuple[Alternative, ...] = declare(
        "other choices, to show what they change", default=()
    )
    quantities: tuple[Quantity, ...] = declare("what is compared")
    is_alternative: bool = field(default=False, compare=False)
    name: str = field(default="study", compare=False)
    folder: Path = field(default=Path(), compare=False)

    @property
    def origin(self) -> str:
        """The source of its values, as the outermost folder of the study names it: rows of one source err alike."""
        return self.name.partition("/")[0]

    @property
    def file(self) -> str:
        """The file that states the study."""
        return str(self.folder / FILE)

    @property
    def serves(self) -> bool:
        """Whether its rows are deployments, and not steps of training."""
        return bool(self.deployment.source or self.deployment.values)

    @property
    def usual_edition(self) -> str:
        """The edition where none is asked for: the published one, unless that knows none of the figures."""
        beyond = self.serves or all(one.is_run for one in self.quantities)
        return CORRECTED if beyond else PUBLISHED

    def problems(self, path: str) -> list[Problem]:
        """Return a missing system, choices without a value, and quantities of the wrong kind of row."""
        missing = [] if self.system else [Problem("system", "the name of a system", "nothing")]
        kind = "figures of deployments" if self.serves else "statistics of executions"
        return [*missing, *self._open_choices()] + [
            Problem(f"quantities[{i}].estimate", kind, one.estimate.text)
            for i, one in enumerate(self.quantities)
            if one.is_served is not self.serves
        ]

    def _open_choices(self) -> list[Problem]:
        """Return the fields named in ``choices`` whose value would come from a preset or a default, unchecked."""
        if self.chosen.source:
            return [Problem("chosen", "an object with a value for each field", self.chosen.source)]
        if self.execution.source or self.serves:
            return []
        named = [name for key in self.choices for name in key.split(", ")]
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
        """Return the study under an alternative, which need not agree with the study's choices."""
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
        """Return the study as the published edition sees it."""
        return replace(self, model=self.model.published(), execution=self.execution.published())


def read_study(folder: Path, name: str = "") -> Study:
    """Read the study of a folder.

    Raises:
        SpecError: When the file is missing or anything in it is wrong.
    """
    path = str(folder / FILE)
    return decode(Study, read_document(path), path, name=name or folder.name, folder=folder)


# The studies of a folder or of the catalog, and the specs that they name.

ROOM = "validation"
_COLUMN = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Library:
    """Studies and specs below a folder, and those of the catalog.

    Attributes:
        base: A folder with ``validation``, and maybe ``models`` and ``systems``, whose files go before those of the
            catalog. A folder whose ``validation`` holds executions only, as the published tool has it, is given the
            studies of the catalog.
    """

    base: Path

    @classmethod
    def at(cls, base: str | Path | None = None) -> "Library":
        """Return the library of a folder; of the catalog when there is none.

        Raises:
            SpecError: When the folder holds no validation studies.
        """
        found = cls(catalog.root() if base is None else Path(base))
        if not (found.base / ROOM).is_dir():
            wanted = f"a folder that holds the folder {ROOM!r}"
            missing = "no such folder" if not found.base.is_dir() else f"none in {found.base}"
            raise SpecError(str(base), Problem("", wanted, missing))
        return found

    @property
    def room(self) -> Path:
        """The folder whose studies are run."""
        own = self.base / ROOM
        return own if any(own.rglob(FILE)) else catalog.root() / ROOM

    def names(self) -> list[str]:
        """List the studies: their folders, relative to the folder of all."""
        return sorted(
            path.parent.relative_to(self.room).as_posix() for path in self.room.rglob(FILE)
        )

    def studies(self, name: str = "") -> list[Study]:
        """Read all studies, or those of a name: a whole name, a folder with several, else the last part of a name.

        Raises:
            SpecError: When there is no study of this name, or for anything wrong with one.
        """
        known = self.names()
        chosen = [one for one in known if not name or f"{one}/".startswith(f"{name}/")]
        chosen = chosen or [one for one in known if one.rpartition("/")[2] == name]
        if not chosen:
            hint = nearest(name, [*known, *(one.rpartition("/")[2] for one in known)])
            listing = hint or "known are " + ", ".join(known)
            raise SpecError(str(self.room), Problem("", "a study", f"no study {name!r}", listing))
        return [read_study(self.room / one, one) for one in chosen]

    def spec(self, kind: str, source: str, study: Study) -> tuple[str, Any]:
        """Read a spec that a study names: a file of the study, or a name of this folder or the catalog.

        Args:
            kind: ``model``, ``system`` or ``execution``.
            source: A file name with a suffix, or a name.
            study: The study that names it.

        Returns:
            The place of the document, and the document.
        """
        if document_suffix(source) in SUFFIXES:
            places = (self.base / ROOM / study.name, study.folder)
            path = next((p / source for p in places if (p / source).is_file()), None)
            if path is None:
                wanted = f"a {kind} file in {study.folder}"
                raise SpecError(study.file, Problem(kind, wanted, f"no file {source!r}"))
            return str(path), catalog.whole(kind, read_document(str(path)), str(path))
        own = self.base / catalog.KINDS[kind] / f"{source}.json"
        if own.is_file():
            return str(own), catalog.whole(kind, read_document(str(own)), str(own))
        try:
            return source, catalog.load(kind, source)[1]
        except SpecError as error:
            known = list(catalog.names(kind))
            hint = nearest(source, known) or "known are " + ", ".join(known)
            problem = Problem(kind, f"the name of a {kind}", repr(source), hint)
            raise SpecError(study.file, problem) from error


def fill(template: str, cells: Mapping[str, object]) -> str:
    """Replace every ``{column}`` of a template by its cell; KeyError for a column that is not there.

    >>> fill("{model}_{mode}.json", {"model": "gpt3-175B", "mode": "full"})
    'gpt3-175B_full.json'
    """
    return _COLUMN.sub(lambda match: str(cells[match[1]]), template)
