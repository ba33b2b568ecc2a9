"""Axes of pictures: they contain their bars and lines, and their scales and units change at the stated ratios."""

import math
from itertools import pairwise

import numpy as np
import pytest

from calculon.apps.report.digits import Digits
from calculon.units import GIB
from tests.apps.report.drawing import assert_in_sight, texts
from tests.cases import for_each

pytest.importorskip("matplotlib", reason="pictures need the extra plot")

from matplotlib.colors import same_color
from matplotlib.figure import Figure

from calculon.apps.report.pictures import (
    budget,
    calibration,
    canvas,
    collective_curves,
    curves,
    error_scatter,
    gantt,
    goodput_curves,
    heatmap,
    pareto,
    run_days,
    scaling,
    serving_frontier,
    surface,
    waterfall_bars,
)


def empty():
    return Figure().add_subplot()


def fall(*seconds, sizes=None, capacity=math.inf):
    """Return a waterfall through some times, and through some GiB."""
    points = [
        {"seconds": one, "bytes": size * GIB, "fits": size <= capacity}
        for one, size in zip(seconds, sizes or seconds, strict=True)
    ]
    steps = [
        {name: after[name] - before[name] for name in ("seconds", "bytes")}
        | {"change": "", "time_after": after["seconds"], "bytes_after": after["bytes"]}
        | {"fits": after["fits"]}
        for before, after in pairwise(points)
    ]
    waterfall = {"per": "step", "mine": points[0], "best": points[-1], "steps": steps}
    limit = capacity * GIB if capacity < math.inf else None
    return waterfall_bars.Fall(waterfall, ("A", "B"), "", "", Digits(0.01), limit)


@pytest.mark.parametrize(
    ("seconds", "from_0"),
    [((10.0, 6.0, 8.0), True), ((10.0, 8.0), True), ((10.0, 8.01), False), ((8.01, 10.0), False)],
)
def test_times_that_differ_by_a_fifth_begin_at_0(seconds, from_0):
    axes = empty()
    waterfall_bars._times(axes, fall(*seconds))
    assert (axes.get_xlim()[0] == 0) == from_0
    assert ("not from 0" in axes.get_xlabel()) != from_0
    assert_in_sight(axes)
    steps, bars = list(pairwise(seconds)), axes.patches[1:-1]
    ends = [[bar.get_x(), bar.get_x() + bar.get_width()] for bar in bars]
    assert ends == [pytest.approx(sorted(step)) for step in steps]
    assert [note.xy[0] for note in axes.texts[1:-1]] == [max(step) for step in steps]
    said = [float(text.split()[0]) for text in texts(axes)[1:-1]]
    assert said == pytest.approx([after - before for before, after in steps], abs=0.01)
    colors = [waterfall_bars.SAVED if a > b else waterfall_bars.ADDED for a, b in steps]
    assert all(same_color(bar.get_facecolor(), one) for bar, one in zip(bars, colors, strict=True))


@pytest.mark.parametrize(
    ("sizes", "capacity", "drawn", "ends"),
    [
        ((10, 14), 20 * 14, False, (10, 14, 14)),  # nothing of the bars could be seen
        ((10, 14), 20 * 14 - 1, True, (10, 14, 14)),
        ((13.5, 20), 20, True, (13.5, 20, 20)),  # 0.32 of 20 below the capacity
        ((13.7, 20), 20, True, (20, 20, 20)),  # the line would cross a text next to the bar
        ((13.7, 21), math.inf, False, (13.7, 21, 21)),
    ],
)
def test_texts_of_memory_are_beyond_the_capacity_where_it_is_near(sizes, capacity, drawn, ends):
    axes = empty()
    waterfall_bars._memory(axes, fall(10.0, 9.0, sizes=sizes, capacity=capacity))
    assert [line.get_xdata()[0] for line in axes.lines] == [capacity] * drawn
    assert [note.xy[0] for note in axes.texts] == pytest.approx(ends)
    hatches = ["////" if size > capacity else None for size in (*sizes, sizes[-1])]
    assert [bar.get_hatch() for bar in axes.patches] == hatches
    assert_in_sight(axes, across=0.5 if not drawn or capacity < 200 else 0.03)


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
    middles = [(0.055, 0), (2.09, 0), (last - 0.5, 1 - quarter), (last - 0.5, 1 + quarter)]
    drawn = [(one.get_position()[0] / 10, one.get_position()[1]) for one in axes.texts[:4]]
    assert drawn == [pytest.approx(one) for one in middles]
    assert [one.get_color() for one in axes.texts[:4]] == ["white"] * 2 + ["black"] * 2
    assert [note.xy for note in axes.texts[4:]] == [(10 * last, 0), (10 * last, 1)]


