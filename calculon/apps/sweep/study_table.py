"""The result of a study as a table: a row for each execution found, and one for a search that found none."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast

import numpy as np

from calculon.apps.output.writers import Labels, write_tables
from calculon.apps.sweep.points import Planned
from calculon.apps.sweep.study_fields import kind_of
from calculon.apps.sweep.task import Outcome
from calculon.errors import Problem, SpecError
from calculon.evaluate import Evaluation, evaluate
from calculon.plan.columns import FIELDS
from calculon.plan.plan import NAMES, PUBLISHED_NAMES, Plan
from calculon.records import columns
from calculon.spec.execution import PUBLISHED
from calculon.spec.files import document_suffix, write_json
from calculon.statistics import CorrectedStats, Stats
from calculon.units import Array

SUFFIXES = (".parquet", ".csv", ".json")
COUNTS = ("total", "good", "bad", "rank")
STATISTICS = tuple(column.name for column in columns(CorrectedStats))
"""The statistics of all editions."""

Kind = type | tuple[str, ...]
"""Type of a column: bool, int, float, or text with these words."""


@dataclass(frozen=True)
class Part:
    """The rows of some searches of one model on one system.

    Attributes
    ----------
    planned, outcomes : sequence
        The searches and what they found.
    row_search : array of int64, shape (rows,)
        For each row the position of its search among these.
    rank : array of int64, shape (rows,)
        Rank of the execution, from 0; -1 for the row of a search that found none.
    found : Evaluation
        The executions, in the order of the rows that have one.
    """

    planned: Sequence[Planned]
    outcomes: Sequence[Outcome]
    row_search: Array
    rank: Array
    found: Evaluation

    @property
    def empty(self) -> Array:
        """Which rows have no execution."""
        return cast("Array", self.rank < 0)

    def result(self, name: str) -> Array:
        """Return an execution field or statistic for every row, masked where there is no execution.

        A statistic that the edition of these rows does not have is not-a-number.
        """
        known = name not in STATISTICS or name in self.found.names
        values = self.found.column(name) if known else np.full(len(self.found), np.nan)
        full = np.zeros(len(self.rank), values.dtype)
        full[~self.empty] = values
        return np.ma.masked_array(full, self.empty)

    def value(self, name: str) -> list[Any]:
        """Return what the study calls by this name, for every row; None where a search has no such value."""
        own = [planned.values.get(name) for planned in self.planned]
        return [own[i] for i in self.row_search]


def parts(planned: Sequence[Planned], outcomes: Mapping[int, Outcome]) -> Iterator[Part]:
    """Evaluate what the searches found, those of one model and system at a time."""
    for _, group in groupby(planned, lambda p: (id(p.search.model), id(p.search.system))):
        yield _part(list(group), outcomes)


def _part(planned: Sequence[Planned], outcomes: Mapping[int, Outcome]) -> Part:
    search = planned[0].search
    own = [outcomes[p.search.number] for p in planned]
    rows = [max(1, len(outcome.numbers)) for outcome in own]
    row_search = np.repeat(np.arange(len(own)), rows)
    rank = np.concatenate([np.arange(len(o.numbers)) if o.numbers else [-1] for o in own])
    results = [o.result(p.search) for p, o in zip(planned, own, strict=True) if o.numbers]
    empty = Plan.from_columns({name: [] for name in NAMES})
    plan = Plan.concatenate([result.plan for result in results]) if results else empty
    found = evaluate(search.model, search.system, plan)
    done = 0
    for result in results:  # a journal of other numbers would not pass
        objective = result.objectives[0]
        again = found[objective.statistic.name][done : done + len(result)]
        if not np.array_equal(again, objective.value(result.scores[0]), equal_nan=True):
            wanted = f"executions with the {objective.statistic.name} of the journal"
            raise SpecError("journal", Problem("", wanted, "others", "begin again with --restart"))
        done += len(result)
    return Part(planned, own, row_search, rank.astype(np.int64), found)


def study_names(planned: Sequence[Planned]) -> dict[str, str]:
    """Map the columns of a result that say which search a row is of to the names of the study.

    What is the same for all searches is left out, but for model, system, processors and quantities.
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
    return {f"asked_{name}" if name in (*NAMES, *STATISTICS) else name: name for name in kept}


