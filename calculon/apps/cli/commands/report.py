"""``calculon report``: results as one HTML page that needs nothing else."""

import argparse
import platform
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calculon.apps.cli.options import Log, Parser, check_outputs
from calculon.apps.cli.results import add_result_arguments, asked_results, orders_of
from calculon.errors import SpecError
from calculon.spec.named_values import PUBLISHED

if TYPE_CHECKING:
    from calculon.apps.report.report_page import Drawn
    from calculon.apps.report.result import Result
    from calculon.apps.report.text_tables import Table

SUFFIXES = (".html", ".htm")


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Write one HTML file to send to a colleague: inputs with hashes and versions, key figures, where time "
        "and memory go, every layer, the best executions of a search, the errors of the model against "
        "measurements on the system, and its assumptions. It needs no network to be read.",
        "calculon report megatron-1T,3072_t4_p64_d12_mbs4_full,a100_80g -o report.html\n"
        "calculon loe megatron-22B 64 64 float16 a100_80g best.json -t 10 --quiet\n"
        "calculon report best.json --model megatron-22B --system a100_80g -o search.html\n"
        "calculon report best=best.json#0 tenth=best.json#9 -o both.html",
    )
    add_result_arguments(parser)
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="NAME.html")


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Read the results, run the studies of their systems, and write the page."""
    output = arguments.output
    check_outputs([output], [text.partition("#")[0] for text in arguments.results], SUFFIXES)
    results = asked_results(arguments)
    from calculon.apps.report.report_page import report_page
    from calculon.spec.files import replacing
    from calculon.version import __version__

    versions = {"calculon": __version__, "Python": platform.python_version()}
    validation = {}
    asked = ((one.inputs.machine.name, one.edition) for one in results if one.inputs)
    for system, edition in dict.fromkeys(asked):
        table = validation_of(system, edition)
        named = edition != PUBLISHED and table.rows
        validation[f"{system}, edition {edition}" if named else system] = table
    told = [replace(one, winners=tuple(map(_with_usual, one.winners))) for one in results]
    text = report_page(told, versions, validation, orders_of(results), _waterfalls(results))
    with replacing(output) as stream:
        stream.write(text.encode())
    log(f"Output: {output}")
    return 0


def _with_usual(winner: "Result") -> "Result":
    """Return a winner with what is usual for its preset, which its words leave out."""
    from calculon.presets import agreed

    execution = winner.execution or {}
    if winner.edition == PUBLISHED or not execution:
        return winner
    return replace(
        winner, usual=agreed(winner.edition, execution.get("preset"))[1].usual(execution)
    )


def _waterfalls(results: Sequence["Result"]) -> list["Drawn"]:
    """Return the changes from the first result to each other one, with a picture where it can be drawn."""
    from calculon.apps.cli.pictures import check_library
    from calculon.apps.cli.waterfalls import comparable, fall_of
    from calculon.apps.report.report_page import Drawn
    from calculon.apps.report.waterfall_section import waterfall_section

    found = []
    for best, told in comparable(results):
        fall = fall_of(results[0], best, told)
        section = waterfall_section(told, fall.digits, fall.names)
        try:
            check_library()
        except SpecError:
            found.append(Drawn(section))
            continue
        from calculon.apps.report.pictures.canvas import svg
        from calculon.apps.report.pictures.falls import draw

        found.append(Drawn(section, svg(draw([fall]), section.title)))
    return found


def validation_of(system: str, edition: str) -> "Table":
    """Return the errors of an edition of the model against measurements on a system, by study and quantity."""
    from calculon.apps.report.text_tables import Table
    from calculon.apps.validate.library import Library
    from calculon.apps.validate.measured_and_predicted import compare
    from calculon.apps.validate.published_study import Study
    from calculon.apps.views.validation_tables import STUDIES

    library = Library.at()
    studies: Sequence[Study] = [one for one in library.studies() if one.system == system]
    _, columns, rows = STUDIES
    return Table(columns, rows([compare(study, library, edition) for study in studies]))
