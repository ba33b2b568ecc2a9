"""Declared numbers of results: any double, and a field for each statistic of a record of arrays."""

import math
from collections.abc import Callable, Collection, Iterable
from inspect import get_annotations
from typing import Any, TypeVar

from calculon.base.records import Column
from calculon.declarations.fields import Declaration, declare

R = TypeVar("R")

NUMBER = Declaration("a number of a result", unbounded=True)
"""Any double, including infinity."""


def number(words: str, **declaration: Any) -> Any:
    """Declare a number of a result."""
    return declare(words, unbounded=True, **declaration)


def with_numbers(
    statistics: Iterable[Column], *, unlimited: Collection[str] = (), **declaration: Any
) -> Callable[[type[R]], type[R]]:
    """Return a class decorator that declares a field for each statistic not declared in the class itself.

    Args:
        statistics: Columns, with their help texts and whether they may be null.
        unlimited: Names of statistics in which null represents infinity.
        **declaration: Properties of all fields, such as a default.
    """
    fields: dict[str, Any] = {
        one.name: number(
            one.help,
            nullable=one.nullable or one.name in unlimited,
            null=math.inf if one.name in unlimited else None,
            **declaration,
        )
        for one in statistics
    }

    def add(cls: type[R]) -> type[R]:
        own = get_annotations(cls)
        for name in fields.keys() - own.keys():
            setattr(cls, name, fields[name])
        cls.__annotations__ = {**own, **{name: own.get(name, float) for name in fields}}
        return cls

    return add
