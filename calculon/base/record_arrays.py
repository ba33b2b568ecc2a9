"""Operations on records of arrays (:mod:`calculon.base.records`): apply a function, select rows, join.

They are apart from the declarations, which help and the catalog read without numpy.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, cast

import numpy as np

from calculon.base.arrays import is_shared_zeros
from calculon.base.records import Column, columns
from calculon.base.units import Array

R = TypeVar("R")


@cache
def _members(cls: type) -> tuple[tuple[str, bool], ...]:
    """Return the attributes of a record class, and whether each is a record itself."""
    return tuple((f.name, dataclasses.is_dataclass(f.type)) for f in dataclasses.fields(cls))


def apply(function: Callable[..., Array], records: Sequence[R]) -> R:
    """Build a record by applying `function` to the arrays of the given records, field by field."""
    cls: Any = type(records[0])
    values: dict[str, object] = {}
    for name, nested in _members(cls):
        members = [getattr(one, name) for one in records]
        values[name] = apply(function, members) if nested else function(*members)
    return cast("R", cls(**values))


def arrays_of(record: object) -> Iterator[Array]:
    """Yield the arrays of a record, including nested records."""
    cls: Any = type(record)
    for name, nested in _members(cls):
        value = getattr(record, name)
        if nested:
            yield from arrays_of(value)
        else:
            yield value


def record_of(cls: type[R], source: object) -> R:
    """Build a record from the attributes of an object with the same names, including nested records."""
    kind: Any = cls
    values: dict[str, object] = {}
    for field in dataclasses.fields(kind):
        value = getattr(source, field.name)
        inner: Any = field.type
        nested = dataclasses.is_dataclass(inner) and type(value) is not inner
        values[field.name] = record_of(inner, value) if nested else value
    return cls(**values)


class _View:
    """Lazy view of records of one class: a function is applied to each array on first access, once."""

    def __init__(self, records: Sequence[object], function: Callable[..., Array]):
        self._records, self._function = records, function

    def __getattr__(self, name: str) -> Any:
        values = [getattr(one, name) for one in self._records]
        arrays = isinstance(values[0], np.ndarray)
        result: Any = self._function(*values) if arrays else _View(values, self._function)
        setattr(self, name, result)  # later reads bypass __getattr__
        return result


def view(one: R, function: Callable[[Array], Array]) -> R:
    """Return a lazy view of a record with `function` applied to its arrays."""
    return joint_view([one], function)


def joint_view(records: Sequence[R], function: Callable[..., Array]) -> R:
    """Return a lazy view of several records: like :func:`apply`, but each array is computed on first access."""
    return cast("R", _View(records, function))


class _Changed:
    """View of a record, or of another view, with other values of some attributes."""

    def __init__(self, one: object, changes: Mapping[str, object]):
        vars(self).update(changes, _one=one)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._one, name)
        setattr(self, name, value)
        return value


def changed(one: R, **changes: object) -> R:
    """Return a view of a record, or of another view, with other values of some attributes."""
    return cast("R", _Changed(one, changes))


@cache
def _leaves(cls: type) -> tuple[tuple[Callable[[object], Any], tuple[Column, ...]], ...]:
    """Return accessors of the arrays of a record class, each with its columns."""
    arrays: dict[tuple[str, ...], list[Column]] = {}
    for one in columns(cls):
        arrays.setdefault(one.path, []).append(one)
    return tuple((attrgetter(".".join(path)), tuple(own)) for path, own in arrays.items())


def only_values(record: object) -> dict[str, float | None]:
    """Return the single entry of every column of a record by name, in order; None for *null*."""
    cls: Any = type(record)
    found: dict[str, float | None] = {}
    for read, own in _leaves(cls):
        for one, value in zip(own, read(record).ravel().tolist(), strict=True):
            found[one.name] = None if one.nullable and value != value else value  # noqa: PLR0124
    return {one.name: found[one.name] for one in columns(cls)}


def gather(one: R, rows: Array) -> R:
    """Return a view of a record for executions selected by row number.

    The view has the attributes of the record; each array is gathered on first access and has the shape of `rows` in
    place of the last axis. If a record of one execution is gathered once, the record itself is returned.
    """
    count = _length(one)
    if rows.shape == (1,) and count == 1:
        return one
    shared = (1,) * rows.ndim

    def taken(values: Array) -> Array:
        if values.shape[-1] < count:  # one value shared by all rows
            return values.reshape(*values.shape[:-1], *shared)
        return values.take(rows, axis=-1)

    return view(one, taken)


def _length(one: object) -> int:
    """Return the number of executions of a record."""
    cls: Any = type(one)
    name, nested = _members(cls)[0]
    member = getattr(one, name)
    return _length(member) if nested else int(member.shape[-1])


def concatenate(records: Sequence[R]) -> R:
    """Join records along the execution axis; zeros that all of them share (:func:`.shared_zeros`) are kept."""
    if len(records) == 1:
        return records[0]
    counts = [_length(one) for one in records]

    def joined(*arrays: Array) -> Array:
        if all(map(is_shared_zeros, arrays)):
            return arrays[0]
        whole = [
            values
            if values.shape[-1] == count
            else np.broadcast_to(values, (*values.shape[:-1], count))
            for values, count in zip(arrays, counts, strict=True)
        ]
        return np.concatenate(whole, axis=-1)

    return apply(joined, records)
