"""Hints for attributes that a result does not have: the attribute, field or statistic that was meant."""

from collections.abc import Iterator, Mapping
from typing import Any

from calculon.base.errors import nearest_names
from calculon.declarations.execution import Execution
from calculon.declarations.short_names import STATISTICS, field_name

_FIGURES = ("stats", "figures", "best.stats", "estimate.stats", "main.estimate.stats")
"""Members of results that hold figures by name."""

_PLANS = ("execution", "best.execution", "main.estimate.execution")
"""Members of results that are executions."""


def attribute_hint(result: object, name: str) -> str:
    """Return a hint at the attribute of a result that a misspelled name probably means; empty if none is similar."""
    attributes = {one: f".{one}" for one in dir(result) if not one.startswith("_")}
    held = dict(_held(result))
    meant = STATISTICS.get(name, field_name(name))
    if meant in held:
        return f"use {held[meant]}"
    for known in (attributes, held):
        if near := nearest_names(name, [*known]):
            return f"did you mean {' or '.join(known[one] for one in near)}?"
    return ""


def _held(result: object) -> Iterator[tuple[str, str]]:
    """Yield fields and statistics that members of a result hold, with their expressions; the last of a name counts."""
    for path in reversed(_PLANS):
        if isinstance(_member(result, path), Execution):
            yield path.rpartition(".")[2], f".{path}"
            yield from ((name, f".{path}.{name}") for name in Execution.__dataclass_fields__)
    for path in reversed(_FIGURES):
        if isinstance(figures := _member(result, path), Mapping):
            yield from ((str(name), f".{path}[{name!r}]") for name in figures)
    for member in ("names", "stats"):
        columns: Any = _member(result, member)
        if isinstance(columns, tuple) and hasattr(result, "__getitem__"):
            yield from ((str(name), f"[{name!r}]") for name in columns)


def _member(result: object, path: str) -> Any:
    for name in path.split("."):
        result = getattr(result, name, None)
    return result
