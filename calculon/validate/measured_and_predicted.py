"""Comparison of a study: estimate every measured row, and summarize the errors."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import numpy as np

from calculon.base.activity import announce
from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.expression import Expression
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.statistics import ALL_PARTS_OF_TIME
from calculon.editions import find_edition
from calculon.estimate.interval import Sides
from calculon.validate.predict import Prediction, predict
from calculon.validate.published_study import UNITS, Alternative, Library, Quantity, Study
from calculon.validate.score import Rank, Score, relative_errors
from calculon.validate.served import predict_served
from calculon.validate.study_rows import (
    Row,
    measured_values,
    read_rows,
    values,
    with_derived,
)

UTILISATION = ("mfu", "mfu_causal")
"""MFU statistics of every row, in editions that compute them."""


OF_RUNS = ("fw_time", "bw_time", "recompute_time", "model_flops_per_second_per_proc", "hfu")
"""Statistics of rows that are training runs, in editions that compute them: inputs of the laws of whole runs."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Measured and estimated values of one quantity of a study.

    Attributes:
        quantity: The quantity, with its unit.
        bound: Largest mean absolute error that passes under this edition, in percent; None for any.
        rows: Rows that have a measured value and that the model can represent.
        measured, estimated (shape (rows,)): Values in the quantity's unit.
        errors (shape (rows,)): Errors in percent of the measured value; negative if the estimate is too small.
        score: Summary of the errors; None when no row can be compared.
        rank: Accuracy of the predicted order, if the study has sweeps.
    """

    quantity: Quantity
    bound: float | None
    rows: tuple[Row, ...]
    measured: Array
    estimated: Array
    errors: Array
    score: Score | None
    rank: Rank | None

    @property
    def passes(self) -> bool:
        """True if the mean absolute error of compared rows is within the bound, or if there is no bound."""
        if self.bound is None:
            return True
        return self.score is not None and self.score.mean <= self.bound

    def worst(self, count: int = 1) -> list[int]:
        """Return the indices of the rows with the largest absolute errors, largest first."""
        order: list[int] = np.argsort(-np.abs(self.errors), kind="stable")[:count].tolist()
        return order


@dataclass(frozen=True, slots=True)
class Reading:
    """Quantities of a study under one interpretation of the source.

    Attributes:
        name, why: Name and reason of the alternative; empty for the study's own choices.
        comparisons: One per quantity.
        unrepresented: Counts of rows that the model cannot represent, by reason.
        too_large: Number of rows that were run but exceed the memory of the system according to the model.
        prediction: Statistics of all rows.
    """

    name: str
    why: str
    comparisons: tuple[Comparison, ...]
    unrepresented: dict[str, int]
    too_large: int
    prediction: Prediction


@dataclass(frozen=True)
class Result:
    """Result of a study.

    Attributes:
        study: The study.
        edition: Edition of the cost model.
        rows: All rows to compare.
        total: Number of rows in the file of measured values.
        left_out: Rows that the study excludes, with their reasons.
        own: Comparison under the choices of the study.
        others: Function that compares the study under its alternatives.
    """

    study: Study
    edition: str
    rows: tuple[Row, ...]
    total: int
    left_out: tuple[tuple[Row, str], ...]
    own: Reading
    others: Callable[[], tuple[Reading, ...]]

    @cached_property
    def alternatives(self) -> tuple[Reading, ...]:
        """Study under its alternatives, as far as they differ in this edition; evaluated on first use."""
        return self.others()

    @property
    def is_empty(self) -> bool:
        """True if no row is compared."""
        return not any(one.rows for one in self.own.comparisons)

    @property
    def excluded(self) -> dict[str, int]:
        """Counts of rows that the study excludes, by reason."""
        return dict(Counter(reason for _, reason in self.left_out))

    @property
    def skipped(self) -> list[tuple[Row, str]]:
        """Rows without any comparison, with their reasons, in the order of the file."""
        compared = {row.number for one in self.own.comparisons for row in one.rows}
        rest = [
            (row, self._why_not(number))
            for number, row in enumerate(self.rows)
            if row.number not in compared
        ]
        return sorted((*self.left_out, *rest), key=lambda one: one[0].number)

    def _why_not(self, number: int) -> str:
        """Return the reason why a row is not compared that the study does not exclude."""
        why = self.own.prediction.reasons[number]
        if not why:
            return "no measured value"
        if not self.study.serves:
            why = self.own.prediction.cases[number].broken_rule() or why
        return f"the model cannot represent it: {why}"

    @property
    def steps(self) -> Comparison | None:
        """Times of whole training steps; None if none of them count as evidence of a source."""
        if not self.study.whole_steps:
            return None
        compared = self.own.comparisons
        return next((one for one in compared if one.quantity.is_step and one.rows), None)

    @property
    def passes(self) -> bool:
        """True if every quantity is within its bound, or if there are no rows to compare."""
        return not self.rows or all(one.passes for one in self.own.comparisons)


def compare(
    study: Study,
    library: Library | None = None,
    edition: str = PUBLISHED,
    rows: Sequence[Row] | None = None,
) -> Result:
    """Run a study and its alternatives under an edition of the cost model.

    Args:
        study: The study.
        library: Library of named models, systems and executions; by default the catalog.
        edition: The edition.
        rows: Measured rows of the study; by default the rows of its file.

    Raises:
        SpecError: For anything wrong with the study, its measured values, or a spec that it names, for an unknown
            edition, and for a choice that differs from the execution. Reading the alternatives raises it for
            alternatives that change no row.
    """
    library = library or Library.at()
    edition = find_edition(edition).name
    announce(f"study {study.name}, edition {edition}")
    others = [(one, study.changed(one)) for one in study.alternatives]
    if edition == PUBLISHED:
        # The published edition ignores optional fields, so many alternatives are identical under it.
        known = study.published()
        others = [(one, other) for one, other in others if other.published() != known]
    everything = read_rows(study) if rows is None else list(rows)
    rows, left_out = _chosen(study, everything, edition)
    own = _read(library, study, edition, rows)

    def readings() -> tuple[Reading, ...]:
        result = tuple(
            _read(library, other, edition, rows, one.name, one.why) for one, other in others
        )
        # Edition sc23 ignores most fields, so its alternatives may rightly have no effect.
        if edition != PUBLISHED and rows:
            read = zip((one for one, _ in others), result, strict=True)
            if problems := idle_alternatives(own, read):
                raise SpecError(study.file, problems)
        return result

    return Result(
        study=study,
        edition=edition,
        rows=tuple(rows),
        total=len(everything),
        left_out=tuple(left_out),
        own=own,
        others=readings,
    )


def idle_alternatives(
    own: Reading, readings: Iterable[tuple[Alternative, Reading]]
) -> list[Problem]:
    """Return one problem for each alternative that changes no compared value, or with which no row can run."""
    result = []
    for one, reading in readings:
        pairs = zip(own.comparisons, reading.comparisons, strict=True)
        if not all(_alike(*pair) for pair in pairs):
            continue
        place = f"alternatives.{one.name}"
        if any(compared.rows for compared in reading.comparisons):
            wanted = f"a row that changes with {', '.join(one.changes)}"
            result.append(Problem(place, wanted, "the study's own value in every row"))
        else:
            reasons = ", ".join(reading.unrepresented) or "no row has a measured value"
            result.append(Problem(place, "a row that can run", f"none ({reasons})"))
    return result


def _alike(own: Comparison, other: Comparison) -> bool:
    """Return True if all rows of an alternative have the same estimates as the study itself."""
    known = {row.number: value for row, value in zip(own.rows, own.estimated, strict=True)}
    # NaN equals nothing: a row that only the alternative can represent counts as a difference.
    expected = [known.get(row.number, np.nan) for row in other.rows]
    return bool(np.allclose(other.estimated, expected, rtol=1e-9, atol=0))


def _chosen(study: Study, rows: list[Row], edition: str) -> tuple[list[Row], list[tuple[Row, str]]]:
    """Return the rows to compare under an edition, and the excluded rows with their reasons."""
    if study.serves and edition == PUBLISHED:
        return [], [(row, f"edition {PUBLISHED} has no deployments") for row in rows]
    left_out: list[tuple[Row, str]] = []
    for one in study.exclude:
        if not one.concerns(edition):
            continue
        hits = values(study, one.when, rows, "exclude.when")
        left_out += [(row, one.reason) for row, hit in zip(rows, hits, strict=True) if hit]
        rows = [row for row, hit in zip(rows, hits, strict=True) if not hit]
    return rows, left_out


def _read(
    library: Library,
    study: Study,
    edition: str,
    rows: Sequence[Row],
    name: str = "",
    why: str = "",
) -> Reading:
    statistics = [key for q in study.quantities for key in q.keys.values()]
    statistics += [q.table.beside for q in study.quantities if q.table and q.table.beside]
    if edition != PUBLISHED and not study.serves:
        statistics += OF_RUNS if any(q.is_run for q in study.quantities) else ()
        statistics += (*UTILISATION, *ALL_PARTS_OF_TIME, *Sides.statistics)
    predicted = predict_served if study.serves else predict
    found = predicted(library, study, rows, statistics, edition)
    rows = with_derived(study, rows)
    reasons = Counter(why for why in found.reasons if why)
    return Reading(
        name=name,
        why=why,
        comparisons=tuple(_compared(study, q, edition, rows, found) for q in study.quantities),
        unrepresented=dict(sorted(reasons.items())),
        too_large=int(found.too_large.sum()),
        prediction=found,
    )


def _compared(
    study: Study, quantity: Quantity, edition: str, rows: Sequence[Row], prediction: Prediction
) -> Comparison:
    measured = np.array(measured_values(quantity.measured, rows))
    estimated = quantity.estimate.of(
        {n: prediction.values[key] for n, key in quantity.keys.items()}
    )
    if quantity.times:
        place = f"quantities.{quantity.name}.times"
        estimated = estimated * np.array(values(study, quantity.times, rows, place), float)
    if quantity.parts_of:
        estimated = _added_up(quantity.parts_of, rows, estimated)
    if quantity.relative_to:
        references = _references(study, quantity, quantity.relative_to, rows)
        estimated = estimated / estimated[references]
    estimated = estimated / UNITS[quantity.unit][1]
    here = np.flatnonzero(np.isfinite(measured) & np.isfinite(estimated)).tolist()
    chosen = tuple(rows[i] for i in here)
    measured, estimated = measured[here], estimated[here]
    errors = relative_errors(measured, estimated)
    # Order matters within a sweep only: rows of different sweeps differ in more than the swept value.
    groups = [tuple(row.cells[name] for name in study.sweep) for row in chosen]
    ranked = bool(study.sweep) and bool(len(here))
    return Comparison(
        quantity=quantity,
        bound=quantity.bound.get(edition),
        rows=chosen,
        measured=measured,
        estimated=estimated,
        errors=errors,
        score=Score.of(errors) if len(here) else None,
        rank=Rank.of(groups, measured, estimated) if ranked else None,
    )


def _added_up(names: Sequence[str], rows: Sequence[Row], estimated: Array) -> Array:
    """Return the sum of the estimates of all rows with equal values in some columns, for each row."""
    groups = [tuple(row.cells[name] for name in names) for row in rows]
    numbers = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    group = np.array([numbers[one] for one in groups], int)
    total: Array = np.bincount(group, estimated)[group]
    return total


def _references(
    study: Study, quantity: Quantity, condition: Expression, rows: Sequence[Row]
) -> list[int]:
    """Return the index of the reference row of each row, for quantities that are percentages of another row."""
    place = f"quantities.{quantity.name}.relative_to"
    groups = [tuple(row.cells[name] for name in quantity.within) for row in rows]
    hits = values(study, condition, rows, place)
    known = {group: i for i, (group, hit) in enumerate(zip(groups, hits, strict=True)) if hit}
    for row, group in zip(rows, groups, strict=True):
        if group not in known:
            wanted = f"a row with {condition.text} and the same {', '.join(quantity.within)}"
            raise row.refuse(place, wanted, "none")
    return [known[group] for group in groups]


def pooled(results: Sequence[Result]) -> dict[str, Score]:
    """Return the scores of all rows of all studies, separately for time and memory.

    Rows from a source's own formula are excluded, and so are percentages of other rows, figures of training runs, and
    figures of deployments. All results are for one edition.
    """
    kinds = {"time": "s", "memory": "B"}
    found = {}
    for kind, symbol in kinds.items():
        errors = [
            one.errors
            for result in results
            if result.study.evidence != "formula"
            for one in result.own.comparisons
            if UNITS[one.quantity.unit][0] == symbol
            and not (one.quantity.relative_to or one.quantity.is_run or one.quantity.is_served)
        ]
        if errors and len(together := np.concatenate(errors)):
            found[kind] = Score.of(together)
    return found
