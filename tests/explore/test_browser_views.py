"""The views as people go through them in a browser: one path through each, the keyboard, and what can be taken along.

Widths of screens, drags and charts in detail are in ``test_browser_screens.py``.
"""

import json
import xml.etree.ElementTree as Tree
from pathlib import Path
from random import Random

import pytest
from playwright.sync_api import Page

from tests.explore.browsing import (
    MACHINE,
    NUMBER,
    PIPELINE,
    SEARCH,
    SMALL,
    STAGES,
    Visitor,
    entered,
    resized,
    settled,
    wider_than_screen,
)

RANGE = "#slider-1-range"

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def charts(windows: Visitor) -> Page:
    """A page with its charts, which stays."""
    windows.errors.clear()
    page = windows.open(SMALL, window="charts")
    assert not windows.errors, "\n".join(windows.errors)
    return page


@pytest.fixture
def drawn(charts: Page, visitor: Visitor) -> Page:
    """The same, for tests that only look at it."""
    return charts


# -- the plan ----------------------------------------------------------------------------------------------------------


def test_a_change_of_a_degree_is_an_address_and_back_undoes_it(visitor: Visitor) -> None:
    page = visitor.open(SMALL, later=False)
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


@pytest.mark.large
def test_a_step_of_a_degree_takes_along_what_has_to_follow(visitor: Visitor) -> None:
    own = {"tensor_par": 1, "pipeline_par": 4, "microbatch_size": 1, "pipeline_interleaving": 3}
    page = visitor.open({**SMALL, **own}, later=False)  # 12 blocks on 4 stages
    page.click("#more-pipeline_par")
    settled(page)
    assert page.input_value("#c-pipeline_par") == "8"
    assert page.input_value("#c-pipeline_interleaving") == "1"
    assert "Chunks per stage 3 → 1" in page.inner_text("#note")
    assert "pipeline_interleaving=1" in page.url


# -- the search --------------------------------------------------------------------------------------------------------


def test_a_row_takes_its_plan_over_and_back_undoes_it(visitor: Visitor) -> None:
    page = visitor.open(SEARCH, later=False)
    before = page.url
    plan = page.locator("#part-search-plans a[data-key]").nth(1)
    name = plan.get_attribute("data-key") or ""
    plan.click()
    settled(page)
    tensor_par, pipeline_par = name.split(".")
    assert f"tensor_par={tensor_par}" in page.url
    assert f"pipeline_par={pipeline_par}" in page.url
    assert page.locator("tr.selected a").first.get_attribute("data-key") == name
    assert page.input_value("#c-tensor_par") == tensor_par
    page.go_back()
    settled(page)
    assert page.url == before


# -- the machine -------------------------------------------------------------------------------------------------------


def test_a_slider_follows_the_keyboard_and_keeps_the_focus(visitor: Visitor) -> None:
    page = visitor.open(MACHINE, later=False)
    stops = page.evaluate(
        f"JSON.parse(document.querySelector('{RANGE}').dataset.stops).map(Number)"
    )
    page.focus(RANGE)
    page.keyboard.press("ArrowRight")
    settled(page)
    value = stops[stops.index(80) + 1]
    assert page.input_value(NUMBER) == f"{value:g}"
    assert f"system.mem1.GiB={value:g}" in page.url
    assert page.evaluate("document.activeElement.id") == RANGE[1:]
    assert page.get_attribute(RANGE, "aria-valuetext") == f"{value:g} GiB"
    page.fill(NUMBER, "")
    page.keyboard.press("Tab")
    settled(page)
    assert "system." not in page.url
    assert page.input_value(NUMBER) == "80"


# -- the pipeline ------------------------------------------------------------------------------------------------------


