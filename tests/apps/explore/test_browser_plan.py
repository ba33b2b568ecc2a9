"""The view of a plan, as people go through it."""

from collections.abc import Callable

import pytest
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
    page.focus("#c-tensor_par")
    page.select_option("#c-tensor_par", "4")
    settled(page)
    assert "tensor_par=4" in page.url
    assert page.inner_text("#main") != before[2]
    assert page.evaluate("document.activeElement.id") == "c-tensor_par"
    page.go_back()
    settled(page)
    assert (page.url, page.input_value("#c-tensor_par"), page.inner_text("#main")) == before


def test_a_step_of_a_degree_takes_along_what_has_to_follow(visitor: Visitor) -> None:
    own = {"tensor_par": 1, "pipeline_par": 4, "microbatch_size": 1, "pipeline_interleaving": 3}
    page = visitor.open({**SMALL, **own})  # 12 blocks on 4 stages
    page.click("#less-pipeline_par")
    settled(page)
    assert page.input_value("#c-pipeline_par") == "2"
    assert page.input_value("#c-pipeline_interleaving") == "3"
    page.click("#more-pipeline_par")
    settled(page)
    page.click("#more-pipeline_par")
    settled(page)
    assert page.input_value("#c-pipeline_par") == "8"
    assert page.input_value("#c-pipeline_interleaving") == "1"
    assert "Chunks per stage 3 → 1" in page.inner_text("#told")
    assert "pipeline_interleaving=1" in page.url


def test_values_say_what_they_would_do_before_they_are_chosen(visitor: Visitor) -> None:
    page = visitor.open(SMALL)
    options = page.locator("#c-tensor_par option").all_inner_texts()
    told = [text for text in options if "·" in text]
    assert len(told) == len(options) - 1  # all but the value of now
    assert all(text.endswith(("%", "too much")) for text in told)
    words, _, effect = told[-1].partition(" · ")
    time = page.evaluate("document.querySelector('.figures strong').textContent")
    page.select_option("#c-tensor_par", words)
    settled(page)
    assert page.inner_text(".figures > div:last-child strong").startswith(effect.split(".")[0][:2])
    assert page.inner_text(".figures strong >> nth=0") != time
    assert page.input_value("#c-tensor_par") == words


def test_a_button_mends_a_plan_that_cannot_run(visitor: Visitor) -> None:
    own = {"tensor_par": 2, "pipeline_par": 4, "microbatch_size": 1, "pipeline_interleaving": 1}
    asked = {"model": "llama3-70B", "system": "h100_80g_sxm", "procs": 64}
    page = visitor.open({**asked, **own})
    assert "too small" in page.inner_text("#part-problem")
    page.click("#part-mend a.button >> nth=0")
    settled(page)
    assert not page.query_selector("#part-problem")
    assert page.query_selector("#part-figures strong")


@pytest.mark.parametrize("width", [1280, 390])
def test_what_each_change_towards_the_best_saves_is_in_sight(visitor: Visitor, width: int) -> None:
    own = {"tensor_par": 4, "pipeline_par": 2, "microbatch_size": 1, "pipeline_interleaving": 1}
    page = resized(visitor.open({**SMALL, **own}, charts=False), width)
    rows = page.locator("#part-against tbody tr")
    assert rows.count()
    for cell in rows.locator(".mostly").all():
        assert cell.inner_text().strip()
        assert cell.bounding_box()["x"] + cell.bounding_box()["width"] <= width


@pytest.mark.parametrize("width", [1280, 390])
def test_a_change_stays_under_the_finger_with_its_answer_in_sight(
    visitor: Visitor, width: int
) -> None:
    own = {"tensor_par": 4, "pipeline_par": 2, "microbatch_size": 1, "pipeline_interleaving": 1}
    page = resized(visitor.open({**SMALL, **own}), width)
    chip = page.locator("#chip-tensor_par-2")
    chip.scroll_into_view_if_needed()
    before = chip.bounding_box()["y"]
    chip.focus()
    page.keyboard.press("Enter")
    settled(page)
    assert "tensor_par=2" in page.url
    assert abs(chip.bounding_box()["y"] - before) <= 2
    assert page.evaluate("document.activeElement.id") == "chip-tensor_par-2"
    headline = page.inner_text("#part-figures strong >> nth=0")
    page.wait_for_selector("#answer", state="visible")
    assert headline in page.inner_text("#answer")
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_selector("#answer", state="hidden")


def test_one_change_towards_the_best_is_taken_over_alone(visitor: Visitor) -> None:
    own = {"tensor_par": 4, "pipeline_par": 1, "microbatch_size": 1, "pipeline_interleaving": 1}
    page = visitor.open({**SMALL, **own, "activation_recompute": "full"})
    before = page.url
    page.click("#part-against table a.button >> nth=0")
    settled(page)
    assert page.url != before
    page.click("#part-against p a.button")
    settled(page)
    assert "tensor_par" not in page.url
    assert "The best plan" in page.inner_text("#part-figures")
