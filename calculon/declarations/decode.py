"""Decode a document into a frozen record in SI units, or report all of its problems.

A library such as pydantic or msgspec could decode these files too. This decoder exists because one declaration also
carries unit, scale and help text, because all problems of a file are reported at once with the value found and a hint,
and because importing a validation framework would slow down a single estimate.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any, Protocol, TypeVar, cast, get_args, get_origin, runtime_checkable

from calculon.base.errors import MAX_PROBLEMS, Problem, SpecError, nearest, printable
from calculon.declarations.fields import SpecField, shown, spec_fields
from calculon.declarations.overlay import BASE

R = TypeVar("R")

MISSING = "nothing (the field is missing)"
"""Value of :attr:`Problem.found` for a missing required field."""

_MAX_COMPARED = 200
"""Unknown keys of an object that are compared with a missing field, in case one is a misspelling of it."""


class SpecWarning(UserWarning):
    """Warning about an input that works but is probably a mistake."""


@runtime_checkable
class Decodable(Protocol):
    """Value type with its own decoder: an efficiency curve, a network operation."""

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float) -> Any:
        """Return the decoded value in SI units; on failure add to `problems` and return any value."""

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""


def decode(cls: type[R], raw: object, file: str, *, place: str = "", **extra: Any) -> R:
    """Decode one document into a record.

    Args:
        cls: A record class with declared fields. Its attribute ``unknown_keys`` determines the treatment of undeclared
            keys: ``"error"``, ``"warning"`` or ``"ignored"``; keys in ``silent_keys`` are skipped. Its class method
            ``from_silent_keys``, if defined, returns further fields from the document.
        raw: The parsed document.
        file: Source of the document, for messages.
        place: Path of the record in a larger document, such as ``[3].execution``; prefix of its field names.
        **extra: Fields of the record that are not in the file (its name, for example).

    Raises:
        SpecError: With every problem of the document.
    """
    problems: list[Problem] = []
    derive = getattr(cls, "from_silent_keys", None)
    if derive is not None and isinstance(raw, Mapping):
        extra = derive(raw) | extra
    record = _record(cls, raw, place, problems, file, extra)
    if problems:
        raise SpecError(file, _with_base_hint(problems, getattr(cls, "base_hint", "")))
    return cast("R", record)


def decode_part(cls: type[R], raw: object, path: str, problems: list[Problem]) -> R | None:
    """Decode a part of a document into a record, or add to `problems`; for types with their own decoder."""
    return cast("R | None", _record(cls, raw, path, problems, "", {}))


def _record(
    cls: type, raw: object, path: str, problems: list[Problem], file: str, extra: dict[str, Any]
) -> object | None:
    if not isinstance(raw, Mapping):
        problems.append(Problem(path, "an object with named fields", shown(raw)))
        return None
    before = len(problems)
    fields = spec_fields(cls)
    values = dict(extra)
    for field in fields:
        place = f"{path}.{field.key}" if path else field.key
        if field.key in raw:
            values[field.name] = _value(field, raw[field.key], place, problems, file)
        elif not field.declaration.optional:
            problems.append(_missing(field, raw, [f.key for f in fields], place))
    _unknown(cls, raw, path, problems, file)
    if len(problems) > before:
        # A record with missing values would raise follow-up errors that hide the real ones.
        return None
    try:
        record: object = cls(**values)
    except SpecError as error:  # contradictions between fields, found by the record itself
        problems.extend(
            replace(problem, field=f"{path}.{problem.field}" if path else problem.field)
            for problem in error.problems
        )
        return None
    if check := getattr(record, "problems", None):
        problems.extend(check(path))
    return record


def _missing(field: SpecField, raw: Mapping[Any, Any], known: list[str], place: str) -> Problem:
    strangers = (str(key) for key in raw if key not in known)
    similar = nearest(field.key, list(islice(strangers, _MAX_COMPARED)))
    hint = f"is it spelled {similar.split(chr(39))[1]!r} here?" if similar else "add it"
    kind = field.annotation if isinstance(field.annotation, type) else object
    expected = field.declaration.wanted(kind) if kind in (int, float, bool, str) else "this field"
    return Problem(place, expected, MISSING, hint)


def _unknown(
    cls: type, raw: Mapping[Any, Any], path: str, problems: list[Problem], file: str
) -> None:
    treated = getattr(cls, "unknown_keys", "error")
    if treated == "ignored":
        return
    known = [field.key for field in spec_fields(cls)]
    silent: Sequence[str] = getattr(cls, "silent_keys", ())
    strangers = [key for key in raw if key not in known and key not in silent]
    refused = treated == "error"
    for number, key in enumerate(strangers):
        place = f"{path}.{key}" if path else str(key)
        # The nearest spelling is slow to compute, and a page shows the first problems only.
        hint = nearest(str(key), known) if number < MAX_PROBLEMS else ""
        if refused:
            found = f"the unknown field {shown(str(key))}"
            hint = hint or "known are " + ", ".join(known)
            problems.append(Problem(place, "only the known fields", found, hint))
        elif number < MAX_PROBLEMS:
            _warn(f"{file}: {place}: unknown field, ignored{hint and '; '}{hint}")
    if not refused and (more := len(strangers) - MAX_PROBLEMS) > 0:
        _warn(f"{file}: and {more:,} more unknown fields, ignored")


def _warn(text: str) -> None:
    warnings.warn(printable(text), SpecWarning, stacklevel=2)


def _value(
    field: SpecField, raw: object, path: str, problems: list[Problem], file: str
) -> object | None:
    kind = field.annotation
    if raw is None and field.declaration.nullable:
        return cast("object", field.declaration.null)
    if kind in (int, float, bool, str):
        if problem := field.declaration.problem(kind, raw, path):
            problems.append(problem)
            return None
        scaled = field.declaration.scale != 1.0
        plain = field.declaration.plain(raw)
        return cast("float", raw) * field.declaration.scale if scaled else kind(plain)
    if get_origin(kind) in (dict, tuple):
        inside = _mapping if get_origin(kind) is dict else _sequence
        return inside(field, raw, path, problems, file)
    if _decodes_itself(kind):
        found: list[Problem] = []
        value: object = kind.decode(raw, path, found, field.declaration.scale)
        for problem in found if field.declaration.forgiving else ():
            _warn(f"{file}: {problem}; ignored")
        problems += () if field.declaration.forgiving else found
        return value
    return _record(kind, raw, path, problems, file, {})


@cache
def _decodes_itself(kind: Any) -> bool:
    """Return True for a :class:`Decodable` type; cached, since protocol checks with isinstance are slow."""
    return isinstance(kind, Decodable)


def _mapping(
    field: SpecField, raw: object, path: str, problems: list[Problem], file: str
) -> dict[str, object] | None:
    """Decode an object with one value per key; the keys are the ``choices`` of the declaration, if it has any."""
    choices = field.declaration.choices
    wanted = "an object with at least one of " + ", ".join(choices) if choices else "an object"
    if not isinstance(raw, Mapping) or not (raw or not choices):
        problems.append(Problem(path, wanted, shown(raw)))
        return None
    item = get_args(field.annotation)[1]
    if item is Any:
        return dict(raw)
    inside = replace(field, annotation=item)
    values: dict[str, object] = {}
    for key, value in raw.items():
        if choices and key not in choices:
            hint = nearest(str(key), choices)
            problems.append(Problem(f"{path}.{key}", wanted, f"the key {shown(key)}", hint))
            continue
        values[key] = _value(inside, value, f"{path}.{key}", problems, file)
    return values


def _sequence(
    field: SpecField, raw: object, path: str, problems: list[Problem], file: str
) -> tuple[object, ...] | None:
    """Decode a list of records; the list of an optional field may be empty."""
    item, optional = get_args(field.annotation)[0], field.declaration.optional
    if not isinstance(raw, Sequence) or isinstance(raw, str) or not (raw or optional):
        wanted = "a list of objects" if optional else "a list of at least one object"
        problems.append(Problem(path, wanted, shown(raw)))
        return None
    return tuple(
        _record(item, one, f"{path}[{i}]", problems, file, {}) for i, one in enumerate(raw)
    )


_MANY = 3
"""Number of missing fields from which a file is a few changes of a system rather than a whole one."""


def _with_base_hint(problems: list[Problem], hint: str) -> list[Problem]:
    """Return the problems with one problem, and a hint at ``base``, in place of many missing fields."""
    missing = [one for one in problems if one.found == MISSING]
    if not hint or len(missing) < _MANY:
        return problems
    wanted = "the system that this file changes, or all fields of a system"
    found = f"nothing, and no {', '.join(one.field for one in missing)}"
    others = [one for one in problems if one not in missing]
    return [*others, Problem(BASE, wanted, found, hint)]
