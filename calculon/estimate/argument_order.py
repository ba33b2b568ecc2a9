"""Order of the arguments of public functions: MODEL, then PLAN or PROCS, then SYSTEM.

The machine may also come before the plan or the number of processors: a machine is recognized as one.
"""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from calculon.base.errors import SpecError
from calculon.declarations import catalog
from calculon.declarations.files import SUFFIXES, document_suffix, read_document
from calculon.declarations.overlay import BASE
from calculon.declarations.spellings.catalog_words import meaning
from calculon.declarations.spellings.plan_pairs import is_plan
from calculon.declarations.spellings.processor_counts import is_counts
from calculon.hardware.system import System
from calculon.inputs import Changed

P = ParamSpec("P")
R = TypeVar("R")

_MACHINES = ("system", "systems")
"""Parameters that are machines; what they may change places with is the parameter before them."""


def takes_either_order(function: Callable[P, R]) -> Callable[P, R]:
    """Let the machine of a function also come before the plan or the number of processors."""
    names = tuple(inspect.signature(function).parameters)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        ordered: Any = in_order(args, kwargs, names)
        return function(*ordered[0], **ordered[1])

    return call


def in_order(
    args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments by position and by name, the machine after the plan or the number of processors.

    Args:
        args, kwargs: The arguments as they were given.
        names: Parameters of the function in order.
    """
    place = next(place for place, name in enumerate(names) if name in _MACHINES)
    asked, machine = names[place - 1 : place + 1]
    if len(args) == place and machine not in kwargs:
        if asked in kwargs or is_system(args[-1]):
            return tuple(args[:-1]), {**kwargs, machine: args[-1]}
    elif len(args) > place and not is_system(args[place]) and is_system(args[place - 1]):
        swapped = args[place], args[place - 1]
        return (*args[: place - 1], *swapped, *args[place + 1 :]), dict(kwargs)
    return tuple(args), dict(kwargs)


def is_system(value: object) -> bool:
    """Return true if an argument is a machine (a record, a name of the catalog, a file or its fields) or several.

    >>> is_system("h100"), is_system("h100, h200"), is_system({"networks": []}), is_system("64"), is_system("tp=4")
    (True, True, True, False, False)
    """
    if isinstance(value, System):
        return True
    if isinstance(value, Changed):
        return is_system(value.source)
    if isinstance(value, (str, os.PathLike)):
        return _names_system(os.fsdecode(value))
    if isinstance(value, Mapping):
        return catalog.has_fields_of("system", value) or str(value.get(BASE)) in catalog.names(
            "system"
        )
    return isinstance(value, (list, tuple)) and bool(value) and all(map(is_system, value))


def _names_system(text: str) -> bool:
    known = catalog.names("system")
    if text in known:
        return True
    if os.path.isfile(text):  # noqa: PTH113 (a text that can be no path has none)
        return _holds_system(text)
    if not text or is_counts(text) or is_plan(text) or text in catalog.names("execution"):
        return False
    return all(meaning("system", one.strip(), known).names for one in text.split(","))


def _holds_system(path: str) -> bool:
    """Return True if a file describes a machine; errors in it are left to the function that reads it."""
    if document_suffix(path) not in SUFFIXES:
        return False
    try:
        raw = read_document(path)
    except SpecError:
        return False
    return isinstance(raw, Mapping) and is_system(raw)
