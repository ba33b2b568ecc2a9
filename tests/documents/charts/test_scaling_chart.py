"""Rates and efficiencies over numbers of processors."""

import pytest

from calculon.documents.charts.scaling_chart import Point, Series, scaling
from tests.documents.charts.reading import assert_in_sight, legend


def chart_of(*rates):
    """Return the chart of a series for each mapping of processors to rates, None if no plan can run."""
    series = [
        Series(
            f"model {number}",
            [
                Point(n, rate, rate and rate / (2 * n), words=f"plan of {n}", link=f"/?procs={n}")
                for n, rate in each.items()
            ],
        )
        for number, each in enumerate(rates)
    ]
    chart = scaling(series)
    assert_in_sight(chart)
    return chart


def test_lines_ascend_whatever_the_order_of_the_question():
    upper, lower = chart_of({32: 30.0, 8: 8.0, 16: 16.0}).panels
    rates, ideal = upper.marks
    (efficiencies,) = lower.marks
    assert list(rates.x) == list(efficiencies.x) == [8, 16, 32]
    assert list(rates.y) == [8.0, 16.0, 30.0]
    assert efficiencies.y == pytest.approx([50.0, 50.0, 100 * 30 / 64])
    assert (ideal.x, ideal.y) == ([8, 32], [8.0, 8.0 * 32 / 8])
    assert rates.links == efficiencies.links == [f"/?procs={n}" for n in (8, 16, 32)]
    assert upper.y.text == "Sample rate (samples/s)"
    assert lower.y.text == "Efficiency (%)"


def test_axes_are_logarithmic_if_numbers_grow_by_factors():
    wide, _ = chart_of({8: 8.0, 16: 16.0, 32: 30.0}).panels
    narrow, _ = chart_of({8: 8.0, 10: 9.0}).panels
    assert (wide.x.scale, wide.y.scale) == ("log", "log")
    assert (narrow.x.scale, narrow.y.scale, narrow.y.limits[0]) == ("linear", "linear", 0)


def test_numbers_without_a_plan_have_a_cross():
    chart = chart_of({8: None, 16: 1.0, 32: 2.0})
    *_, crosses = chart.panels[1].marks
    assert (crosses.x, crosses.words) == ([8], ["8 processors: plan of 8"])
    assert "no plan can run" in legend(chart)


def test_a_single_plan_is_proportional_to_nothing():
    assert [list(mark.x) for mark in chart_of({8: 8.0}).panels[0].marks] == [[8]]


@pytest.mark.parametrize(("efficiency", "top"), [(0.5, 53.0), (0.51, 100.0)])
def test_efficiencies_above_one_half_are_seen_against_100_percent(efficiency, top):
    _, lower = scaling([Series("", [Point(8, 8.0, efficiency)])]).panels
    assert lower.y.limits == pytest.approx((0, top))


def test_several_series_have_colors_of_their_own():
    chart = chart_of({8: 8.0, 16: 16.0}, {8: 4.0, 16: 8.0})
    assert legend(chart) == ["model 0", "model 1", "linear scaling"]
    assert [mark.color for mark in chart.panels[1].marks] == ["blue", "vermilion"]
