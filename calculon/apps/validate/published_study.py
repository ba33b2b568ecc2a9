"""What a study says: the declarations behind ``study.yaml``."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from calculon.apps.validate.forms import (
    ExecutionFields,
    Formulas,
    Limits,
    ModelFields,
    Names,
    Records,
    Texts,
    Values,
    build,
)
from calculon.apps.validate.row_expression import Expression
from calculon.errors import Problem, nearest
from calculon.records import columns
from calculon.spec.execution import EDITION_NAMES
from calculon.spec.fields import declare
from calculon.spec.files import read_document
from calculon.statistics import Stats
from calculon.units import GIB, GIGA

FILE = "study.yaml"

UNITS = {
    "s": ("s", 1.0),
    "ms": ("s", 1e-3),
    "B": ("B", 1.0),
    "GB": ("B", GIGA),
    "GiB": ("B", GIB),
    "samples/s": ("samples/s", 1.0),
    "%": ("fraction", 0.01),
}
"""Units of measured values: the unit of the statistics they are compared with, and how many of it they are."""

ALL_EDITIONS = "all"
"""In place of the name of an edition: every one."""

STATISTICS = {column.name: column.unit.symbol for column in columns(Stats)}
"""Unit of every statistic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a quantity is printed as a table of its own: one row and one column per value of two columns."""

    defaults: ClassVar[dict[str, object]] = {"beside": ""}

    title: str = declare("first line of the table")
    rows: str = declare("column with the names of the rows")
    columns: str = declare("column with the names of the columns")
    beside: str = declare("a statistic to show beside, in GiB, without comparing it")

    def problems(self, path: str) -> list[Problem]:
        """Return what is wrong with the statistic beside."""
        if not self.beside or self.beside in STATISTICS:
            return []
        hint = nearest(self.beside, list(STATISTICS)) or "see: calculon describe stats"
        place = f"{path}.beside" if path else "beside"
        return [Problem(place, "a statistic", repr(self.beside), hint)]


class Layouts(Records[Layout]):
    """The table of a quantity, or none."""

    __slots__ = ()
    item = Layout

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float = 1.0) -> Any:
        """Decode one layout as a list of one."""
        return super().decode([raw] if raw else [], path, problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One measured quantity: where it stands, what it is compared with, and which error is accepted."""

    defaults: ClassVar[dict[str, object]] = {
        "relative_to": "",
        "within": [],
        "table": None,
        "cause": "",
    }

    name: str = declare("what is compared, in a word or two")
    measured: str = declare("column of the measured values")
    unit: str = declare("unit of the measured values", choices=tuple(UNITS))
    estimate: Expression = declare("statistic, or sum of statistics, that stands for it")
    bound: Limits = declare(
        "largest mean absolute error that passes in percent, or an object with one for each edition"
    )
    relative_to: str = declare("condition of the row that this one is a percentage of")
    within: Names = declare("columns that both have in common")
    table: Layouts = declare("how to print a table of its own")
    cause: str = declare("likely cause of the largest errors")

    @property
    def is_time(self) -> bool:
        """Whether it is a time, so that the smallest is the best."""
        return UNITS[self.unit][0] == "s"

    def problems(self, path: str) -> list[Problem]:
        """Return what is wrong with the expression or with its unit."""
        where = f"{path}.estimate" if path else "estimate"
        for name in self.estimate.names:
            if name not in STATISTICS:
                hint = nearest(name, list(STATISTICS)) or "see: calculon describe stats"
                return [Problem(where, "statistics", f"the unknown {name!r}", hint)]
        wanted = "fraction" if self.relative_to else UNITS[self.unit][0]
        found = {"fraction" if self.relative_to else STATISTICS[n] for n in self.estimate.names}
        if found != {wanted}:
            units = ", ".join(sorted(found)) or "no unit"
            text = f"statistics in {wanted}, as the measured values in {self.unit}"
            return [Problem(where, text, f"{self.estimate.text} in {units}")]
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """Rows that are not compared, and why; under one edition of the cost model, or under all."""

    defaults: ClassVar[dict[str, object]] = {"edition": ALL_EDITIONS}

    when: Expression = declare("condition that picks the rows")
    reason: str = declare("why they are not compared")
    edition: str = declare(
        "edition under which they are not compared", choices=(ALL_EDITIONS, *EDITION_NAMES)
    )

    def concerns(self, edition: str) -> bool:
        """Whether the rows are left out under an edition."""
        return self.edition in (ALL_EDITIONS, edition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a measured row becomes a model, an execution and a system.

    Text stands for an expression over the columns of the row, except where a field takes named values and the text
    is one of them; specs are named by templates, in which ``{column}`` stands for a cell.
    """

    defaults: ClassVar[dict[str, object]] = {
        "system": "",
        "override": {},
        "derive": {},
        "model": {},
        "execution": {},
    }

    system: str = declare("system, by name")
    override: Values = declare("values of the system to replace, by path")
    derive: Formulas = declare("columns that follow from others")
    model: ModelFields = declare("model, by name or field by field")
    execution: ExecutionFields = declare("execution, by file of the study or field by field")

    def changed(self, by: "Recipe") -> "Recipe":
        """Return this recipe with what another one says in its place."""
        return Recipe(
            system=by.system or self.system,
            override=Values(self.override | by.override),
            derive=Formulas(self.derive | by.derive),
            model=self.model.changed(by.model),  # type: ignore[arg-type]
            execution=self.execution.changed(by.execution),  # type: ignore[arg-type]
        )

    def published(self) -> "Recipe":
        """Return what the published edition sees of this recipe."""
        return Recipe(
            system=self.system,
            override=self.override,
            derive=self.derive,
            model=self.model.published(),  # type: ignore[arg-type]
            execution=self.execution.published(),  # type: ignore[arg-type]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative(Recipe):
    """Another reading of the source, to see what the choice is worth."""

    name: str = declare("name of the alternative")
    why: str = declare("what it changes, and what speaks for it")


class Exclusions(Records[Exclusion]):
    """Rows not compared."""

    __slots__ = ()
    item = Exclusion


class Alternatives(Records[Alternative]):
    """Other readings."""

    __slots__ = ()
    item = Alternative


class Quantities(Records[Quantity]):
    """What is compared."""

    __slots__ = ()
    item = Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Study(Recipe):
    """Published measurements, and how the model is asked about them."""

    unknown_keys: ClassVar[str] = "error"
    defaults: ClassVar[dict[str, object]] = {
        **Recipe.defaults,
        "label": "",
        "sweep": [],
        "exclude": [],
        "choices": {},
        "alternatives": [],
    }

    title: str = declare("what was measured")
    source: str = declare("where the values stand: citation, table")
    evidence: str = declare(
        "measured; derived from a measured rate that the source prints; or the source's own formula",
        choices=("measured", "derived", "formula"),
    )
    calibration: str = declare("which of its rows a calibration of the model or system has seen")
    measured: str = declare("file of the measured values, CSV with a header")
    label: str = declare(
        "name of a row, in which {column} stands for a cell; the first column if empty"
    )
    sweep: Names = declare("columns that rows to be ranked against each other have in common")
    exclude: Exclusions = declare("rows that are not compared")
    choices: Texts = declare("what the source does not say: what was chosen, and why")
    alternatives: Alternatives = declare("other choices, to show what they change")
    quantities: Quantities = declare("what is compared")
    name: str = field(default="study", compare=False)
    folder: Path = field(default=Path(), compare=False)

    @property
    def file(self) -> str:
        """The file that says all this."""
        return str(self.folder / FILE)

    def problems(self, path: str) -> list[Problem]:
        """Return what is wrong beyond single fields."""
        found = []
        if not self.quantities:
            found.append(Problem("quantities", "at least one quantity", "none"))
        if not self.system:
            found.append(Problem("system", "the name of a system", "nothing"))
        return found

    def recipe(self, alternative: Alternative | None = None) -> Recipe:
        """Return how rows become executions, as stated or under an alternative."""
        return self.changed(alternative) if alternative else self


def read_study(folder: Path, name: str = "") -> Study:
    """Read the study of a folder.

    Raises
    ------
    SpecError
        When the file is missing or anything in it is wrong.
    """
    path = str(folder / FILE)
    return build(Study, read_document(path), path, name=name or folder.name, folder=folder)
