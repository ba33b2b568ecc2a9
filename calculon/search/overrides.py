"""Overrides of the search space: restrict a field to some values, or add values to the published enumeration."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest
from calculon.declarations.fields import SpecField
from calculon.declarations.short_names import FIELDS as SHORT
from calculon.declarations.short_names import field_name, field_value
from calculon.plan.columns import FIELDS, field_of
from calculon.plan.plan import NAMES
from calculon.search.space import LOOPS, Values

FIXABLE = (*LOOPS, "data_par")
"""Fields that a search can restrict."""

ADDABLE = {field.name: field.declaration.adds for field in FIELDS if field.declaration.adds}
"""Fields that a search can widen, with a description of the values to add."""

OPTIONS = tuple(name for name in ADDABLE if field_of(name).declaration.optional)
"""Addable fields of the corrected edition."""

_INSTEAD = {field.name: field.declaration.instead for field in FIELDS}
"""Hints for fields that cannot be restricted: the option to use instead."""


def checked(option: str, values: Mapping[str, Any]) -> dict[str, Values]:
    """Check the values of ``fix`` or ``add`` against the declarations of their fields.

    Args:
        option: ``fix`` or ``add`` as the caller spells it: with dashes on the command line.
        values: One value or a sequence of values by field.

    Raises:
        SpecError: With every unknown field and every invalid value.
    """
    allowed = FIXABLE if option.lstrip("-") == "fix" else tuple(ADDABLE)
    problems = []
    result: dict[str, Values] = {}
    for name, given in values.items():
        if name not in allowed:
            hint = _INSTEAD.get(name) or nearest(name, (*allowed, *SHORT))
            hint = hint or "known fields: " + ", ".join(allowed)
            problems.append(Problem(name, f"a field that {option} knows", repr(name), hint))
            continue
        field = field_of(name)
        result[name] = listed(field, given)
        problems += problems_of(field, name, result[name])
    if problems:
        raise SpecError(option, problems)
    return result


def listed(field: SpecField, given: Any) -> Values:
    """Return one value of a field, or a sequence of them, as a tuple of plain values."""
    several = isinstance(given, Sequence) and not isinstance(given, str)
    return tuple(field.declaration.plain(value) for value in (given if several else (given,)))


def problems_of(field: SpecField, name: str, values: Values) -> list[Problem]:
    """Return the problems of values of a field; messages use the given name."""
    found = (field.declaration.problem(field.annotation, value, name) for value in values)
    return [problem for problem in found if problem is not None]


def parse(option: str, texts: Sequence[str]) -> dict[str, Values]:
    """Read ``FIELD=VALUE[,VALUE...]`` texts, with full or short field names; a field may occur several times.

    Raises:
        SpecError: As :func:`checked`, and for a text without ``=``.
    """
    values: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals or not rest:
            raise SpecError(f"--{option}", Problem(text, "FIELD=VALUE[,VALUE...]", repr(text)))
        items = [item.strip() for item in rest.split(",")]
        for field, meant in as_fields({name.strip(): items}).items():
            values.setdefault(field, []).extend(meant)
    return checked(f"--{option}", values)


def as_fields(words: Mapping[str, Any]) -> dict[str, Values]:
    """Return values by field that are stated by short or full names, a value or several for each.

    >>> as_fields({"tp": [4, 8], "sp": True})
    {'tensor_par': (4, 8), 'tensor_par_comm_type': ('rs_ag',)}
    """
    result = {}
    for name, given in words.items():
        field = field_name(name)
        items = given if isinstance(given, (list, tuple)) else (given,)
        result[field] = tuple(_typed(field, field_value(name, str(item))) for item in items)
    return result


def _typed(name: str, text: str) -> Any:
    """Convert text to the type of a field; return the text if that fails."""
    kind = field_of(name).annotation if name in NAMES else str
    if kind is bool and text.lower() in ("true", "false", "t", "f", "1", "0"):
        return text.lower() in ("true", "t", "1")
    if kind is int:
        try:
            return int(text)
        except ValueError:
            return text
    return text
