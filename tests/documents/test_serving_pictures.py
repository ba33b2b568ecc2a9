"""Pictures and tables of served models: what stands on the axes is what the data say."""

import pytest

from calculon.documents.serving_frontier_page import ServingFrontierPage
from calculon.documents.views.served_frontier import frontier_of

pytest.importorskip("matplotlib", reason="pictures need the extra plot")

from calculon.documents.pictures import serving_frontier
from tests.documents.drawing import assert_in_sight, drawn

LOAD = {"prompt": 1000, "output": 200}


@pytest.fixture(scope="module")
def frontier():
    fix = {"token_budget": 2048, "pipeline_par": 1}
    machines = ["h100_80g_sxm", "a100_80g_sxm"]
    return frontier_of("llama3-8B", 4, machines, LOAD | {"tpot_limit": 0.02}, {}, fix)


def test_the_frontier_of_each_machine_is_a_line(frontier):
    (axes,) = serving_frontier.draw(frontier).axes
    assert_in_sight(axes)
    drawn = {tuple(line.get_xdata()): line for line in axes.lines}
    for curve in frontier["curves"]:
        line = drawn[tuple(one["interactivity"] for one in curve["points"])]
        rates = [one["output_rate_per_proc"] for one in curve["points"]]
        assert list(line.get_ydata()) == rates
    labels = axes.get_legend_handles_labels()[1]
    assert labels == ["h100_80g_sxm", "a100_80g_sxm", "TPOT 20 ms"]


def test_no_label_covers_another(frontier):
    (axes,) = serving_frontier.draw(frontier).axes
    boxes = [one.get_window_extent() for one in axes.texts if ", B " in one.get_text()]
    assert len(boxes) >= 3
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_ends_have_a_mark_and_a_label_within_the_axes(frontier):
    (axes,) = serving_frontier.draw(frontier).axes
    marked = {
        place
        for line in axes.lines
        if line.get_linestyle() == "None"
        for place in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }
    labels = {one.xy: one.get_window_extent() for one in axes.texts if ", B " in one.get_text()}
    for curve in frontier["curves"]:
        for one in (curve["points"][0], curve["points"][-1]):
            place = one["interactivity"], one["output_rate_per_proc"]
            assert place in marked
            assert place in labels
    assert all(axes.bbox.x0 <= one.x0 and one.x1 <= axes.bbox.x1 for one in labels.values())


def test_a_curve_that_is_not_there_says_why(frontier):
    none = {"system": "x", "points": [], "none": "none has room"}
    document = frontier | {"curves": [*frontier["curves"], none]}
    (axes,) = serving_frontier.draw(document).axes
    assert "x: none has room" in axes.get_legend_handles_labels()[1]
    assert "x: none has room." in drawn(ServingFrontierPage(document))
