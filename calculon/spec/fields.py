"""Declare a field of a spec file once: its key, type, unit, allowed values and help.

A spec record is a frozen dataclass whose fields are made by :func:`declare`. From that one declaration
come the decoder (:mod:`calculon.spec.decode`), the JSON Schema (:mod:`calculon.spec.schema`), the
reference tables of ``calculon describe``, the checks of a record built by hand, and of an execution also the words of
pages and tables, what a search does with it, what it needs beside it, and the cases that tests draw.
"""

import dataclasses
import math
import numbers
import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Flag
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_type_hints

from calculon.errors import Problem, SpecError, nearest
from calculon.spec.lists_of_counts import PATTERN, ListsOfCounts

_METADATA = "spec"
LARGEST_INTEGER = 2**31 - 1
"""Bound of every whole number: a product of three of them, rounded, never equals a fourth by accident."""

SMALLEST_NUMBER, LARGEST_NUMBER = 1e-30, 1e30
"""Bounds of every other number but 0, so that no formula leaves the range of a double."""

JSON_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}
"""What JSON Schema calls the types of plain fields."""


class Scope(Flag):
    """What a field of an execution decides. Named values and switches are part of a key, numbers are columns.

    Attributes
    ----------
    LAYOUT
        Which layers there are.
    BLOCK
        What the layers of a block cost.
    STEP
        What the optimizer step of a block costs.
    BATCH
        What a batch makes of blocks and steps: schedule, data parallelism, memory.
    """

    LAYOUT = 1
    BLOCK = 2
    STEP = 4
    BATCH = 8


_NOTHING = Scope(0)

Searched = Literal["loop", "option", "fixed", "argument"]
"""What a search does with a field: a loop of the published enumeration; one value unless more are asked for; one that
only restricting sets; or an argument of the search."""

