"""Declare a field of a spec file once: its key, type, unit, allowed values and help.

A spec record is a frozen dataclass whose fields are made by :func:`declare`. One declaration serves the decoder
(:mod:`calculon.declarations.decode`), the JSON Schema (:mod:`calculon.declarations.schema`), the reference tables of
``calculon describe`` and the checks of a record built by hand. For an execution it also provides the labels of pages
and tables, the role of the field in a search, the fields it depends on, and the cases that tests draw.
"""

import dataclasses
import math
import numbers
import re
import sys
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from enum import Flag
from functools import cache
from reprlib import Repr
from types import NoneType, UnionType
from typing import Any, Literal, cast, get_args

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.declarations.lists_of_counts import ListsOfCounts

_METADATA = "spec"
LARGEST_INTEGER = 2**31 - 1
"""Bound of every whole number. A double holds 53 bits, so a rounded product of large numbers could equal another number
by accident; products of bounded degrees cannot."""

SMALLEST_NUMBER, LARGEST_NUMBER = 1e-30, 1e30
"""Bounds of every other nonzero number; within them no formula leaves the range of a double."""

JSON_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}
"""JSON Schema names of the types of plain fields."""


class Scope(Flag):
    """Part of the cost model that an execution field affects.

    Named values and switches are part of the key by which rows share costs; numbers are columns.

    Attributes:
        LAYOUT: The list of layers.
        BLOCK: The cost of the layers of a block.
        STEP: The cost of the optimizer step of a block.
        BATCH: The assembly of blocks and steps into a batch: schedule, data parallelism, memory.
    """

    LAYOUT = 1
    BLOCK = 2
    STEP = 4
    BATCH = 8


LAYOUT, BLOCK, STEP, BATCH = Scope.LAYOUT, Scope.BLOCK, Scope.STEP, Scope.BATCH

_NOTHING = Scope(0)

Searched = Literal["loop", "option", "fixed", "argument"]
"""Role of a field in a search: a loop of the published enumeration; an option with one value unless more are added; a
value that only a restriction changes; or an argument of the search."""

Of = Literal["plan", "circumstance", "question"]
"""Owner of a field: the plan, which advice may change; the circumstances, set by machine, software or data rather than
by a launcher; or the question, which advice leaves unchanged."""

ABOVE_ONE = range(2, LARGEST_INTEGER + 1)
"""Degrees of parallelism with an effect."""

ABOVE_ZERO = range(1, LARGEST_INTEGER + 1)
"""Stated numbers; 0 means not stated."""


