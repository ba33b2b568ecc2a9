"""Errors of studies as plain rows and documents, for tables, files and charts.

Results are for several studies under one edition, or for each study under several editions in turn.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any

from calculon.base.units import GIB
from calculon.declarations.named_values import PUBLISHED
from calculon.validate.measured_and_predicted import Comparison, Reading, Result, pooled
from calculon.validate.published_runs import checks, failures, trainings
from calculon.validate.published_study import Layout
from calculon.validate.row_bounds import bound_records
from calculon.validate.run_classes import CLASSES, class_of
from calculon.validate.run_rows import run_rows
from calculon.validate.score import Score
from calculon.validate.source_scores import Step, StepScore, class_scores, scored_steps

Record = dict[str, Any]
FIGURES = ("mean", "median", "p90", "largest", "bias")


def editions(results: Sequence[Result]) -> tuple[str, ...]:
    """Return the editions of results."""
    return tuple(dict.fromkeys(result.edition for result in results))


def of_edition(results: Sequence[Result], edition: str) -> list[Result]:
    """Return the results of an edition."""
    return [result for result in results if result.edition == edition]


def score_record(score: Score | None) -> Record:
    """Return the figures of a score; None for each figure if nothing was compared."""
    return asdict(score) if score else {"n": 0, **dict.fromkeys(FIGURES)}


def about(results: Sequence[Result]) -> list[Record]:
    """Return one row per study: its title, number of rows, and evidence."""
    return [
        {
            "study": result.study.name,
            "evidence": result.study.evidence,
            "rows": result.total,
            "title": result.study.title,
        }
        for result in of_edition(results, results[0].edition)
    ]


def studies(results: Sequence[Result]) -> list[Record]:
    """Return one row per study and quantity: number of rows, errors, bound, and the worst row."""
    rows = []
    for result in results:
        for one in result.own.comparisons:
            worst = one.worst()
            rows.append(
                {
                    **_names(result, one),
                    "evidence": result.study.evidence,
                    "rows": result.total,
                    **score_record(one.score),
                    "bound": one.bound if result.rows else None,
                    "passes": one.passes if result.rows else None,
                    "worst": one.rows[worst[0]].label if worst else None,
                }
            )
    return rows


def groups(results: Sequence[Result]) -> list[Record]:
    """Return one row per quantity and group of rows, such as engine and processor, of studies that state groups."""
    rows = []
    for result in results:
        names = result.study.by
        for one in result.own.comparisons if names else ():
            members: dict[str, list[int]] = {}
            for i, row in enumerate(one.rows):
                members.setdefault(", ".join(str(row.cells[name]) for name in names), []).append(i)
            rows += [
                {**_names(result, one), "group": name, **score_record(Score.of(one.errors[found]))}
                for name, found in members.items()
            ]
    return rows


def _names(result: Result, one: Comparison) -> Record:
    return {"study": result.study.name, "quantity": one.quantity.name, "edition": result.edition}


def totals(results: Sequence[Result]) -> list[Record]:
    """Return the scores of all rows together, separately for time and memory."""
    return [
        {"kind": kind, "edition": edition, **score_record(score)}
        for edition in editions(results)
        for kind, score in pooled(of_edition(results, edition)).items()
    ]


def classes(results: Sequence[Result]) -> list[Record]:
    """Return one row per class of whole steps, each followed by one row for each of its sources."""
    return [
        {"edition": edition, "class": score.run_class.name, **_figures_of(score)}
        for edition in editions(results)
        for score in class_scores(of_edition(results, edition))
    ]


def _figures_of(score: StepScore) -> Record:
    names = (one.name for one in fields(score) if one.name != "run_class")
    return {name: getattr(score, name) for name in names}


def class_sentences(results: Sequence[Result]) -> list[Record]:
    """Return one row per class with steps, with a sentence that describes the class."""
    known = {class_of(run) for run in run_rows(results)}
    return [{"class": one.name, "about": one.about} for one in CLASSES if one in known]


def order(results: Sequence[Result]) -> list[Record]:
    """Return one row per study with sweeps: the accuracy of the predicted order within a sweep."""
    return [
        {**_names(result, one), **asdict(one.rank)}
        for result in results
        for one in result.own.comparisons
        if one.rank and one.quantity.is_time
    ]


def alternatives(results: Sequence[Result]) -> list[Record]:
    """Return one row per alternative and quantity, after a row for the study's own choices."""
    rows = []
    several = {result.study.name for result in results if result.alternatives}
    for result in results:
        readings: list[Reading] = [result.own, *result.alternatives]
        readings = readings if result.study.name in several else []
        for reading in readings:
            for one in reading.comparisons:
                chosen = {"alternative": reading.name or "as chosen", "why": reading.why}
                rows.append({**_names(result, one), **chosen, **score_record(one.score)})
    return rows


