"""Pictures and tables of served models: what stands on the axes is what the data say."""

import numpy as np
import pytest

import calculon
from calculon.documents.serving_frontier_page import serving_frontier_page
from calculon.documents.views.served_frontier import frontier_of

pytest.importorskip("matplotlib", reason="pictures need the extra plot")

from calculon.documents.pictures import batch_curves, serving_frontier
from tests.documents.drawing import assert_in_sight, drawn, texts

LOAD = {"prompt": 1000, "output": 200}


@pytest.fixture(scope="module")
def document():
    served = calculon.serve("llama3-8B", 1, "h100", LOAD, tpot_limit=0.02, ttft_limit=1)
    return calculon.by_batch(served).to_dict()


def test_curves_are_those_of_the_data(document):
    upper, middle, lower = batch_curves.draw(document).axes
    columns = document["columns"]
    for axes, name, factor in (
        (upper, "tpot", 1e3),
        (middle, "output_rate_per_proc", 1.0),
        (lower, "ttft", 1e3),
    ):
        assert_in_sight(axes)
        lines = [one for one in axes.lines if len(one.get_xdata()) == len(columns["batch"])]
        assert len(lines) == 1
        assert list(lines[0].get_xdata()) == columns["batch"]
        assert lines[0].get_ydata() == pytest.approx(np.array(columns[name]) * factor)
        point = document["point"]
        marks = {(*one.get_xdata(), *one.get_ydata()) for one in axes.lines}
        assert (point["batch"], point[name] * factor) in marks


def test_bands_end_at_the_time_per_token(document):
    upper = batch_curves.draw(document).axes[0]
    tops = [band.get_paths()[0].vertices[:, 1].max() for band in upper.collections]
    assert tops[-1] == pytest.approx(1e3 * max(document["columns"]["tpot"]))
    assert tops == sorted(tops)
    labels = upper.get_legend_handles_labels()[1]
    assert {"reading weights", "prompts of other requests", "limit of the workload"} <= {*labels}


def test_bounds_stand_above_their_lines(document):
    upper = batch_curves.draw(document).axes[0]
    inside = {n: name for name, n in document["cuts"].items() if n <= upper.get_xlim()[1]}
    assert {"memory", "tpot"} <= {*inside.values()}
    assert len(texts(upper)) == len(inside)
    for n in inside:
        assert any(text.endswith(f": {n:,}") for text in texts(upper))
        assert any(list(one.get_xdata()) == [n, n] for one in upper.lines)


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
    assert "x: none has room." in drawn(serving_frontier_page(document))


def test_a_limit_that_every_batch_misses_is_told():
    served = calculon.serve("llama3-8B", 1, "h100", LOAD, tpot_limit=1e-4, ttft_limit=1)
    upper, _, lower = batch_curves.draw(calculon.by_batch(served).to_dict()).axes
    assert "TPOT limit of 0.1 ms: missed at every batch" in texts(upper)
    assert not any("missed" in text for text in texts(lower))
