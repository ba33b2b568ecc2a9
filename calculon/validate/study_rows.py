"""Measured rows of a study, read from CSV and converted to fields of models and executions."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.declarations.csv_rows import Line, read_csv
from calculon.declarations.expression import Expression
from calculon.declarations.fields import SpecField, shown
from calculon.declarations.presets import is_preset
from calculon.validate.published_study import Study, fill

Cell = int | float | str | None


@dataclass(frozen=True, slots=True)
class Row(Line):
    """Measured row with its name; numeric cells are numbers, and blank cells are None."""

    label: str

    @property
    def place(self) -> str:
        """Line of the row in its file, and its name."""
        return f"line {self.number} ({self.label})"


def read_rows(study: Study) -> list[Row]:
    """Read the measured values of a study.

    Raises:
        SpecError: When the file cannot be read, has no rows or ragged rows, or lacks a required column.
    """
    columns = [*study.sweep]
    columns += [c for q in study.quantities for c in (q.measured, *q.within, *q.parts_of)]
    columns = [c for c in columns if c not in study.derive]
    columns += [c for q in study.quantities if (t := q.table) for c in (t.rows, t.columns)]
    rows = []
    for line in read_csv(str(study.folder / study.measured), list(dict.fromkeys(columns))):
        cells = {name: _cell(text) for name, text in line.cells.items()}
        try:
            label = fill(study.label or f"{{{next(iter(cells))}}}", cells)
        except KeyError as error:
            require(error.args[0], cells, study.file, "label")
            raise
        rows.append(Row(line.file, line.number, cells, label))
    return rows


def _cell(text: str) -> Cell:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None


def require(column: str, known: Iterable[str], file: str, field: str) -> None:
    """Raise SpecError unless the column exists."""
    names = list(known)
    if column not in names:
        hint = nearest(column, names) or "columns: " + ", ".join(names)
        raise SpecError(
            file,
            Problem(field, "a column of this name", repr(column), hint),
        )


def with_derived(study: Study, rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the derived columns of a study, which may use each other in order."""
    result = [replace(row, cells=dict(row.cells)) for row in rows]
    for name, expression in study.derive.items():
        column = values(study, expression, result, f"derive.{name}")
        for row, value in zip(result, column, strict=True):
            row.cells[name] = value
    return result


def values(study: Study, expression: Expression, rows: Sequence[Row], place: str) -> list[Any]:
    """Return the value of an expression in each row.

    Raises:
        SpecError: When it uses an unknown column, or has no value in some row; names the first such row.
    """
    for name in expression.names if rows else ():
        require(name, rows[0].cells, study.file, place)
    known: dict[tuple[Cell, ...], Any] = {}
    result = []
    # Many rows share the inputs of an expression: evaluate each combination once.
    for row in rows:
        key = tuple(row.cells[name] for name in expression.names)
        if key not in known:
            try:
                known[key] = expression.of(row.cells)
            except ValueError as error:
                raise row.refuse(place, "a value", str(error)) from None
        result.append(known[key])
    return result


def part_names(study: Study, rows: Sequence[Row]) -> list[str]:
    """Return the part of the study for each row; empty texts for a study without parts.

    Raises:
        SpecError: For a row in no part or in several parts.
    """
    if not study.parts:
        return [""] * len(rows)
    hits = [values(study, one, rows, f"parts.{name}") for name, one in study.parts.items()]
    result = []
    for row, own in zip(rows, zip(*hits, strict=True), strict=True):
        names = [name for name, hit in zip(study.parts, own, strict=True) if hit]
        if len(names) != 1:
            raise row.refuse("parts", "one part that has the row", ", ".join(names) or "none")
        result += names
    return result


def field_values(
    study: Study, field: SpecField, formula: object, rows: Sequence[Row], place: str
) -> list[Any]:
    """Return the value of one field of a spec in each row, checked against its declaration."""
    if not isinstance(formula, Expression):
        return [formula] * len(rows)
    found = values(study, formula, rows, place)
    check = _checker(field, place)
    for row, value in zip(rows, found, strict=True):
        if problem := check(value):
            text = f"{problem.found} (from {formula.text})"
            text = f"a blank cell (from {formula.text})" if value is None else text
            raise row.refuse(place, problem.expected, text, problem.hint)
    kind = field.annotation
    return [kind(value) for value in found]


def _checker(field: SpecField, place: str) -> Callable[[object], Problem | None]:
    """Return the check of a field with a cache of checked values."""
    known: dict[tuple[type, object], Problem | None] = {}

    def check(value: object) -> Problem | None:
        key = (type(value), value)
        if key not in known:
            problem = field.declaration.problem(field.annotation, value, place)
            dated = field.name == "preset" and is_preset(value)
            known[key] = None if dated else problem
        return known[key]

    return check


def measured_values(column: str, rows: Sequence[Row]) -> list[float]:
    """Return the measured values of a column; not-a-number for blank cells.

    Raises:
        SpecError: When a cell is not a positive number.
    """
    result = []
    for row in rows:
        value = row.cells[column]
        if value is None:
            value = float("nan")
        elif isinstance(value, str) or not 0 < value < float("inf"):
            raise row.refuse(column, "a number above 0", shown(value))
        result.append(float(value))
    return result
