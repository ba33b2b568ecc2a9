"""The view of the search, as people go through it."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.apps.explore.browsing import Visitor, resized, settled, wider_than_screen

SMALL = {"model": "gpt2-124M", "system": "a100_80g_sxm", "procs": 8, "view": "search"}


def test_a_row_takes_its_plan_over_and_back_undoes_it(visitor: Visitor) -> None:
    page = visitor.open(SMALL, charts=False)
    before = page.url
    row = page.locator("tr[data-key]").nth(1)
    name = row.get_attribute("data-key") or ""
    row.locator("a").click()
    settled(page)
    tensor_par, pipeline_par = name.split(".")
    assert f"tensor_par={tensor_par}" in page.url
    assert f"pipeline_par={pipeline_par}" in page.url
    assert page.locator("tr.selected").first.get_attribute("data-key") == name
    assert page.input_value("#c-tensor_par") == tensor_par
    page.go_back()
    settled(page)
    assert page.url == before


def test_what_is_pointed_at_is_marked_elsewhere_and_a_cell_takes_its_plan_over(
    visitor: Visitor,
) -> None:
    page = visitor.open(SMALL)
    row = page.locator("tr[data-key]").nth(1)
    row.hover()
    assert "marked" in (row.get_attribute("class") or "")
    page.locator("h1").hover()
    assert "marked" not in (row.get_attribute("class") or "")
    cells = page.locator("#part-search-splits .nsewdrag")
    cells.scroll_into_view_if_needed()
    cells.click()  # in the middle
    settled(page)
    assert "tensor_par=" in page.url


def test_conditions_and_opened_switches_are_said_and_taken_back(visitor: Visitor) -> None:
    page = visitor.open(SMALL, charts=False)
    first = page.inner_text("#part-search-best summary")
    page.fill("#s-where", "tensor_par <= 2")
    page.press("#s-where", "Enter")
    settled(page)
    assert "where=tensor_par" in page.url
    names = [row.get_attribute("data-key") or "" for row in page.locator("tr[data-key]").all()]
    assert names
    assert all(int(name.split(".")[0]) <= 2 for name in names)
    page.fill("#s-where", "")
    page.press("#s-where", "Enter")
    settled(page)
    assert "where=" not in page.url
    page.click("text=Try more values of these fields")
    page.click("#s-open-zero_stage")
    settled(page)
    assert "open=zero_stage" in page.url
    more = page.inner_text("#part-search-best summary")
    assert _tried(more) > _tried(first)
    page.click("#s-open-zero_stage")
    settled(page)
    assert "open=" not in page.url


def test_nothing_of_it_is_wider_than_the_screen(
    visitor: Visitor, picture: Callable[[Page, str], None]
) -> None:
    page = visitor.open({**SMALL, "counts": "4,8,16", "open": "zero_stage"})
    for width, dark in ((1280, False), (390, True)):
        resized(page, width, dark=dark)
        picture(page, f"search-{width}{'-dark' if dark else ''}")
        assert not wider_than_screen(page)


@pytest.mark.parametrize("width", [1280, 390])
def test_plans_show_their_times_at_once_and_tables_say_where_they_go_on(
    visitor: Visitor, width: int
) -> None:
    page = resized(visitor.open(SMALL, charts=False), width)
    table = page.locator("#part-search-plans table").first
    names = table.locator("thead th").all_inner_texts()
    time = table.locator("tbody tr").first.locator("th, td").nth(names.index("time"))
    place = time.bounding_box()
    assert place["x"] + place["width"] <= width
    shadows = page.evaluate(
        """() => [...document.querySelectorAll("main table")]
          .filter((one) => one.scrollWidth > one.clientWidth)
          .map((one) => getComputedStyle(one).backgroundAttachment)"""
    )
    assert set(shadows) <= {"local, local, scroll, scroll"}
    assert width > 390 or shadows


@pytest.mark.parametrize("width", [1280, 390])
def test_fields_take_the_words_of_the_table_offer_them_and_say_what_is_wrong(
    visitor: Visitor, width: int
) -> None:
    page = resized(visitor.open(SMALL, charts=False), width)
    for name in ("where", "fix", "counts"):
        room = page.evaluate(
            """(id) => {
              const field = document.getElementById(id);
              const size = field.getBoundingClientRect().width;
              field.value = field.placeholder;
              const needed = field.scrollWidth;
              field.value = "";
              return size - needed;
            }""",
            f"s-{name}",
        )
        assert room >= 0
    offered = "document.getElementById('s-where').list.options"
    page.fill("#s-where", "TP <= 2 and mem")
    assert "TP <= 2 and memory" in page.evaluate(f"[...{offered}].map((one) => one.value)")
    page.fill("#s-where", "TP <= 2 and memory < 1")
    page.press("#s-where", "Enter")
    settled(page)
    assert "write 1 GiB" in page.inner_text("#message")
    assert "Only executions with" in page.inner_text("#message")
    place = page.locator("#message").bounding_box()
    assert 0 <= place["y"] < page.viewport_size["height"] - place["height"]
    page.fill("#s-where", "TP <= 2 and GiB < 70")
    page.press("#s-where", "Enter")
    settled(page)
    assert not page.inner_text("#message")
    names = [row.get_attribute("data-key") or "" for row in page.locator("tr[data-key]").all()]
    assert names
    assert all(int(name.split(".")[0]) <= 2 for name in names)


def _tried(words: str) -> int:
    return int(words.split(" ", maxsplit=1)[0].replace(",", ""))
