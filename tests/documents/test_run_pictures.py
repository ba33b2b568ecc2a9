"""Pictures of days against money: what stands on the axes is what the document says."""

import numpy as np
import pytest

import calculon
from calculon.base.errors import Infeasible
from tests.documents.drawing import assert_in_sight, legend, texts

pytest.importorskip("matplotlib", reason="pictures need the extra plot")

from matplotlib.colors import same_color
from matplotlib.figure import Figure

from calculon.documents.pictures import budget


@pytest.fixture(scope="module")
def document():
    words = {"objective": "usd", "deadline": "8d", "budget_usd": 1e6}
    return calculon.plan("llama-3-8b", "128,256", "h100,mi300x", tokens="1T", **words).to_dict()


def test_points_are_days_and_dollars(document):
    (axes,) = budget.draw(document).axes
    assert_in_sight(axes)
    marks = [one for one in axes.lines if len(one.get_xdata()) == 1 and one.get_markersize() < 6]
    drawn = sorted((*one.get_xdata(), *one.get_ydata()) for one in marks)
    points = sorted((one["days"], one["usd"] / 1e3) for one in document["points"])
    assert drawn == pytest.approx(np.array(points))
    hollow = [one for one in marks if same_color(one.get_markerfacecolor(), "white")]
    assert len(hollow) == sum(not one["meets"] for one in document["points"]) > 0


def test_the_frontier_the_best_and_the_limits_are_lines(document):
    figure = budget.draw(document)
    (axes,) = figure.axes
    lines = {one.get_label(): one for one in axes.lines}
    front = [document["points"][place] for place in document["frontier"]]
    assert list(lines["frontier"].get_xdata()) == pytest.approx([one["days"] for one in front])
    best = document["points"][document["best"]]
    ring = lines[f"best: {best['num_procs']} x {best['system']}"]
    assert list(ring.get_xdata()) == [best["days"]]
    assert list(lines["interval of its days"].get_xdata()) == [best["days_low"], best["days_high"]]
    assert list(lines["deadline 8 d"].get_xdata()) == [8, 8]
    assert "budget 1 M USD, not in sight" in legend(figure)
    named = set(texts(axes))
    assert {f"{one['num_procs']:,}" for one in (*front, best)} <= named


def test_texts_beside_marks_do_not_cover_each_other():
    box = (0.0, 0.0, 7.0, 7.0)
    offset, found = budget._room((3.5, 3.5), "1,024", [box])
    assert offset[0] > 0
    again, other = budget._room((3.5, 3.5), "1,024", [box, found])
    assert again != offset
    assert found[3] <= other[1] or other[3] <= found[1] or found[2] <= other[0]
    everywhere = (-1e3, -1e3, 1e3, 1e3)
    assert budget._room((3.5, 3.5), "1,024", [everywhere]) is None


def test_without_any_price_of_several_machines_there_is_nothing_to_draw(document):
    rows = [{**one, "usd": None} for one in document["points"]]
    with pytest.raises(Infeasible, match="no price is known"):
        budget.draw({**document, "money": "", "points": rows})


def test_hours_stand_for_dollars_of_one_machine(document):
    (axes,) = budget.draw(document | {"money": "processor_hours"}).axes
    assert axes.get_ylim()[0] > 0
    assert axes.get_ylabel() == "Processor-hours (thousand), not from 0"


def test_small_differences_of_money_look_small():
    for costs, ends in (
        ([2.0, 2.34], (0.85 * 2.17, 1.15 * 2.17)),
        ([2.0, 2.36], (2 - 0.036, 2.36 + 0.036)),
    ):
        axes = Figure().add_subplot()
        axes.plot([1, 2], costs)
        budget._scale(axes, [{"days": 1}, {"days": 2}], costs)
        assert axes.get_ylim() == pytest.approx(ends)
