"""The view of a search, as people go through it."""

from collections.abc import Callable

from playwright.sync_api import Page

from tests.apps.explore.browsing import Visitor, resized, settled, wider_than_screen

SMALL = {"model": "gpt2-124M", "system": "a100_80g_sxm", "procs": 8, "view": "search"}


def test_plans_of_table_chart_and_map_are_taken_over_by_a_click(
    visitor: Visitor, picture: Callable[[Page, str], None]
) -> None:
    page = visitor.open(SMALL)
    for width, dark in ((390, False), (390, True), (1280, True), (1280, False)):
        resized(page, width, dark=dark)
        picture(page, f"search-{width}{'-dark' if dark else ''}")
        assert not wider_than_screen(page)
    page.locator("#part-search-splits .chart").scroll_into_view_if_needed()
    page.locator("#part-search-splits .nsewdrag").first.click()  # the cell in the middle
    settled(page)
    cell = page.url
    assert "tensor_par=" in cell
    assert page.locator("#part-search-plans tr.selected").count() == 1
    page.go_back()
    settled(page)
    row = page.locator("#part-search-plans tbody a >> nth=1")
    words = row.inner_text()
    row.click()
    settled(page)
    assert page.inner_text("#part-search-plans tr.selected a") == words
    assert "A plan of your own" in page.inner_text("#controls")


def test_conditions_are_kept_in_the_address_and_nonsense_is_refused(visitor: Visitor) -> None:
    page = visitor.open(SMALL, charts=False)
    page.fill("#s-where", "tensor_par >= 2")
    page.keyboard.press("Enter")
    settled(page)
    address, links = page.url, page.locator("#part-search-plans tbody a").all_inner_texts()
    assert "where=" in address
    assert links
    assert all(text.startswith("TP ") for text in links)
    page.fill("#s-objective", "happiness")
    page.keyboard.press("Enter")
    settled(page)
    assert "objective" in page.inner_text("#message, #main")