def left_out(results: Sequence[Result]) -> list[Record]:
    """Return one row per reason to exclude rows, and the number of rows that are compared although they do not fit."""
    rows = []
    for result in results:
        reasons = dict(result.excluded)
        for why, count in result.own.unrepresented.items():
            reasons[f"the model cannot represent it ({why})"] = count
        if result.own.too_large:
            reasons["compared, but predicted not to fit"] = result.own.too_large
        names = {"study": result.study.name, "edition": result.edition}
        rows += [{**names, "rows": count, "reason": why} for why, count in reasons.items()]
    return rows


def skipped(result: Result) -> list[Record]:
    """Return one row per row of a study without a comparison, with the reason."""
    return [{"row": row.label, "reason": reason} for row, reason in result.skipped]


def causes(results: Sequence[Result]) -> list[Record]:
    """Return one row per quantity for which the study states the cause of the largest errors."""
    return [
        {"study": result.study.name, "quantity": one.quantity.name, "cause": one.quantity.cause}
        for result in of_edition(results, results[0].edition)
        for one in result.own.comparisons
        if one.quantity.cause
    ]


def largest(results: Sequence[Result], count: int = 3) -> list[Record]:
    """Return the rows with the largest errors of every quantity."""
    return [
        {**_names(result, one), "unit": one.quantity.unit, **row}
        for result in results
        for one in result.own.comparisons
        for row in (row_values(one)[i] for i in one.worst(count))
    ]


def choices(results: Sequence[Result]) -> list[Record]:
    """Return one row per choice that a source leaves open."""
    return [
        {"study": result.study.name, "what": what, "choice": choice}
        for result in of_edition(results, results[0].edition)
        for what, choice in result.study.choices.items()
    ]


def values(results: Sequence[Result]) -> list[Record]:
    """Return one row per compared value; whole steps have their class, source, and whether they are in the interval."""
    steps = {one: iter(scored_steps(of_edition(results, one))) for one in editions(results)}
    rows = []
    for result in results:
        for one in result.own.comparisons:
            scored = one is result.steps and result.edition != PUBLISHED
            about = {**_names(result, one), "unit": one.quantity.unit}
            rows += [
                {**about, **row, **_step_record(next(steps[result.edition]) if scored else None)}
                for row in _bounded_values(result, one)
            ]
    return rows


def _step_record(step: Step | None) -> Record:
    if step is None:
        return {"source": "", "class": "", "inside": None}
    inside = None if step.side is None else step.side == 0
    return {"source": step.run.source, "class": step.run_class.name, "inside": inside}


