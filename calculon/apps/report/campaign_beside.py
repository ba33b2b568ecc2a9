"""Published figures of runs beside those of a predicted one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from calculon.apps.report.campaign_words import tokens_words
from calculon.apps.report.digits import Digits
from calculon.apps.report.grids import indented
from calculon.apps.report.text_tables import Column, Table
from calculon.apps.report.texts import heading
from calculon.units import scaled

_SHORT = {"about": "", "more than": "> "}


def published_section(
    rows: Sequence[Mapping[str, Any]], digits: Digits
) -> Iterator[RenderableType]:
    """Yield a table of published figures, each with ours.

    Parameters
    ----------
    rows : sequence of mapping
        Result of :func:`calculon.planner.runs.published_beside.published_beside`.
    digits : Digits
        Those of the predicted run.
    """
    columns = (
        Column("run", "run"),
        Column("procs", "processors", right=True),
        Column("figure", "figure"),
        Column("published", "published", right=True),
        Column("ours", "ours", right=True),
        Column("source", "source", fold=True),
    )
    yield heading("Published beside", "ours for as many tokens, or as many processors and hours")
    yield indented(Table(columns, [_cells(row, digits) for row in rows]))


def _cells(row: Mapping[str, Any], digits: Digits) -> dict[str, str]:
    sign = _SHORT.get(row["published_is"], f"{row['published_is']} ".lstrip())
    figure, per = row["figure"], row["per"]
    if figure in ("processor_hours", "step_hours"):
        what = "hours" if figure == "processor_hours" else "hours of steps"
        words = f"{what} for {tokens_words(per)} tokens"
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
    beside = ", recalled" if row["evidence"] == "recalled" else ""
    beside += "; the rate assumed here" if row["assumed_from"] else ""
    return {
        "run": row["run"],
        "procs": f"{row['num_procs']:,}",
        "figure": words,
        "published": f"{sign}{published}",
        "ours": ours,
        "source": f"{row['source']}{beside}",
    }