def _pointed(page: Page, part: str, across: float, down: float) -> str:
    """Point to a place of a chart in shares of its axes, and return what it says of it."""
    page.locator(f"#part-{part} .chart").scroll_into_view_if_needed()
    box = page.locator(f"#part-{part} .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])
    page.wait_for_selector(f"#part-{part} .hovertext")
    return page.text_content(f"#part-{part} .hovertext") or ""


def test_a_row_of_the_schedule_leads_to_its_stage_and_a_bar_to_its_operator(
    visitor: Visitor,
) -> None:
    page = visitor.open(PIPELINE)
    assert "Stage 0: forward, microbatch 1" in _pointed(page, "schedule", 0.01, 0.5 / STAGES)
    assert _pointed(page, "schedule", 0.5, 2.5 / STAGES).startswith("Stage 2: ")
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url("**stage=2&**")
    settled(page)
    assert page.inner_text("#part-stage h2") == "Stage 2"
    _pointed(page, "block", 0.01, 0.1)
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url("**operator=**")
    settled(page)
    first = page.text_content("#part-block tbody tr >> nth=0 >> th")
    second = page.text_content("#part-block tbody tr >> nth=1 >> th")
    assert page.inner_text("#part-operator h2") in (f"Operator {first}", f"Operator {second}")


def test_the_keyboard_goes_from_bar_to_bar_and_follows_one(visitor: Visitor) -> None:
    page = visitor.open(SMALL)
    page.focus("#part-time .chart")
    page.keyboard.press("ArrowDown")
    first = page.inner_text("#status")
    assert "computation" in first
    page.wait_for_selector("#part-time .hovertext")
    page.keyboard.press("End")
    assert page.inner_text("#status") != first
    page.keyboard.press("Home")
    assert page.inner_text("#status") == first
    page.keyboard.press("Enter")
    page.wait_for_url("**view=pipeline**")
    settled(page)
    assert page.evaluate("document.activeElement.id") == "part-block"
    assert page.locator("#part-block").bounding_box()["y"] < 100


# -- serving -----------------------------------------------------------------------------------------------------------


def test_a_deployment_is_an_address_and_back_undoes_it(visitor: Visitor) -> None:
    page = visitor.open({**SMALL, "procs": 4, "workload": "summary", "view": "serving"})
    before = page.url, page.inner_text("#part-served")
    page.select_option("[id='c-deployment.tensor_par']", "4")
    settled(page)
    assert "deployment.tensor_par=4" in page.url
    assert "1 replica of TP 4" in page.inner_text("#part-served")
    page.focus("#part-serving-frontier .chart")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    page.wait_for_url("**deployment.max_batch**")
    settled(page)
    entered(page, "[id='c-workload.prompt']", "many")
    assert "Prompt tokens: expected" in page.inner_text("#message")
    page.go_back()
    page.go_back()
    settled(page)
    assert (page.url, page.inner_text("#part-served")) == before


# -- the page as a whole -----------------------------------------------------------------------------------------------


def focused(page: Page) -> str:
    return page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")


def test_the_keyboard_reaches_everything_in_the_order_of_the_page(visitor: Visitor) -> None:
    page = visitor.open(SMALL, later=False)
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the results"
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(focused(page))
    assert reached[:5] == ["Plan", "Search", "Machine", "Pipeline", "Serving"]
    assert "Copy link" in reached
    assert reached.index("c-model") < reached.index("c-system") < reached.index("c-procs")
    page.focus(".skip")
    page.keyboard.press("Enter")
    assert focused(page) == "main"
    assert page.url.endswith("#main")
    page.focus("#views a:nth-of-type(2)")
    page.keyboard.press("Enter")
    settled(page)
    assert "view=search" in page.url
    assert focused(page) == "Search"
    assert page.get_attribute("#views a:nth-of-type(2)", "aria-current") == "page"


def test_what_is_refused_is_said_and_the_page_stays(visitor: Visitor) -> None:
    page = visitor.open(SMALL, later=False)
    before, address = page.inner_text("#main"), page.url
    entered(page, "#c-procs", "many")
    assert "Processors" in page.inner_text("#message")
    assert page.get_attribute("#c-procs", "aria-invalid") == "true"
    assert (page.inner_text("#main"), page.url, focused(page)) == (before, address, "c-procs")
    page.keyboard.press("Escape")
    settled(page)
    assert page.input_value("#c-procs") == "8"
    assert not page.inner_text("#message")
    assert page.get_attribute("#c-procs", "aria-invalid") is None


def test_the_newest_of_many_changes_counts(visitor: Visitor) -> None:
    page = visitor.open(SMALL, later=False)
    page.evaluate(
        """() => {
          const control = document.getElementById("c-preset");
          for (const name of ["torchtitan", "deepspeed", "torchtitan", "llm-foundry"]) {
            control.value = name;
            control.dispatchEvent(new Event("change", { bubbles: true }));
          }
        }"""
    )
    settled(page)
    assert "preset=llm-foundry" in page.url
    assert page.input_value("#c-preset") == "llm-foundry"


@pytest.mark.large
def test_on_a_phone_the_controls_unfold(visitor: Visitor) -> None:
    page = visitor.open(SMALL, later=False)
    page.emulate_media(reduced_motion="reduce")
    for width in (390, 320):
        resized(page, width)
        assert not page.is_visible("#c-model")
        page.click("text=Question and plan")
        assert page.is_visible("#c-model")
        assert page.get_attribute(".fold", "aria-expanded") == "true"
        assert not wider_than_screen(page)
        page.click("text=Question and plan")
        assert not page.is_visible("#c-model")
    moves = "getComputedStyle(document.querySelector('.part')).transitionDuration"
    assert page.evaluate(moves) == "0s"
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(moves) != "0s"


def test_no_button_of_a_chart_sends_it_anywhere(drawn: Page) -> None:
    buttons = drawn.locator(".modebar-btn").evaluate_all(
        "all => all.map((one) => one.dataset.title)"
    )
    assert {"Zoom in", "Reset axes"} <= {*buttons}
    assert not [one for one in buttons if "share" in one.lower() or "cloud" in one.lower()]


def test_screen_readers_find_names_and_what_charts_show(drawn: Page) -> None:
    page = drawn
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input:not([type=hidden]), select, button, a[href], [role=img]")]
          .filter((one) => one.checkVisibility() && !one.closest(".modebar"))
          .filter((one) => !(one.labels?.length || one.getAttribute("aria-label") || one.textContent.trim()))
          .map((one) => one.outerHTML.slice(0, 200))"""
    )
    assert not nameless
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    own = [
        one for one in ids if not one.startswith(("clip", "legend", "topdefs", "defs", "modebar"))
    ]
    assert len(own) == len(set(own))
    assert page.locator("main h2").count() >= 1
    assert page.locator("h1").count() == 1
    page.emulate_media(media="print")
    assert not page.is_visible("#c-model")
    assert page.is_visible("main h2")
    page.emulate_media(media="screen")


def tree(draw: Random, depth: int = 2) -> str:
    """Return some HTML, in which no name comes twice."""
    names = draw.sample("abcdefgh", 8)
    lines = []
    for _ in range(draw.randrange(5)):
        name = f' id="{names.pop()}{depth}{draw.random()}"' if draw.random() < 0.2 else ""
        name = name or (f' id="{names.pop()}{depth}"' if draw.random() < 0.6 and depth == 2 else "")
        tag = draw.choice(["p", "div", "section"])
        inside = tree(draw, depth - 1) if depth else draw.choice(["", "some", "other words"])
        lines.append(f'<{tag}{name} class="{draw.choice("xyz")}">{inside}</{tag}>')
    return draw.choice(["", "words "]).join(lines)


def test_old_parts_become_equal_to_fresh_ones_and_keep_what_has_a_name(visitor: Visitor) -> None:
    page = visitor.open(SMALL, later=False)
    draw = Random(0)
    pairs = [(tree(draw), tree(draw)) for _ in range(200)]
    failed = page.evaluate(
        """async (pairs) => {
          const { fill, parsed } = await import("/assets/morph.js");
          return pairs.filter(([before, after]) => {
            const place = document.createElement("section");
            place.append(parsed(before));
            const named = new Map([...place.children].filter((one) => one.id).map((one) => [one.id, one]));
            fill(place, after);
            const wanted = document.createElement("section");
            wanted.append(parsed(after));
            const kept = [...place.children].every((one) => {
              const old = named.get(one.id);
              return !old || old === one || old.tagName !== one.tagName;
            });
            return place.innerHTML !== wanted.innerHTML || !kept;
          });
        }""",
        pairs,
    )
    assert not failed


# -- what can be taken along -------------------------------------------------------------------------------------------


def saved(page: Page, selector: str) -> tuple[str, bytes]:
    """Return name and content of what a click saves."""
    with page.expect_download() as download:
        page.click(selector)
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_a_page_gives_pictures_files_and_commands(drawn: Page) -> None:
    page = drawn
    name, picture = saved(page, "button[data-picture=png] >> nth=0")
    assert name.startswith("gpt2-124M")
    assert picture.startswith(PNG)
    _, curves = saved(page, "button[data-picture=svg] >> nth=0")
    assert Tree.fromstring(curves).tag.endswith("svg")
    name, text = saved(page, '#part-take a[href^="/export/execution.json"]')
    stated = json.loads(text)
    degrees = "t{tensor_par}_p{pipeline_par}_d{data_par}_mbs{microbatch_size}".format(**stated)
    assert name == f"gpt2-124M_a100_80g_sxm_8_{degrees}_execution.json"
    page.click("#part-take summary")
    shown = page.inner_text("#part-take pre >> nth=0")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#part-take button[data-copy] >> nth=0")
    page.wait_for_function("() => document.getElementById('status').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") == shown
    assert shown.startswith("calculon plan gpt2-124M 8 ")
