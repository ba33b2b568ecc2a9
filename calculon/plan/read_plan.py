"""Tables of executions from any source; tables may leave out fields, and name columns by the words of plans."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from calculon import inputs
from calculon.base.errors import Problem, SpecError
from calculon.declarations.model import Model
from calculon.declarations.named_values import CORRECTED, PUBLISHED
from calculon.declarations.overlay import BASE
from calculon.declarations.presets import usual_preset
from calculon.declarations.spellings.plan_pairs import is_word_only, is_worded
from calculon.hardware.system import System
from calculon.plan.columns import column
from calculon.plan.plan import NAMES, PUBLISHED_NAMES, Executions, Plan, as_plan


def read_plan(
    source: "inputs.Source | Executions", model: Model, system: System, edition: str | None = None
) -> Plan:
    """Return a table of executions from one, or from a plan: words, a file, a result or a launch script.

    Args:
        source: The executions.
        model, system: Model and machine, which fill in what a plan leaves out.
        edition: Edition for all rows, if one is asked for.

    Raises:
        SpecError: As :func:`calculon.plan.plan.as_plan`, and for a plan that cannot be read.
    """
    given: Any = source
    if isinstance(given, (str, os.PathLike, inputs.Changed)):
        given = inputs.execution(given, edition=edition, model=model, system=system)
    rows = _incomplete_rows(given)
    if rows is None:
        return as_plan(given, edition)
    return _plan_of([_completed(row, edition, model, system) for row in rows], edition, model)


def _incomplete_rows(given: Any) -> list[Mapping[str, Any]] | None:
    """Return the rows of a table that leaves out published fields, or has words of plans; None for any other source."""
    if inputs.is_frame(given):
        columns = {
            name: given[name] for name in map(str, given) if name in (*NAMES, *_words(given))
        }
        if not _is_incomplete(columns):
            return None
        inputs.check_columns([name for name in given if not is_word_only(name)], "plan")
        return _rows_of(columns)
    if isinstance(given, Mapping):
        return _rows_of(given) if _is_incomplete(given) else None
    if isinstance(given, (list, tuple)) and all(isinstance(row, Mapping) for row in given):
        return list(given) if any(map(_is_incomplete, given)) else None
    return None


def _words(names: Iterable[Any]) -> list[Any]:
    return [name for name in names if is_word_only(name)]


def _is_incomplete(names: Mapping[str, Any]) -> bool:
    """Return True if a row or a table has words of plans, or lacks published fields that a preset fills in."""
    return BASE not in names and (is_worded(names) or not {*PUBLISHED_NAMES} <= names.keys())


def _rows_of(columns: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return columns of equal length, or scalars, as rows without their blank cells."""
    arrays = {name: column(values) for name, values in columns.items()}
    lengths = {len(one) for one in arrays.values() if one.ndim}
    if len(lengths) > 1:
        found = "lengths " + ", ".join(map(str, sorted(lengths)))
        raise SpecError("plan", Problem("", "columns of equal length", found))
    count = lengths.pop() if lengths else 1
    lists = [np.broadcast_to(one, count).tolist() for one in arrays.values()]
    rows = zip(*lists, strict=True)
    # A blank cell (NaN) is the only value that differs from itself.
    return [{n: v for n, v in zip(arrays, row, strict=True) if v == v} for row in rows]  # noqa: PLR0124


_FEW = 3
"""Number of missing fields up to which a row without an edition is an incomplete one of the published edition."""


def _completed(
    row: Mapping[str, Any], edition: str | None, model: Model, system: System
) -> Mapping[str, Any]:
    """Return a row with its edition and its preset, as the row alone has them in :func:`calculon.estimate`."""
    if is_worded(row):
        fields: Mapping[str, Any] = inputs.in_fields(row, model, system)
        return fields
    missing = [name for name in PUBLISHED_NAMES if name not in row]
    named = edition or row.get("edition")
    if named is None and "preset" not in row and len(missing) > _FEW:
        named = CORRECTED
    if not missing or named in (None, PUBLISHED) or "preset" in row:
        return row
    preset = usual_preset(system.provenance.family, row, model=model)
    return {**row, "edition": named, "preset": preset}


def _plan_of(rows: list[Mapping[str, Any]], edition: str | None, model: Model) -> Plan:
    """Return rows as a table; rows with the same fields are read together."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(tuple(row), []).append(number)
    parts = [
        Plan.from_columns({name: [rows[i][name] for i in some] for name in names}, edition, model)
        for names, some in groups.items()
    ]
    order = [number for some in groups.values() for number in some]
    return Plan.concatenate(parts).take(np.argsort(np.array(order, np.int64)))
