"""``calculon llm-validation``: measured beside estimated, for every study."""

import argparse
import html
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from calculon.cli.options import Log, Parser
from calculon.report.tables import Column, Table
from calculon.validate import summary
from calculon.validate.compare import Result, compare
from calculon.validate.library import Library
from calculon.validate.published import published_tables

FORMATS = ("text", "json", "csv", "markdown", "html")
EXCEEDED = 1


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Compare what the model says with published measurements, study by study. Errors are in percent of the\n"
        "measured value; a bias below 0 is a model that is too fast, or that needs too little memory. A study whose\n"
        "mean error exceeds its bound makes the exit code 1.",
        "calculon llm-validation\n"
        "calculon lv --study tab5\n"
        "calculon lv --format markdown\n"
        "calculon lv --format csv > rows.csv",
    )
    parser.add_argument(
        "-b",
        "--base_dir",
        metavar="DIR",
        help="folder whose validation/, models/ and systems/ are used first (default: what is shipped)",
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="say which study and which row is analyzed"
    )
    parser.add_argument(
        "--study",
        metavar="NAME",
        default="",
        help="only this study, in detail; or a group of studies",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="text (default), json (everything), csv (a line per compared value), markdown, html",
    )


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Run the studies, print what they say, and tell whether all are within their bounds."""
    library = Library.at(arguments.base_dir)
    results = []
    for study in library.studies(arguments.study):
        results.append(compare(study, library))
        if arguments.verbose:
            log(f"Now running test: {study.name}")
            for row in results[-1].rows:
                log(f"Analyzing {row.label}")
    _print(results, arguments.format, detailed=bool(arguments.study), log=log)
    for line in _exceeded(results):
        print(f"calculon: validation: {line}", file=sys.stderr)
    return 0 if all(result.passes for result in results) else EXCEEDED


def _exceeded(results: Sequence[Result]) -> list[str]:
    """Say which quantities are not within their bounds."""
    lines = []
    for result in results:
        for one in result.own.comparisons:
            if not one.passes:
                name = f"{result.study.name}, {one.quantity.name}"
                found = f"mean error {one.score.mean:.2f} %" if one.score else "nothing compared"
                lines.append(f"{name}: {found}, the bound is {one.quantity.bound:g} %")
    return lines


def _print(results: Sequence[Result], form: str, *, detailed: bool, log: Log) -> None:
    if form == "json":
        log(json.dumps(summary.document(results), indent=2))
    elif form == "csv":
        log(Table(VALUES, summary.values(results)).csv())
    elif form == "markdown":
        log(markdown(results))
    elif form == "html":
        log(page(sections(results)))
    else:
        for result in results:
            for line in published_tables(result):
                log(line)
        for section in sections(results) if detailed else sections(results)[:2]:
            log(f"\n{section.title}")
            log.table(section.table, "text")


def _two(value: float | None) -> str:
    """Write a number with two decimals."""
    return "" if value is None else f"{value:.2f}"


def _number(key: str, title: str = "", text: Callable[[Any], str] = _two) -> Column:
    return Column(key, title or key, right=True, text=text)


ERRORS = (
    Column("n", "n", right=True),
    _number("mean", "mean %"),
    _number("median", "median %"),
    _number("p90", "p90 %"),
    _number("largest", "max %"),
    _number("bias", "bias %"),
)
WHICH = (Column("study", "study"), Column("quantity", "quantity"))
VALUES = (
    *WHICH,
    *(Column(key) for key in ("unit", "row", "measured", "estimated", "error")),
)
"""Columns of the CSV format; errors in percent."""


@dataclass(frozen=True, slots=True)
class Section:
    """A titled table."""

    title: str
    table: Table


TABLES: tuple[tuple[str, tuple[Column, ...], Callable[..., list[dict[str, Any]]]], ...] = (
    (
        "Studies: absolute errors in percent of the measured value, and bias",
        (
            *WHICH,
            Column("evidence", "evidence"),
            Column("rows", "rows", right=True),
            *ERRORS,
            _number("bound", "bound %", text="{:g}".format),
            Column("passes", "within", text=lambda value: "yes" if value else "NO"),
            Column("worst", "worst row"),
        ),
        summary.studies,
    ),
    (
        "All measured rows together",
        (Column("kind", "quantity"), *ERRORS),
        summary.totals,
    ),
    (
        "Order within sweeps: Kendall's tau, and what the plan with the lowest estimate costs over the best",
        (
            *WHICH,
            Column("sweeps", "sweeps", right=True),
            _number("tau"),
            _number("regret", "mean regret %"),
            _number("worst_regret", "worst regret %"),
        ),
        summary.order,
    ),
    (
        "Rows not compared, and rows that should not fit",
        (
            Column("study", "study"),
            Column("rows", "rows", right=True),
            Column("reason", "reason"),
        ),
        summary.left_out,
    ),
    (
        "Largest errors",
        (
            *WHICH,
            Column("row", "row"),
            _number("measured", text="{:.4g}".format),
            _number("estimated", text="{:.4g}".format),
            Column("unit", "unit"),
            _number("error", "error %"),
        ),
        summary.largest,
    ),
    (
        "Likely causes of the largest errors",
        (*WHICH, Column("cause", "cause", fold=True)),
        summary.causes,
    ),
    (
        "What the sources leave open: other choices",
        (
            *WHICH,
            Column("alternative", "choice"),
            Column("n", "n", right=True),
            _number("mean", "mean %"),
            _number("bias", "bias %"),
            Column("why", "why", fold=True),
        ),
        summary.alternatives,
    ),
    (
        "What the sources leave open: what was chosen",
        (
            Column("study", "study"),
            Column("what", "what"),
            Column("choice", "choice", fold=True),
        ),
        summary.choices,
    ),
)
"""Titles, columns and rows of what studies say, the most important first."""


def sections(results: Sequence[Result]) -> list[Section]:
    """Return what some studies say, without the tables that have nothing to say."""
    found = [Section(title, Table(columns, rows(results))) for title, columns, rows in TABLES]
    return [section for section in found if section.table.rows]


def markdown(results: Sequence[Result]) -> str:
    """Return the tables of some studies as Markdown."""
    return "\n\n".join(f"**{one.title}**\n\n{one.table.markdown()}" for one in sections(results))


def page(parts: Sequence[Section]) -> str:
    """Return tables as one HTML page that needs nothing else."""
    body = "\n".join(f"<h2>{html.escape(one.title)}</h2>\n{_html(one.table)}" for one in parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>Validation</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>Validation</h1>\n{body}\n</body>\n</html>"
    )


STYLE = (
    "body{font:14px/1.45 system-ui,sans-serif;margin:2rem;max-width:110rem}"
    "table{border-collapse:collapse}th,td{padding:.2rem .7rem;text-align:left;vertical-align:top}"
    "th{border-bottom:1px solid #888}tr:nth-child(even) td{background:#f4f4f4}"
    ".right{text-align:right;font-variant-numeric:tabular-nums}"
)


def _html(table: Table) -> str:
    """Return a table as HTML."""

    def line(tag: str, texts: Sequence[str]) -> str:
        cells = (
            f"<{tag}{' class=right' if column.right else ''}>{html.escape(text)}</{tag}>"
            for column, text in zip(table.columns, texts, strict=True)
        )
        return f"<tr>{''.join(cells)}</tr>"

    head = line("th", [column.title for column in table.columns])
    rows = (line("td", [c.text(row[c.key]) for c in table.columns]) for row in table.rows)
    return f"<table>\n<thead>{head}</thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>"
