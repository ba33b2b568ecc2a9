"""Charts of frontiers of served models: lines and labels are the deployments of the document."""

import pytest

from calculon.documents.charts.serving_frontier_chart import serving_frontier
from calculon.documents.served_frontier import frontier_of
from calculon.documents.serving_frontier_page import serving_frontier_page
from calculon.render.chart import Line, Notes, Rule
from tests.documents.charts.reading import assert_in_sight, legend, marks
from tests.documents.drawing import drawn

LOAD = {"prompt": 1000, "output": 200, "tpot_limit": 0.02}


@pytest.fixture(scope="module")
def frontier():
    fix = {"token_budget": 2048, "pipeline_par": 1}
    return frontier_of("llama3-8B", 4, ["h100_80g_sxm", "a100_80g_sxm"], LOAD, {}, fix)


def test_the_frontier_of_each_machine_is_a_line(frontier):
    chart = serving_frontier(frontier)
    assert_in_sight(chart)
    (panel,) = chart.panels
    lines = [(line.x, line.y) for line in marks(panel, Line) if line.dash == "solid"]
    rates = ("interactivity", "output_rate_per_proc")
    assert lines == [
        tuple([one[name] for one in curve["points"]] for name in rates)
        for curve in frontier["curves"]
    ]
    assert [one.at for one in marks(panel, Rule)] == [50.0]
    assert legend(chart) == ["TPOT 20 ms", "h100_80g_sxm", "a100_80g_sxm"]


def test_ends_have_a_mark_and_a_label(frontier):
    (panel,) = serving_frontier(frontier).panels
    (labels,) = marks(panel, Notes)
    places = {*zip(labels.x, labels.y, strict=True)}
    for curve in frontier["curves"]:
        (line,) = marks(panel, Line, curve["system"])
        for one in (curve["points"][0], curve["points"][-1]):
            place = one["interactivity"], one["output_rate_per_proc"]
            assert place in {*zip(line.x, line.y, strict=True)}
            assert place in places
    assert any(text.startswith("TP 4, B ") for text in labels.texts)


def test_a_curve_without_points_has_its_reason(frontier):
    none = {"system": "x", "points": [], "none": "none fits in memory"}
    document = frontier | {"curves": [*frontier["curves"], none]}
    assert "x: none fits in memory" in legend(serving_frontier(document))
    assert "x: none fits in memory." in drawn(serving_frontier_page(document))