class NamedValues(tuple[str, ...]):
    """Named values of a field; a digit may be written as a number."""

    __slots__ = ()

    @property
    def wanted(self) -> str:
        """The allowed values, for a message."""
        return "one of " + ", ".join(self)

    @property
    def usual(self) -> tuple[str, ...]:
        """Values that pages list and tests try one by one."""
        return tuple(self)

    def plain(self, value: Any) -> Any:
        """Return a value in stored form: a number becomes the named value with that digit."""
        if isinstance(value, (bool, str)) or not isinstance(value, numbers.Real):
            return value
        return next((one for one in self if one.isdigit() and value == int(one)), value)

    def hint(self, value: object) -> str | None:
        """Return None for an allowed value, else a hint (which may be empty)."""
        return None if value in self else nearest_choice(str(value), self)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a value."""
        return {"enum": [*self, *(int(one) for one in self if one.isdigit())]}


@dataclass(frozen=True, slots=True)
class Declaration:
    """Properties of one field of a spec file.

    ``scale`` converts the number in the file to SI units (``GBps`` times 1e9 is B/s); limits apply to the number in the
    file. An ``optional`` field has the default of its record class. A problem inside a ``forgiving`` field, whose type
    has its own decoder, only causes a warning, and the entry is ignored. ``source`` gives origin and date of a measured
    default. Result fields may be ``unbounded`` (any double, including infinity) and ``nullable`` (``null`` is the value
    that JSON null represents).

    The following apply to executions, and some of them to deployments and campaigns:

    Attributes:
        scope: Parts of the cost model that the field affects.
        label: Text on a report if the field differs from its default; ``{}`` is the value.
        mark: Short form of the label for a table column; by value, or with ``{}``.
        needs: Other fields, with the values that give a non-default value of this field an effect.
        why: The property that these values have in common, for a message.
        searched: Role in a search (:data:`Searched`); by default ``loop``, for an optional field ``option``.
        adds: Candidates that adding its values brings to a search; empty if none can be added.
        samples: Numbers other than the default that tests draw; named values and switches are all drawn.
        of: Owner of the field: the plan, the circumstances or the question (:data:`Of`).
        saves: Values that need less memory, least invasive first.
        with_: Field that states the same decision together with this one.
        off: Value without the option, if that is neither the default nor false.
        switches: Number of switches that a value counts as when a search prefers executions with little offloading,
            recomputation and overlap. A value not listed counts as one; the field does not count if this is empty.
        instead: Replacement to suggest if a search is asked to vary a field that it cannot vary.
        words: Values as pages show them, if different from files.
        control: Label of the control on pages that edit a plan; empty if the field is not offered there.
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
    source: str = ""
    unbounded: bool = False
    nullable: bool = False
    null: Any = None
    scope: Scope = _NOTHING
    label: str = ""
    mark: str | Mapping[Any, str] = ""
    needs: Mapping[str, Collection[Any]] = dataclasses.field(default_factory=dict)
    why: str = ""
    searched: Searched = "loop"
    adds: str = ""
    samples: tuple[Any, ...] = ()
    of: Of = "plan"
    saves: tuple[Any, ...] = ()
    with_: str = ""
    off: Any = None
    switches: Mapping[Any, int] = dataclasses.field(default_factory=dict)
    instead: str = ""
    words: Mapping[Any, str] = dataclasses.field(default_factory=dict)
    control: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.choices, (ListsOfCounts, NamedValues)):
            object.__setattr__(self, "choices", NamedValues(self.choices))

    @property
    def named(self) -> NamedValues | ListsOfCounts:
        """The choices, with their own checks and words."""
        return cast("NamedValues | ListsOfCounts", self.choices)

    def wanted(self, kind: type) -> str:
        """Describe the allowed values, for a message."""
        if self.choices:
            return self.named.wanted
        if kind is bool:
            return "true or false"
        if kind is str:
            return "one line of text"
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
        """Return a value in stored form: a named value that is a number may be written as one."""
        return self.named.plain(value) if self.choices else value

    def problem(self, kind: type, value: object, path: str) -> Problem | None:
        """Return the problem with a value in file units, or None.

        Args:
            kind: One of int, float, bool and str.
            value: Value given by the file or the caller.
            path: Path of the field, for the message.
        """
        value = self.plain(value)
        hint = _type_hint(kind, value)
        if hint is None:
            hint = self._value_hint(kind, value)
        elif self._is_share and isinstance(value, str) and _is_number(value.rstrip("% ")):
            # "35%" has an obvious meaning, but files hold fractions.
            hint = f"write {float(value.rstrip('% ')) / 100:g}" if "%" in value else hint
        return None if hint is None else Problem(path, self.wanted(kind), shown(value), hint)

    def schema(self, kind: type) -> dict[str, Any]:
        """Return the JSON Schema of a value in file units; the excluded range around 0 is left to the decoder."""
        if self.choices:
            return self.named.schema()
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

    @property
    def _is_share(self) -> bool:
        """True if the value is a fraction, which people often write in percent."""
        return self.at_most == 1 or (self.below == 1 and self.at_least is not None)

    def _value_hint(self, kind: type, value: Any) -> str | None:
        """Return None for an allowed value of the right type, else a hint (which may be empty)."""
        if self.choices:
            return self.named.hint(value)
        if kind is str:
            return (
                None if value.isprintable() else "only characters that can be printed are allowed"
            )
        if kind is bool:
            return None
        if hint := _range_hint(kind, value, unbounded=self.unbounded):
            return hint
        outside = (
            (self.above is not None and value <= self.above)
            or (self.at_least is not None and value < self.at_least)
            or (self.below is not None and value >= self.below)
            or (self.at_most is not None and value > self.at_most)
        )
        if not outside:
            return None
        percent = self._is_share and 1 < value <= 100
        return f"write {value / 100:g} for {value:g} %" if percent else ""


def nearest_choice(text: str, choices: Sequence[str]) -> str:
    """Return a hint that names the likely choice, also for another case or a short form (``fp16``); else empty."""
    long = re.sub(r"\A(b?)f(?:p|loat)?(?=\d)", r"\1float", text.lower())
    return nearest(long, choices) or nearest(text, choices)


def _range_hint(kind: type, value: Any, *, unbounded: bool) -> str:
    """Return the reason why no field accepts a number of this size, or an empty text."""
    size = abs(value)  # may exceed the range of a float: an integer of a file has any size
    if unbounded:
        fits = size <= sys.float_info.max or size == math.inf
        return "" if fits else "no double has this value"
    if size != size or size == math.inf:  # noqa: PLR0124 (only NaN differs from itself)
        return "a finite number is needed"
    if kind is int and size > LARGEST_INTEGER:
        return f"the largest whole number is {LARGEST_INTEGER}"
    if size > LARGEST_NUMBER:
        return f"the largest number is {LARGEST_NUMBER:g}"
    return f"the smallest above 0 is {SMALLEST_NUMBER:g}" if 0 < size < SMALLEST_NUMBER else ""


