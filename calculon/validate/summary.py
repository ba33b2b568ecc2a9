"""What studies say, as plain rows and documents for tables, files and pictures."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from calculon.validate.compare import Comparison, Reading, Result, pooled
from calculon.validate.score import Score

Record = dict[str, Any]
FIGURES = ("mean", "median", "p90", "largest", "bias")


def score_record(score: Score | None) -> Record:
    """Return the figures of a score; none of them when nothing was compared."""
    return asdict(score) if score else {"n": 0, **dict.fromkeys(FIGURES)}


def studies(results: Sequence[Result]) -> list[Record]:
    """Return one row per study and quantity: how many rows, how far off, within the bound, and the worst row."""
    rows = []
    for result in results:
        for one in result.own.comparisons:
            worst = one.worst()
            rows.append(
                {
                    "study": result.study.name,
                    "quantity": one.quantity.name,
                    "evidence": result.study.evidence,
                    "rows": result.total,
                    **score_record(one.score),
                    "bound": one.quantity.bound,
                    "passes": one.passes,
                    "worst": one.rows[worst[0]].label if worst else None,
                }
            )
    return rows


def totals(results: Sequence[Result]) -> list[Record]:
    """Return the score of all rows together, of times and of memory apart."""
    return [{"kind": kind, **score_record(score)} for kind, score in pooled(results).items()]


def order(results: Sequence[Result]) -> list[Record]:
    """Return one row per study with sweeps: how well the order of times within them is predicted."""
    return [
        {"study": result.study.name, "quantity": one.quantity.name, **asdict(one.rank)}
        for result in results
        for one in result.own.comparisons
        if one.rank and one.quantity.is_time
    ]


def alternatives(results: Sequence[Result]) -> list[Record]:
    """Return one row per alternative and quantity, after one of the study's own choices."""
    rows = []
    for result in results:
        readings: list[Reading] = [result.own, *result.alternatives] if result.alternatives else []
        for reading in readings:
            for one in reading.comparisons:
                names = {"study": result.study.name, "quantity": one.quantity.name}
                chosen = {"alternative": reading.name or "as chosen", "why": reading.why}
                rows.append({**names, **chosen, **score_record(one.score)})
    return rows


def left_out(results: Sequence[Result]) -> list[Record]:
    """Return one row per reason why rows are not compared, or are although the model says they do not fit."""
    rows = []
    for result in results:
        reasons = dict(result.excluded)
        for why, count in result.own.unrepresented.items():
            reasons[f"the model cannot represent it ({why})"] = count
        if result.own.too_large:
            reasons["compared, but the model says that it does not fit"] = result.own.too_large
        name = result.study.name
        rows += [{"study": name, "rows": count, "reason": why} for why, count in reasons.items()]
    return rows


def causes(results: Sequence[Result]) -> list[Record]:
    """Return one row per quantity whose study says why it is off most where it is."""
    return [
        {"study": result.study.name, "quantity": one.quantity.name, "cause": one.quantity.cause}
        for result in results
        for one in result.own.comparisons
        if one.quantity.cause
    ]


def largest(results: Sequence[Result], count: int = 3) -> list[Record]:
    """Return the rows with the largest errors of every quantity."""
    return [
        {
            "study": result.study.name,
            "quantity": one.quantity.name,
            "unit": one.quantity.unit,
            **row,
        }
        for result in results
        for one in result.own.comparisons
        for row in (_values(one)[i] for i in one.worst(count))
    ]


def choices(results: Sequence[Result]) -> list[Record]:
    """Return one row per choice that a source left open."""
    return [
        {"study": result.study.name, "what": what, "choice": choice}
        for result in results
        for what, choice in result.study.choices.items()
    ]


def values(results: Sequence[Result]) -> list[Record]:
    """Return one row per compared value."""
    return [
        {
            "study": result.study.name,
            "quantity": one.quantity.name,
            "unit": one.quantity.unit,
            **row,
        }
        for result in results
        for one in result.own.comparisons
        for row in _values(one)
    ]


def _values(one: Comparison) -> list[Record]:
    columns = (one.measured.tolist(), one.estimated.tolist(), one.errors.tolist())
    return [
        {"row": row.label, "measured": measured, "estimated": estimated, "error": error}
        for row, measured, estimated, error in zip(one.rows, *columns, strict=True)
    ]


def document(results: Sequence[Result]) -> Record:
    """Return everything, for JSON."""
    return {"studies": [_study(result) for result in results], "totals": totals(results)}


def _study(result: Result) -> Record:
    study = result.study
    return {
        "name": study.name,
        "title": study.title,
        "source": study.source,
        "evidence": study.evidence,
        "calibration": study.calibration,
        "passes": result.passes,
        "rows": result.total,
        "excluded": result.excluded,
        "choices": study.choices,
        **_reading(result.own),
        "alternatives": [
            {"name": one.name, "why": one.why, **_reading(one, brief=True)}
            for one in result.alternatives
        ],
    }


def _reading(reading: Reading, *, brief: bool = False) -> Record:
    return {
        "unrepresented": reading.unrepresented,
        "too_large": reading.too_large,
        "quantities": [_quantity(one, brief=brief) for one in reading.comparisons],
    }


def _quantity(one: Comparison, *, brief: bool) -> Record:
    found: Record = {
        "name": one.quantity.name,
        "unit": one.quantity.unit,
        **score_record(one.score),
    }
    found["rank"] = asdict(one.rank) if one.rank else None
    if brief:
        return found
    about = {"bound": one.quantity.bound, "passes": one.passes, "cause": one.quantity.cause}
    return {**found, **about, "values": _values(one)}
