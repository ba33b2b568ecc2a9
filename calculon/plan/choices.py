"""Groups of executions that share a choice: plain code handles the choice, arrays the remaining differences."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache, lru_cache
from typing import Any, TypeVar

import numpy as np

from calculon.architecture.shape import SIZE_FIELDS
from calculon.base.distinct_rows import LARGEST_RANGE, distinct
from calculon.base.units import Array
from calculon.declarations.fields import Scope, SpecField
from calculon.declarations.scope_choices import (
    DERIVED,
    BatchChoice,
    BlockChoice,
    LayoutChoice,
    StepChoice,
)
from calculon.plan.columns import FIELDS, Columns, field_of
from calculon.plan.stage_layout import modules_apart, own_stages

C = TypeVar("C", LayoutChoice, BlockChoice, StepChoice, BatchChoice)

_DERIVED: Mapping[str, Callable[[Columns], Array]] = {
    "sequence_parallel": lambda columns: columns.is_choice("tensor_par_comm_type", "rs_ag"),
    "overlapped": lambda columns: ~columns.is_choice("tensor_par_overlap", "none"),
    "own_stages": own_stages,
    "modules_apart": modules_apart,
}

assert _DERIVED.keys() == DERIVED.keys()


@cache
def members(choice: Any) -> tuple[str, ...]:
    """Return the members of a choice, including the members of its layout."""
    found: list[str] = []
    for field in fields(choice):
        found += members(LayoutChoice) if field.name == "layout" else [field.name]
    return tuple(found)


def _undeclared(field: SpecField) -> Iterator[str]:
    """Yield missing parts of a field's declaration for which a default would be used silently."""
    declared = field.declaration
    if not declared.scope:
        yield f"{field.name} has no scope"
    if declared.optional and declared.searched == "loop":
        yield f"{field.name} does not say what a search does with it (searched)"
    if declared.searched == "option" and not (declared.adds and declared.label and declared.mark):
        yield f"{field.name} lacks words for searches or pages (adds, label, mark)"
    if declared.optional and not field.others:
        yield f"{field.name} has no value other than its default (samples)"
    if not field.named and Scope.LAYOUT in declared.scope:
        yield f"{field.name} is a number, which decides no layers"
    if not field.named and (Scope.BLOCK in declared.scope) != (field.name in SIZE_FIELDS):
        yield f"{field.name} is of scope BLOCK or one of SIZE_FIELDS, and not both"


_LEFT_OUT = [text for field in FIELDS for text in _undeclared(field)]
assert not _LEFT_OUT, "; ".join(_LEFT_OUT)


def grouped(columns: Columns, choice: type[C]) -> Iterator[tuple[C, Array]]:
    """Yield the distinct choices of a table, each with its rows."""
    kind: Any = choice
    keys = [
        _DERIVED[name](columns) if name in _DERIVED else getattr(columns, name)
        for name in members(kind)
    ]
    if len(keys[0]) == 1:  # a single execution: sorting would dominate the time of an estimate
        yield _made(kind, tuple([key.item() for key in keys])), np.zeros(1, np.int64)
        return
    rows, row_of, _ = distinct(keys)
    if len(rows) == 1:
        yield _made(kind, tuple(rows[0].tolist())), np.arange(len(row_of))
        return
    # NumPy sorts uint16 by radix sort
    small = np.uint16 if len(rows) <= LARGEST_RANGE else np.int64
    order = np.argsort(row_of.astype(small), kind="stable")
    bounds = np.searchsorted(row_of[order], np.arange(len(rows) + 1))
    for number, codes in enumerate(rows.tolist()):
        yield _made(kind, tuple(codes)), order[bounds[number] : bounds[number + 1]]


@lru_cache(4096)
def _made(choice: Any, codes: tuple[int, ...]) -> Any:
    """Return the choice whose members have the given codes."""
    values = dict(zip(members(choice), map(_value, members(choice), codes), strict=True))
    own = {field.name for field in fields(choice)}
    if "layout" in own:
        layout = {name: values.pop(name) for name in members(LayoutChoice)}
        values["layout"] = LayoutChoice(**layout)
    return choice(**values)


def _value(name: str, code: int) -> Any:
    """Return the value of a code."""
    if name in DERIVED:
        return bool(code)
    choices = field_of(name).declaration.choices
    return choices[code] if choices else bool(code)
