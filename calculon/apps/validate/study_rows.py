"""Measured rows: read from CSV, and turned into the fields of models and executions."""

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calculon.apps.validate.library import fill
from calculon.apps.validate.published_study import Recipe, Study
from calculon.apps.validate.row_expression import Expression
from calculon.errors import Problem, SpecError, nearest
from calculon.spec.fields import SpecField, shown
from calculon.spec.files import reason

Cell = int | float | str | None


@dataclass(frozen=True, slots=True)
class Row:
    """One measured row: its number below the header (from 1), its name, and its cells; None is a blank one."""

    number: int
    label: str
    cells: dict[str, Cell]


def read_rows(study: Study) -> list[Row]:
    """Read the measured values of a study.

    Raises
    ------
    SpecError
        When the file cannot be read, has no rows or ragged ones, or lacks a column that the study needs.
    """
    path = study.folder / study.measured
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            header, *lines = list(csv.reader(stream)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SpecError(str(path), Problem("", "a readable CSV file", reason(error))) from None
    if not lines:
        raise SpecError(str(path), Problem("", "a header and rows", "no rows"))
    for number, line in enumerate(lines, 1):
        if len(line) != len(header):
            wanted = f"{len(header)} cells, as in the header"
            raise SpecError(str(path), Problem(f"row {number}", wanted, str(len(line))))
    columns = [header[0] if header else "", *study.sweep]
    columns += [
        c for q in study.quantities for c in (q.measured, *q.within) if c not in study.derive
    ]
    columns += [c for q in study.quantities for t in q.table for c in (t.rows, t.columns)]
    for column in columns:
        require(column, header, str(path), "")
    template = study.label or f"{{{header[0]}}}"
    rows = []
    for number, line in enumerate(lines, 1):
        cells = {name: _cell(text) for name, text in zip(header, line, strict=True)}
        try:
            rows.append(Row(number, fill(template, cells), cells))
        except KeyError as error:
            require(error.args[0], header, study.file, "label")
    return rows


def _cell(text: str) -> Cell:
    text = text.strip()
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None


def require(column: str, known: Iterable[str], file: str, field: str) -> None:
    """Raise SpecError unless there is such a column."""
    names = list(known)
    if column not in names:
        hint = nearest(column, names) or "the columns are " + ", ".join(names)
        raise SpecError(
            file,
            Problem(
                field or column,
                "a column of this name",
                "none" if not field else repr(column),
                hint,
            ),
        )


def with_derived(study: Study, recipe: Recipe, rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the columns that a recipe derives, in its order."""
    found = [replace(row, cells=dict(row.cells)) for row in rows]
    for name, expression in recipe.derive.items():
        for row, value in zip(
            found, values(study, expression, found, f"derive.{name}"), strict=True
        ):
            row.cells[name] = value
    return found


def values(study: Study, expression: Expression, rows: Sequence[Row], place: str) -> list[Any]:
    """Return the value of an expression in each row.

    Raises
    ------
    SpecError
        When it asks for a column that is not there, or has no value in some row; names the first such row.
    """
    for name in expression.names if rows else ():
        require(name, rows[0].cells, study.file, place)
    known: dict[tuple[Cell, ...], Any] = {}
    found = []
    for row in rows:
        key = tuple(row.cells[name] for name in expression.names)
        if key not in known:
            try:
                known[key] = expression.of(row.cells)
            except ValueError as error:
                raise problem_in(study, row, place, "a value", str(error)) from None
        found.append(known[key])
    return found


def problem_in(
    study: Study, row: Row, field: str, expected: str, found: str, hint: str = ""
) -> SpecError:
    """Return the error that something is wrong with one row: names its file, number, name and field."""
    place = f"row {row.number} ({row.label}): {field}"
    return SpecError(str(study.folder / study.measured), Problem(place, expected, found, hint))


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
            raise problem_in(study, row, place, problem.expected, text, problem.hint)
    kind = field.annotation
    return [kind(value) for value in found]


def _checker(field: SpecField, place: str) -> Callable[[object], Problem | None]:
    """Return the check of a field, which remembers the values it has seen."""
    known: dict[tuple[type, object], Problem | None] = {}

    def check(value: object) -> Problem | None:
        key = (type(value), value)
        if key not in known:
            known[key] = field.declaration.problem(field.annotation, value, place)
        return known[key]

    return check


def measured_values(study: Study, column: str, rows: Sequence[Row]) -> list[float]:
    """Return the measured values of a column; not-a-number where a row has none.

    Raises
    ------
    SpecError
        When a cell holds something that is no positive number.
    """
    found = []
    for row in rows:
        value = row.cells[column]
        if value is None:
            value = float("nan")
        elif isinstance(value, str) or not 0 < value < float("inf"):
            raise problem_in(study, row, column, "a number above 0", shown(value))
        found.append(float(value))
    return found
