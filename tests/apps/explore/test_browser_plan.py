"""The view of a plan, as people go through it."""

from collections.abc import Callable

from playwright.sync_api import Page

from calculon import inputs
from calculon.apps.views.estimate_result import result_of
from calculon.planner.answer import plans_on
from calculon.planner.ask import ask
from tests.apps.explore.browsing import Visitor, resized, settled, wider_than_screen

SMALL = {"model": "gpt2-124M", "system": "a100_80g_sxm", "procs": 8}


def test_the_page_shows_the_best_plan_as_the_planner_finds_it(visitor: Visitor) -> None:
    page = visitor.open(SMALL)
    question = ask(inputs.model("gpt2-124M"), 8, inputs.system("a100_80g_sxm"))
    best = plans_on(question, 8)[0]
    assert result_of(best).digits.duration(best.stats["total_time"]) in page.inner_text("#main")


def test_nothing_is_wider_than_the_screen(
    visitor: Visitor, picture: Callable[[Page, str], None]
) -> None:
    page = visitor.open(SMALL)
    for width, dark in ((1280, False), (390, False), (390, True), (1280, True)):
        resized(page, width, dark=dark)
        picture(page, f"plan-{width}{'-dark' if dark else ''}")
        assert not wider_than_screen(page)


def test_a_change_of_a_degree_is_an_address_and_back_undoes_it(visitor: Visitor) -> None:
    page = visitor.open(SMALL)
    before = page.url, page.input_value("#c-tensor_par"), page.inner_text("#main")
    page.fill("#c-tensor_par", "4")
    settled(page)
    assert "tensor_par=4" in page.url
    assert page.inner_text("#main") != before[2]
    assert page.evaluate("document.activeElement.id") == "c-tensor_par"
    page.go_back()
    settled(page)
    assert (page.url, page.input_value("#c-tensor_par"), page.inner_text("#main")) == before
