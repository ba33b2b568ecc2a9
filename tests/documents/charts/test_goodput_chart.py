"""Charts of goodput over processors: curves, published runs and extrapolated sizes are those of the document."""

import pytest

import calculon
from calculon.advise.runs.goodput_by_size import goodput_by_size
from calculon.documents.charts.goodput_chart import goodput_curves
from calculon.render.chart import Line, Span
from tests.documents.charts.reading import assert_in_sight, legend, marks, notes

PLAN = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")


def document_of(procs, mtbf=None, **changes):
    run = calculon.campaign(*PLAN, tokens="1T", **changes)
    return goodput_by_size(run, procs, mtbf).to_dict()


@pytest.fixture(scope="module")
def by_size():
    return document_of("64:32768:x2", [20_000, 80_000], deadline="20d")


def test_curves_are_goodput_interruptions_and_checkpoints(by_size):
    chart = goodput_curves(by_size)
    assert_in_sight(chart)
    assert chart.panels[2].y.label.startswith("Best")
    factors = {"goodput": 100.0, "mtbf_hours": 1.0, "checkpoint_interval": 1 / 60}
    for panel, (name, factor) in zip(chart.panels, factors.items(), strict=True):
        for line, curve in zip(marks(panel, Line)[:2], by_size["curves"], strict=True):
            assert line.x == by_size["num_procs"]
            assert line.y == pytest.approx([factor * value for value in curve[name]])


def test_published_runs_of_these_sizes_have_marks(by_size):
    chart = goodput_curves(by_size)
    labels = [text.partition(" (recalled)")[0] for text in legend(chart)]
    first, last = by_size["num_procs"][0], by_size["num_procs"][-1]
    near = [first <= one["num_procs"] <= last for one in by_size["published"]]
    assert {*near} == {True, False}
    assert [one["run"] in labels for one in by_size["published"]] == near
    upper, middle, _ = chart.panels
    (known,) = [one for one in by_size["published"] if one["goodput"]]
    for panel, value in ((upper, 100 * known["goodput"]), (middle, known["mtbf_hours"])):
        points = [(line.x, line.y) for line in marks(panel, Line)]
        assert ([known["num_procs"]], [value]) in points
    assert notes(upper) == ["↑"]  # the published value is a lower bound


def test_sizes_without_measured_failures_are_gray(by_size):
    low, high = by_size["measured_num_procs"]
    for panel in goodput_curves(by_size).panels:
        left, right = panel.x.limits
        spans = [(one.low, one.high) for one in marks(panel, Span)]
        assert spans == [(left, low), (high, right)]


def test_says_that_the_interval_is_stated():
    stated = goodput_curves(document_of("64", checkpoints__interval="20min"))
    assert stated.panels[2].y.label.startswith("Stated")


def test_checkpoints_that_storage_limits_are_hollow():
    document = document_of("64:16384:x2", [50_000], checkpoints__bandwidth=0.1)
    pairs = zip(document["num_procs"], document["curves"][0]["storage_limits"], strict=True)
    chart = goodput_curves(document)
    hollow = [one for one in marks(chart.panels[2], Line) if one.hollow]
    assert hollow[0].x == [size for size, limited in pairs if limited]
    assert "limited by storage bandwidth" in legend(chart)


def test_a_run_that_never_fails_has_no_time_between_interruptions():
    chart = goodput_curves(document_of("64-256", reliability__mtbf_processor="never"))
    assert legend(chart)[1] == "no failures (campaign)"
    assert marks(chart.panels[1], Line, "no failures (campaign)")[0].y == []
