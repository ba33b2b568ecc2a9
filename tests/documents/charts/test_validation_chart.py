"""Predicted against measured: points are the pairs, and axes suit them."""

from dataclasses import replace

import pytest

from calculon.documents.charts.validation_chart import Pairs, validation_chart
from calculon.render.chart import Area, Line
from tests.cases import for_each
from tests.documents.charts.reading import assert_in_sight, legend, marks, notes, tick_texts

SCORE = {"n": 2, "mean": 15.0, "bias": 0.0}
PAIRS = Pairs("study", "time", "s", [0.05, 2.0], [0.06, 1.8], SCORE)


def test_points_are_measured_and_predicted():
    chart = validation_chart([PAIRS] * 6, "corrected")
    assert_in_sight(chart)
    assert chart.heading == ["Predicted and measured", "edition corrected"]
    assert [len(row) for row in chart.rows] == [4, 2]
    assert legend(chart) == ["within 10 %", "predicted = measured", "an execution"]
    panel = chart.panels[0]
    assert panel.title == "study, n = 2\nmean error 15.0 %, bias +0.0 %"
    assert panel.x.limits == panel.y.limits
    assert [one.y.text for one in chart.rows[0]] == ["Predicted", "", "", ""]
    assert [one.x.text for one in chart.rows[0]] == ["", "", *["Measured time (s)"] * 2]
    (band,) = marks(panel, Area)
    assert [low / x for low, x in zip(band.low, band.x, strict=True)] == pytest.approx([0.9] * 2)
    dots = marks(panel, Line)[-1]
    assert (dots.x, dots.y) == ([0.05, 2.0], [0.06, 1.8])


@for_each(
    ("unit", "measured", "shown", "scale"),
    [
        ("s", [0.01, 0.0501], ("ms", [10.0, 50.1]), "log"),
        ("s", [0.021, 0.1], ("s", [0.021, 0.1]), "linear"),
        ("s", [1.0, 5.1], ("s", [1.0, 5.1]), "log"),
        ("s", [1.0, 4.9], ("s", [1.0, 4.9]), "linear"),
        ("B", [3e9, 6e9], ("GB", [3.0, 6.0]), "linear"),
    ],
)
def test_units_and_scales_suit_the_values(unit, measured, shown, scale):
    pairs = replace(PAIRS, unit=unit, measured=measured, estimated=measured)
    chart = validation_chart([pairs])
    assert_in_sight(chart)
    (panel,) = chart.panels
    dots = marks(panel, Line)[-1]
    assert (panel.x.unit, list(dots.x)) == (shown[0], pytest.approx(shown[1]))
    assert panel.x.scale == panel.y.scale == scale


def test_few_named_rows_are_drawn_one_below_the_other():
    pairs = replace(PAIRS, measured=[1.0, 2.0], estimated=[1.2, 1.8], labels=["one", "two"])
    chart = validation_chart([pairs], "corrected")
    assert_in_sight(chart)
    assert chart.title == "study: mean error 15.0 %"
    (panel,) = chart.panels
    assert tick_texts(panel.y) == ["one", "two"]
    assert notes(panel) == ["+20.0 %", "\N{MINUS SIGN}10.0 %"]
    assert panel.x.text == "Time (ms)"
    assert list(marks(panel, Line, "measured")[0].x) == [1000.0, 2000.0]
    longer = validation_chart([replace(pairs, measured=[1.0, 20.0])])
    assert_in_sight(longer)
    assert longer.panels[0].x.text == "Time (s)"
    alone = replace(pairs, measured=[1.0], estimated=[1.2], labels=["one"])
    assert validation_chart([alone]).title == "Predicted and measured"
