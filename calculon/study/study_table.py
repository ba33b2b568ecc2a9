"""Result of a study: a table with a row for each execution, and a row for each search without one."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, cast

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.records import columns
from calculon.base.units import Array
from calculon.declarations.files import document_suffix, write_json
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.run_figures import RUN_FIGURES
from calculon.declarations.statistics import BOUNDS, CorrectedStats, Stats
from calculon.estimate.bounds import bounds
from calculon.estimate.evaluate import Evaluation, evaluate
from calculon.plan.columns import field_of
from calculon.plan.plan import NAMES, PUBLISHED_NAMES, Plan
from calculon.render.writers import Labels, write_tables
from calculon.search.search_result import with_figures
from calculon.search.task import Outcome
from calculon.study.points import Planned
from calculon.study.study_fields import kind_of

SUFFIXES = (".parquet", ".csv", ".json")
COUNTS = ("total", "good", "bad", "rank")
STATISTICS = (*(column.name for column in columns(CorrectedStats)), *BOUNDS)
"""Statistics of all editions, and the prediction interval of the time."""

RESULTS = (*NAMES, *STATISTICS, *RUN_FIGURES)
"""All named results of a row with an execution."""

_NO_PLAN = Plan.from_columns({name: [] for name in NAMES})

Type = type | tuple[str, ...]
"""Type of a column: bool, int, float, or text with the given values."""

Table = dict[str, Array | Labels]
"""Columns of a table by name."""


@dataclass(frozen=True)
class Part:
    """Rows of searches with one model, system and campaign (if any).

    Attributes:
        planned, outcomes: The searches and their results.
        row_search (shape (rows,)): Index of the search of each row in `planned`.
        rank (shape (rows,)): Rank of the execution, from 0; -1 for the row of a search without an execution.
        found: The executions, in the order of the rows that have one.
    """

    planned: Sequence[Planned]
    outcomes: Sequence[Outcome]
    row_search: Array
    rank: Array
    found: Evaluation

    @property
    def results(self) -> tuple[str, ...]:
        """Names of results."""
        return RESULTS

    @property
    def empty(self) -> Array:
        """Mask of rows without an execution."""
        return cast("Array", self.rank < 0)

    def result(self, name: str) -> Array:
        """Return an execution field or statistic for every row, masked if there is no execution.

        Statistics that the edition of the rows lacks are not-a-number.
        """
        if name in BOUNDS:
            values = self.bounds.get(name, np.full(len(self.found), np.nan))
        else:
            known = name not in (*STATISTICS, *RUN_FIGURES) or name in self.found.names
            values = self.found.column(name) if known else np.full(len(self.found), np.nan)
        full = np.zeros(len(self.rank), values.dtype)
        full[~self.empty] = values
        return np.ma.masked_array(full, self.empty)

    @cached_property
    def bounds(self) -> dict[str, Array]:
        """Prediction interval and probability of fitting of each execution (:func:`calculon.bounds`)."""
        if not self.planned:
            return {}
        search = self.planned[0].search
        return bounds(search.model, self.found, search.system)

    @cached_property
    def spread(self) -> Array:
        """Half the width of the prediction interval divided by the time, for every row; 0 if unknown."""
        low, high = (np.ma.filled(self.result(name), np.nan) for name in BOUNDS)
        total = np.ma.filled(self.result("total_time"), np.nan)
        return np.nan_to_num((high - low) / 2 / total)

    def value(self, name: str) -> list[Any]:
        """Return the value of a name of the study for every row; None if a search has no such value."""
        own = [planned.values.get(name) for planned in self.planned]
        return [own[i] for i in self.row_search]


def parts(planned: Sequence[Planned], outcomes: Mapping[int, Outcome]) -> Iterator[Part]:
    """Evaluate the executions of the searches, grouped by model, system and campaign."""
    for _, group in groupby(
        planned, lambda p: (id(p.search.model), id(p.search.system), id(p.search.campaign))
    ):
        yield _part(list(group), outcomes)


def _part(planned: Sequence[Planned], outcomes: Mapping[int, Outcome]) -> Part:
    search = planned[0].search
    own = [outcomes[p.search.number] for p in planned]
    rows = [max(1, len(outcome.numbers)) for outcome in own]
    row_search = np.repeat(np.arange(len(own)), rows)
    rank = np.concatenate([np.arange(len(o.numbers)) if o.numbers else [-1] for o in own])
    results = [o.result(p.search) for p, o in zip(planned, own, strict=True) if o.numbers]
    plan = Plan.concatenate([result.plan for result in results]) if results else _NO_PLAN
    # One evaluation for all searches: much faster than one for each.
    found = with_figures(search.runs, evaluate(search.model, plan, search.system))
    done = 0
    for result in results:  # a journal with other numbers of executions would fail this check
        objective = result.objectives[0]
        again = found[objective.statistic.name][done : done + len(result)]
        if not np.array_equal(again, objective.value(result.scores[0]), equal_nan=True):
            wanted = f"executions with the {objective.statistic.name} of the journal"
            raise SpecError("journal", Problem("", wanted, "others", "begin again with --restart"))
        done += len(result)
    return Part(planned, own, row_search, rank.astype(np.int64), found)


def study_names(planned: Sequence[Planned]) -> dict[str, str]:
    """Map the columns that identify the search of a row to names of the study.

    Names with a single value are left out, except model, system, processors and quantities.
    """
    values: dict[str, set[str]] = {}
    for p in planned:
        for name in values | dict.fromkeys(p.values):
            values.setdefault(name, set()).add(json.dumps(p.values.get(name), default=str))
    always = ("model", "system", "num_procs", "max_batch_size")
    kept = [
        name
        for name, distinct in values.items()
        if len(distinct) > 1 or name in always or kind_of(name) == "quantity"
    ]
    return {
        f"asked_{name}" if name in (*NAMES, *STATISTICS, *RUN_FIGURES) else name: name
        for name in kept
    }


def shown_names(planned: Sequence[Planned]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the execution fields and statistics of a result: published ones only if all searches are published."""
    if all(p.search.edition == PUBLISHED for p in planned):
        return PUBLISHED_NAMES, tuple(column.name for column in columns(Stats))
    runs = any(p.search.campaign is not None for p in planned)
    return NAMES, (*STATISTICS, *(RUN_FIGURES if runs else ()))