def _type_hint(kind: type, value: object) -> str | None:
    """Return None when a value has the type of a field, else a hint (which may be empty)."""
    if type(value) is kind or (kind is float and type(value) is int):  # the common case, kept fast
        return None
    if kind is str or kind is bool:
        # numpy's bool is not a subclass of bool; comparing its name avoids importing numpy here.
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


_LONGEST = 60  # characters of a value in a message
# Nested lists are cut during traversal, since YAML aliases can expand a short text into a huge value.
_CUT = Repr()
_CUT.maxlist = _CUT.maxtuple = _CUT.maxdict = _LONGEST // 3
_CUT.maxlevel, _CUT.maxstring, _CUT.maxother = 3, _LONGEST, _LONGEST


def shown(value: object) -> str:
    """Format a found value for a message: short, in the notation of a file."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "an object" if value else "an empty object"
    if isinstance(value, (list, tuple)):
        text = _CUT.repr(list(value))
        return text if len(text) <= _LONGEST else f"a list of {len(value)}"
    text = repr(value[: _LONGEST + 1]) if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


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
    role = {"searched": "option" if optional else "loop"}
    declared = Declaration(help=help, key=key, optional=optional, **(role | declaration))
    return dataclasses.field(default=default, metadata={_METADATA: declared})


@dataclass(frozen=True, slots=True)
class SpecField:
    """Declared field of a record class: attribute name, type, declaration, and default if it has one."""

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
        """True if the field takes named values or is a switch, rather than a number."""
        return self.annotation is not int and self.annotation is not float

    @property
    def listed(self) -> bool:
        """True if the field takes a list of counts."""
        return isinstance(self.declaration.choices, ListsOfCounts)

    @property
    def values(self) -> tuple[Any, ...]:
        """All values of a named field or switch; of a number or a list, the default and the samples."""
        if self.declaration.choices and not self.listed:
            return cast("NamedValues", self.declaration.choices).usual
        if self.annotation is bool:
            return (False, True)
        return tuple(dict.fromkeys((self.default, *self.declaration.samples)))

    @property
    def off(self) -> Any:
        """Value of an option that is not used."""
        declared = self.declaration
        if declared.off is not None:
            return declared.off
        return self.default if declared.optional else False

    @property
    def others(self) -> tuple[Any, ...]:
        """Values other than the default."""
        return tuple(value for value in self.values if value != self.default)


@cache
def spec_fields(cls: Hashable) -> tuple[SpecField, ...]:
    """List the declared fields of a record class, in file order."""
    record: Any = cls
    return tuple(
        SpecField(
            field.name,
            _stated(field.type),
            field.metadata[_METADATA],
            None if field.default is dataclasses.MISSING else field.default,
        )
        for field in dataclasses.fields(record)
        if _METADATA in field.metadata
    )


def _stated(annotation: Any) -> Any:
    """Return the type of a field in a file: ``int`` for ``int | None``, since None only means that it is left out."""
    if not isinstance(annotation, UnionType):
        return annotation
    (kind,) = (one for one in get_args(annotation) if one is not NoneType)
    return kind


@cache
def optional_defaults(cls: Hashable) -> dict[str, Any]:
    """Map the optional fields of a record class to their defaults."""
    return {f.name: f.default for f in spec_fields(cls) if f.declaration.optional}


@cache
def decisions(cls: Hashable) -> tuple[tuple[str, ...], ...]:
    """Group the fields of a record class by decision; groups and fields are in file order.

    >>> from calculon.declarations.execution import Execution
    >>> next(several for several in decisions(Execution) if "zero_stage" in several)
    ('optimizer_sharding', 'zero_stage')
    """
    found: dict[str, list[str]] = {}
    for field in spec_fields(cls):
        found.setdefault(field.declaration.with_ or field.name, []).append(field.name)
    return tuple(tuple(names) for names in found.values())


def check_record(record: object) -> None:
    """Check the plain fields of a record that was built by hand (values in SI units).

    Raises:
        SpecError: With every field whose value its declaration does not allow.
    """
    if problems := list(_record_problems(record)):
        raise SpecError(type(record).__name__, problems)


def _record_problems(record: object) -> Iterator[Problem]:
    cls: Any = type(record)
    for field in spec_fields(cls):
        if field.annotation in (int, float, bool, str):
            # The default may lie outside the limits of stated values: -1 for "as the system states it".
            value = getattr(record, field.name)
            if field.declaration.optional and value is field.default:
                continue
            for one in _ends(value):
                scaled = field.declaration.scale != 1.0 and isinstance(one, numbers.Real)
                stated = one / field.declaration.scale if scaled else one
                if problem := field.declaration.problem(field.annotation, stated, field.name):
                    yield problem


def _ends(value: Any) -> tuple[Any, ...]:
    """Return the smallest and largest entry of a column, if it has any; these decide for all rows.

    Return other values as a tuple.
    """
    if getattr(value, "ndim", 0) != 1:
        return (value,)
    return (value.min(), value.max()) if value.size else ()
