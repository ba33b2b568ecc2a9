"""Columns of executions: of a table, or along the axes of a grid; and from what people give to how they are held."""

from collections.abc import Iterable, Mapping
from functools import cache
from math import isqrt
from typing import Any

import numpy as np

from calculon.base.units import Array
from calculon.declarations.execution import Execution
from calculon.declarations.fields import LARGEST_INTEGER, SpecField, optional_defaults, spec_fields
from calculon.declarations.module_sets import ModuleSets

# Divisors: the candidates of every degree of parallelism.


def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a number, ascending.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def zigzag_degrees(length: int, degrees: Iterable[int]) -> list[int]:
    """Return the degrees of which each rank may have two equal parts of a sequence, from the front and from the end.

    >>> zigzag_degrees(24, (1, 2, 3, 4, 5))
    [1, 2, 3, 4]
    """
    return [degree for degree in degrees if length % (2 * degree) == 0]


FIELDS: tuple[SpecField, ...] = spec_fields(Execution)
"""The fields of an execution: the 23 published ones in published order, then the optional ones."""

DEFAULTS: dict[str, Any] = optional_defaults(Execution)
"""What the optional fields mean where they are absent."""


@cache
def field_of(name: str) -> SpecField:
    """Return the declaration of a field; KeyError if there is none."""
    return {field.name: field for field in FIELDS}[name]


@cache
def code(field: str, value: str) -> int:
    """Return the code that stands for a named value of a field."""
    return field_of(field).declaration.choices.index(value)


@cache
def type_of(field: str) -> type:
    """Return the type of a column."""
    known = field_of(field)
    if known.declaration.choices and not known.listed:
        return np.int16 if isinstance(known.declaration.named, ModuleSets) else np.int8
    return bool if known.annotation is bool else np.int64


def held(field: str, value: Any) -> Any:
    """Return a value as columns hold it: the code of a named one."""
    return code(field, value) if field_of(field).declaration.choices else value


PLAIN: dict[str, Any] = {name: held(name, default) for name, default in DEFAULTS.items()}
"""The optional fields as columns hold them where nothing is asked of them."""


class Columns:
    """Columns of executions as attributes, which broadcast against each other.

    Whole numbers are integers, switches bool, and fields with named values codes (the position in the declaration's
    ``choices``). Optional fields that are left out have their default.
    """

    __slots__ = ("_columns",)

    def __init__(self, columns: Mapping[str, Array]):
        self._columns = dict(columns)

    @property
    def columns(self) -> Mapping[str, Array]:
        """The columns by name."""
        return self._columns

    def __getattr__(self, name: str) -> Array:
        try:
            return self._columns[name]
        except KeyError:
            if name in PLAIN:
                return _plain(name)
            raise AttributeError(f"executions have no column {name!r}") from None

    def is_choice(self, field: str, value: str) -> Array:
        """Return which executions have this named value in a field."""
        return getattr(self, field) == code(field, value)

    def asked(self) -> frozenset[str]:
        """Return the optional fields that have another value than their default in some execution."""
        columns = self._columns
        return frozenset(
            name
            for name, plain in PLAIN.items()
            if name in columns
            and np.count_nonzero(columns[name] != plain if plain else columns[name])
        )


class Selected(Columns):
    """Some rows of columns: each column is taken when it is first read."""

    __slots__ = ("_rows", "_whole")

    def __init__(self, whole: Columns, rows: Array):
        super().__init__({})
        self._whole, self._rows = whole, rows

    def __getattr__(self, name: str) -> Array:
        if name not in self._columns:
            self._columns[name] = getattr(self._whole, name).take(self._rows)
        return self._columns[name]

    @property
    def columns(self) -> Mapping[str, Array]:
        """The columns by name, all of them."""
        return {name: getattr(self, name) for name in self._whole.columns}


@cache
def _plain(name: str) -> Array:
    """Return a column of one entry with the default of an optional field."""
    values = np.array(PLAIN[name])
    values.setflags(write=False)
    return values


def column(values: Any) -> Array:
    """Lay out a column; a list of mixed types keeps them, so that an odd value does not change its neighbours."""
    if isinstance(values, (list, tuple)):
        types = set(map(type, values))
        if len(types) > 1 or types & {list, tuple}:
            return np.fromiter(values, object, len(values))
    return np.asarray(values)


def parse(field: SpecField, raw: Array) -> tuple[Array, Array]:
    """Return a column in its stored form, and a mask of impossible values (stored as a harmless one)."""
    choices = field.declaration.named
    if field.listed:
        texts = [choices.plain(value) for value in raw.ravel().tolist()]
        codes = np.array([choices.index(text) if text in choices else -1 for text in texts], int)
        return codes.reshape(raw.shape), codes.reshape(raw.shape) < 0
    if isinstance(choices, ModuleSets):  # of many names: each value is looked up by itself
        texts = [choices.plain(value) for value in raw.ravel().tolist()]
        codes = np.array([choices.code(text) for text in texts], np.int16).reshape(raw.shape)
        return codes, codes < 0
    if choices:
        codes = np.full(raw.shape, -1, np.int8)
        for number, choice in enumerate(choices):
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
    """Fill the good entries in; the others keep their value, and may be of any type."""
    values[good] = raw[good]
    return values
