"""What people pass to the functions of this package: specs in any form, whole numbers and switches."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from calculon.errors import Problem, SpecError
from calculon.hardware.system import System
from calculon.spec import catalog
from calculon.spec.decode import decode
from calculon.spec.execution import Execution
from calculon.spec.fields import Declaration, optional_defaults, spec_fields
from calculon.spec.model import Model

Source = str | os.PathLike[str] | Mapping[str, Any]
"""A catalog name, a path (``-`` is standard input), or a mapping with the fields of the file."""

_LONGEST = 60  # characters of a value in a message


def model(source: Source | Model) -> Model:
    """Return a model from a catalog name, a path, a mapping (also a row of a DataFrame) or a record.

    Raises
    ------
    SpecError
        When there is no such model, or for anything wrong with it.
    """
    if isinstance(source, Model):
        return source
    name, raw, file = _load("model", source)
    return decode(Model, raw, file, name=name)


def system(source: Source | System) -> System:
    """Return a system from a catalog name, a path, a mapping or a record; errors as in :func:`model`."""
    if isinstance(source, System):
        return source
    name, raw, file = _load("system", source)
    return decode(System, raw, file, name=name)


def execution(source: Source | Execution) -> Execution:
    """Return an execution from a catalog name, a path, a mapping or a record; errors as in :func:`model`.

    Of a row of a DataFrame what is no field of an execution (statistics, say) is left out.
    """
    if isinstance(source, Execution):
        return source
    _, raw, file = _load("execution", source)
    if isinstance(raw, Mapping) and is_row(source):
        fields = {field.key for field in spec_fields(Execution)}
        optional = optional_defaults(Execution)
        raw = {
            name: value
            for name, value in raw.items()
            if name in fields and not (name in optional and value != value)  # noqa: PLR0124
        }
    return decode(Execution, raw, file)


def is_row(value: object) -> bool:
    """Return whether a value is a row of a DataFrame; pandas need not be there to tell."""
    return getattr(value, "ndim", None) == 1 and hasattr(value, "keys")


def is_frame(value: object) -> bool:
    """Return whether a value is a DataFrame; pandas need not be there to tell."""
    return getattr(value, "ndim", None) == 2 and hasattr(value, "columns")


def as_mapping(value: object) -> Mapping[Any, Any] | None:
    """Return a mapping or a row of a DataFrame as a mapping; nothing for anything else."""
    if isinstance(value, Mapping):
        return value
    row: Any = value
    return dict(row.items()) if is_row(value) else None


def count(value: object, name: str, call: str) -> int:
    """Return a whole number of at least 1.

    Parameters
    ----------
    name, call : str
        The argument, and what it is an argument of, for the message.

    Raises
    ------
    SpecError
        For anything else; a number in quotes is none.
    """
    problem = Declaration(help="", at_least=1).problem(int, value, name)
    if problem is not None:
        raise SpecError(call, replace(problem, found=found(value)))
    number: Any = value
    return int(number)


def switch(value: object, name: str, call: str) -> bool:
    """Return True or False; arguments and errors as in :func:`count`."""
    if not isinstance(value, (bool, np.bool_)):
        raise SpecError(call, Problem(name, "True or False", found(value)))
    return bool(value)


def found(value: object) -> str:
    """Write an argument for a message: short, and on one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{kind(value)} {text[: _LONGEST - 3]}..."


def kind(value: object) -> str:
    """Say what type a value is of, such as ``a list``."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _load(argument: str, source: Any) -> tuple[str, object, str]:
    """Return the short name of a spec, the raw document, and where it came from."""
    raw = as_mapping(source)
    if raw is not None:
        return argument, catalog.whole(argument, raw, argument), argument
    if not isinstance(source, (str, os.PathLike)) or not str(source):
        raise SpecError(argument, _no_source(argument, source))
    path = os.fsdecode(source)
    name, document = catalog.load(argument, path)
    return name, document, "<stdin>" if name == "stdin" else path


def _no_source(argument: str, source: object) -> Problem:
    """Say what an argument takes, and where its value may belong instead."""
    wanted = f"a name of the catalog, a path, a mapping with the fields of a file, or {_RECORDS[argument]}"
    for other, record in _RECORDS.items():
        if kind(source) == record:
            return Problem("", wanted, record, f"it belongs in the argument {other}")
    several = is_frame(source) or isinstance(source, (list, tuple))
    hint = "evaluate takes tables of executions" if several and argument == "execution" else ""
    return Problem("", wanted, kind(source) if several else found(source), hint)


_RECORDS = {"model": "a Model", "execution": "an Execution", "system": "a System"}
"""The record that each argument takes, in words."""
