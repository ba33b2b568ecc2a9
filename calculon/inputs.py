"""Specs in any form: a catalog name, a path, a mapping or a record."""

import os
from collections.abc import Mapping
from typing import Any

from calculon.hardware.system import System
from calculon.spec import catalog
from calculon.spec.decode import decode
from calculon.spec.execution import Execution
from calculon.spec.model import Model

Source = str | os.PathLike[str] | Mapping[str, Any]
"""A catalog name, a path (``-`` is standard input), or a mapping with the fields of the file."""


def model(source: Source | Model) -> Model:
    """Return a model from a catalog name, a path, a mapping or a record.

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
    """Return an execution from a catalog name, a path, a mapping or a record; errors as in :func:`model`."""
    if isinstance(source, Execution):
        return source
    _, raw, file = _load("execution", source)
    return decode(Execution, raw, file)


def _load(kind: str, source: Source) -> tuple[str, object, str]:
    """Return the short name of a spec, the raw document, and where it came from."""
    if isinstance(source, Mapping):
        return kind, source, kind
    path = os.fspath(source)
    name, raw = catalog.load(kind, path)
    return name, raw, "<stdin>" if name == "stdin" else path
