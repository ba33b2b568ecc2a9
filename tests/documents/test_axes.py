"""Axes of pictures: they contain their bars and lines, and their scales and units change at the stated ratios."""

import math

import numpy as np
import pytest

from tests.cases import for_each
from tests.documents.drawing import assert_in_sight, texts

pytest.importorskip("matplotlib", reason="pictures need the extra plot")

from matplotlib.figure import Figure

from calculon.documents.pictures import (
    calibration,
    error_scatter,
    gantt,
    pareto,
    scaling,
    surface,
)
from calculon.documents.pictures.error_scatter import Panel, Scatter
from calculon.render import canvas, chart_axes

NAN = math.nan


def empty():
    return Figure().add_subplot()


def test_numbers_of_microbatches_are_in_pieces_that_are_wide_enough():
    """One second is an inch: a digit needs 0.1 inches, two need 0.17."""
    places = enumerate([(0, 0.11), (0, 0.09), (9, 0.18), (9, 0.16)])
    pieces = [gantt.Piece(0, "forward", n, 0, at, at + width) for at, (n, width) in places]
    last = gantt._WIDTH - 1.2
    pieces += [gantt.Piece(1, "weight", 1, 1, last - 1, last, half) for half in (-1, 1)]
    axes = empty()
    gantt._numbers(axes, gantt.Gantt("", 2, pieces), 0.34, 10.0, 2)
    assert texts(axes) == ["1", "10", "2", "2", "94 %", "90 %"]
    quarter = gantt._HEIGHT / 4
    places = [one.get_position() for one in axes.texts[:4]]
    assert [x for x, _ in places] == pytest.approx([0.55, 20.9, 10 * last - 5, 10 * last - 5])
    assert [y for _, y in places] == [0, 0, 1 - quarter, 1 + quarter]
    assert [one.place for one in pieces[4:]] == [(1 - 2 * quarter, 2 * quarter), (1, 2 * quarter)]
    assert [one.get_color() for one in axes.texts[:4]] == ["white"] * 2 + ["black"] * 2


SCORE = {"n": 2, "mean": 0.0, "bias": 0.0}


@pytest.mark.parametrize(
    ("scale", "names", "ratio"),
    [
        (lambda axes, r: error_scatter._panel(axes, Panel("", "time", "s", [1, r], [1, r], SCORE)), "xy", 5),
    ],
)  # fmt: skip
@pytest.mark.parametrize("side", [0.999, 1.001])
def test_axes_are_logarithmic_from_a_ratio_on(scale, names, ratio, side):
    axes = empty()
    axes.plot([1, ratio * side], [1, ratio * side])
    scale(axes, ratio * side)
    scales = {"x": axes.get_xscale(), "y": axes.get_yscale()}
    assert {scales[name] for name in names} == {"log" if side > 1 else "linear"}
    assert_in_sight(axes)


def test_panels_have_as_few_rows_as_hold_them_all(monkeypatch):
    filled = []
    monkeypatch.setattr(error_scatter, "_WIDEST", 2)
    monkeypatch.setattr(error_scatter, "_panel", lambda axes, _: filled.append(axes))
    picture = error_scatter.draw(Scatter([Panel("", "time", "s", [1], [1], SCORE)] * 3))
    assert filled[0].get_gridspec().get_geometry() == (math.ceil(3 / 2), 2)
    assert [axes for axes in picture.axes if axes.get_visible()] == filled
    assert len(filled) == 3


def test_errors_and_times_of_a_calibration_are_in_sight():
    axes = empty()
    calibration._errors(axes, calibration.Errors("", ([1, 2], [60, -3]), ([9], [-70])))
    assert [list(line.get_ydata()) for line in axes.lines[1:]] == [[50, -3], [-50]]
    assert_in_sight(axes)
    axes = empty()
    calibration._comparison(axes, calibration.Comparison("", ([1, 2], [3, 2]), ([9], [8])))
    assert_in_sight(axes)


@for_each(
    ("function", "inputs", "expected"),
    [
        (lambda s: chart_axes.time_unit(s)[0], [9.9e-4, 1e-3, 0.99, 1.0], ["µs", "ms", "ms", "s"]),
        (lambda s: chart_axes.time_unit(s)[1], [9.9e-4, 0.99, 1.0], [1e6, 1e3, 1.0]),
        (lambda s: gantt.shade("weight", s, 3)[2], [0, 1, 2], [0, 0x8F / 255 / 2, 0x8F / 255]),
        (calibration._duration, [1e-4, 0.9995e-3, 0.6], ["100 µs", "0.9995 ms", "600 ms"]),
        (lambda e: scaling._high([scaling.Series("", [scaling.Point(1, e, e)])]), [0.5, 0.51], [False, True]),
        # four times the first value, and the median ratio
        (chart_axes.by_factors, [[1], [0, 4, 16], [1, 3.9], [1, 4]], [False, False, False, True]),
        (chart_axes.by_factors, [[1, r, r * r, r**5] for r in (1.4, 1.42)], [False, True]),
        (chart_axes.thinned, [[2**n for n in range(19)]], [[4**n for n in range(10)]]),
        (lambda v: chart_axes.thinned(v, 3), [[1, 9, 12, 100], [1, 2, 15, 100]], [[1, 12, 100], [1, 100]]),
        # a twentieth of the height or a fifth of the width from each other, the highest first
        (lambda x: pareto.spread(np.array([[0, x, 1], [0, 0.04, 1]]), 9), [0.19, 0.21], [[2, 1], [2, 1, 0]]),
        (lambda y: pareto.spread(np.array([[0, 0, 1], [0, y, 1]]), 9), [0.04, 0.06], [[2, 1], [2, 1, 0]]),
        (lambda most: pareto.spread(np.array([[0, 1, 2], [0, 1, 2]]), most), [2], [[2, 1]]),
        (lambda x: pareto.spread(np.array([[x, x], [1, 1]]), 9), [5], [[0]]),
        (lambda x: [*pareto.scattered(np.array([[0, x, 1], [0, 0, 1]]))], [1 / 361, 1 / 358], [[0, 2], [0, 1, 2]]),
        (lambda x: [*pareto.scattered(np.array([[x, x], [0, 1]]))], [3], [[0, 1]]),
        (lambda y: pareto._ascends(np.array([[0, 1], [1, y]])), [0, 1], [False, True]),
        (lambda grid: surface._covered(np.array(grid), 0, 0), [[[1, 1], [1, NAN]], [[1, NAN]] * 2], [True, False]),
        (lambda grid: surface._covered(np.array(grid), 1, 1), [[[1, 1], [1, 1]], [[NAN, NAN], [1, 1]]], [True, False]),
    ],
)  # fmt: skip
def test_units_scales_and_labels_change_at_their_limits(function, inputs, expected):
    assert [function(one) for one in inputs] == expected


@pytest.mark.parametrize(
    ("write", "ratio", "below", "above"),
    [
        (canvas.plain_ticks, 1000, {1, 2, 5}, {1}),
        (lambda axes: calibration._ticks(axes, str, str), 20, {1, 2, 5}, {1, 3}),
        (lambda axes: calibration._ticks(axes, str, str), 100, {1, 3}, {1}),
        (lambda axes: error_scatter._ticks(axes, logarithmic=True), 300, {1, 3}, {1}),
    ],
)
def test_long_logarithmic_axes_have_fewer_ticks(write, ratio, below, above):
    axes = empty()
    for high, expected in ((ratio * 0.99, below), (ratio, above)):
        axes.loglog()
        axes.axis((1, high, 1, high))
        write(axes)
        assert {tick for tick in axes.get_yticks() if 1 <= tick < 9} == expected
