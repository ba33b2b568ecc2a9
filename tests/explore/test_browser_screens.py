"""What is looked at at night in a browser: widths of screens, drags, phones, and further paths through the views."""

import pytest

from tests.explore.browsing import (
    MACHINE,
    PIPELINE,
    SEARCH,
    SMALL,
    Visitor,
    entered,
    resized,
    settled,
    wider_than_screen,
)

pytestmark = pytest.mark.large


# -- the plan ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state",
    [
        SMALL,
        {**SEARCH, "counts": "4,8,16", "open": "zero_stage"},
        {**MACHINE, "system.mem1.GiB": 40, "figures": "launch"},
        PIPELINE,
    ],
    ids=["plan", "search", "machine", "pipeline"],
)
def test_nothing_is_wider_than_the_screen(visitor: Visitor, state: dict[str, object]) -> None:
    page = visitor.open(state)
    for width, dark in ((1280, False), (390, False), (390, True), (1280, True)):
        resized(page, width, dark=dark)
        assert not wider_than_screen(page)


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


# -- the search --------------------------------------------------------------------------------------------------------


def test_what_is_pointed_at_is_marked_elsewhere_and_a_cell_takes_its_plan_over(
    visitor: Visitor,
) -> None:
    page = visitor.open(SEARCH)
    plan = page.locator("#part-search-plans a[data-key]").nth(1)
    plan.locator("xpath=ancestor::tr").locator("td").last.hover()
    assert "marked" in (plan.get_attribute("class") or "")
    page.locator("h1").hover()
    assert "marked" not in (plan.get_attribute("class") or "")
    cells = page.locator("#part-search-splits .nsewdrag")
    cells.scroll_into_view_if_needed()
    cells.click()  # in the middle
    settled(page)
    assert "tensor_par=" in page.url


@pytest.mark.parametrize("width", [1280, 390])
def test_plans_show_their_times_at_once_and_tables_say_where_they_go_on(
    visitor: Visitor, width: int
) -> None:
    page = resized(visitor.open(SEARCH, charts=False), width)
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
    page = resized(visitor.open(SEARCH, charts=False), width)
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
    entered(page, "#s-where", "TP <= 2 and memory < 1")
    assert "write 1 GiB" in page.inner_text("#message")
    assert "Only plans with" in page.inner_text("#message")
    place = page.locator("#message").bounding_box()
    assert 0 <= place["y"] < page.viewport_size["height"] - place["height"]
    entered(page, "#s-where", "TP <= 2 and GiB < 70")
    assert not page.inner_text("#message")
    plans = page.locator("#part-search-plans a[data-key]").all()
    names = [plan.get_attribute("data-key") or "" for plan in plans]
    assert names
    assert all(int(name.split(".")[0]) <= 2 for name in names)


# -- the machine -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [{}, {"tensor_par": 4, "pipeline_par": 2, "microbatch_size": 1}])
def test_a_drag_shows_numbers_on_its_way_and_is_one_entry_of_the_history(
    visitor: Visitor, plan: dict[str, int]
) -> None:
    page = visitor.open({**MACHINE, **plan}, charts=False)
    address, before = page.url, page.inner_text("#reading")
    box = page.locator("#slider-3-range").bounding_box()
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
        "JSON.parse(document.querySelector('#slider-3-range').dataset.stops).map(Number)"
    )
    shown = float(page.input_value("#slider-3-value"))
    assert shown == stops[int(page.input_value("#slider-3-range"))]
    assert f"system.matrix.bfloat16.tflops={shown:g}" in page.url
    page.go_back()
    settled(page)
    assert page.url == address
