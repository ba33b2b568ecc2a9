"""Charts of training runs: parts, losses and ends add up to the figures of the run."""

import numpy as np
import pytest

import calculon
from calculon.documents.charts import run_days_chart as chart_module
from calculon.documents.charts.run_days_chart import run_days
from calculon.render.chart import Bars, Line, Rule
from tests.documents.charts.reading import assert_in_sight, legend, marks, notes, tick_texts

PLAN = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")
RAMP = {"start": 64, "step": 64, "tokens": "400G"}


def bars(panel):
    (drawn,) = marks(panel, Bars)
    return dict(zip(tick_texts(panel.y), drawn.lengths, strict=True))


def test_bars_are_the_days_of_the_parts_and_of_the_losses():
    evaluation = {"evaluate_every": 100, "evaluate_time": 60}
    run = calculon.campaign(*PLAN, tokens="1T", deadline="20d", **evaluation)
    chart, figures = run_days(run), run.figures
    assert_in_sight(chart)
    assert chart.title.startswith("1 T tokens of llama3-8B on 64 x h100_80g_sxm: ")
    assert chart.subtitle == "TP 2 · PP 1 · DP 32"
    first, second, ends, chances = chart.panels
    parts, losses = bars(first), bars(second)
    assert sum(parts.values()) == pytest.approx(figures["useful_days"])
    factor = 24 if second.x.label == "Hours" else 1
    assert sum(losses.values()) / factor == pytest.approx(figures["days"] - figures["useful_days"])
    assert losses["evaluation"] / factor == pytest.approx(figures["evaluation_days"])
    (deadline,) = marks(ends, Rule)
    assert (deadline.at, legend(chart)) == (20, ["deadline, 20 d"])
    dots = [one.x[0] for one in marks(ends, Line) if one.marker]
    assert dots == pytest.approx([figures["useful_days"], figures["days_p50"], figures["days"]])
    failures, model = (one.x for one in marks(ends, Line) if not one.marker)
    assert failures == pytest.approx([figures["days_p10"], figures["days_p90"]])
    assert model == pytest.approx(run.days_between)
    curve, dots = marks(chances, Line)
    known = [figures[f"days_p{share}"] for share in (10, 50, 90)]
    assert dots.x == pytest.approx(known)
    assert np.interp(dots.y, curve.y, curve.x) == pytest.approx(known)
    assert np.all(np.diff(curve.x) >= 0)


def test_a_run_that_never_fails_has_no_chances():
    sure = calculon.campaign(*PLAN, tokens="1G", reliability__mtbf_processor="never")
    _, losses, _ = run_days(sure).panels
    assert notes(losses) == ["nothing"]


def test_the_shortest_of_many_parts_are_one(monkeypatch):
    monkeypatch.setattr(chart_module, "MOST", 4)
    ramp = calculon.campaign(*PLAN, tokens="1T", batch_ramp=RAMP)
    assert len(ramp.parts) > 4
    parts = bars(run_days(ramp).panels[0])
    assert len(parts) == 4
    others = len(ramp.parts) - 3
    days = sorted(one.days for one in ramp.parts)
    assert parts[f"{others} other parts"] == pytest.approx(sum(days[:others]))
    assert sum(parts.values()) == pytest.approx(ramp.figures["useful_days"])
