"""``calculon llm-validation``: compare measured and predicted values of every validation study."""

import argparse
import math
from collections.abc import Sequence

from calculon.base.errors import Problem, SpecError
from calculon.cli.options import Log, Parser, add_edition
from calculon.cli.progress import progress
from calculon.cli.streams import print_stderr
from calculon.declarations.files import check_output, json_text, replacing
from calculon.declarations.named_values import CORRECTED, PUBLISHED
from calculon.documents.validation_moves import move_tables
from calculon.documents.validation_tables import (
    VALUES,
    Part,
    heading,
    in_short,
    markdown,
    not_compared,
    own_rows,
    page,
    runs_file,
    sections,
)
from calculon.render.text_tables import Table
from calculon.validate import error_summary as summary
from calculon.validate.baseline import Moves, classes_above, moves, read_baseline
from calculon.validate.error_summary import published_tables
from calculon.validate.measured_and_predicted import Result, compare
from calculon.validate.published_study import Library
from calculon.validate.user_rows import TEMPLATE, compare_rows, rows_help

FORMATS = ("text", "json", "csv", "markdown", "html")
EXCEEDED = 1


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Compare predictions with published measurements, study by study, or with your own (--rows). Errors are in "
        "percent of the measured value. Exit code 1 if the mean error of a study exceeds its bound.",
        "calculon validate tab5\n"
        "calculon validate --edition sc23,corrected\n"
        "calculon validate --rows mine.csv\n"
        "calculon validate --edition corrected --format json > before.json\n"
        "calculon validate --edition corrected --baseline before.json --fail-above 2%\n"
        "calculon lv\n"
        "calculon lv --edition corrected --study nemotron4_15b\n"
        "calculon lv --study serving\n"
        "calculon lv --format markdown\n"
        "calculon lv --format csv > rows.csv\n"
        "calculon lv --edition corrected --runs runs.csv",
        "A bias below 0 means that predictions are too fast or need too little memory. Edition sc23 uses the published "
        "fields of a study's models and executions, edition corrected all of them: vocabulary, flash attention, ... "
        "Served models (serving) and whole runs (campaign: processor-hours, failures, energy and cost) exist in "
        "edition corrected only.\n\n"
        "With --rows, only the rows of your file are compared, under edition corrected. "
        + " ".join(rows_help()),
    )
    parser.option(
        "-b, --base_dir DIR",
        "folder whose validation/, models/ and systems/ are used first (default: the shipped files)",
    )
    parser.switch("-v, --verbose", "print each study and row as it is analyzed, and all tables")
    parser.argument("STUDY", "only this study or group, in detail", nargs="?", default="")
    parser.option("--study NAME", "the same as STUDY", dest="of_study", default="")
    absent = f"{PUBLISHED}; {CORRECTED} in the summary, and for named studies with no rows in {PUBLISHED}"
    add_edition(parser, several=True, absent=absent)
    parser.option(
        "-f, --format FORMAT",
        "text (default), json (everything), csv (a line per compared value), markdown, html",
        choices=FORMATS,
        default="text",
    )
    parser.option(
        "--runs FILE",
        "also write the measured training steps as CSV, with the predictions of edition corrected",
        ": prediction intervals are based on validation/runs.csv",
    )

    parser.option(
        "--rows FILE",
        f"compare your own measurements, a training step in each row: a CSV {TEMPLATE}, ...",
    )
    parser.option(
        "--baseline JSON",
        "output of an earlier --format json: also show how errors changed since",
        ": the median absolute error of each class and study, and the rows that moved most",
    )
    parser.option(
        "--fail-above P%",
        "exit code 1 if the median absolute error of a class rose by more than P percentage points since the baseline",
        "; with --rows and without --baseline, if it is above P percent",
        type=_percent,
    )


def _percent(text: str) -> float:
    """Parse a percentage, with or without its sign."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(
            f"expected a number of percent, such as 5%, found {text!r}"
        )
    return value


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Compare, print the errors, and return exit code 1 if a bound is exceeded."""
    _check(arguments)
    arguments.study = arguments.study or arguments.of_study
    short = _is_summary(arguments)
    if short:
        arguments.edition = arguments.edition or (CORRECTED,)
    before = read_baseline(arguments.baseline) if arguments.baseline else None
    results = [compare_rows(arguments.rows)] if arguments.rows else _of_studies(arguments, log)
    if arguments.runs:
        with replacing(arguments.runs) as file:
            file.write(runs_file(results).encode())
    found = moves(results, before) if before else None
    if short:
        _print_summary(results, log)
    else:
        _print(results, arguments, found, log)
    lines = _exceeded(results)
    if arguments.fail_above is not None:
        lines += classes_above(results, arguments.fail_above, found)
    for line in lines:
        print_stderr(f"calculon: validation: {line}")
    return EXCEEDED if lines else 0


PUBLISHED_COMMANDS = ("llm-validation", "lv")
"""Names of the command that print what the published tool prints."""


