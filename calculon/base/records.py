"""Records of arrays, whose fields are declared once and used as columns everywhere.

A record is a frozen dataclass whose fields are arrays with *execution* as the last axis, or further records.
:func:`stat` declares a field with its help text and source; the annotation is its unit. Names that differ only in a
prefix are an axis (``base``, ``edge``) or a part (``fw``, ``agrad``, ...), and the declaration has a template. All code
that prints, writes, documents or ranks statistics uses only :func:`columns`.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, cast, dataclass_transform

from calculon.base.frozen import dataclass
from calculon.base.units import Array, Unit, unit_of

Plain = Mapping[str, Any]
"""Result, or part of one, as plain data: the return value of ``to_dict``, and the content of a file."""

R = TypeVar("R")
_KEY = "stat"


@dataclass(frozen=True, slots=True)
class _Stat:
    help: str
    name: str
    axis: tuple[str, ...] | None
    source: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    words: str


def stat(
    help: str,  # noqa: A002
    *,
    name: str = "",
    axis: tuple[str, ...] | None = None,
    source: str = "",
    nullable: bool = False,
) -> Any:
    """Declare a statistic.

    Args:
        help: Description in a few words. ``{part}`` becomes the words of the enclosing part, ``{axis}`` the axis
            member.
        name: Public name; defaults to the name of the attribute. ``{part}`` and ``{axis}`` as above, by name.
        axis: Members of the leading axis of the array, if it has one; without members it has no column.
        source: Place where the formula is documented.
        nullable: Whether NaN in the array means *null* in files.
    """
    return dataclasses.field(metadata={_KEY: _Stat(help, name, axis, source, nullable)})


def part(words: str = "", *, name: str = "") -> Any:
    """Declare a nested record; `words` and `name` fill the templates of its statistics."""
    return dataclasses.field(metadata={_KEY: _Part(name, words)})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(stat, part))
def record(cls: type[R]) -> type[R]:
    """Make a class a frozen record, keyword-only, so that a missing field is an error.

    Its class variables ``NAMES``, ``SOURCE`` and ``AXIS`` are the defaults of statistics that do not declare their own;
    names may contain ``{field}`` for the attribute.
    """
    return dataclass(frozen=True, kw_only=True)(cls)


@dataclass(frozen=True, slots=True)
class Column:
    """Public statistic: its name, unit, help and source, and its location in a record."""

    name: str
    unit: Unit
    help: str
    source: str
    nullable: bool
    path: tuple[str, ...]
    index: int | None
    _read: Callable[[object], Any] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_read", attrgetter(".".join(self.path)))

    def of(self, record: object) -> Array:
        """Return the array of this column."""
        value = self._read(record)
        return cast("Array", value if self.index is None else value[self.index])

    def values(self, record: object) -> list[float | None]:
        """Return the entries of this column; None for *null*."""
        values: list[float | None] = self.of(record).tolist()
        # NaN is the only value that differs from itself; the comparison is faster than math.isnan.
        return [None if self.nullable and value != value else value for value in values]  # noqa: PLR0124


@cache
def columns(cls: type) -> tuple[Column, ...]:
    """Return the columns of a record class in the order of declaration."""
    return tuple(_columns(cls, (), "", ""))


def _columns(cls: type, path: tuple[str, ...], name: str, words: str) -> Iterator[Column]:
    for field in dataclasses.fields(cls):
        declared = field.metadata[_KEY]
        here = (*path, field.name)
        if isinstance(declared, _Part):
            nested: Any = field.type
            yield from _columns(nested, here, declared.name or field.name, declared.words)
            continue
        axis = getattr(cls, "AXIS", None) if declared.axis is None else declared.axis
        template = declared.name or getattr(cls, "NAMES", "{field}")
        members: Sequence[str | None] = (None,) if axis is None else axis
        for index, member in enumerate(members):
            yield Column(
                name=template.format(part=name, axis=member, field=field.name),
                unit=unit_of(field.type),
                help=declared.help.format(part=words, axis=member),
                source=declared.source or getattr(cls, "SOURCE", ""),
                nullable=declared.nullable,
                path=here,
                index=None if member is None else index,
            )


@cache
def column(cls: type, name: str) -> Column:
    """Return the column of this name; raise KeyError if there is none."""
    for result in columns(cls):
        if result.name == name:
            return result
    raise KeyError(name)