ABOVE_ONE = range(2, LARGEST_INTEGER + 1)
"""Degrees of parallelism that split something."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is known about one field of a spec file.

    ``scale`` turns the number in the file into SI units (``GBps`` times 1e9 is B/s); limits are those of the
    number in the file. An ``optional`` field has the default of its record class. What is wrong inside a
    ``forgiving`` one, whose type decodes itself, is worth a warning, and left out.

    Of an execution also:

    Attributes
    ----------
    scope : Scope
        What the field decides.
    label : str
        Words for it on a page, where it does not have its default; ``{}`` is its value.
    mark : str or mapping
        The same in a few letters, for a column of a table; by value, or with ``{}``.
    needs : mapping
        Other fields, and the values of them with which a value other than the default means something.
    why : str
        What these values have in common, for a message.
    searched : str
        What a search does with it: one of :data:`Searched`.
    adds : str
        What adding values of it brings to a search; empty where none can be added.
    samples : tuple
        Numbers other than the default that tests draw; named values and switches are all drawn.
    """

    help: str
    key: str = ""
    unit: str = ""
    scale: float = 1.0
    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None
    choices: Sequence[str] = ()
    optional: bool = False
    forgiving: bool = False
    scope: Scope = _NOTHING
    label: str = ""
    mark: str | Mapping[Any, str] = ""
    needs: Mapping[str, Collection[Any]] = dataclasses.field(default_factory=dict)
    why: str = ""
    searched: Searched = "loop"
    adds: str = ""
    samples: tuple[Any, ...] = ()

    def wanted(self, kind: type) -> str:
        """Say in words what values the field takes."""
        if isinstance(self.choices, ListsOfCounts):
            return self.choices.wanted
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if kind is bool:
            return "true or false"
        if kind is str:
            return "text"
        noun = "a whole number" if kind is int else "a number"
        limits = []
        if self.above is not None:
            limits.append(f"above {self.above:g}")
        if self.at_least is not None:
            limits.append(f"of at least {self.at_least:g}")
        if self.below is not None:
            limits.append(f"below {self.below:g}")
        if self.at_most is not None:
            limits.append(f"of at most {self.at_most:g}")
        text = " ".join([noun, " and ".join(limits)]) if limits else noun
        return f"{text} ({self.unit})" if self.unit else text

    def plain(self, value: Any) -> Any:
        """Return a value as it is held: a named value that is a number may be written as one."""
        if isinstance(self.choices, ListsOfCounts):
            return self.choices.plain(value)
        if not self.choices or isinstance(value, (bool, str)):
            return value
        if not isinstance(value, numbers.Real):
            return value
        return next((c for c in self.choices if c.isdigit() and value == int(c)), value)

    def problem(self, kind: type, value: object, path: str) -> Problem | None:
        """Return what is wrong with a value in file units, or nothing.

        Parameters
        ----------
        kind : type
            One of int, float, bool and str.
        value : object
            What the file or the caller gave.
        path : str
            Path of the field, for the message.
        """
        value = self.plain(value)
        hint = _type_hint(kind, value)
        if hint is None:
            hint = self._value_hint(kind, value)
        return None if hint is None else Problem(path, self.wanted(kind), shown(value), hint)

    def schema(self, kind: type) -> dict[str, Any]:
        """Return the JSON Schema of a value in file units; the range next to 0 is left to the decoder."""
        if isinstance(self.choices, ListsOfCounts):
            counts = {"type": "array", "items": {"type": "integer", "minimum": 1}}
            text = {"type": "string", "pattern": f"^({PATTERN})?$"}
            return {"anyOf": [text, counts]}
        if self.choices:
            return {"enum": [*self.choices, *(int(c) for c in self.choices if c.isdigit())]}
        result: dict[str, Any] = {"type": JSON_TYPES[kind]}
        if kind in (int, float):
            largest = LARGEST_INTEGER if kind is int else LARGEST_NUMBER
            result |= {"minimum": -largest, "maximum": largest}
        limits = {
            "exclusiveMinimum": self.above,
            "minimum": self.at_least,
            "exclusiveMaximum": self.below,
            "maximum": self.at_most,
        }
        return result | {name: limit for name, limit in limits.items() if limit is not None}

    def _value_hint(self, kind: type, value: Any) -> str | None:
        """Return None for an allowed value of the right type, else a hint (which may be empty)."""
        if isinstance(self.choices, ListsOfCounts):
            return None if value in self.choices else ""
        if self.choices:
            return None if value in self.choices else nearest_choice(str(value), self.choices)
        if kind in (str, bool):
            return None
        if hint := _range_hint(kind, value):
            return hint
        outside = (
            (self.above is not None and value <= self.above)
            or (self.at_least is not None and value < self.at_least)
            or (self.below is not None and value >= self.below)
            or (self.at_most is not None and value > self.at_most)
        )
        if not outside:
            return None
        percent = self.at_most == 1 and 1 < value <= 100
        return f"write {value / 100:g} for {value:g} %" if percent else ""


def nearest_choice(text: str, choices: Sequence[str]) -> str:
    """Return a hint that names the choice that was probably meant, in other case or short as ``fp16``, or nothing."""
    long = re.sub(r"\A(b?)f(?:p|loat)?(?=\d)", r"\1float", text.lower())
    return nearest(long, choices) or nearest(text, choices)


def _range_hint(kind: type, value: Any) -> str:
    """Return why no field takes a number of this size, or nothing."""
    size = abs(value)  # of any size: an integer of a file need not fit a float
    if size != size or size == math.inf:  # noqa: PLR0124
        return "a finite number is needed"
    if kind is int and size > LARGEST_INTEGER:
        return f"the largest whole number is {LARGEST_INTEGER}"
    if size > LARGEST_NUMBER:
        return f"the largest number is {LARGEST_NUMBER:g}"
    return f"the smallest above 0 is {SMALLEST_NUMBER:g}" if 0 < size < SMALLEST_NUMBER else ""


