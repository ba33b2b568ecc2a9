"""The parts of a result in a file: its edition, its statistics, and the fields of its execution, each checked."""

import math
from collections.abc import Mapping
from typing import Any

from calculon.apps.report.sheet import Stats
from calculon.editions import EDITIONS
from calculon.errors import Problem, SpecError
from calculon.plan.columns import DEFAULTS
from calculon.plan.plan import NAMES, PUBLISHED_NAMES
from calculon.records import columns
from calculon.spec.execution import EDITION_NAMES, PUBLISHED, Execution
from calculon.spec.fields import nearest_choice
from calculon.statistics import ALL_PARTS_OF_TIME, CorrectedStats

STATISTICS_OF = {
    name: tuple(column.name for column in columns(edition.stats))
    for name, edition in EDITIONS.items()
}
"""Names of the statistics of each edition."""

STATISTICS = STATISTICS_OF[PUBLISHED]
EVERY_STATISTIC = tuple(column.name for column in columns(CorrectedStats))
NULLABLE = {column.name for column in columns(CorrectedStats) if column.nullable}


def edition_of(raw: Mapping[str, Any], path: str, place: str) -> str:
    """Return the edition that a document names, by default the published one; SpecError when there is none such."""
    name = raw.get("edition") or PUBLISHED
    if name in EDITION_NAMES:
        return str(name)
    wanted, hint = "one of " + ", ".join(EDITION_NAMES), nearest_choice(str(name), EDITION_NAMES)
    raise SpecError(path, Problem(f"{place}edition", wanted, repr(name), hint))


def stats_of(raw: Mapping[str, Any], path: str, place: str, edition: str) -> Stats:
    """Return the statistics of a document; SpecError when one is missing or no number."""
    names = STATISTICS_OF[edition]
    problems = [
        Problem(place + name, "a number", "nothing" if name not in raw else repr(raw[name]))
        for name in names
        if not _is_statistic(name, raw.get(name, ""))
    ]
    if problems:
        raise SpecError(path, problems[:3])
    total, parts = raw["total_time"], sum(raw.get(name) or 0.0 for name in ALL_PARTS_OF_TIME)
    if not math.isclose(total, parts, rel_tol=1e-6):
        wanted = f"the sum of its parts, {parts:.6g}"
        raise SpecError(path, Problem(f"{place}total_time", wanted, f"{total:.6g}"))
    return {name: raw[name] for name in names}


def _is_statistic(name: str, value: object) -> bool:
    """Return whether a statistic may have this value: a number, above 0 for the total; null where declared."""
    if value is None:
        return name in NULLABLE
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        return False
    return name != "total_time" or 0 < value < math.inf


def fields_of(execution: Execution) -> dict[str, Any]:
    """Return all fields of an execution."""
    return {name: getattr(execution, name) for name in NAMES}


def fields_of_row(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fields of an execution in a row; optional ones that it does not have are the default."""
    if not set(PUBLISHED_NAMES) <= set(row):
        return None
    stated = {name: value for name in DEFAULTS if (value := row.get(name)) is not None}
    return {name: row[name] for name in PUBLISHED_NAMES} | DEFAULTS | stated


def plain_cell(value: Any) -> Any:
    """Return a cell of a data frame as plain Python; nothing for not-a-number."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and math.isnan(value) else value
