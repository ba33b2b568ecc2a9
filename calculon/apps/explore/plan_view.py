"""The view of one plan: what it costs, where time and memory go, how sure that is, and what would be better."""

from markupsafe import Markup

from calculon.apps.explore.answers import Answers
from calculon.apps.explore.charts.time_parts import time_parts
from calculon.apps.explore.page_state import State
from calculon.apps.explore.part import Part, PartKind
from calculon.apps.notebook.markup import page
from calculon.apps.report.page import Page


def _figures(state: State, answers: Answers) -> Part | None:
    """Return the page of the plan, as the command prints it."""
    result = answers.plan(state).result
    if result is None:
        return None
    return Part(title="The plan", html=Markup(page(Page(result), ("How sure",))))


def _time(state: State, answers: Answers) -> Part | None:
    result = answers.plan(state).result
    if result is None:
        return None
    return Part(
        title="Where the time goes",
        figure=time_parts(result),
        summary="Parts of the time of an iteration, as bars",
    )


def _problem(state: State, answers: Answers) -> Part | None:
    shown = answers.plan(state)
    if not shown.problem:
        return None
    return Part(title="It cannot run", html=Markup("<p>{}</p>").format(shown.problem))


PARTS = (
    PartKind(name="problem", title="It cannot run", make=_problem),
    PartKind(name="figures", title="The plan", make=_figures),
    PartKind(name="time", title="Where the time goes", make=_time),
)