def _type_hint(kind: type, value: object) -> str | None:
    """Return None when a value has the type of a field, else a hint (which may be empty)."""
    if type(value) is kind or (kind is float and type(value) is int):  # nearly always, and quick
        return None
    if kind is str or kind is bool:
        if isinstance(value, kind) or (kind is bool and type(value).__name__ == "bool"):
            return None
        return "no quotes" if kind is bool and str(value).lower() in ("true", "false") else ""
    if isinstance(value, str):
        return "no quotes" if _is_number(value) else ""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return ""
    whole = kind is not int or isinstance(value, numbers.Integral)
    return None if whole or (math.isfinite(value) and float(value).is_integer()) else ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def shown(value: object) -> str:
    """Write a found value for a message: short, and as it stands in the file."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "an object" if value else "an empty object"
    if isinstance(value, (list, tuple)):
        text = str(list(value))
        return text if len(text) <= 60 else f"a list of {len(value)}"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def declare(
    help: str,  # noqa: A002
    *,
    key: str = "",
    default: Any = dataclasses.MISSING,
    **declaration: Any,
) -> Any:
    """Declare one field of a spec record; see :class:`Declaration` for the arguments.

    A `default` (in SI units) makes the field optional.
    """
    optional = default is not dataclasses.MISSING
    declared = Declaration(help=help, key=key, optional=optional, **declaration)
    return dataclasses.field(default=default, metadata={_METADATA: declared})


@dataclass(frozen=True, slots=True)
class SpecField:
    """A declared field of a record class: attribute name, type, declaration, and default if it has one."""

    name: str
    annotation: Any
    declaration: Declaration
    default: Any = None

    @property
    def key(self) -> str:
        """The name of the field in files."""
        return self.declaration.key or self.name

    @property
    def named(self) -> bool:
        """Whether it takes named values or is a switch, and no number."""
        return self.annotation is not int and self.annotation is not float

    @property
    def values(self) -> tuple[Any, ...]:
        """All values of a named field or switch; of a number or list its default and the samples."""
        choices = self.declaration.choices
        if choices and not isinstance(choices, ListsOfCounts):
            return tuple(choices)
        if self.annotation is bool:
            return (False, True)
        return tuple(dict.fromkeys((self.default, *self.declaration.samples)))

    @property
    def others(self) -> tuple[Any, ...]:
        """The values but the default."""
        return tuple(value for value in self.values if value != self.default)


@cache
def spec_fields(cls: Hashable) -> tuple[SpecField, ...]:
    """List the declared fields of a record class, in file order."""
    assert isinstance(cls, type)
    hints = get_type_hints(cls)
    return tuple(
        SpecField(
            field.name,
            _stated(hints[field.name]),
            field.metadata[_METADATA],
            None if field.default is dataclasses.MISSING else field.default,
        )
        for field in dataclasses.fields(cls)
        if _METADATA in field.metadata
    )


def _stated(annotation: Any) -> Any:
    """Return the type of a field where a file states it: without the None of one that has no default number."""
    if not isinstance(annotation, UnionType):
        return annotation
    (kind,) = (one for one in get_args(annotation) if one is not NoneType)
    return kind


@cache
def optional_defaults(cls: Hashable) -> dict[str, Any]:
    """Map the optional fields of a record class to their defaults."""
    return {f.name: f.default for f in spec_fields(cls) if f.declaration.optional}


def check_record(record: object) -> None:
    """Check the plain fields of a record that was built by hand (values in SI units).

    Raises
    ------
    SpecError
        With every field that holds what its declaration does not allow.
    """
    if problems := list(_record_problems(record)):
        raise SpecError(type(record).__name__, problems)


def _record_problems(record: object) -> Iterator[Problem]:
    cls: Any = type(record)
    for field in spec_fields(cls):
        if field.annotation in (int, float, bool, str):
            value = getattr(record, field.name)
            if field.declaration.optional and value is field.default:
                continue
            if field.declaration.scale != 1.0 and isinstance(value, numbers.Real):
                value = value / field.declaration.scale
            if problem := field.declaration.problem(field.annotation, value, field.name):
                yield problem
