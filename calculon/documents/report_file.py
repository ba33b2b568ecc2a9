"""Self-contained HTML reports: the output of ``calculon report``."""

import platform
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calculon.declarations.files import replacing
from calculon.declarations.named_values import CORRECTED, PUBLISHED
from calculon.declarations.presets import agreed
from calculon.documents.compared import orders_of
from calculon.documents.report_page import report_page
from calculon.documents.result import Result
from calculon.documents.run_pictures import runs_shown
from calculon.documents.validation_tables import STUDIES
from calculon.documents.waterfalls import drawn
from calculon.render.text_tables import Table
from calculon.version import __version__

if TYPE_CHECKING:
    from calculon.campaign.record import Campaign
    from calculon.documents.served_comparison import ServedResult

PAGES = (".html", ".htm")
"""File name suffixes of pages."""


def write_page(text: str, path: str) -> None:
    """Write a page to a file."""
    with replacing(path) as stream:
        stream.write(text.encode())


def report_text(
    results: Sequence[Result], campaign: "Campaign | None" = None
) -> tuple[str, list[str]]:
    """Validate the systems of some results, and return the report; with a campaign also the whole run of each.

    Returns:
        The page, and messages on whole runs that miss limits.
    """
    versions = {"calculon": __version__, "Python": platform.python_version()}
    validation = {}
    asked = ((one.inputs.machine.name, one.edition) for one in results if one.inputs)
    for system, edition in dict.fromkeys(asked):
        table = validation_of(system, edition)
        named = edition != PUBLISHED and table.rows
        validation[f"{system}, edition {edition}" if named else system] = table
    shown = [replace(one, winners=tuple(map(_with_usual, one.winners))) for one in results]
    runs = runs_shown(results, campaign)
    text = report_page(shown, versions, validation, orders_of(results), drawn(results), runs)
    names = [f"the run of {run.label}" if len(runs) > 1 else "the run" for run in runs]
    missed = [
        f"{name} misses {' and '.join(run.missed)}"
        for name, run in zip(names, runs, strict=True)
        if run.missed
    ]
    return text, missed


def served_report_text(results: "Sequence[ServedResult]") -> tuple[str, list[str]]:
    """Return the report of deployments, with charts and the errors of serving studies of their systems.

    Returns:
        The page, and messages on deployments that miss limits.
    """
    from calculon.documents.served_documents import pictured
    from calculon.documents.served_report import served_report

    versions = {"calculon": __version__, "Python": platform.python_version()}
    systems = dict.fromkeys(one.record.system for one in results)
    validation = {system: validation_of(system, CORRECTED, SERVING) for system in systems}
    text = served_report(pictured(results), versions, validation)
    missed = [
        f"{f'{one.label}: ' if len(results) > 1 else ''}it misses {' and '.join(one.missed)}"
        for one in results
        if one.missed
    ]
    return text, missed


def _with_usual(winner: Result) -> Result:
    """Return a winner with the usual values of its preset, which its words leave out."""
    execution = winner.execution or {}
    if winner.edition == PUBLISHED or not execution:
        return winner
    return replace(
        winner, usual=agreed(winner.edition, execution.get("preset"))[1].usual(execution)
    )


SERVING = "serving"
"""Group of the studies of served models."""


def validation_of(system: str, edition: str, group: str = "") -> Table:
    """Return the errors of an edition compared with measurements on a system, by study and quantity."""
    from calculon.validate.measured_and_predicted import compare
    from calculon.validate.published_study import Library

    library = Library.at()
    studies = [one for one in library.studies(group) if one.system == system]
    _, columns, rows = STUDIES
    return Table(columns, rows([compare(study, library, edition) for study in studies]))