def write_result(path: str, planned: Sequence[Planned], result: Iterator[Part]) -> int:
    """Write a result in the format of its file suffix, and return the number of rows.

    Raises:
        SpecError: When the file cannot be written.
    """
    names = study_names(planned)
    types = {
        name: column_type([p.values.get(source) for p in planned]) for name, source in names.items()
    }
    results = shown_names(planned)

    def table(part: Part) -> Table:
        own = {name: column_of(part.value(names[name]), kind) for name, kind in types.items()}
        return _searches(part) | own | _counts(part) | _results(part, *results)

    if document_suffix(path) == ".json":
        rows = [row for part in result for row in _records(part, names, table(part))]
        write_json(path, rows)
        return len(rows)
    text = document_suffix(path) == ".csv"

    def written(part: Part) -> Table:
        return {name: spelled(c) if text else c for name, c in table(part).items()}

    return write_tables(path, map(written, result), written(no_rows(planned[0])))


def no_rows(planned: Planned) -> Part:
    """Return a part without searches: columns without rows."""
    search = planned.search
    found = evaluate(search.model, _NO_PLAN, search.system, edition=search.edition)
    found = with_figures(search.runs, found)
    return Part([], [], np.zeros(0, np.int64), np.zeros(0, np.int64), found)


def column_type(values: Sequence[Any]) -> Type:
    """Return the type of a column of values: bool, int, float, or text if types differ."""
    types = {type(value) for value in values if value is not None}
    # Not an int64
    if types == {int} and max(abs(value) for value in values if value is not None) >= 2**63:
        return float
    for one in (bool, int, float):
        if types <= {one} or (one is float and types <= {int, float}):
            return one
    return tuple(sorted({text_of(value) for value in values if value is not None}))


def text_of(value: Any) -> str:
    """Return a value as text; structures become JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _searches(part: Part) -> Table:
    """Return the search number of every row."""
    return {"search": np.array([p.search.number for p in part.planned], np.int64)[part.row_search]}


def _counts(part: Part) -> Table:
    """Return counts of enumerated, feasible and infeasible executions, and the rank, masked without an execution."""
    table: Table = {"rank": np.ma.masked_array(part.rank, part.empty)}
    for name in COUNTS[:3]:
        counts = np.array([getattr(o.counts, name) for o in part.outcomes], np.int64)
        table[name] = counts[part.row_search]
    return {name: table[name] for name in COUNTS}


def _results(part: Part, fields: Sequence[str], statistics: Sequence[str]) -> Table:
    """Return executions and statistics of a part as columns of a table."""
    table: Table = {}
    for name in fields:
        values, choices = part.result(name), field_of(name).declaration.choices
        table[name] = _labels(values.tolist(), tuple(choices)) if choices else values
    return table | {name: np.ma.filled(part.result(name), np.nan) for name in statistics}


def column_of(values: Sequence[Any], kind: Type) -> "Array | Labels":
    """Return values as a column of one type, masked if they are None."""
    if isinstance(kind, tuple):
        return _labels([value if value is None else text_of(value) for value in values], kind)
    missing = np.array([value is None for value in values], bool)
    plain: Array = np.array([kind() if value is None else value for value in values], kind)
    return np.where(missing, np.nan, plain) if kind is float else np.ma.masked_array(plain, missing)


def _labels(values: Sequence[str | None], names: tuple[str, ...]) -> Labels:
    """Return named values as codes, masked if they are None."""
    position = {name: i for i, name in enumerate(names)}
    codes = np.array([-1 if value is None else position[value] for value in values], np.int32)
    return Labels(np.ma.masked_less(codes, 0), names)


def spelled(column: "Array | Labels") -> "Array | Labels":
    """Return a column for CSV: missing names and switches become empty text, because CSV writers have no masks."""
    if isinstance(column, Labels):
        return Labels(np.ma.filled(column.codes, len(column.names)), (*column.names, ""))
    if column.dtype == bool:
        return Labels(np.ma.filled(column.astype(np.int32), 2), ("False", "True", ""))
    return column


def _records(part: Part, names: Mapping[str, str], table: Table) -> Iterator[dict[str, Any]]:
    """Yield rows for JSON; missing values and not-a-number become null."""
    lists = {
        name: part.value(names[name]) if name in names else listed(table[name]) for name in table
    }
    for row in zip(*lists.values(), strict=True):
        yield dict(zip(lists, row, strict=True))


def listed(column: "Array | Labels") -> list[Any]:
    """Return a column as a JSON list; masked values and not-a-number become null."""
    if isinstance(column, Labels):
        return [None if code is None else column.names[code] for code in column.codes.tolist()]
    return [None if value != value else value for value in column.tolist()]  # noqa: PLR0124