def errors(axes, ratio):
    both, score = [1.0, ratio], {"n": 2, "mean": 0.0, "bias": 0.0}
    error_scatter._panel(axes, error_scatter.Panel("", "time", "s", both, both, score))


def curve(axes, ratio):
    one = curves.Curve("", [0, 1], [1.0, ratio])
    curves._scale(axes, curves.Curves("", "", "total_time", [one]))


def frontier(axes, ratio):
    points = [{"interactivity": one, "output_rate_per_proc": one} for one in (1.0, ratio)]
    serving_frontier._scale(axes, [{"points": points}])


@pytest.mark.parametrize(
    ("scale", "names", "ratio"),
    [
        (errors, "xy", 5),
        (frontier, "xy", 20),
        (curve, "y", 20),
        (lambda axes, r: collective_curves._time_axis(axes, [1.0, r]), "y", 10),
        (lambda axes, r: budget._scale(axes, [{"days": 1}, {"days": r}], [1, r]), "x", 4),
    ],
)
@pytest.mark.parametrize("side", [0.999, 1.001])
def test_axes_are_logarithmic_from_a_ratio_on(scale, names, ratio, side):
    axes = empty()
    axes.plot([1, ratio * side], [1, ratio * side])
    scale(axes, ratio * side)
    scales = {"x": axes.get_xscale(), "y": axes.get_yscale()}
    assert {scales[name] for name in names} == {"log" if side > 1 else "linear"}
    assert_in_sight(axes)


@pytest.mark.parametrize(
    ("write", "ratio", "below", "above"),
    [
        (canvas.plain_ticks, 1000, (1, 2, 5), (1,)),
        (goodput_curves._ticks, 50, (1, 2, 5), (1,)),
        (lambda axes: calibration._ticks(axes, str, str), 20, (1, 2, 5), (1, 3)),
        (lambda axes: calibration._ticks(axes, str, str), 100, (1, 3), (1,)),
        (lambda axes: error_scatter._ticks(axes, logarithmic=True), 300, (1, 3), (1,)),
    ],
)
def test_few_ticks_are_written_on_long_logarithmic_axes(write, ratio, below, above):
    axes = empty()
    for high, several in ((ratio * 0.99, below), (ratio, above)):
        axes.loglog()
        axes.axis((1, high, 1, high))
        write(axes)
        assert {tick for tick in axes.get_yticks() if 1 <= tick < 9} == set(several)


def test_errors_and_times_of_a_calibration_are_in_sight():
    axes = empty()
    calibration._errors(axes, calibration.Errors("", ([1, 2], [60, -3]), ([9], [-70])))
    assert [list(line.get_ydata()) for line in axes.lines[1:]] == [[50, -3], [-50]]
    assert_in_sight(axes)
    axes = empty()
    calibration._comparison(axes, calibration.Comparison("", ([1, 2], [3, 2]), ([9], [8])))
    assert_in_sight(axes)


def corner(missing):
    """Return values of two by two degrees, the first of which can run, and `missing` others cannot."""
    return np.array([1.0, *[math.nan] * missing, *[1.0] * (3 - missing)]).reshape(2, 2)


