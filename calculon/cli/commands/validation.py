"""``calculon llm-validation``: measured next to estimated values, for every study."""

import argparse
import sys
from collections.abc import Sequence

from calculon.base.errors import Problem, SpecError
from calculon.cli.options import Log, Parser, add_edition
from calculon.declarations.files import check_output, json_text, replacing
from calculon.declarations.named_values import CORRECTED, PUBLISHED
from calculon.documents.validation_tables import (
    VALUES,
    heading,
    markdown,
    not_compared,
    page,
    runs_file,
    sections,
)
from calculon.render.text_tables import Table
from calculon.validate import error_summary as summary
from calculon.validate.error_summary import published_tables
from calculon.validate.measured_and_predicted import Result, compare
from calculon.validate.published_study import Library

FORMATS = ("text", "json", "csv", "markdown", "html")
EXCEEDED = 1


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Compare what the model says with published measurements, study by study. Errors are in percent of the "
        "measured value; a bias below 0 is a model that is too fast, or that needs too little memory. A study whose "
        "mean error exceeds its bound in any edition shown makes the exit code 1. Edition sc23 sees the published "
        "fields of a study's models and executions, edition corrected all of them: vocabulary, flash attention, ... "
        "Served models (serving) and whole runs (campaign: processor-hours, failures, energy and cost) exist in "
        "edition corrected alone.",
        "calculon llm-validation\n"
        "calculon lv --study tab5\n"
        "calculon lv --edition sc23,corrected\n"
        "calculon lv --edition corrected --study nemotron4_15b\n"
        "calculon lv --study serving\n"
        "calculon lv --format markdown\n"
        "calculon lv --format csv > rows.csv\n"
        "calculon lv --edition corrected --runs runs.csv",
    )
    parser.option(
        "-b, --base_dir DIR",
        "folder whose validation/, models/ and systems/ are used first (default: what is shipped)",
    )
    parser.switch("-v, --verbose", "say which study and which row is analyzed")
    parser.option("--study NAME", "only this study, in detail; or a group of studies", default="")
    absent = f"{PUBLISHED}; of studies that exist in edition {CORRECTED} alone that one"
    add_edition(parser, several=True, absent=absent)
    parser.option(
        "--format",
        "text (default), json (everything), csv (a line per compared value), markdown, html",
        choices=FORMATS,
        default="text",
    )
    parser.option(
        "--runs FILE",
        "also write the measured whole training steps as CSV, with what edition corrected predicts: intervals "
        "of predictions rest on validation/runs.csv",
    )


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Run the studies, print their errors, and return whether all are within their bounds."""
    library = Library.at(arguments.base_dir)
    if arguments.runs:
        _check_runs(arguments.runs, arguments.edition or (PUBLISHED,))
    results = []
    for study in library.studies(arguments.study):
        editions = arguments.edition or (study.usual_edition,)
        results += [compare(study, library, edition) for edition in editions]
        if arguments.verbose:
            log(f"Now running test: {study.name}")
            for row in results[-1].rows:
                log(f"Analyzing {row.label}")
    if arguments.runs:
        with replacing(arguments.runs) as file:
            file.write(runs_file(results).encode())
    _print(results, arguments.format, detailed=bool(arguments.study), log=log)
    for line in _exceeded(results):
        print(f"calculon: validation: {line}", file=sys.stderr)
    return 0 if all(result.passes for result in results) else EXCEEDED


def _check_runs(path: str, editions: Sequence[str]) -> None:
    """Raise SpecError unless runs can be written: of edition corrected, to a CSV file."""
    if CORRECTED not in editions:
        hint = f"add --edition {CORRECTED}"
        raise SpecError(
            "validation", Problem("--runs", f"edition {CORRECTED}", ", ".join(editions), hint)
        )
    check_output(path, (".csv",))


def _exceeded(results: Sequence[Result]) -> list[str]:
    """Return a line for each quantity beyond its bound."""
    lines = []
    for result in results:
        edition = "" if result.edition == PUBLISHED else f", edition {result.edition}"
        for one in () if result.passes else result.own.comparisons:
            if not one.passes:
                name = f"{result.study.name}, {one.quantity.name}{edition}"
                found = f"mean error {one.score.mean:.2f} %" if one.score else "nothing compared"
                lines.append(f"{name}: {found}, the bound is {one.bound:g} %")
    return lines


def _print(results: Sequence[Result], form: str, *, detailed: bool, log: Log) -> None:
    if form == "json":
        log(json_text(summary.document(results)))
    elif form == "csv":
        log(Table(VALUES, summary.values(results)).csv())
    elif form == "markdown":
        log(markdown(results))
    elif form == "html":
        log(page(results))
    else:
        _print_text(results, detailed=detailed, log=log)


def _print_text(results: Sequence[Result], *, detailed: bool, log: Log) -> None:
    """Print the published tables of each edition, and the errors of the studies: in detail, or the totals."""
    tables = [(result, published_tables(result)) for result in results]
    with_tables = [result for result, lines in tables if lines]
    editions = summary.editions(with_tables)
    for edition in editions:
        if editions != (PUBLISHED,):
            log(heading(summary.of_edition(with_tables, edition)))
        for result, lines in tables:
            for line in lines if result.edition == edition else ():
                log(line)
    for title, table, note in sections(results, brief=not detailed):
        log(f"\n{title}")
        log.table(table, "text")
        if note:
            log(note)
    if said := not_compared(results):
        log(f"\n{said}")