def together(rows: Sequence[Record], names: Sequence[str]) -> list[Record]:
    """Order rows so that rows with equal values of some names are adjacent."""
    found: dict[tuple[Any, ...], list[Record]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return [row for group in found.values() for row in group]


def side_by_side(
    rows: Sequence[Record], shown: Sequence[str], names: Sequence[str], figures: Sequence[str]
) -> list[Record]:
    """Combine the rows of several editions.

    Args:
        rows: Rows with an ``edition`` each.
        shown: The editions.
        names: Names whose values are equal in rows that belong together.
        figures: Names with a value per edition: ``mean`` becomes ``sc23 mean`` and ``corrected mean``; None if an
            edition has no such row.
    """
    blank = {f"{edition} {figure}": None for edition in shown for figure in figures}
    found: dict[tuple[Any, ...], Record] = {}
    for row in rows:
        key = tuple(row[name] for name in names)
        one = found.setdefault(key, {**row, **blank})
        one |= {f"{row['edition']} {figure}": row[figure] for figure in figures}
    return list(found.values())


def row_values(one: Comparison) -> list[Record]:
    """Return one row per compared value of a quantity."""
    columns = (one.measured.tolist(), one.estimated.tolist(), one.errors.tolist())
    return [
        {"row": row.label, "measured": measured, "estimated": estimated, "error": error}
        for row, measured, estimated, error in zip(one.rows, *columns, strict=True)
    ]


def _bounded_values(result: Result, one: Comparison) -> list[Record]:
    """Return compared values with their prediction interval and the probability that the plan fits."""
    pairs = zip(row_values(one), bound_records(result, one), strict=True)
    return [{**value, **bounds} for value, bounds in pairs]


def document(results: Sequence[Result], **more: Record) -> Record:
    """Return all results, and further parts, for JSON."""
    return {
        "editions": editions(results),
        "studies": [_study(result) for result in results],
        "totals": totals(results),
        "classes": classes(results),
        "trainings": trainings(results),
        "failures": failures(results),
        "checks": checks(results),
        **more,
    }


def _study(result: Result) -> Record:
    study = result.study
    return {
        "name": study.name,
        "edition": result.edition,
        "title": study.title,
        "source": study.source,
        "evidence": study.evidence,
        "calibration": study.calibration,
        "passes": result.passes,
        "rows": result.total,
        "excluded": result.excluded,
        "choices": dict(study.choices),
        "skipped": skipped(result),
        **_reading(result.own, [_compared(result, one) for one in result.own.comparisons]),
        "alternatives": [
            {"name": one.name, "why": one.why, **_reading(one, map(_quantity, one.comparisons))}
            for one in result.alternatives
        ],
    }


def _reading(reading: Reading, quantities: Iterable[Record]) -> Record:
    return {
        "unrepresented": reading.unrepresented,
        "too_large": reading.too_large,
        "quantities": [*quantities],
    }


def _quantity(one: Comparison) -> Record:
    return {
        "name": one.quantity.name,
        "unit": one.quantity.unit,
        **score_record(one.score),
        "rank": asdict(one.rank) if one.rank else None,
    }


def _compared(result: Result, one: Comparison) -> Record:
    about = {"bound": one.bound, "passes": one.passes, "cause": one.quantity.cause}
    return {**_quantity(one), **about, "values": _bounded_values(result, one)}


# Tables of the published tool: a row per model, a column per mode, comma-separated.


def published_tables(result: Result) -> list[str]:
    """Return the lines of all quantities of a study that have their own table."""
    beside = result.own.prediction.values
    position = {row.number: i for i, row in enumerate(result.rows)}
    lines: list[str] = []
    for one in result.own.comparisons:
        if layout := one.quantity.table:
            extra = {}
            if layout.beside:
                values = beside[layout.beside]
                extra = {row.number: values[position[row.number]] / GIB for row in one.rows}
            lines += _lines(one, layout, extra)
    return lines


def _lines(one: Comparison, layout: Layout, extra: dict[int, float]) -> list[str]:
    """Return title, header, one line per row name, mean and largest deviation, and a comma."""
    cells: dict[str, dict[str, list[str]]] = {}
    for i, row in enumerate(one.rows):
        deviation = 100 * (1 - one.estimated[i] / one.measured[i])  # the published sign
        cell = [f"{one.measured[i]:.2f}", f"{one.estimated[i]:.2f}", f"{deviation:.2f}%"]
        cell += [f"{extra[row.number]:.2f}"] if extra else []
        name, column = str(row.cells[layout.rows]), str(row.cells[layout.columns])
        cells.setdefault(name, {})[column] = cell
    modes = list(dict.fromkeys(mode for line in cells.values() for mode in line))
    headings = ["profile", "calc", "delta", *(["GiB"] if extra else [])]
    lines = [layout.title, ",".join(["", *(f"{m} {h}" for m in modes for h in headings)])]
    blank = [""] * len(headings)
    for name, line in cells.items():
        lines.append(",".join([name, *(text for mode in modes for text in line.get(mode, blank))]))
    if one.score:
        lines += [f"Ave,,{one.score.mean:.2f}%", f"Max,,{one.score.largest:.2f}%"]
    return [*lines, ","]
