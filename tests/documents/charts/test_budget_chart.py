"""Charts of days against cost: points, frontier and limits are those of the document."""

import pytest

import calculon
from calculon.base.errors import Infeasible
from calculon.documents.charts import budget_chart as chart_module
from calculon.documents.charts.budget_chart import budget
from calculon.render.chart import Line, Rule
from tests.cases import for_each
from tests.documents.charts.reading import assert_in_sight, legend, marks, notes


@pytest.fixture(scope="module")
def document():
    words = {"objective": "usd", "deadline": "8d", "budget_usd": 1e6}
    return calculon.plan("llama-3-8b", "128,256", "h100,mi300x", tokens="1T", **words).to_dict()


def test_points_are_days_and_dollars(document):
    chart = budget(document)
    assert_in_sight(chart)
    assert chart.title == "1 T tokens of llama3-8B on h100_80g_sxm, mi300x"
    (panel,) = chart.panels
    lines = [line for line in marks(panel, Line) if line.sizes == (5.5,)]
    drawn = [(point, line.hollow) for line in lines for point in zip(line.x, line.y, strict=True)]
    points = [((one["days"], one["usd"] / 1e3), not one["meets"]) for one in document["points"]]
    assert sorted(drawn) == sorted(points)
    assert {hollow for _, hollow in drawn} == {True, False}
    assert panel.y.limits[0] == 0.0
    assert panel.y.text == "Cost (thousand USD)"


def test_the_frontier_the_best_and_the_limits_have_entries(document):
    chart = budget(document)
    (panel,) = chart.panels
    lines = {one.name: one for one in marks(panel, Line)}
    front = [document["points"][place] for place in document["frontier"]]
    assert lines["frontier"].x == [one["days"] for one in front]
    best = document["points"][document["best"]]
    assert lines[f"best: {best['num_procs']} x {best['system']}"].x == [best["days"]]
    assert lines["interval of its days"].x == [best["days_low"], best["days_high"]]
    (deadline,) = marks(panel, Rule)
    assert (deadline.name, deadline.at) == ("deadline 8 d", 8)
    assert "budget 1 M USD (off the chart)" in legend(chart)
    assert {f"{one['num_procs']:,}" for one in (*front, best)} <= {*notes(panel)}


def test_without_any_price_of_several_machines_there_is_nothing_to_draw(document):
    rows = [{**one, "usd": None} for one in document["points"]]
    with pytest.raises(Infeasible, match="no price is known"):
        budget({**document, "money": "", "points": rows})


def test_hours_replace_dollars_of_one_machine(document):
    (panel,) = budget(document | {"money": "processor_hours"}).panels
    assert panel.y.text == "Processor-hours (thousand)"


@for_each(
    ("function", "inputs", "expected"),
    [
        (lambda v: chart_module._prefix(v)[1], [9999.0, 1e4, 999_999.0, 1e6], [1.0, 1e-3, 1e-3, 1e-6]),
        (lambda v: type(chart_module._limit(Rule(at=v), [1, 2])), [0.49, 0.51, 2.59, 2.61], [Line, Rule, Rule, Line]),
    ],
)  # fmt: skip
def test_units_and_limits_change_at_their_ratios(function, inputs, expected):
    assert [function(one) for one in inputs] == expected
