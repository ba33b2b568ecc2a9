"""Curves of sweeps, and the ticks of their axes."""

import pytest

from calculon.documents.charts.sweep_chart import Curve, curves_chart, grows_by_factors
from calculon.render import chart_axes
from tests.cases import for_each
from tests.documents.charts.reading import assert_in_sight, legend, tick_texts


def chart_of(*values, places=(1, 2), names=()):
    several = [Curve(f"curve {i}", places, one) for i, one in enumerate(values)]
    chart = curves_chart("model", "microbatch", "total_time", several, names=names, by="system")
    assert_in_sight(chart)
    return chart


@pytest.mark.parametrize(("ratio", "scale"), [(19.9, "linear"), (20.1, "log")])
def test_values_that_differ_much_are_on_a_logarithmic_axis(ratio, scale):
    (panel,) = chart_of([1.0, ratio]).panels
    assert panel.y.scale == scale
    assert panel.y.text == "Iteration time (s)"


def test_places_that_cannot_run_have_crosses_at_the_foot():
    chart = chart_of([1.0, None, 3.0], [None, 2.0, 2.0], places=(1, 2, 4))
    assert legend(chart) == ["curve 0", "cannot run", "curve 1"]
    first, cross, _, other = chart.panels[0].marks
    assert (first.x, first.y) == ([1, 4], [1.0, 3.0])
    assert (cross.x, other.x) == ([2], [1])
    assert 0 < cross.y[0] < other.y[0] < 0.2
    assert (cross.color, other.color) == ("blue", "vermilion")
    assert chart.subtitle == "curves: system"


def test_names_have_places_in_their_order_and_no_line():
    chart = chart_of([1.0, 2.0], places=(0, 1), names=("h100", "a100"))
    (panel,) = chart.panels
    assert tick_texts(panel.x) == ["h100", "a100"]
    assert (panel.marks[0].dash, legend(chart), chart.subtitle) == ("none", [], "")


@for_each(
    ("function", "inputs", "expected"),
    [
        (grows_by_factors, [[1, 2, 10], [1, 2, 9.9], [1, 3, 2, 10]], [True, False, False]),
        (grows_by_factors, [[0, 1, 10], [1, 10]], [False, False]),
        (lambda v: curves_chart("", "", "total_time", [Curve("", v, v)]).panels[0].x.scale,
         [[1.5, 3.0, 6.0, 12.0, 24.0], [1.5, 2.0], [1, 2, 4], [1, 2, 3]],
         ["log", "linear", "log", "linear"]),
        # four times the first value, and the median ratio
        (chart_axes.by_factors, [[1], [0, 4, 16], [1, 3.9], [1, 4]], [False, False, False, True]),
        (chart_axes.by_factors, [[1, r, r * r, r**5] for r in (1.4, 1.42)], [False, True]),
        (chart_axes.thinned, [[2**n for n in range(19)]], [[4**n for n in range(10)]]),
        (lambda v: chart_axes.thinned(v, 3), [[1, 9, 12, 100], [1, 2, 15, 100]], [[1, 12, 100], [1, 100]]),
        (lambda s: chart_axes.time_unit(s)[0], [9.9e-4, 1e-3, 0.99, 1.0], ["µs", "ms", "ms", "s"]),
        (lambda s: chart_axes.time_unit(s)[1], [9.9e-4, 0.99, 1.0], [1e6, 1e3, 1.0]),
        (lambda high: len(chart_axes.log_ticks(1, high)), [7, 60, 900, 1e4, 1e30], [7, 6, 6, 9, 8]),
    ],
)  # fmt: skip
def test_axes_fit_their_values(function, inputs, expected):
    assert [function(one) for one in inputs] == expected
