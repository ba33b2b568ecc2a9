"""Charts of served models over the batch: lines, bands, limits and bounds have the values of the document."""

from itertools import pairwise

import pytest

import calculon
from calculon.documents.charts.batch_chart import batch_curves
from calculon.render.chart import Area, Line, Rule
from tests.documents.charts.reading import assert_in_sight, legend, marks, notes

LOAD = {"prompt": 1000, "output": 200}


def curve_of(tpot_limit):
    served = calculon.serve("llama3-8B", "tp=1", "h100", LOAD, tpot_limit=tpot_limit, ttft_limit=1)
    return calculon.by_batch(served)


@pytest.fixture(scope="module")
def curve():
    return curve_of(0.02)


def test_lines_are_the_columns_with_the_batch_under_the_workload(curve):
    chart, columns, served = batch_curves(curve), curve.columns, curve.served
    assert_in_sight(chart)
    assert chart.title == "llama3-8B on 1 x h100_80g_sxm"
    factors = {"tpot": 1e3, "output_rate_per_proc": 1.0, "ttft": 1e3}
    for panel, (name, factor) in zip(chart.panels, factors.items(), strict=True):
        line, mark = marks(panel, Line)
        assert line.x == columns["batch"].tolist()
        assert line.y == pytest.approx(factor * columns[name])
        assert (mark.x, mark.y) == ([served["concurrency"]], [served[name] * factor])


def test_bands_are_stacked_up_to_the_time_per_token(curve):
    chart = batch_curves(curve)
    bands = marks(chart.panels[0], Area)
    for lower, upper in pairwise(bands):
        assert lower.high == upper.low
    assert bands[-1].high == pytest.approx(1e3 * curve.tpot)
    names = {"reading weights", "prompts of other requests", "limit of the workload"}
    assert names <= {*legend(chart)}


def test_bounds_have_their_names_above_the_first_panel(curve):
    upper, *lower = batch_curves(curve).panels
    inside = {one.batch: one.name for one in curve.cuts if one.batch <= upper.x.limits[1]}
    assert {"memory", "tpot"} <= {*inside.values()}
    bounds = [one for one in marks(upper, Rule) if not one.level]
    assert {one.at: one.text.rpartition(": ")[2] for one in bounds} == {n: f"{n:,}" for n in inside}
    for panel in lower:
        rules = [one for one in marks(panel, Rule) if not one.level]
        assert [(one.at, one.text) for one in rules] == [(one.at, "") for one in bounds]


def test_a_limit_that_every_batch_misses_has_a_note():
    upper, _, lower = batch_curves(curve_of(1e-4)).panels
    assert notes(upper) == ["TPOT limit of 0.1 ms: missed at every batch"]
    assert notes(lower) == []
