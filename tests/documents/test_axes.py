"""Axes of pictures: they contain their bars and lines, and their scales and units change at the stated ratios."""

import pytest

from tests.cases import for_each
from tests.documents.drawing import assert_in_sight

pytest.importorskip("matplotlib", reason="pictures need the extra plot")

from matplotlib.figure import Figure

from calculon.documents.pictures import (
    budget,
    goodput_curves,
)
from calculon.documents.pictures import serving_frontier as frontier
from calculon.render import canvas


def empty():
    return Figure().add_subplot()


RATES = ("interactivity", "output_rate_per_proc")


@pytest.mark.parametrize(
    ("scale", "names", "ratio"),
    [
        (lambda axes, r: budget._scale(axes, [{"days": 1}, {"days": r}], [1, r]), "x", 4),
        (lambda axes, r: frontier._scale(axes, [{"points": [dict.fromkeys(RATES, y) for y in (1, r)]}]), "xy", 20),
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


@for_each(
    ("function", "inputs", "expected"),
    [
        (lambda v: budget._unit("usd", v)[1], [9999.0, 1e4, 999_999.0, 1e6], [1.0, 1e-3, 1e-3, 1e-6]),
        (lambda v: budget._in_sight(v, 1, 2), [0.69, 0.71, 2.29, 2.31], [False, True, True, False]),
    ],
)  # fmt: skip
def test_units_scales_and_labels_change_at_their_limits(function, inputs, expected):
    assert [function(one) for one in inputs] == expected


@pytest.mark.parametrize(
    ("write", "ratio", "below", "above"),
    [
        (canvas.plain_ticks, 1000, {1, 2, 5}, {1}),
        (goodput_curves._ticks, 50, {1, 2, 5}, {1}),
    ],
)
def test_long_logarithmic_axes_have_fewer_ticks(write, ratio, below, above):
    axes = empty()
    for high, expected in ((ratio * 0.99, below), (ratio, above)):
        axes.loglog()
        axes.axis((1, high, 1, high))
        write(axes)
        assert {tick for tick in axes.get_yticks() if 1 <= tick < 9} == expected
