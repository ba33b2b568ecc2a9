"""The table at the end of a study: the best figures for each combination of the values that vary."""

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
"""Statistics that are as uncertain as the time."""

Key = tuple[Any, ...]


class Named(Protocol):
    """A search or another question of a study."""

    @property
    def values(self) -> Mapping[str, Any]:
        """The values that the study has names for in it."""


class Rows(Protocol):
    """Rows of some questions of a study, as a summary reads them."""

    @property
    def planned(self) -> Sequence[Named]:
        """The questions."""

    @property
    def row_search(self) -> Array:
        """For each row the position of its question among these."""

    @property
    def empty(self) -> Array:
        """Which rows do not count."""

    @property
    def spread(self) -> Array:
        """Half the width of the interval of the time over the time, for every row."""

    @property
    def results(self) -> Collection[str]:
        """The names of results."""

    def result(self, name: str) -> Array:
        """Return a result for every row, masked where there is none."""

    def value(self, name: str) -> list[Any]:
        """Return the value of a name of the study for every row."""


R = TypeVar("R", bound=Rows)


@dataclass(frozen=True, slots=True)
class Best:
    """The best value of a figure, the processors it takes, and how uncertain it is.

    `spread` is half the interval of the time over the time; 0 for what no time is in, and in edition ``sc23``.
    """

    value: float
    num_procs: int
    spread: float = 0.0


@dataclass
class Winners:
    """Collects the best figures, part by part.

    Attributes:
        summary: Figures to collect.
        best: By row, column and title; a combination without any execution has no entry.
        undefined: Executions whose figure is no number, such as one divided by 0, by row, column and title.
        rows, columns: Keys seen, in order.
    """

    summary: Summary
    best: dict[tuple[Key, Any, str], Best] = field(default_factory=dict)
    undefined: dict[tuple[Key, Any, str], int] = field(default_factory=dict)
    rows: dict[Key, None] = field(default_factory=dict)
    columns: dict[Any, None] = field(default_factory=dict)

    def watch(self, parts: Iterator[R]) -> Iterator[R]:
        """Yield the parts, and take note of the best in them."""
        for part in parts:
            self.add(part)
            yield part

    def add(self, part: Rows) -> None:
        """Take in the rows of a part."""
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
        """Return the row and the column of a search; structures, such as those of ``fix``, as text."""

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
        known = self.best.get(place)
        if known is None or sign * value > sign * known.value:
            procs = int(part.result("num_procs")[winner])
            self.best[place] = Best(value, procs, float(spread[winner]))

    def champions(self) -> dict[tuple[Any, str], Key]:
        """Return for each column and title the row with the best value."""
        found: dict[tuple[Any, str], Key] = {}
        for group in self.columns:
            for title, (_, sense) in self.summary.best.items():
                values = {row: self.best.get((row, group, title)) for row in self.rows}
                there = {row: best.value for row, best in values.items() if best is not None}
                if len(there) > 1:
                    pick = max if sense == "max" else min
                    found[group, title] = pick(there, key=lambda row: there[row])
        return found


def _values(part: Rows, formula: Expression) -> tuple[Array, Array]:
    """Return a figure for every row, and whether it is undefined though all that it is made of is known.

    It is not-a-number where there is no execution or a value is missing.
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
    """Return the summary that a study asks for, or the best by its objective for everything that varies.

    Raises:
        SpecError: For names that are neither the study's nor those of results, and for figures that are no numbers.
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
    """Return the summary of a study, whose names are checked; `nothing` has no rows.

    Raises:
        SpecError: As :func:`make_summary`.
    """
    problems = []
    own = study.names
    for name in (*summary.rows, *filter(None, [summary.columns])):
        if name not in own:
            hint = nearest(name, own) or "known are " + ", ".join(own)
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
            _values(nothing, formula)
        except (ArithmeticError, TypeError, RecursionError) as error:
            wanted = f"a number from {formula.text!r}"
            problems.append(Problem(f"summary.best.{title}", wanted, str(error)))
    if problems:
        raise SpecError(study.file, problems)
    return summary