def _is_summary(arguments: argparse.Namespace) -> bool:
    """Return True if errors are shown in short: ``calculon validate`` without a study and without a format."""
    asked = (arguments.study, arguments.rows, arguments.baseline, arguments.verbose)
    return not (any(asked) or arguments.format != "text" or arguments.called in PUBLISHED_COMMANDS)


def _print_summary(results: Sequence[Result], log: Log) -> None:
    """Print the errors of all studies in short, and how to see the rest."""
    editions = ", ".join(summary.editions(results))
    log(f"Predictions against published measurements (edition {editions})")
    for title, table, note in in_short(results):
        log(f"\n{title}")
        log.table(table, "text")
        if note:
            log(note)
    passing = sum(result.passes for result in results)
    log(
        f"\nIn {passing} of {len(results)} studies no mean error exceeds the largest that the tests allow,"
    )
    log("which follows the present errors and is no target.")
    log(
        "One study: calculon validate STUDY; all studies and the published tables: -v; every row: --format csv"
    )


def _check(arguments: argparse.Namespace) -> None:
    """Raise SpecError for options that exclude each other, or that require another option."""
    problem = None
    study = arguments.study or arguments.of_study
    if arguments.study and arguments.of_study:
        problem = Problem("--study", "one study", f"{arguments.study} and {arguments.of_study}")
    elif arguments.rows and study:
        problem = Problem("--rows", "no study", study, "rows are no study")
    elif arguments.rows and arguments.edition and arguments.edition != (CORRECTED,):
        editions = ", ".join(arguments.edition)
        problem = Problem("--rows", f"edition {CORRECTED}, the default", editions)
    elif arguments.fail_above is not None and not (arguments.baseline or arguments.rows):
        problem = Problem("--fail-above", "--baseline or --rows", "neither of the two")
    if problem:
        raise SpecError("validation", problem)
    if arguments.runs:
        # A user's own rows are always compared under edition corrected.
        usual = CORRECTED if arguments.rows else PUBLISHED
        _check_runs(arguments.runs, arguments.edition or (usual,))


def _of_studies(arguments: argparse.Namespace, log: Log) -> list[Result]:
    """Return the results of the requested studies."""
    library = Library.at(arguments.base_dir)
    studies = library.studies(arguments.study)
    results = []
    with progress(len(studies), what="studies") as advance:
        for study in studies:
            editions = arguments.edition or (study.usual_edition,)
            found = [compare(study, library, edition) for edition in editions]
            if arguments.study and not arguments.edition and found[0].is_empty:
                found = [compare(study, library, CORRECTED)]
            results += found
            advance(1)
            if arguments.verbose:
                log(f"Now running test: {study.name}")
                for row in results[-1].rows:
                    log(f"Analyzing {row.label}")
    return results


def _check_runs(path: str, editions: Sequence[str]) -> None:
    """Raise SpecError unless runs can be written: edition corrected and a CSV file are required."""
    if CORRECTED not in editions:
        hint = f"add --edition {CORRECTED}"
        raise SpecError(
            "validation", Problem("--runs", f"edition {CORRECTED}", ", ".join(editions), hint)
        )
    check_output(path, (".csv",))


def _exceeded(results: Sequence[Result]) -> list[str]:
    """Return one line per quantity that exceeds its error bound."""
    lines = []
    for result in results:
        edition = "" if result.edition == PUBLISHED else f", edition {result.edition}"
        for one in () if result.passes else result.own.comparisons:
            if not one.passes:
                name = f"{result.study.name}, {one.quantity.name}{edition}"
                found = f"mean error {one.score.mean:.2f} %" if one.score else "nothing compared"
                lines.append(f"{name}: {found}, the bound is {one.bound:g} %")
    return lines


def _print(
    results: Sequence[Result], arguments: argparse.Namespace, found: Moves | None, log: Log
) -> None:
    first = [*move_tables(found)] if found else []
    first += own_rows(results) if arguments.rows else ()
    if arguments.format == "json":
        more = {"moves": found.to_dict()} if found else {}
        log(json_text(summary.document(results, **more)))
    elif arguments.format == "csv":
        log(Table(VALUES, summary.values(results)).csv())
    elif arguments.format == "markdown":
        log(markdown(results, first))
    elif arguments.format == "html":
        log(page(results, first))
    else:
        _print_text(results, first, detailed=bool(arguments.study), log=log)


def _print_text(
    results: Sequence[Result], first: Sequence[Part], *, detailed: bool, log: Log
) -> None:
    """Print the published tables of each edition, and the errors of the studies in detail or as totals."""
    tables = [(result, published_tables(result)) for result in results]
    with_tables = [result for result, lines in tables if lines]
    editions = summary.editions(with_tables)
    for edition in editions:
        if editions != (PUBLISHED,):
            log(heading(summary.of_edition(with_tables, edition)))
        for result, lines in tables:
            for line in lines if result.edition == edition else ():
                log(line)
    if detailed and editions in ((), (PUBLISHED,)):
        log(heading(results))
    for title, table, note in (*first, *sections(results, brief=not detailed)):
        log(f"\n{title}")
        log.table(table, "text")
        if note:
            log(note)
    if said := not_compared(results):
        log(f"\n{said}")
