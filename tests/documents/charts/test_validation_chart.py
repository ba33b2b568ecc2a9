"""Predicted and measured values, of studies and of calibrations."""

from dataclasses import replace

import pytest

from calculon.documents.charts import calibration_chart as calibration
from calculon.documents.charts.validation_chart import Pairs, Validation, validation
from calculon.render.chart import Area, Line
from tests.cases import for_each
from tests.documents.charts.reading import assert_in_sight, legend, marks, notes, tick_texts

SCORE = {"n": 2, "mean": 15.0, "bias": 5.0}
ROWS = Pairs("study", "time", "s", [1.0, 2.0], [1.2, 1.8], SCORE, ["one", "two"])


def test_points_are_measured_and_predicted():
    pairs = Pairs("study", "time", "s", [0.05, 2.0], [0.06, 1.8], SCORE)
    chart = validation(Validation([pairs], "corrected"))
    assert_in_sight(chart)
    (panel,) = chart.panels
    assert (panel.x.text, panel.y.text) == ("Measured", "Predicted")
    assert chart.heading == ["Predicted against measured", "edition corrected"]
    (points,) = marks(panel, Line, "an execution")
    assert (points.x, points.y) == ([0.05, 2.0], [0.06, 1.8])
    assert panel.title.endswith("mean error 15.0 %, bias +5.0 %")
    (band,) = marks(panel, Area, "within 10 %")
    edge = {round(y / x, 6) for y, x in zip((*band.low, *band.high), (*band.x, *band.x))}  # noqa: B905
    assert edge == {0.9, 1.1}


@pytest.mark.parametrize(("ratio", "scale"), [(4.99, "linear"), (5.01, "log")])
def test_wide_ranges_are_on_logarithmic_axes(ratio, scale):
    pairs = replace(ROWS, measured=[1.0, ratio], estimated=[1.0, ratio], labels=())
    (panel,) = validation(Validation([pairs])).panels
    assert (panel.x.scale, panel.y.scale) == (scale, scale)


def test_panels_have_as_few_rows_as_hold_them_all():
    rows = validation(Validation([ROWS] * 5)).rows
    assert [len(row) for row in rows] == [4, 1]
    texts = [[(panel.x.text, panel.y.text) for panel in row] for row in rows]
    assert texts[0] == [("", "Predicted"), *[("Measured", "")] * 3]
    assert texts[1] == [("Measured", "Predicted")]


def test_few_named_rows_are_drawn_one_below_the_other():
    chart = validation(Validation([ROWS], "corrected"))
    assert_in_sight(chart)
    (panel,) = chart.panels
    assert tick_texts(panel.y) == ["one", "two"]
    assert notes(panel) == ["+20.0 %", "\N{MINUS SIGN}10.0 %"]
    assert panel.x.text == "time (ms)"
    (measured,) = marks(panel, Line, "measured")
    assert list(measured.x) == [1000.0, 2000.0]
    (panel,) = validation(Validation([replace(ROWS, measured=[1.0, 20.0])])).panels
    assert (panel.x.text, panel.x.scale) == ("time (s)", "log")
    alone = Pairs("study", "time", "s", [1.0], [1.2], SCORE, ["one"])
    assert validation(Validation([alone])).panels[0].x.text == "Measured"


def test_times_of_a_calibration_have_a_diagonal_and_a_band():
    one = calibration.Comparison("training", ([1.0, 2.0], [1.1, 2.1]), ([5.0], [4.0]))
    chart = calibration.calibration("title", [one])
    assert_in_sight(chart)
    (panel,) = chart.panels
    diagonal, fitted, held = marks(panel, Line)
    assert diagonal.x == diagonal.y == panel.x.limits
    assert (fitted.x, fitted.y) == ([1, 2], [1.1, 2.1])
    assert (held.x, held.y) == ([5], [4])


def test_rates_of_a_calibration_are_rows_and_a_curve():
    one = calibration.Rates(
        "networks[0]", "B", ([1e3, 1e6], [1e9, 2e9]), ([1e4], [3e9]), ([1e3, 1e6], [1e9, 4e9])
    )
    left = replace(one, left=([1e5], [4e9]))
    chart = calibration.calibration("title", [one, left])
    assert_in_sight(chart)
    first, second = chart.panels
    curve, fitted, held = first.marks
    assert curve.y == [1, 4]
    assert (fitted.x, fitted.y) == ([1e3, 1e6], [1, 2])
    assert (held.x, held.y) == ([1e4], [3])
    assert second.marks[3].y == [4]
    assert legend(chart)[-1] == "measured, left out"


def test_errors_beyond_the_axis_are_at_its_edge():
    chart = calibration.errors("title", [calibration.Errors("", ([1, 2], [60, -3]), ([9], [-70]))])
    assert_in_sight(chart)
    assert [list(line.y) for line in marks(chart.panels[0], Line)] == [[50, -3], [-50]]


@for_each(("seconds", "text"), [(1e-4, "100 µs"), (0.9995e-3, "0.9995 ms"), (0.6, "600 ms")])
def test_durations_on_axes(seconds, text):
    assert calibration._duration(seconds) == text
