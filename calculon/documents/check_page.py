"""Page of a benchmark next to its prediction."""

import shlex
from collections.abc import Iterator

from calculon.base.units import duration, significant
from calculon.documents.serving_page import deployment_words, limited_words
from calculon.estimate.served_errors import WIDEST
from calculon.render.document import Document, Section, dim, labeled
from calculon.render.text_tables import Column, Table
from calculon.validate.served_check import CheckedFigure, ServedCheck

_WORDS = {
    "ttft": "time to first token",
    "tpot": "time per token",
    "request_latency": "whole request",
    "output_rate": "generated tokens/s",
    "request_rate": "requests/s",
}

_THREE_DIGITS = 0.005
"""Relative error of a number with three digits."""


def check_page(found: ServedCheck) -> Document:
    """Return the page: figures, parts of the difference, and the next step."""
    record = found.record
    title = f"{record.model} on {record.deployment.num_procs:,} x {record.system}: measured and predicted"
    lead = labeled(
        {
            "measured": f"{found.file} ({found.benchmark.tool})",
            "deployment": deployment_words(record.deployment, record.arithmetic),
            "requests": limited_words(record.workload),
        }
    )
    parts = (
        Section("", (_figures(found), *found.notes)),
        Section("Where the difference is: time of a request", (*_parts(found),)),
        Section("Use the measurement", (*_next(found),)),
    )
    return Document(title, "", (lead,), tuple(one for one in parts if one.blocks))


def _figures(found: ServedCheck) -> Table:
    columns = (
        Column("figure", "figure"),
        Column("measured", "measured", right=True),
        Column("predicted", "predicted", right=True),
        Column("ratio", "ratio", right=True),
        Column("range", "90 % range"),
    )
    rows = [
        {
            "figure": _WORDS[one.name],
            "measured": _written(one, one.measured),
            "predicted": _written(one, one.predicted),
            "ratio": significant(one.ratio, 3),
            "range": _range(one),
        }
        for one in found.figures
    ]
    return Table(columns, rows)


def _written(one: CheckedFigure, value: float) -> str:
    if one.name.endswith("_rate"):
        return f"{value:,.0f}" if value >= 1000 else significant(value, 3)
    return _time(value)


def _time(value: float) -> str:
    return duration(value, error=abs(value) * _THREE_DIGITS)


def _range(one: CheckedFigure) -> str:
    if one.low is None or one.high is None:
        return ""
    if one.high > WIDEST * one.low:
        return "not validated"
    side = "inside" if one.inside else "outside"
    return f"{side}, {_written(one, one.low)} to {_written(one, one.high)}"


def _parts(found: ServedCheck) -> Iterator[Table | str]:
    """Yield the parts of a request with their differences, and the largest in a sentence."""
    largest = found.largest
    if largest is None:
        return
    columns = (
        Column("part", "part"),
        Column("measured", "measured", right=True),
        Column("predicted", "predicted", right=True),
        Column("difference", "difference", right=True),
    )
    rows = [
        {
            "part": one.name,
            "measured": _time(one.measured),
            "predicted": _time(one.predicted),
            "difference": f"{'+' if one.difference >= 0 else '-'}{_time(abs(one.difference))}",
        }
        for one in found.parts
    ]
    yield Table(columns, rows)
    slower = "longer" if largest.difference > 0 else "shorter"
    yield f"The largest difference: {largest.name} {slower} than predicted by {_time(abs(largest.difference))}."


def _next(found: ServedCheck) -> Iterator[object]:
    record = found.record
    words = ("calculon", "serve", record.model, found.prediction, record.system)
    yield shlex.join((*words, "--evidence", found.file))
    yield dim(
        "Ranges of similar deployments then include this measurement; predicted values do not change. Kernels and "
        "networks that are slow in your own measurements belong in a system file: calculon calibrate --help."
    )
