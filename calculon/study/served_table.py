"""Result of a study of deployments: a table with a row for each question, and a summary of the best figures."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.expression import Expression
from calculon.declarations.fields import spec_fields
from calculon.declarations.files import document_suffix, write_json
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.render.writers import write_table
from calculon.serving.records.deployment import Deployment
from calculon.study.served_questions import Answer, PlannedQuestion, varied
from calculon.study.study_file import Study, Summary
from calculon.study.study_summary import checked_summary
from calculon.study.study_table import Table, column_of, column_type, listed, spelled, text_of

FIELDS = tuple(one.key for one in spec_fields(Deployment))
"""Deployment fields of a row."""

RESULTS = ("batch", *FIELDS, *SERVING_FIGURES)
"""All named results of a row, in addition to the names of the study."""

BEST = {"output_rate_per_proc": "max", "tpot": "min", "ttft": "min", "usd_per_mtoken": "min"}
"""Figures of the default summary."""

_TEXTS = ("reason", "missed", "cut")
_ALWAYS = ("model", "system", "deployment", "workload")


@dataclass(frozen=True)
class ServedRows:
    """Questions with their answers, one row each."""

    planned: Sequence[PlannedQuestion]
    answers: Sequence[Answer]

    @property
    def row_search(self) -> Array:
        """Index of the question of each row."""
        return np.arange(len(self.planned))

    @property
    def results(self) -> tuple[str, ...]:
        """Names of results."""
        return RESULTS

    @cached_property
    def empty(self) -> Array:
        """Mask of rows that do not count: they cannot run, or miss a limit."""
        return np.array([not one.good for one in self.answers], bool)

    @property
    def spread(self) -> Array:
        """Relative uncertainty of figures: unknown, so 0."""
        return np.zeros(len(self.planned))

    def result(self, name: str) -> Array:
        """Return a figure or deployment field for every row, masked in rows that do not count."""
        values = [_value(one, name) for one in self.answers]
        column = column_of(values, column_type(values))
        plain = column if isinstance(column, np.ndarray) else column.text()
        return np.ma.masked_array(np.ma.getdata(plain), self.empty | np.ma.getmaskarray(plain))

    def value(self, name: str) -> list[Any]:
        """Return the value of a name of the study for every row."""
        return [one.values.get(name) for one in self.planned]


def _value(one: Answer, name: str) -> Any:
    """Return a figure or field of an answer; None if it has none."""
    if name == "batch":
        return one.batch or None
    if name in SERVING_FIGURES:
        return one.figures.get(name)
    value = one.deployment.get(name)
    return text_of(value) if isinstance(value, (dict, list)) else value


def served_summary(study: Study, planned: tuple[PlannedQuestion, ...]) -> Summary:
    """Return the requested summary of a study, or the best figures for all names that vary.

    Raises:
        SpecError: As :func:`~calculon.study.study_summary.make_summary`.
    """
    summary = study.summary
    if summary is None:
        # Quantities follow from other values, which already define the rows.
        rows = tuple(name for name in varied(planned) if name not in study.quantities)
        best = {name: (Expression.parse(name), sense) for name, sense in BEST.items()}
        return Summary(rows, None, best)
    return checked_summary(study, summary, ServedRows((), ()))


def write_served(path: str, rows: ServedRows) -> int:
    """Write a result in the format of its file suffix, and return the number of rows.

    Raises:
        SpecError: When the file cannot be written.
    """
    table = _table(rows)
    if document_suffix(path) == ".json":
        lists = {name: listed(column) for name, column in table.items()}
        for name in _study_names(rows):
            # JSON has lists and objects, which other formats store as text.
            lists[_column_name(name)] = rows.value(name)
        write_json(
            path, [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        )
        return len(rows.planned)
    if document_suffix(path) == ".csv":
        table = {name: spelled(column) for name, column in table.items()}
    return write_table(path, table)


def _study_names(rows: ServedRows) -> list[str]:
    """Return the names of the study that become columns."""
    kept = {*varied(tuple(rows.planned)), *_ALWAYS}
    names = dict.fromkeys(name for one in rows.planned for name in one.values)
    return [name for name in names if name in kept]


def _column_name(name: str) -> str:
    """Return the column name for a name of the study."""
    # Both are columns: the stated value, and the field of the estimated deployment with its defaults.
    return f"asked_{name}" if name in RESULTS else name


def _table(rows: ServedRows) -> Table:
    """Return all columns: the question, infeasibility reasons, the deployment, and its figures."""
    columns: dict[str, Sequence[Any]] = {"search": [one.search.number for one in rows.planned]}
    columns |= {_column_name(name): rows.value(name) for name in _study_names(rows)}
    columns["reason"] = [one.reason or None for one in rows.answers]
    columns["missed"] = ["; ".join(one.missed) or None for one in rows.answers]
    columns["cut"] = [one.cut or None for one in rows.answers]
    for name in RESULTS:
        columns[name] = [_value(one, name) for one in rows.answers]
    return {name: _made(name, values) for name, values in columns.items()}


def _made(name: str, values: Sequence[Any]) -> Any:
    """Return a column; figures are numeric even if all are missing."""
    if name in SERVING_FIGURES:
        return np.array([np.nan if value is None else value for value in values], float)
    if name in _TEXTS:
        return column_of(values, tuple(sorted({value for value in values if value is not None})))
    return column_of(values, column_type(values))


def of_outcomes(planned: Sequence[PlannedQuestion], outcomes: Mapping[int, Answer]) -> ServedRows:
    """Return the questions of a study with their answers."""
    return ServedRows(planned, [outcomes[one.search.number] for one in planned])