def shown_names(planned: Sequence[Planned]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the execution fields and statistics of a result: the published ones, where no other edition is asked."""
    if all(p.search.edition == PUBLISHED for p in planned):
        return PUBLISHED_NAMES, tuple(column.name for column in columns(Stats))
    return NAMES, STATISTICS


def write_result(path: str, planned: Sequence[Planned], result: Iterator[Part]) -> int:
    """Write a result by the suffix of its name, and return the number of rows.

    Raises
    ------
    SpecError
        When the file cannot be written.
    """
    names = study_names(planned)
    fields, statistics = shown_names(planned)
    kinds = {name: _kind([p.values.get(source) for p in planned]) for name, source in names.items()}
    if document_suffix(path) == ".json":
        results = (*fields, *statistics)
        rows = [row for part in result for row in _records(part, names, results)]
        write_json(path, rows)
        return len(rows)
    text = document_suffix(path) == ".csv"
    empty = Part([], [], np.zeros(0, np.int64), np.zeros(0, np.int64), _nothing(planned[0]))

    def table(part: Part) -> "dict[str, Array | Labels]":
        columns = _columns(part, names, kinds, text=text)
        return columns | _results(part, fields, statistics, text=text)

    return write_tables(path, map(table, result), table(empty))


def _nothing(planned: Planned) -> Evaluation:
    """Return a table without executions."""
    search = planned.search
    plan = Plan.from_columns({name: [] for name in NAMES})
    return evaluate(search.model, search.system, plan, edition=search.edition)


def _kind(values: Sequence[Any]) -> Kind:
    """Return the one type that a column of values has: bool, int, float or, where they differ, words."""
    kinds = {type(value) for value in values if value is not None}
    for kind in (bool, int, float):
        if kinds <= {kind} or (kind is float and kinds <= {int, float}):
            return kind
    return tuple(sorted({_word(value) for value in values if value is not None}))


def _word(value: Any) -> str:
    """Return a value as text: structures as JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _columns(
    part: Part, names: Mapping[str, str], kinds: Mapping[str, Kind], *, text: bool
) -> "dict[str, Array | Labels]":
    """Return a part as columns of a table file; in text a switch that is missing is nothing, not false."""
    table: dict[str, Array | Labels] = {"search": _search_numbers(part)}
    for name, source in names.items():
        table[name] = _typed(part.value(source), kinds[name], text=text)
    return table | _counts(part)


def _results(
    part: Part, fields: Sequence[str], statistics: Sequence[str], *, text: bool
) -> "dict[str, Array | Labels]":
    """Return executions and statistics of a part as columns of a table file."""
    table: dict[str, Array | Labels] = {}
    for field in FIELDS:
        if field.name not in fields:
            continue
        values = part.result(field.name)
        if field.declaration.choices:
            table[field.name] = _labels(values, tuple(field.declaration.choices), text=text)
        else:
            table[field.name] = _switch(values) if text and values.dtype == bool else values
    for name in statistics:
        table[name] = np.ma.filled(part.result(name), np.nan)
    return table


def _search_numbers(part: Part) -> Array:
    return np.array([p.search.number for p in part.planned], np.int64)[part.row_search]


def _counts(part: Part) -> dict[str, Array]:
    """Return executions enumerated, feasible and not, and the rank; the rank of no execution is masked."""
    counts = {
        name: np.array([getattr(o.counts, name) for o in part.outcomes], np.int64)[part.row_search]
        for name in COUNTS[:3]
    }
    return counts | {"rank": np.ma.masked_array(part.rank, part.empty)}


def _typed(values: Sequence[Any], kind: Kind, *, text: bool) -> "Array | Labels":
    """Return values as a column of one type."""
    missing = np.array([value is None for value in values], bool)
    if isinstance(kind, tuple):
        words = np.array(["" if value is None else _word(value) for value in values], object)
        return _labels(np.ma.masked_array(words, missing), kind, text=text)
    plain: Array = np.array([kind() if value is None else value for value in values], kind)
    if kind is float:
        plain[missing] = np.nan
        return plain
    column = np.ma.masked_array(plain, missing)
    return _switch(column) if text and kind is bool else column


def _labels(values: Array, names: tuple[str, ...], *, text: bool) -> Labels:
    """Return named values as codes; a missing one is masked or, for text, an empty name."""
    position = {name: i for i, name in enumerate(names)}
    codes = np.array([position.get(str(v), len(names)) for v in np.ma.getdata(values)], np.int32)
    missing = np.ma.getmaskarray(values)
    if text:
        codes[missing] = len(names)
        return Labels(codes, (*names, ""))
    return Labels(np.ma.masked_array(codes, missing), names)


def _switch(values: Array) -> Labels:
    """Return switches as text; a missing one is empty."""
    codes = np.ma.getdata(values).astype(np.int32)
    codes[np.ma.getmaskarray(values)] = 2
    return Labels(codes, ("False", "True", ""))


def _records(
    part: Part, names: Mapping[str, str], results: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield rows for JSON, missing values as null."""
    table: dict[str, list[Any]] = {"search": _search_numbers(part).tolist()}
    table |= {name: part.value(source) for name, source in names.items()}
    table |= {name: values.tolist() for name, values in _counts(part).items()}
    for name in results:
        values = part.result(name).tolist()
        table[name] = [_finite(value) for value in values]
    for row in zip(*table.values(), strict=True):
        yield dict(zip(table, row, strict=True))


def _finite(value: Any) -> Any:
    """Return null for not-a-number: JSON has none."""
    return None if isinstance(value, float) and math.isnan(value) else value
