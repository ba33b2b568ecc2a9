"""Rates and efficiencies over numbers of processors."""

import pytest

from calculon.explore.charts.scaling_lines import CountPoint, scaling_lines


def points(rates):
    """Return the best plan on each number of processors; None where there is none."""
    return [
        CountPoint(
            num_procs=count,
            rate=rate,
            efficiency=None if rate is None else rate / (2 * count),
            words=f"plan of {count}",
            link=f"/?procs={count}",
        )
        for count, rate in rates.items()
    ]


def test_the_line_ascends_whatever_the_order_of_the_question():
    figure = scaling_lines(points({32: 30.0, 8: 8.0, 16: 16.0}))
    ideal, rates, efficiencies = figure["data"]
    assert rates["x"] == efficiencies["x"] == [8, 16, 32]
    assert rates["y"] == [8.0, 16.0, 30.0]
    assert efficiencies["y"] == pytest.approx([50.0, 50.0, 100 * 30 / 64])
    assert [ideal["x"], ideal["y"]] == [[8, 32], [8.0, 8.0 * 32 / 8]]
    assert [one[0] for one in rates["customdata"]] == [f"/?procs={n}" for n in (8, 16, 32)]


def test_ratios_have_equal_lengths_where_numbers_grow_by_factors():
    wide = scaling_lines(points({8: 8.0, 16: 16.0, 32: 30.0}))["layout"]
    narrow = scaling_lines(points({8: 8.0, 10: 9.0}))["layout"]
    assert wide["xaxis"]["type"] == wide["yaxis"]["type"] == "log"
    first, *_, last = wide["yaxis"]["tickvals"]
    assert first <= 8.0
    assert last >= 30.0
    assert "type" not in narrow["xaxis"]
    assert narrow["yaxis"]["rangemode"] == "tozero"


def test_numbers_without_a_plan_have_a_cross():
    *_, crosses = scaling_lines(points({8: None, 16: 1.0, 32: 2.0}))["data"]
    assert crosses["x"] == [8]
    assert crosses["customdata"][0][2] == "plan of 8"
    assert scaling_lines(points({8: None, 16: None})) is None


def test_a_single_plan_is_proportional_to_nothing():
    rates, efficiencies = scaling_lines(points({8: 8.0}))["data"]
    assert rates["x"] == efficiencies["x"] == [8]
