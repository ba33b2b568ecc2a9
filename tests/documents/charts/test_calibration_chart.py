"""Fits: measured points, curves, and errors."""

import pytest

from calculon.documents.charts.calibration_chart import (
    _duration,
    calibration_chart,
    errors_chart,
    errors_panel,
    rates_panel,
    times_panel,
)
from calculon.render.chart import Area, Line
from tests.documents.charts.reading import assert_in_sight, legend, marks


def test_times_have_a_diagonal_and_a_band():
    panel = times_panel("training", ([1.0, 2.0], [1.1, 2.1]), ([5.0], [4.0]))
    assert_in_sight(calibration_chart("h100", [panel]))
    diagonal, fitted, held = marks(panel, Line)
    assert diagonal.x == diagonal.y == panel.x.limits == panel.y.limits
    assert (fitted.x, fitted.y) == ([1, 2], [1.1, 2.1])
    assert (held.x, held.y, held.hollow) == ([5], [4], True)
    (band,) = marks(panel, Area)
    ends = [*zip(band.x, band.low, strict=True), *zip(band.x, band.high, strict=True)]
    assert [y / x for x, y in ends] == pytest.approx([0.9, 0.9, 1.1, 1.1])


def test_rates_have_their_curve_and_their_rows():
    points = (([1e3, 1e6], [1e9, 2e9]), ([1e4], [3e9]), ([1e3, 1e6], [1e9, 4e9]))
    panel = rates_panel("networks[0]", "B", *points)
    curve, fitted, held = marks(panel, Line)
    assert curve.y == [1, 4]
    assert (fitted.x, fitted.y) == ([1e3, 1e6], [1, 2])
    assert (held.x, held.y) == ([1e4], [3])
    assert (panel.x.text, panel.y.text) == ("Bytes moved", "Rate (GB/s)")
    chart = calibration_chart("h100", [panel, rates_panel("", "B", *points, left=([1e5], [4e9]))])
    assert_in_sight(chart)
    assert legend(chart)[-1] == "measured, left out"
    assert marks(chart.panels[1], Line)[-1].y == [4]


def test_large_errors_are_at_the_edge():
    chart = errors_chart("Kernels", [errors_panel("", ([1, 2], [60, -3]), ([9], [-70]))])
    assert_in_sight(chart)
    assert [line.y for line in marks(chart.panels[0], Line)] == [[50, -3], [-50]]
    assert legend(chart) == ["within 10 %", "fitted", "held out"]
    assert [_duration(s) for s in (1e-4, 0.9995e-3, 0.6)] == ["100 µs", "0.9995 ms", "600 ms"]
