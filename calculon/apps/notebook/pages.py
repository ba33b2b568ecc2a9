"""Every kind of result as a notebook shows it."""

from typing import Any

from calculon.apps.notebook.markup import Shower, page
from calculon.apps.report.page import Page
from calculon.apps.report.plan_page import PlanPage
from calculon.apps.views.estimate_result import result_of
from calculon.estimate import Estimate
from calculon.planner.answer import Answer


def _estimate(one: Estimate) -> str:
    return page(Page(result_of(one)), ("Time", "Memory"))


def _answer(one: Answer) -> str:
    best = None if one.best is None else result_of(one.best)
    preset = one.question.preset
    shown = PlanPage(one.to_dict(), best, preset.usual, preset.words)
    return page(shown, ("Best", "No plan", "Next best", "Processors", "Mine"))


_PAGES: dict[type, Shower] = {Estimate: _estimate, Answer: _answer}


def page_of(result: Any) -> str:
    """Return a result as HTML."""
    return next(show for kind, show in _PAGES.items() if isinstance(result, kind))(result)
