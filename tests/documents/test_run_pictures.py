"""Pictures of whole runs: what stands on the axes is what the run says."""

import numpy as np
import pytest

import calculon
from calculon.base.errors import Infeasible
from tests.documents.drawing import assert_in_sight, legend, texts

pytest.importorskip("matplotlib", reason="pictures need the extra plot")

from matplotlib.colors import same_color
from matplotlib.figure import Figure

from calculon.documents.pictures import budget, run_days
from calculon.documents.views import run_pictures

PLAN = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")
RAMP = {"start": 64, "step": 64, "tokens": "400G"}


@pytest.fixture(scope="module")
def run():
    evaluation = {"evaluate_every": 100, "evaluate_time": 60}
    return calculon.campaign(*PLAN, tokens="1T", deadline="20d", **evaluation)


# -- the days of a run ------------------------------------------------------------------------------------------------


def bars(axes) -> dict[str, float]:
    labels = [one.get_text() for one in axes.get_yticklabels()]
    return dict(zip(labels, [bar.get_width() for bar in axes.patches], strict=True))


def test_bars_are_the_days_of_the_parts_and_of_the_losses(run):
    upper, lower = run_days.draw(run_pictures.run_days(run)).subfigs
    parts, losses = (bars(axes) for axes in upper.axes)
    figures = run.figures
    assert sum(parts.values()) == pytest.approx(figures["useful_days"])
    factor = 24 if upper.axes[1].get_xlabel() == "Hours" else 1
    assert sum(losses.values()) / factor == pytest.approx(figures["days"] - figures["useful_days"])
    assert losses["evaluation"] / factor == pytest.approx(figures["evaluation_days"])
    axes, chances = lower.axes
    for one in (*upper.axes, axes, chances):
        assert_in_sight(one, up=0)
    deadlines = [one for one in axes.lines if list(one.get_xdata()) == [20, 20]]
    assert [one.get_label() for one in deadlines] == ["deadline, 20 d"]
    marks = [one.get_xdata()[0] for one in axes.lines if one.get_marker() == "o"]
    assert marks == pytest.approx([figures["useful_days"], figures["days_p50"], figures["days"]])
    lines = [tuple(one.get_xdata()) for one in axes.lines if one.get_linewidth() == 4]
    assert lines[0] == pytest.approx((figures["days_p10"], figures["days_p90"]))
    assert lines[-1] == pytest.approx(run.days_between)
    curve, *marks = chances.lines
    told = {10: "days_p10", 50: "days_p50", 90: "days_p90"}
    assert {y: x for line in marks for x, y in [(*line.get_xdata(), *line.get_ydata())]} == {
        share: pytest.approx(figures[name]) for share, name in told.items()
    }
    for share, name in told.items():
        assert np.interp(share, curve.get_ydata(), curve.get_xdata()) == pytest.approx(
            figures[name]
        )
    assert np.all(np.diff(curve.get_xdata()) >= 0)


def test_a_run_that_never_fails_has_no_chances():
    sure = calculon.campaign(*PLAN, tokens="1G", reliability__mtbf_processor="never")
    upper, lower = run_days.draw(run_pictures.run_days(sure)).subfigs
    assert len(lower.axes) == 1
    assert texts(upper.axes[1]) == ["nothing"]


def test_the_shortest_of_many_parts_are_one(monkeypatch):
    monkeypatch.setattr(run_days, "MOST", 4)
    ramp = calculon.campaign(*PLAN, tokens="1T", batch_ramp=RAMP)
    assert len(ramp.parts) > run_days.MOST
    upper, _ = run_days.draw(run_pictures.run_days(ramp)).subfigs
    parts = bars(upper.axes[0])
    assert len(parts) == run_days.MOST
    others = len(ramp.parts) - run_days.MOST + 1
    days = sorted(one.days for one in ramp.parts)
    assert parts[f"{others} other parts"] == pytest.approx(sum(days[:others]))
    assert sum(parts.values()) == pytest.approx(ramp.figures["useful_days"])


# -- days against money -----------------------------------------------------------------------------------------------


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
