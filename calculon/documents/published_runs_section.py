"""Section on published runs, compared with the prediction."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calculon.base.units import scaled
from calculon.declarations.machine_provenance import short_name
from calculon.documents.campaign_words import ramp_days, tokens_words
from calculon.render.digits import Digits
from calculon.render.document import Grid, Section, dim
from calculon.render.text_tables import Column, Table

_SHORT = {"about": "", "more than": "> "}
_HOURS = {"processor_hours": "hours", "step_hours": "hours of steps"}
_OPEN = {
    "unknown": "its batch and parallelism degrees are not published",
    "partly": "its batch and parallelism degrees are only partly published",
}
"""Details missing from the source of processor-hours."""

_ALIKE = 0.05
"""Relative difference of processor-hours up to which no ratio is shown."""


def published_section(
    rows: Sequence[Mapping[str, Any]], parts: Sequence[Mapping[str, Any]], digits: Digits
) -> Section:
    """Return a table of published figures next to the predicted ones, their differences, and the sources.

    Args:
        rows: Result of :func:`calculon.advise.runs.published_comparison.published_comparison`.
        parts: Parts of the predicted run as plain data.
        digits: Digits of the predicted run.
    """
    columns = (
        Column("run", "run"),
        Column("procs", "processors", right=True),
        Column("figure", "figure"),
        Column("published", "published", right=True),
        Column("ours", "ours", right=True),
        Column("source", "source", right=True),
    )
    numbers = {source: i for i, source in enumerate(dict.fromkeys(map(_source, rows)), start=1)}
    cells = [_cells(row, digits) | {"source": f"({numbers[_source(row)]})"} for row in rows]
    differences = (dim(said) for row in rows for said in _differences(row, parts, digits))
    sources = tuple((dim(f"({number})"), dim(source)) for source, number in numbers.items())
    return Section(
        "Published runs",
        (Table(columns, cells), *differences, Grid(("left", "text"), sources)),
        "ours: same tokens (no spares), or same processors and hours",
        opened=True,
    )


def _source(row: Mapping[str, Any]) -> str:
    """Return the source of a row; marked if it was recalled rather than read."""
    return f"{row['source']}{', recalled' if row['evidence'] == 'recalled' else ''}"


def _cells(row: Mapping[str, Any], digits: Digits) -> dict[str, str]:
    sign = _SHORT.get(row["published_is"], f"{row['published_is']} ".lstrip())
    figure, per = row["figure"], row["per"]
    if figure in _HOURS:
        words = f"{_HOURS[figure]} for {tokens_words(per)} tokens"
        published, ours = scaled(row["published"], digits=2), digits.rate(row["ours"])
    elif figure == "goodput":
        words = "goodput"
        published, ours = (
            f"{100 * row['published']:g} %",
            f"{100 * row['ours']:.1f} %",
        )
    elif figure == "failures":
        words = f"failures in {per / 24:,.4g} d"
        published, ours = (f"{row[key]:,.3g}" for key in ("published", "ours"))
    else:
        words = "hours between failures"
        published, ours = (f"{row[key]:,.2g}" for key in ("published", "ours"))
    return {
        "run": row["run"],
        "procs": f"{row['num_procs']:,} {short_name(row['processor'])}",
        "figure": words,
        "published": f"{sign}{published}",
        "ours": ours,
    }


def _differences(
    row: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], digits: Digits
) -> Iterator[str]:
    """Yield the ratio of processor-hours, details missing from the source, and a note on the failure rate."""
    if row["assumed_from"]:
        yield f"{row['run']}: its failure rate is the one assumed here."
    if row["figure"] not in _HOURS:
        return
    ratio, left_open = row["published"] / row["ours"], _OPEN.get(row["configuration"])
    said = []
    if abs(ratio - 1) > _ALIKE:
        one, other, times = (
            ("the published run", "ours", ratio)
            if ratio > 1
            else ("ours", "the published run", 1 / ratio)
        )
        said.append(f"{one} takes {times:.2g} times the hours of {other}{_processors(row)}")
    if left_open:
        said.append(f"{left_open}, ours is the plan above")
    if said:
        yield f"{row['run']}: {'; '.join(said)}."
    # A run with ramps is slower than its longest part, which explains why ours takes longer.
    more = ramp_days(parts) / sum(one["days"] for one in parts)
    if ratio < 1 - _ALIKE and more > _ALIKE:
        at_rate = digits.rate(row["ours"] * (1 - more))
        yield (
            f"Ramps run slower than the longest part, here on all processors; at the rate of that part, ours "
            f"would take {at_rate} hours. "
            "A run that starts on fewer processors comes closer to that."
        )


def _processors(row: Mapping[str, Any]) -> str:
    """Return the processors of both runs, if they differ."""
    theirs, own = short_name(row["processor"]), short_name(row["own_processor"])
    return "" if theirs == own else f" ({theirs} in the published run, {own} in ours)"
