"""Run a study: estimate every measured row, and summarize the errors."""

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
"""Statistics of every row in editions that have them."""


OF_RUNS = ("fw_time", "bw_time", "recompute_time", "model_flops_per_second_per_proc", "hfu")
"""Statistics of rows that are whole runs, in editions that have them: what their laws need."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One quantity of a study, measured and estimated.

    Attributes:
        quantity: The quantity, with its unit.
        bound: The largest mean absolute error that passes under this edition, in percent; None for any.
        rows: The rows that have a measured value and that the model can represent.
        measured, estimated (shape (rows,)): In the quantity's unit.
        errors (shape (rows,)): In percent of the measured value; negative is an estimate that is too small.
        score: None when no row can be compared.
        rank: How well the order is predicted, when the study names sweeps.
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
        """Return the positions of the rows with the largest absolute errors, largest first."""
        order: list[int] = np.argsort(-np.abs(self.errors), kind="stable")[:count].tolist()
        return order


@dataclass(frozen=True, slots=True)
class Reading:
    """The quantities of a study under one reading of the source.

    Attributes:
        name, why: Of the alternative; empty for the study's own choices.
        comparisons: One per quantity.
        unrepresented: Rows that the model cannot represent, counted by reason.
        too_large: Rows that were run but need more memory than the system has, by the model.
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
    """A study that was run.

    Attributes:
        study: The study.
        edition: The edition of the cost model.
        rows: All rows that are to be compared.
        total: Rows in the file of measured values.
        left_out: Rows that the study leaves out, each with the reason.
        own: Under the choices of the study.
        others: Reads the study under its other choices.
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
        """The study under other choices, as far as they differ in this edition; evaluated on first use."""
        return self.others()

    @property
    def excluded(self) -> dict[str, int]:
        """Rows that the study leaves out, counted by reason."""
        return dict(Counter(reason for _, reason in self.left_out))

    @property
    def skipped(self) -> list[tuple[Row, str]]:
        """Rows of which no value is compared, each with the reason, in the order of the file."""
        compared = {row.number for one in self.own.comparisons for row in one.rows}
        rest = [
            (row, self._why_not(number))
            for number, row in enumerate(self.rows)
            if row.number not in compared
        ]
        return sorted((*self.left_out, *rest), key=lambda one: one[0].number)

    def _why_not(self, number: int) -> str:
        """Return why no value of a row is compared, which is not left out by the study."""
        why = self.own.prediction.reasons[number]
        if not why:
            return "no measured value"
        if not self.study.serves:
            why = self.own.prediction.cases[number].broken_rule() or why
        return f"the model cannot represent it: {why}"

    @property
    def steps(self) -> Comparison | None:
        """The times of whole training steps; nothing where there are none that count as evidence of a source."""
        if not self.study.whole_steps:
            return None
        compared = self.own.comparisons
        return next((one for one in compared if one.quantity.is_step and one.rows), None)

    @property
    def passes(self) -> bool:
        """Whether every quantity is within its bound, or no row is to be compared at all."""
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
        library: Where named models, systems and executions are found; by default in the catalog.
        edition: The edition.
        rows: Its measured rows; by default the rows of its file.

    Raises:
        SpecError: For anything wrong with the study, its measured values, or a spec it names, for an unknown edition,
            and for a choice that differs from what runs. Reading the alternatives raises it for those that change no
            row.
    """
    library = library or Library.at()
    edition = find_edition(edition).name
    announce(f"study {study.name}, edition {edition}")
    others = [(one, study.changed(one)) for one in study.alternatives]
    if edition == PUBLISHED:
        known = study.published()
        others = [(one, other) for one, other in others if other.published() != known]
    everything = read_rows(study) if rows is None else list(rows)
    rows, left_out = _chosen(study, everything, edition)
    own = _read(library, study, edition, rows)

    def readings() -> tuple[Reading, ...]:
        found = tuple(
            _read(library, other, edition, rows, one.name, one.why) for one, other in others
        )
        if edition != PUBLISHED and rows:
            read = zip((one for one, _ in others), found, strict=True)
            if problems := idle_alternatives(own, read):
                raise SpecError(study.file, problems)
        return found

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
    """Return one problem for each alternative that changes no compared value or that no row can run."""
    found = []
    for one, reading in readings:
        pairs = zip(own.comparisons, reading.comparisons, strict=True)
        if not all(_alike(*pair) for pair in pairs):
            continue
        place = f"alternatives.{one.name}"
        if any(compared.rows for compared in reading.comparisons):
            wanted = f"a row that changes with {', '.join(one.changes)}"
            found.append(Problem(place, wanted, "the study's own value in every row"))
        else:
            reasons = ", ".join(reading.unrepresented) or "no row has a measured value"
            found.append(Problem(place, "a row that can run", f"none ({reasons})"))
    return found


def _alike(own: Comparison, other: Comparison) -> bool:
    """Whether every row of an alternative has the estimate of the study itself."""
    known = {row.number: value for row, value in zip(own.rows, own.estimated, strict=True)}
    expected = [known.get(row.number, np.nan) for row in other.rows]
    return bool(np.allclose(other.estimated, expected, rtol=1e-9, atol=0))


def _chosen(study: Study, rows: list[Row], edition: str) -> tuple[list[Row], list[tuple[Row, str]]]:
    """Return the rows to compare under an edition, and the rows that are left out, each with the reason."""
    if study.serves and edition == PUBLISHED:
        return [], [(row, f"edition {PUBLISHED} knows no deployments") for row in rows]
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
    study: Study, quantity: Quantity, edition: str, rows: Sequence[Row], found: Prediction
) -> Comparison:
    measured = np.array(measured_values(quantity.measured, rows))
    estimated = quantity.estimate.of({n: found.values[key] for n, key in quantity.keys.items()})
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
    """Return for each row the sum of the estimates of all rows with the same values in some columns."""
    groups = [tuple(row.cells[name] for name in names) for row in rows]
    numbers = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    group = np.array([numbers[one] for one in groups], int)
    total: Array = np.bincount(group, estimated)[group]
    return total


def _references(
    study: Study, quantity: Quantity, condition: Expression, rows: Sequence[Row]
) -> list[int]:
    """Return for each row the position of its reference, of which it is a percentage."""
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
    """Return the score of all rows of all studies together, for times and for memory apart.

    Rows of the source's own formula are left out, and so are percentages of other rows, figures of whole runs and those
    of deployments. The results are those of one edition.
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