@for_each(
    ("function", "inputs", "expected"),
    [
        (lambda s: canvas.time_unit(s)[0], [9.9e-4, 1e-3, 0.99, 1.0], ["µs", "ms", "ms", "s"]),
        (lambda s: canvas.time_unit(s)[1], [9.9e-4, 0.99, 1.0], [1e6, 1e3, 1.0]),
        (lambda s: gantt.shade("weight", s, 3)[2], [0, 1, 2], [0, 0x8F / 255 / 2, 0x8F / 255]),
        (lambda v: run_days._unit(v)[0], [0.1, 30.0], ["Hours", "Days"]),
        (lambda v: budget._unit("usd", v)[1], [9999.0, 1e4, 999_999.0, 1e6], [1.0, 1e-3, 1e-3, 1e-6]),
        (lambda name: canvas.Quantity(name).factor, ["total_time", "mfu"], [1.0, 100.0]),
        (calibration._duration, [1e-4, 0.9995e-3, 0.6], ["100 µs", "0.9995 ms", "600 ms"]),
        (calibration._size, [0.5, 1.0, 2e6], ["0.5", "1", "2 M"]),
        (heatmap.short, [99.94, 100.0, -100.4], ["99.9", "100", "-100"]),
        (lambda e: scaling._high([scaling.Series("", [scaling.Point(1, e, e)])]), [0.5, 0.51], [False, True]),
        # four times the first value, and the median ratio
        (canvas.by_factors, [[1], [0, 4, 16], [1, 3.9], [1, 4]], [False, False, False, True]),
        (canvas.by_factors, [[1, r, r * r, r**5] for r in (1.4, 1.42)], [False, True]),
        (canvas.thinned, [[2**n for n in range(19)]], [[4**n for n in range(10)]]),
        (lambda v: canvas.thinned(v, 3), [[1, 9, 12, 100], [1, 2, 15, 100]], [[1, 12, 100], [1, 100]]),
        (curves._grows_by_factors, [[1, 2, 10], [1, 2, 9.9], [1, 3, 2, 10]], [True, False, False]),
        (curves._grows_by_factors, [[0, 1, 10], [1, 10]], [False, False]),
        # three tenths of the range beyond it
        (lambda v: budget._in_sight(v, 1, 2), [0.69, 0.71, 2.29, 2.31], [False, True, True, False]),
        (lambda v: budget._in_sight(v, 0, 1), [0.0, 0.1], [False, True]),
        # a twentieth of the height or a fifth of the width from each other, the highest first
        (lambda x: pareto.spread(np.array([[0, x, 1], [0, 0.04, 1]]), 9), [0.19, 0.21], [[2, 1], [2, 1, 0]]),
        (lambda y: pareto.spread(np.array([[0, 0, 1], [0, y, 1]]), 9), [0.04, 0.06], [[2, 1], [2, 1, 0]]),
        (lambda most: pareto.spread(np.array([[0, 1, 2], [0, 1, 2]]), most), [2], [[2, 1]]),
        (lambda x: pareto.spread(np.array([[x, x], [1, 1]]), 9), [5], [[0]]),
        # one of 360 columns of dots
        (lambda x: [*pareto.scattered(np.array([[0, x, 1], [0, 0, 1]]))], [1 / 361, 1 / 358], [[0, 2], [0, 1, 2]]),
        (lambda x: [*pareto.scattered(np.array([[x, x], [0, 1]]))], [3], [[0, 1]]),
        (lambda y: pareto._ascends(np.array([[0, 1], [1, y]])), [0, 1], [False, True]),
        (lambda n: surface._covered(corner(n), 0, 0), [0, 1, 2], [True, True, False]),
        (lambda n: surface._covered(corner(n), 1, 1), [0, 1, 2], [True, True, False]),
    ],
)  # fmt: skip
def test_units_scales_and_labels_change_at_their_limits(function, inputs, expected):
    assert [function(one) for one in inputs] == expected
