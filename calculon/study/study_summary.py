"""Summary of a study: the best figures for each combination of the values that vary."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.records import columns
from calculon.base.units import Array
from calculon.declarations.expression import Expression
from calculon.declarations.run_figures import TIMED_FIGURES
from calculon.declarations.statistics import BOUNDS, CorrectedStats
from calculon.search.objective import Objective
from calculon.study.points import Planned
from calculon.study.study_file import Study, Summary
from calculon.study.study_table import no_rows, study_names, text_of

TIMED = {
    *BOUNDS,
    *(
        column.name
        for column in columns(CorrectedStats)
        if column.unit.symbol in ("s", "fraction") or column.unit.symbol.endswith("/s")
    ),
    *TIMED_FIGURES,
}
"""Statistics with the same relative uncertainty as the time."""

Key = tuple[Any, ...]


class Named(Protocol):
    """Search or other question of a study."""

    @property
    def values(self) -> Mapping[str, Any]:
        """Values that define it in the study, by name."""


class Rows(Protocol):
    """Protocol of rows that a summary can read."""

    @property
    def planned(self) -> Sequence[Named]:
        """Questions of the rows."""

    @property
    def row_search(self) -> Array:
        """Index of the question of each row."""

    @property
    def empty(self) -> Array:
        """Mask of rows that do not count."""

    @property
    def spread(self) -> Array:
        """Half the width of the prediction interval divided by the time, for every row."""

    @property
    def results(self) -> Collection[str]:
        """Names of results."""

    def result(self, name: str) -> Array:
        """Return a result for every row, masked if there is none."""

    def value(self, name: str) -> list[Any]:
        """Return the value of a name of the study for every row."""


R = TypeVar("R", bound=Rows)


@dataclass(frozen=True, slots=True)
class Best:
    """Best value of a figure, with the processors of its execution and its uncertainty.

    `spread` is half the width of the prediction interval divided by the time; 0 for figures that do not depend on time,
    and in edition ``sc23``.
    """

    value: float
    num_procs: int
    spread: float = 0.0


@dataclass
class Winners:
    """Collects the best figures, part by part.

    Attributes:
        summary: Figures to collect.
        best: Best figures by row, column and title; combinations without any execution have no entry.
        undefined: Number of executions with an undefined figure (such as a division by 0), by row, column and title.
        rows, columns: Keys in the order in which they occur.
    """

    summary: Summary
    best: dict[tuple[Key, Any, str], Best] = field(default_factory=dict)
    undefined: dict[tuple[Key, Any, str], int] = field(default_factory=dict)
    rows: dict[Key, None] = field(default_factory=dict)
    columns: dict[Any, None] = field(default_factory=dict)

    def watch(self, parts: Iterator[R]) -> Iterator[R]:
        """Yield the parts unchanged, and collect their best figures."""
        for part in parts:
            self.add(part)
            yield part

    def add(self, part: Rows) -> None:
        """Collect the best figures of the rows of a part."""
        places = [self._place(planned) for planned in part.planned]
        rows: dict[tuple[Key, Any], list[int]] = {}
        for i, search in enumerate(part.row_search.tolist()):
            rows.setdefault(places[search], []).append(i)
        for key, group in rows:
            self.rows[key] = self.columns[group] = None
        for title, (formula, sense) in self.summary.best.items():
            values, undefined = _values(part, formula)
            spread = part.spread if TIMED.intersection(formula.names) else np.zeros(len(values))
            for (key, group), members in rows.items():
                place, here = (key, group, title), np.array(members)
                if count := int(undefined[here].sum()):
                    self.undefined[place] = self.undefined.get(place, 0) + count
                self._consider(part, place, values, spread, here, sense)

    def _place(self, planned: Named) -> tuple[Key, Any]:
        """Return the row and column keys of a search; structures, such as values of ``fix``, become text."""

        def value(name: str) -> Any:
            found = planned.values.get(name)
            return text_of(found) if isinstance(found, (dict, list, tuple)) else found

        column = self.summary.columns
        return tuple(map(value, self.summary.rows)), value(column) if column else None

    def _consider(
        self,
        part: Rows,
        place: tuple[Key, Any, str],
        values: Array,
        spread: Array,
        members: Array,
        sense: str,
    ) -> None:
        members = members[np.isfinite(values[members])]
        if not len(members):
            return
        sign = 1 if sense == "max" else -1
        winner = members[np.argmax(sign * values[members])]
        value = float(values[winner])
        # Only strictly better values replace a known one: the first of equal values stays.
        known = self.best.get(place)
        if known is None or sign * value > sign * known.value:
            procs = int(part.result("num_procs")[winner])
            self.best[place] = Best(value, procs, float(spread[winner]))

    def champions(self) -> dict[tuple[Any, str], Key]:
        """Return the row with the best value for each column and title."""
        result: dict[tuple[Any, str], Key] = {}
        for group in self.columns:
            for title, (_, sense) in self.summary.best.items():
                values = {row: self.best.get((row, group, title)) for row in self.rows}
                there = {row: best.value for row, best in values.items() if best is not None}
                # The best of a single row says nothing.
                if len(there) > 1:
                    pick = max if sense == "max" else min
                    result[group, title] = pick(there, key=lambda row: there[row])
        return result


def _values(part: Rows, formula: Expression) -> tuple[Array, Array]:
    """Return a figure for every row, and a mask of rows in which it is undefined although its inputs are known.

    Figures are not-a-number if there is no execution or an input is missing.
    """
    missing = part.empty.copy()

    def lookup(name: str) -> Array:
        if name not in part.results:
            own = (v if isinstance(v, (int, float)) else np.nan for v in part.value(name))
            values = np.array([float(value) for value in own])
        else:
            values = part.result(name)
            if values.dtype.kind not in "biuf":
                return np.ma.getdata(values)
            values = np.ma.filled(values.astype(float), np.nan)
        np.logical_or(missing, np.isnan(values), out=missing)
        return values

    values = np.asarray(formula.value(lookup))
    if values.dtype.kind not in "biuf":
        raise TypeError("text")
    figures = np.broadcast_to(values.astype(float), part.empty.shape)
    return figures, ~np.isfinite(figures) & ~missing


def make_summary(study: Study, planned: tuple[Planned, ...]) -> Summary:
    """Return the requested summary of a study, or the best by its objective for all names that vary.

    Raises:
        SpecError: For names that neither the study nor its results have, and for figures that are not numbers.
    """
    if study.summary is None:
        varied = [n for n in study_names(planned).values() if n not in study.quantities]
        rows = [name for name in varied if name not in ("num_procs", "max_batch_size")]
        if len({p.search.max_batch_size for p in planned}) > 1:
            rows.append("max_batch_size")
        texts = sorted({p.search.objective for p in planned})
        figures = [Objective.parse(text, whole_runs=True) for text in texts]
        best = {f.statistic.name: (Expression.parse(f.statistic.name), f.sense) for f in figures}
        return Summary(tuple(rows), None, best)
    return checked_summary(study, study.summary, no_rows(planned[0]))


def checked_summary(study: Study, summary: Summary, nothing: Rows) -> Summary:
    """Check the names of a summary and return it; `nothing` has no rows.

    Raises:
        SpecError: As :func:`make_summary`.
    """
    problems = []
    own = study.names
    for name in (*summary.rows, *filter(None, [summary.columns])):
        if name not in own:
            hint = nearest(name, own) or "known names: " + ", ".join(own)
            problems.append(Problem("summary", "a name of the study", repr(name), hint))
    for title, (formula, _) in summary.best.items():
        for name in formula.names:
            if name not in own and name not in nothing.results:
                known = nearest(name, (*own, *nothing.results))
                hint = known or f"see: calculon describe {'serving' if study.serves else 'stats'}"
                wanted = "a statistic, an execution field or a name of the study"
                problems.append(Problem(f"summary.best.{title}", wanted, repr(name), hint))
    for title, (formula, _) in summary.best.items() if not problems else ():
        try:
            _values(nothing, formula)  # without rows, only the types are checked
        except (ArithmeticError, TypeError, RecursionError) as error:
            wanted = f"a number from {formula.text!r}"
            problems.append(Problem(f"summary.best.{title}", wanted, str(error)))
    if problems:
        raise SpecError(study.file, problems)
    return summary
