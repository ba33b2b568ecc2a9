"""The view of the pipeline, as people go through it."""

from collections.abc import Callable

from playwright.sync_api import Page

from tests.apps.explore.browsing import Visitor, resized, settled, wider_than_screen

STAGES = 4
STATE = {
    "model": "llama3-8B",
    "system": "h100_80g_sxm",
    "procs": 64,
    "batch": 256,
    "tensor_par": 2,
    "pipeline_par": STAGES,
    "microbatch_size": 1,
    "pipeline_interleaving": 1,
    "view": "pipeline",
}


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
    page = visitor.open(STATE)
    assert "Stage 0: forward, microbatch 1" in _pointed(page, "schedule", 0.01, 0.5 / STAGES)
    for stage in (1, 2):
        told = _pointed(page, "schedule", 0.5, (stage + 0.5) / STAGES)
        assert told.startswith(f"Stage {stage}: ")
        page.mouse.down()
        page.mouse.up()
        page.wait_for_url(f"**stage={stage}&**")
        settled(page)
        assert page.inner_text("#part-stage h2") == f"Stage {stage}"
    page.click("#part-stages a >> nth=0")
    settled(page)
    assert page.inner_text("#part-stage h2") == "Stage 0"
    _pointed(page, "block", 0.01, 0.1)
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url("**operator=**")
    settled(page)
    first = page.text_content("#part-block tbody tr >> nth=0 >> th")
    second = page.text_content("#part-block tbody tr >> nth=1 >> th")
    assert page.inner_text("#part-operator h2") in (f"Operator {first}", f"Operator {second}")


def test_the_number_of_microbatches_is_an_address(visitor: Visitor) -> None:
    page = visitor.open(STATE, charts=False)
    batch = STATE["batch"] // (STATE["procs"] // (STATE["tensor_par"] * STAGES))
    page.fill("#c-microbatches", str(batch))
    page.press("#c-microbatches", "Enter")
    page.wait_for_url(f"**microbatches={batch}**")
    settled(page)
    assert f"{batch} of {batch} microbatches" in page.inner_text("#part-schedule")


def test_nothing_of_the_pipeline_is_wider_than_the_screen(
    visitor: Visitor, picture: Callable[[Page, str], None]
) -> None:
    page = visitor.open(STATE)
    for width, dark in ((1280, False), (390, False), (390, True), (1280, True)):
        resized(page, width, dark=dark)
        picture(page, f"pipeline-{width}{'-dark' if dark else ''}")
        assert not wider_than_screen(page)
