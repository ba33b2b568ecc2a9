"""Table of executions: a struct of arrays with the fields of :class:`~calculon.declarations.execution.Execution`."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np

from calculon import inputs
from calculon.base.display import Tabular
from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.units import Array
from calculon.declarations import arguments
from calculon.declarations.decode import decode
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.presets import filled
from calculon.plan.columns import (
    DEFAULTS,
    FIELDS,
    Columns,
    code,
    column,
    encoded,
    field_of,
    parse,
    type_of,
)

if TYPE_CHECKING:
    import pandas as pd


NAMES: tuple[str, ...] = tuple(field.name for field in FIELDS)

_LISTS = tuple(f.name for f in FIELDS if f.listed)

_EVERY = set(NAMES)

PUBLISHED_NAMES = tuple(field.name for field in FIELDS if not field.declaration.optional)


def names_of(edition: str) -> tuple[str, ...]:
    """Return the fields that tables of an edition show: only the published ones in the published edition."""
    return PUBLISHED_NAMES if edition == PUBLISHED else NAMES


class Plan(Columns, Tabular):
    """Table of executions.

    Columns are attributes: integers are int64, switches bool, and fields with named values are codes, int8 or int16
    (the position in the declaration's ``choices``). Rows may be malformed: :attr:`malformed` states the field with an
    invalid value, and evaluation marks such a row instead of raising an error.

    Attributes:
        malformed (shape (rows,)): Index of the first field with an invalid value, or -1.
    """

    __slots__ = ("malformed",)

    def __init__(self, columns: Mapping[str, Array], malformed: Array | None = None):
        super().__init__(columns)
        rows = len(next(iter(self._columns.values())))
        self.malformed = np.full(rows, -1, np.int8) if malformed is None else malformed

    @classmethod
    def from_records(
        cls, records: Iterable[Execution | Mapping[str, Any]], edition: str | None = None
    ) -> "Plan":
        """Create a table from execution records, or from mappings with the same fields, optionally in an edition.

        Rows of a DataFrame may contain other columns of result tables, which are ignored. Missing fields of mappings
        in edition corrected get the values of their preset, including published fields.

        Raises:
            SpecError: When a mapping has a missing or unknown field. Invalid values are marked instead.
        """
        given: Iterable[Any] = records
        asked = {} if edition is None else {"edition": edition}
        rows = [
            _fields_of(row, f"row {i}") if inputs.is_row(row) else row
            for i, row in enumerate(given)
        ]
        for i, row in enumerate(rows):
            if isinstance(row, Execution):
                rows[i] = all_fields(row) | asked
            elif isinstance(row, Mapping) and {*(whole := _completed({**row, **asked}))} == _EVERY:
                rows[i] = whole
            else:
                decode(Execution, row, f"row {i}")
        if not rows:
            return cls.from_columns({name: [] for name in NAMES})
        return cls.from_columns({name: [row[name] for row in rows] for name in NAMES}, edition)

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, Any], edition: str | None = None, model: Model | None = None
    ) -> "Plan":
        """Create a table from columns: arrays or lists of equal length; scalars apply to every row.

        Missing columns in edition corrected get the values of the preset of each row, for a model if given.

        Raises:
            SpecError: When a column is missing or unknown, or lengths differ. Invalid values are marked instead.
        """
        if not isinstance(columns, Mapping):
            raise SpecError(
                "plan", Problem("", "a mapping of columns", arguments.described(columns))
            )
        if edition is not None:
            columns = {**columns, "edition": edition}
        columns = _completed(columns, model)
        problems = [
            Problem(name, "a column of this name", "nothing (the column is missing)")
            for name in NAMES
            if name not in columns
        ]
        problems += [
            Problem(
                str(name),
                "only the fields of an execution",
                "an unknown column",
                nearest(str(name), NAMES),
            )
            for name in columns
            if name not in NAMES
        ]
        if problems:
            raise SpecError("plan", problems)
        raw = {name: column(columns[name]) for name in NAMES}
        lengths = {array.shape[0] for array in raw.values() if array.ndim == 1}
        if len(lengths) > 1 or any(array.ndim > 1 for array in raw.values()):
            found = "lengths " + ", ".join(str(length) for length in sorted(lengths))
            raise SpecError("plan", Problem("", "columns of equal length", found))
        rows = lengths.pop() if lengths else 1
        malformed = np.full(rows, -1, np.int8)
        parsed = {}
        # In reverse order, so that the first field with an invalid value is reported.
        for number, field in reversed(list(enumerate(FIELDS))):
            values, bad = parse(field, raw[field.name])
            parsed[field.name] = np.broadcast_to(values, rows)
            malformed[np.broadcast_to(bad, rows)] = number
        return cls({name: np.ascontiguousarray(parsed[name]) for name in NAMES}, malformed)

    @classmethod
    def from_frame(cls, frame: "pd.DataFrame", edition: str | None = None) -> "Plan":
        """Create a table from a DataFrame; other columns of result tables are ignored.

        Raises:
            SpecError: For anything but a DataFrame, and for a column that neither executions nor results have;
                otherwise as :meth:`from_columns`.
        """
        if not inputs.is_frame(frame):
            raise SpecError("plan", Problem("", "a DataFrame", arguments.described(frame)))
        inputs.check_columns(frame.columns, "plan")
        there = {name: frame[name] for name in NAMES if name in frame.columns}
        for name, default in DEFAULTS.items():  # blank if rows of several editions were joined
            if name in there and there[name].isna().any():
                there[name] = there[name].astype(object).where(there[name].notna(), default)
        return cls.from_columns({name: one.to_numpy() for name, one in there.items()}, edition)

    @classmethod
    def of(cls, execution: Execution) -> "Plan":
        """Create a table of one valid execution."""
        return cls({name: _one(name, getattr(execution, name)) for name in NAMES})

    @classmethod
    def concatenate(cls, plans: Iterable["Plan"]) -> "Plan":
        """Concatenate tables; without tables, return an empty one.

        Raises:
            SpecError: For anything but tables.
        """
        given: Any = plans
        if not isinstance(given, Iterable):
            raise SpecError("plans", Problem("", "a list of Plans", arguments.described(given)))
        parts: list[Any] = list(given)
        for part in parts:
            if not isinstance(part, Plan):
                raise SpecError("plans", Problem("", "only Plans", arguments.described(part)))
        if not parts:
            return cls.from_records([])
        columns = {n: np.concatenate([plan._columns[n] for plan in parts]) for n in NAMES}
        return cls(columns, np.concatenate([plan.malformed for plan in parts]))

    def scalars(self) -> Columns:
        """Return the only row as scalars, with which rules are faster than with arrays of one entry."""
        return Columns({name: column[0] for name, column in self._columns.items()})

    def __len__(self) -> int:
        return len(self.malformed)

    def __repr__(self) -> str:
        return f"<Plan of {len(self):,} executions>"

    def __getstate__(self) -> tuple[dict[str, Array], Array]:
        """Return the columns with lists of counts as text: their codes are valid in this process only."""
        texts = {name: self.values(name) for name in _LISTS}
        return self._columns | texts, self.malformed

    def __setstate__(self, state: tuple[dict[str, Array], Array]) -> None:
        columns, self.malformed = state
        self._columns = columns | {name: parse(field_of(name), columns[name])[0] for name in _LISTS}

    @property
    def names(self) -> tuple[str, ...]:
        """Fields that a table of these executions shows: without optional ones in the published edition."""
        return names_of(PUBLISHED) if self.is_choice("edition", PUBLISHED).all() else NAMES

    def replaced(self, **values: str) -> "Plan":
        """Return the table with some fields set to a named value in every row."""
        columns: dict[str, Array] = {
            name: np.full(len(self), code(name, v), type_of(name)) for name, v in values.items()
        }
        return Plan({**self._columns, **columns}, self.malformed)

    def take(self, rows: Any) -> "Plan":
        """Select rows by number, slice or mask."""
        # Take is much faster than indexing
        if isinstance(rows, np.ndarray) and rows.dtype.kind == "i":
            taken = {n: column.take(rows) for n, column in self._columns.items()}
            return Plan(taken, self.malformed.take(rows))
        return Plan({n: column[rows] for n, column in self._columns.items()}, self.malformed[rows])

    def values(self, field: str) -> Array:
        """Return a column as in files: named values as text.

        Raises:
            KeyError: For an unknown field; the message names the nearest.
        """
        if field not in self._columns:
            raise KeyError(
                f"no execution field {field!r}; {nearest(str(field), NAMES)}".rstrip("; ")
            )
        column = self._columns[field]
        choices = field_of(field).declaration.choices
        return np.array([*choices, ""])[column] if choices else column

    def row(self, number: int) -> Execution:
        """Return one row as a record.

        Raises:
            SpecError: When the row holds a value that its field does not take.
        """
        if self.malformed[number] >= 0:
            name = NAMES[self.malformed[number]]
            raise SpecError(f"row {number}", Problem(name, "an allowed value", "another value"))
        return Execution(**{name: self.values(name)[number].item() for name in NAMES})

    def table(self) -> dict[str, Array]:
        """Return the fields of the executions by name, in published order."""
        return {name: self.values(name) for name in self.names}


def _completed(given: Mapping[str, Any], model: Model | None = None) -> dict[str, Any]:
    """Return columns, or the fields of one row, with missing fields filled in if possible.

    Rows in edition corrected get the values of their preset, other rows the defaults.
    """
    whole = {**DEFAULTS, **given}
    if not {"edition", "preset"} & given.keys() or all(name in given for name in NAMES):
        return whole
    missing = [name for name in NAMES if name not in given]
    columns = {name: column(values) for name, values in given.items()}
    named = [columns.get(name, np.array("")) for name in ("edition", "preset")]
    # The usual case, one edition and preset for all rows, needs no grouping.
    if all(one.ndim == 0 for one in named):
        laid = {n: column(v) if isinstance(v, (list, tuple)) else v for n, v in given.items()}
        edition, preset = (one.item() for one in named)
        return {**whole, **_filled(laid, edition, preset, model), **given}
    count = max((len(one) for one in columns.values() if one.ndim == 1), default=1)
    editions, presets = (np.broadcast_to(one, count) for one in named)
    added = {name: np.full(count, DEFAULTS.get(name), object) for name in missing}
    lacking: set[str] = set()
    for edition, preset in set(zip(editions.tolist(), presets.tolist(), strict=True)):
        rows = (editions == edition) & (presets == preset)
        some = {n: v[rows] if v.ndim else v.item() for n, v in columns.items()}
        found = _filled(some, edition, preset, model)
        lacking |= {name for name in missing if name not in found and name not in DEFAULTS}
        for field, values in added.items():
            values[rows] = found.get(field, DEFAULTS.get(field))
    return {**whole, **{name: one for name, one in added.items() if name not in lacking}}


def _filled(
    given: Mapping[str, Any], edition: Any, preset: Any, model: Model | None
) -> Mapping[str, Any]:
    """Return the fields of one edition and preset with filled-in values; errors are reported later, by row."""
    stated = {"edition": edition, "preset": preset}
    named = {name: value for name, value in stated.items() if name in given}
    try:
        found, _ = filled({**given, **named}, model=model)
    except SpecError:
        return given
    return {**found, **{name: given[name] for name in named}}


def all_fields(execution: Execution) -> dict[str, Any]:
    """Return all fields of an execution by name, including those at their default."""
    return {name: getattr(execution, name) for name in NAMES}


def _fields_of(row: Any, place: str) -> dict[str, Any]:
    """Return the fields of a row of a DataFrame; blank optional fields have their default."""
    inputs.check_columns(row.keys(), place)
    return {
        name: row[name]
        for name in NAMES
        if name in row and (name not in DEFAULTS or row[name] == row[name])
    }


@lru_cache(4096)
def _one(name: str, value: Any) -> Array:
    """Return a read-only column of one entry."""
    values: Array = np.array([encoded(name, value)], type_of(name))
    values.setflags(write=False)
    return values


# Tables of executions in any supported form.

Executions: TypeAlias = Union[
    Plan, Execution, Mapping[str, Any], Iterable[Execution | Mapping[str, Any]], "pd.DataFrame"
]
"""Table, DataFrame, records, mappings, mapping of columns, or a single execution."""

_WANTED = "a Plan, a DataFrame, a list of Executions or of mappings with their fields, or a mapping of columns"


def as_plan(source: Executions, edition: str | None = None) -> Plan:
    """Return a table of executions from any supported form, optionally in an edition.

    Missing fields of rows in edition corrected get the values of their preset, or of the values that all frameworks
    share if they have none. Missing optional fields of other rows have their default.

    Raises:
        SpecError: For an unsupported form, for a missing or unknown field, and for columns of different lengths.
    """
    given: Any = source
    if isinstance(given, Plan):
        return given if edition is None else given.replaced(edition=edition)
    if isinstance(given, Execution):
        return as_plan(Plan.of(given), edition)
    if isinstance(given, Mapping):
        return Plan.from_columns(given, edition)
    if inputs.is_frame(given):
        return Plan.from_frame(given, edition)
    if inputs.is_row(given):
        return Plan.from_records([given], edition)
    if isinstance(given, Iterable) and not isinstance(given, (str, bytes)):
        rows = list(given)
        if all(isinstance(row, Execution) or inputs.as_mapping(row) is not None for row in rows):
            return Plan.from_records(rows, edition)
    hint = "pass its plan" if isinstance(getattr(given, "plan", None), Plan) else ""
    raise SpecError("plan", Problem("", _WANTED, arguments.described(given), hint))
