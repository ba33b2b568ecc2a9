"""The view of the machine, as people go through it: what would more memory buy?"""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.apps.explore.browsing import Visitor, resized, settled, wider_than_screen

SMALL = {"model": "gpt3-13B", "system": "a100_80g_sxm", "procs": 64, "view": "machine"}
RANGE, NUMBER = "#knob-1-range", "#knob-1-value"


def test_what_would_more_memory_buy_is_answered_by_a_click(visitor: Visitor) -> None:
    page = visitor.open(SMALL, charts=False)
    first = page.url, page.inner_text("#reading")
    page.click("text=of memory buy?")
    settled(page)
    assert "system.mem1.GiB=120" in page.url
    assert page.input_value(NUMBER) == "120"
    assert "with the same plan" in page.inner_text("#reading").lower()
    assert "The best plan of this machine takes" in page.inner_text("#part-machine-best")
    assert "now" in page.inner_text("#part-machine-capacity tr.now")
    page.click("#knob-1 >> text=reset")
    settled(page)
    assert (page.url, page.inner_text("#reading")) == first


def test_a_slider_follows_the_keyboard_and_keeps_the_focus(visitor: Visitor) -> None:
    page = visitor.open(SMALL, charts=False)
    stops = page.evaluate(
        f"JSON.parse(document.querySelector('{RANGE}').dataset.stops).map(Number)"
    )
    page.focus(RANGE)
    for _ in range(2):
        page.keyboard.press("ArrowRight")
        settled(page)
    value = stops[stops.index(80) + 2]
    assert page.input_value(NUMBER) == f"{value:g}"
    assert f"system.mem1.GiB={value:g}" in page.url
    assert page.evaluate("document.activeElement.id") == RANGE[1:]
    assert page.get_attribute(RANGE, "aria-valuetext") == f"{value:g} GiB"
    page.fill(NUMBER, "")
    page.keyboard.press("Tab")
    settled(page)
    assert "system." not in page.url
    assert page.input_value(NUMBER) == "80"


@pytest.mark.parametrize("plan", [{}, {"tensor_par": 4, "pipeline_par": 2, "microbatch_size": 1}])
def test_a_drag_shows_numbers_on_its_way_and_is_one_entry_of_the_history(
    visitor: Visitor, plan: dict[str, int]
) -> None:
    page = visitor.open({**SMALL, **plan}, charts=False)
    address, before = page.url, page.inner_text("#reading")
    box = page.locator("#knob-3-range").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.4 * box["width"], middle)
    page.mouse.down()
    for step in range(20):
        page.mouse.move(box["x"] + (0.4 + 0.02 * step) * box["width"], middle)
    page.wait_for_function("before => reading.innerText !== before", arg=before)
    page.mouse.move(box["x"] + 0.9 * box["width"], middle)
    page.mouse.up()
    settled(page)
    stops = page.evaluate(
        "JSON.parse(document.querySelector('#knob-3-range').dataset.stops).map(Number)"
    )
    shown = float(page.input_value("#knob-3-value"))
    assert shown == stops[int(page.input_value("#knob-3-range"))]
    assert f"system.matrix.bfloat16.tflops={shown:g}" in page.url
    page.go_back()
    settled(page)
    assert page.url == address


def test_the_view_of_the_machine_fits_every_screen(
    visitor: Visitor, picture: Callable[[Page, str], None]
) -> None:
    page = visitor.open({**SMALL, "system.mem1.GiB": 40, "figures": "launch"})
    for width, dark in ((1280, False), (390, False), (390, True), (1280, True)):
        resized(page, width, dark=dark)
        picture(page, f"machine-{width}{'-dark' if dark else ''}")
        assert not wider_than_screen(page)


def test_other_figures_are_found_by_a_word(visitor: Visitor) -> None:
    page = visitor.open(SMALL, charts=False)
    page.click("#other-figures summary")
    page.fill("#figures-filter", "kernel launch")
    page.keyboard.press("Enter")
    settled(page)
    assert page.locator("#other-figures tbody tr").count() > 0
    field = "[name='system.ext.launch.kernel.us']"
    assert float(page.input_value(field)) > 0
    page.fill(field, "10")
    settled(page)
    assert "system.ext.launch.kernel=1e-05" in page.url
    assert page.locator("#part-machine .changed-machine").count() == 1
