"""Results as data frames of pandas."""

from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING, Any

from calculon.base.display import Tabular
from calculon.base.records import columns
from calculon.declarations.execution import Execution
from calculon.declarations.fields import spec_fields
from calculon.declarations.run_figures import DAYS_BETWEEN, RUN_FIGURES
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.declarations.statistics import BOUNDS, MFU, TIER1, CorrectedStats, Stats

if TYPE_CHECKING:
    import pandas as pd


def frame_of(result: Tabular) -> "pd.DataFrame":
    """Return the table of a result as a DataFrame; ``attrs["units"]`` has the units of its columns."""
    import pandas as pd  # only for people who want frames

    table = result.table()
    frame = pd.DataFrame({name: table[name] for name in _ordered(table)})
    own: Any = getattr(result, "units", {})  # of the paths of a sweep
    known = {**units(), **own}
    frame.attrs["units"] = {name: known[name] for name in frame if known.get(name)}
    return frame


_FIRST = ("total_time", *MFU, TIER1)
"""Columns in front of the fields of executions: whoever prints a frame of a hundred columns sees these."""


def _ordered(names: Collection[str]) -> list[str]:
    """Return the columns of a table, with time, MFU and memory before the fields of executions or all statistics."""
    groups = (_FIELDS, _STATISTICS)
    if (group := next((one for one in groups if {*one} <= {*names}), None)) is None:
        return [*names]
    first = [name for name in _FIRST if name in names]
    others = [name for name in names if name not in first]
    start = min(others.index(name) for name in group if name not in first)
    return [*others[:start], *first, *others[start:]]


_FIELDS = [field.key for field in spec_fields(Execution) if not field.declaration.optional]

_STATISTICS = [one.name for one in columns(Stats)]


@cache
def units() -> dict[str, str]:
    """Return the units of fields, statistics and figures by name, as files have them."""
    declared = (*columns(CorrectedStats), *RUN_FIGURES.values(), *SERVING_FIGURES.values())
    fields = {field.key: field.declaration.unit for field in spec_fields(Execution)}
    known = fields | {one.name: one.unit.symbol for one in declared}
    return known | dict.fromkeys(BOUNDS, "s") | dict.fromkeys(DAYS_BETWEEN, "d")
