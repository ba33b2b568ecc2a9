"""Curves of sweeps: values in their units, crosses where nothing can run, and the scales of both axes."""

import pytest

from calculon.documents.charts.curves import Curve, Curves, curves
from tests.cases import for_each
from tests.documents.charts.reading import assert_in_sight, legend, tick_texts


def test_lines_have_values_in_their_unit_and_crosses_where_nothing_can_run():
    lines = [Curve("a", [1, 2, 4, 8], [0.1, 0.2, None, 0.4]), Curve("b", [1, 2], [0.3, 0.1])]
    chart = curves(Curves("model on system", "batch", "mfu", lines, by="name", plan="plan"))
    assert_in_sight(chart)
    assert (chart.title, chart.subtitle) == ("model on system", "plan; one line per name")
    (panel,) = chart.panels
    first, crosses, second, _ = panel.marks
    assert (first.x, first.y) == ([1, 2, 8], pytest.approx([10, 20, 40]))
    assert (crosses.x, crosses.color, panel.y.share(crosses.y[0])) == (
        [4],
        first.color,
        pytest.approx(0.015),
    )
    assert second.y == pytest.approx([30, 10])
    assert legend(chart) == ["a", "b", "cannot run"]
    assert panel.y.text == "MFU, full attention (%)"
    alone = curves(Curves("", "batch", "mfu", lines[1:]))
    assert (alone.title, legend(alone)) == ("MFU, full attention over batch", [])


@for_each(
    ("places", "values", "names", "scales"),
    [
        ([1, 2, 4], [1, 19.9, 2], (), ("log", "linear")),
        ([1, 2, 3], [1, 20.1, 2], (), ("linear", "log")),
        ([1.5, 3.0, 6.0], [0, 9, 9], (), ("log", "linear")),
        ([1.5, 2.0, 2.5], [-1, 1, 1], (), ("linear", "linear")),
        ([0, 1, 2], [1, 1, 1], ("x", "y", "z"), ("linear", "linear")),
    ],
)
def test_axes_suit_their_values(places, values, names, scales):
    chart = curves(Curves("", "x", "total_time", [Curve("", places, values)], names))
    assert_in_sight(chart)
    (panel,) = chart.panels
    assert (panel.x.scale, panel.y.scale) == scales
    if names:
        assert tick_texts(panel.x) == [*names]
        assert panel.marks[0].dash == "none"
