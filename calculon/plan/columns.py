"""Columns of executions, in a table or along the axes of a grid, and their conversion to the stored form."""

from collections.abc import Iterable, Mapping
from functools import cache
from math import isqrt
from typing import Any

import numpy as np

from calculon.base.units import Array
from calculon.declarations.execution import Execution
from calculon.declarations.fields import LARGEST_INTEGER, SpecField, optional_defaults, spec_fields
from calculon.declarations.module_sets import ModuleSets

# Divisors: candidates of every degree of parallelism.


def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a number, ascending.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def zigzag_degrees(length: int, degrees: Iterable[int]) -> list[int]:
    """Return the degrees at which a rank can hold two equal parts of a sequence, one from each end.

    >>> zigzag_degrees(24, (1, 2, 3, 4, 5))
    [1, 2, 3, 4]
    """
    return [degree for degree in degrees if length % (2 * degree) == 0]


FIELDS: tuple[SpecField, ...] = spec_fields(Execution)
"""Fields of an execution: the 23 published ones in published order, then the optional ones."""

DEFAULTS: dict[str, Any] = optional_defaults(Execution)
"""Defaults of the optional fields."""


@cache
def field_of(name: str) -> SpecField:
    """Return the declaration of a field; raise KeyError if it is unknown."""
    return {field.name: field for field in FIELDS}[name]


@cache
def code(field: str, value: str) -> int:
    """Return the code of a named value of a field."""
    return field_of(field).declaration.choices.index(value)


@cache
def type_of(field: str) -> type:
    """Return the type of a column."""
    known = field_of(field)
    if known.declaration.choices and not known.listed:
        return np.int16 if isinstance(known.declaration.named, ModuleSets) else np.int8
    return bool if known.annotation is bool else np.int64


def encoded(field: str, value: Any) -> Any:
    """Return a value in its stored form: the code of a named value."""
    return code(field, value) if field_of(field).declaration.choices else value


PLAIN: dict[str, Any] = {name: encoded(name, default) for name, default in DEFAULTS.items()}
"""Defaults of the optional fields in their stored form."""


class Columns:
    """Columns of executions as attributes that broadcast against each other.

    Integers are int64, switches bool, and fields with named values are codes (the position in the declaration's
    ``choices``). Missing optional fields have their default.
    """

    __slots__ = ("_columns",)

    def __init__(self, columns: Mapping[str, Array]):
        self._columns = dict(columns)

    @property
    def columns(self) -> Mapping[str, Array]:
        """Columns by name."""
        return self._columns

    def __getattr__(self, name: str) -> Array:
        try:
            return self._columns[name]
        except KeyError:
            if name in PLAIN:
                return _plain(name)
            raise AttributeError(f"executions have no column {name!r}") from None

    def is_choice(self, field: str, value: str) -> Array:
        """Return a mask of the executions that have a named value in a field."""
        return getattr(self, field) == code(field, value)

    def asked(self) -> frozenset[str]:
        """Return the optional fields that differ from their default in some execution."""
        columns = self._columns
        return frozenset(
            name
            for name, plain in PLAIN.items()
            if name in columns
            and np.count_nonzero(columns[name] != plain if plain else columns[name])
        )


class Selected(Columns):
    """Selection of rows: each column is taken on first access."""

    __slots__ = ("_rows", "_whole")

    def __init__(self, columns: Columns, rows: Array):
        super().__init__({})
        self._whole, self._rows = columns, rows

    def __getattr__(self, name: str) -> Array:
        if name not in self._columns:
            self._columns[name] = getattr(self._whole, name).take(self._rows)
        return self._columns[name]

    @property
    def columns(self) -> Mapping[str, Array]:
        """All columns by name."""
        return {name: getattr(self, name) for name in self._whole.columns}


@cache
def _plain(name: str) -> Array:
    """Return a scalar column with the default of an optional field."""
    values = np.array(PLAIN[name])
    values.setflags(write=False)
    return values


def column(values: Any) -> Array:
    """Return values as an array; a list of mixed types keeps them, so an odd value does not convert the others."""
    if isinstance(values, (list, tuple)):
        types = set(map(type, values))
        if len(types) > 1 or types & {list, tuple}:
            return np.fromiter(values, object, len(values))
    return np.asarray(values)


def parse(field: SpecField, raw: Array) -> tuple[Array, Array]:
    """Return a column in its stored form, and a mask of invalid values (stored as a harmless value)."""
    choices = field.declaration.named
    if field.listed:
        texts = [choices.plain(value) for value in raw.ravel().tolist()]
        codes = np.array([choices.index(text) if text in choices else -1 for text in texts], int)
        return codes.reshape(raw.shape), codes.reshape(raw.shape) < 0
    if isinstance(choices, ModuleSets):  # thousands of names: look up each value
        texts = [choices.plain(value) for value in raw.ravel().tolist()]
        codes = np.array([choices.code(text) for text in texts], np.int16).reshape(raw.shape)
        return codes, codes < 0
    if choices:
        codes = np.full(raw.shape, -1, np.int8)
        for number, choice in enumerate(choices):
            # A choice such as "2" may also be given as the number 2.
            numbered = choice.isdigit() and raw.dtype.kind in "iufO"
            codes[(raw == choice) | (raw == int(choice)) if numbered else raw == choice] = number
        return codes, codes < 0
    if field.annotation is bool:
        if raw.dtype == bool:
            return raw, np.zeros(raw.shape, bool)
        good = np.vectorize(lambda value: isinstance(value, (bool, np.bool_)), otypes=[bool])(raw)
        return _where(good, raw, np.zeros(raw.shape, bool)), ~good
    if raw.dtype.kind in "iuf":
        least = field.declaration.at_least
        good = (raw >= least) & (raw <= LARGEST_INTEGER) & (np.floor(raw) == raw)
    else:
        good = np.vectorize(
            lambda value: field.declaration.problem(int, value, "") is None, otypes=[bool]
        )(raw)
    return _where(good, raw, np.ones(raw.shape, np.int64)), ~good


def _where(good: Array, raw: Array, values: Array) -> Array:
    """Copy the valid entries; invalid ones may be of any type and keep the placeholder."""
    values[good] = raw[good]
    return values
