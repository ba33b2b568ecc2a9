"""Arguments of the public functions: specs in any form, whole numbers and switches."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from calculon.errors import Problem, SpecError, nearest, printable
from calculon.hardware.system import System
from calculon.presets import COMMON, find_preset
from calculon.records import columns
from calculon.spec import catalog
from calculon.spec.decode import decode
from calculon.spec.execution import CORRECTED, PRESETS, PUBLISHED, Execution
from calculon.spec.fields import Declaration, optional_defaults, spec_fields
from calculon.spec.model import Model
from calculon.statistics import BOUNDS, CorrectedStats

Source = str | os.PathLike[str] | Mapping[str, Any]
"""A catalog name, a path (``-`` is standard input), or a mapping with the fields of the file."""

_LONGEST = 60  # characters of a value in a message

_FIELDS = {kind: [f.key for f in spec_fields(kind)] for kind in (Execution, Model, System)}

BESIDE = (
    *("reason", "layers", *BOUNDS),
    *("search", "total", "good", "bad", "rank", "model", "system"),
    *("max_batch_size", "mbs_break", "any_batch", "objective", "where", "fix", "add", "top"),
)
"""Columns that tables of results have beside execution fields and statistics; most are those of a study."""


_ROW_LABELS = r"(Unnamed: \d+|index|level_\d+)?"
"""What pandas calls the labels of rows that were written to a file or made a column."""


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


def execution(
    source: Source | Execution,
    *,
    edition: str | None = None,
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Execution:
    """Return an execution from a catalog name, a path, a mapping or a record; errors as in :func:`model`.

    Columns of a row of a DataFrame that are no execution fields (statistics, for example) are left out.

    Parameters
    ----------
    edition : str, optional
        Edition of the cost model; by default what the source says.
    preset : str, optional
        Preset that fills in what the source leaves out; by default what the source says (``base`` or ``preset``), or
        else that of the edition. A record leaves nothing out.
    changes : mapping, optional
        Fields to change first.
    """
    asked = {**(changes or {})}
    if isinstance(source, Execution):
        if preset is not None:
            asked["preset"] = find_preset(preset).family
        if edition is not None or preset is not None:
            asked["edition"] = edition or CORRECTED
        return replace(source, **asked) if asked else source
    _, raw, file = _load("execution", source)
    if not isinstance(raw, Mapping):
        return decode(Execution, raw, file)
    if is_row(source):
        check_columns(raw, file)
        fields = {field.key for field in spec_fields(Execution)}
        optional = optional_defaults(Execution)
        raw = {
            name: value
            for name, value in raw.items()
            if name in fields and not (name in optional and value != value)  # noqa: PLR0124
        }
    return decode(Execution, _completed({**raw, **asked}, edition, preset, file), file)


def _completed(
    raw: Mapping[str, Any], edition: str | None, preset: str | None, file: str
) -> Mapping[str, Any]:
    """Return the fields of an execution with those that its preset fills in; malformed ones are told later."""
    stated = raw.get("preset") if preset is None else preset
    named = preset is not None or stated in PRESETS
    framework = find_preset(stated) if named and stated is not None else None
    needed = CORRECTED if framework and not framework.published else PUBLISHED
    edition = edition or raw.get("edition", needed)
    if edition == PUBLISHED and needed == CORRECTED:
        wanted = f"{CORRECTED}, which preset={stated} needs"
        raise SpecError(file, Problem("edition", wanted, PUBLISHED, "presets are not published"))
    if edition != PUBLISHED or "edition" in raw:
        raw = {**raw, "edition": edition}
    if edition != CORRECTED or (stated is not None and not named):
        return {**raw, **({"preset": framework.family} if framework else {})}
    return (framework or find_preset(COMMON)).completed(raw)


def check_columns(names: Iterable[object], file: str) -> None:
    """Check that a DataFrame, or a row of one, has only columns that tables of executions and results have.

    Beside ``search`` and ``rank``, which every table of a study has, any column may be the study's own.

    Raises
    ------
    SpecError
        With all others: they may be misspelled fields, which would silently have their defaults.
    """
    given = dict.fromkeys(map(str, names))
    if {"search", "rank"} <= given.keys():
        return
    known = _columns()
    unknown = [
        name
        for name in given
        if name not in known
        and not name.startswith("asked_")
        and not re.fullmatch(_ROW_LABELS, name)
    ]
    if unknown:
        wanted = "only execution fields and columns of results"
        problems = [Problem(n, wanted, "an unknown column", _meant(n)) for n in unknown]
        raise SpecError(file, problems)


@cache
def _columns() -> dict[str, None]:
    """Return the columns that tables of executions and results have."""
    statistics = (column.name for column in columns(CorrectedStats))
    return dict.fromkeys((*_FIELDS[Execution], *statistics, *BESIDE))


def _meant(column: str) -> str:
    """Say what somebody may mean by an unknown column."""
    first = re.split(r"[.\[]", column, maxsplit=1)[0]
    for kind, argument in ((Model, "model"), (System, "system")):
        if first in _FIELDS[kind]:
            return f"{first} belongs to the {argument}, which is an argument of its own"
    return nearest(column, list(_columns())) or "leave it out where it is no part of an execution"


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
    """Format an argument for a message: short, and on one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{kind(value)} {text[: _LONGEST - 3]}..."


def kind(value: object) -> str:
    """Return the type of a value with its article, such as ``a list``."""
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
    return printable(name), document, "<stdin>" if name == "stdin" else path


def _no_source(argument: str, source: object) -> Problem:
    """Return the problem with a value that is no source of a spec."""
    wanted = f"a name of the catalog, a path, a mapping with the fields of a file, or {_RECORDS[argument]}"
    for other, record in _RECORDS.items():
        if kind(source) == record:
            return Problem("", wanted, record, f"it belongs in the argument {other}")
    several = is_frame(source) or isinstance(source, (list, tuple))
    hint = "evaluate takes tables of executions" if several and argument == "execution" else ""
    return Problem("", wanted, kind(source) if several else found(source), hint)


_RECORDS = {"model": "a Model", "execution": "an Execution", "system": "a System"}
"""The record type of each argument, with its article."""
