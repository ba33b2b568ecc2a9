"""The page of a plan says what its plain data say, within the width that it has."""

import io
from functools import cache

import pytest
from rich.console import Console

from calculon.apps.cli.commands.llm import result_of
from calculon.apps.report.plan_page import PlanPage, _tokens
from calculon.planner.answer import plan


@cache
def page(**options) -> PlanPage:
    answer = plan("llama3-8B", 64, "h100_80g_sxm", batch=512, **options)
    best = None if answer.best is None else result_of(answer.best)
    return PlanPage(
        answer.to_dict(), best, answer.question.preset.usual, answer.question.preset.words
    )


def drawn(page, width):
    stream = io.StringIO()
    Console(file=stream, width=width, highlight=False).print(page)
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_line_is_wider_than_the_page(width):
    assert max(map(len, drawn(page(), width).splitlines())) <= width


def test_the_page_has_the_answers_in_order():
    text = drawn(page(mine="tp=2 pp=2"), 80)
    places = [
        text.index(part)
        for part in (
            "Plan for",
            "Best:",
            "Memory:",
            "Next best",
            "Processors:",
            "Mine:",
            "How sure",
        )
    ]
    assert places == sorted(places)


def test_what_is_assumed_is_said_with_the_option_that_states_it():
    text = drawn(page(), 160)
    for option in ("--seq", "--preset", "--dtype"):
        assert option in text
    assert "--batch" not in text


def test_days_are_of_the_tokens_asked_for():
    assert "days for 15 T tokens" in drawn(page(tokens="15T"), 80)
    assert "days for 1 T tokens" in drawn(page(), 80)


@pytest.mark.parametrize(
    ("count", "text"), [(15.6e12, "15.6 T"), (1e12, "1 T"), (3e11, "300 G"), (500.0, "500")]
)
def test_tokens_are_written_without_zeros(count, text):
    assert _tokens(count) == text
