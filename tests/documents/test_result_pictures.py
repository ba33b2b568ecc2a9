"""Charts of results have their numbers, and are those of ``calculon plot``; what cannot be drawn says why."""

import re

import pytest

import calculon
from calculon.base.errors import Infeasible, SpecError
from calculon.base.units import GIB
from calculon.cli.main import main
from calculon.documents.result_pictures import chart
from calculon.render import canvas, matplotlib_charts
from calculon.render.chart import Bars, Line
from tests.documents import results
from tests.documents.charts.reading import ends, legend, marks, tick_texts

LLAMA = ("llama3-8B", "llama3-8B_h100x64_p4", "h100_80g_sxm")


@pytest.fixture
def drawn(monkeypatch):
    """Charts in place of pictures of them."""
    charts = []
    monkeypatch.setattr(matplotlib_charts, "draw", charts.append)
    monkeypatch.setattr(canvas, "save", lambda *_: None)
    return charts


@pytest.fixture(scope="module")
def swept():
    values = {"microbatch_size": [1, 2, 8, 64], "system.mem1.GBps": [2000.0, 4000.0]}
    return calculon.sweep(LLAMA[0], LLAMA[2], LLAMA[1], set=values)


def lines(found, panel=0):
    """Return the named lines of a panel."""
    return {mark.name: mark for mark in marks(found.panels[panel], Line) if mark.name}


def test_the_breakdown_of_an_estimate_has_its_numbers():
    estimate = results.estimate_of()
    found = chart(estimate, "breakdown")
    (bars,) = marks(found.panels[0], Bars)
    assert ends(bars)[-1][1] == pytest.approx(estimate.stats["total_time"])
    assert found.subtitle.startswith(f"{LLAMA[1]}: ")


def test_the_schedule_is_that_of_the_command(drawn):
    results.estimate_of().plot("schedule", microbatches=5)
    command = ["plot", "schedule", *LLAMA, "--microbatches", "5", "-o", "schedule.svg"]
    assert main(command) == 0
    assert drawn[0] == drawn[1]


def test_pictures_of_deployments_are_those_of_the_command(drawn):
    asked = ("llama3-8B", "1", "h100_80g_sxm")
    one = calculon.serve(asked[0], 1, asked[2], prompt=1000, output=200)
    one.plot()
    calculon.by_batch(one).plot()
    lengths = ["--prompt", "1000", "--output", "200"]
    assert main(["plot", "batch", *asked, *lengths, "-o", "batch.svg"]) == 0
    assert drawn[0] == drawn[1] == drawn[2]
    few = {"token_budget": 2048}
    figures = ["output_rate_per_proc", "interactivity"]
    found = calculon.search_deployments(
        asked[0], 1, asked[2], prompt=1000, output=200, fix=few, pareto=figures
    )
    found.plot()
    fixed = ["--fix", "token_budget=2048"]
    assert main(["plot", "frontier", *asked, *lengths, *fixed, "-o", "frontier.svg"]) == 0
    assert drawn[3] == drawn[4]


def test_an_answer_has_my_plan_before_the_best():
    answer = results.answer()
    panel = chart(answer, "breakdown").panels[0]
    assert [text.partition("\n")[0] for text in tick_texts(panel.y)] == ["mine", "best"]
    *_, last = marks(panel, Bars)
    times = [one.stats["total_time"] for one in (answer.mine.estimate, answer.best)]
    assert [end for _, end in ends(last)] == pytest.approx(times)
    counts = {count.num_procs: count.best.stats["sample_rate"] for count in answer.counts}
    rates = next(iter(lines(chart(answer, "scaling")).values()))
    assert dict(zip(rates.x, rates.y, strict=True)) == counts


def test_an_answer_without_a_plan_has_nothing_to_draw():
    answer = results.no_answer()
    for kind in ("breakdown", "scaling"):
        with pytest.raises(Infeasible, match="no plan fits"):
            answer.plot(kind)


def test_a_run_has_its_days_and_its_goodput_over_sizes():
    run = calculon.campaign(*LLAMA, tokens="1T")
    (parts,) = marks(chart(run, "campaign").panels[0], Bars)
    assert sum(parts.lengths) == pytest.approx(run.figures["useful_days"])
    sizes = chart(run, "goodput", procs="64,128", mtbf=[20_000])
    (curve,) = [one for one in lines(sizes).values() if one.dash != "none"]
    assert curve.x == [64, 128]
    with pytest.raises(SpecError, match="an argument of goodput: procs, mtbf"):
        run.plot("goodput", sizes=8)


def test_fleets_have_days_against_money():
    found = results.fleets()
    points = {(one["days"], one["usd"]) for one in found.to_dict()["points"]}
    (panel,) = chart(found, "budget").panels
    prefix = {"million": 1e6, "thousand": 1e3}.get(panel.y.unit.split()[0], 1.0)
    shown = {
        (x, y * prefix) for mark in marks(panel, Line) for x, y in zip(mark.x, mark.y, strict=True)
    }
    assert all(any(point == pytest.approx(one) for one in shown) for point in points)


def test_a_search_has_its_executions_and_those_that_nothing_beats():
    found = results.found()
    dots, front = marks(chart(found, "pareto", x="", y="").panels[0], Line)
    memory = found.evaluation["proc_mem_tier1_cap_req"] / GIB
    rate = found.evaluation["sample_rate"]
    assert dots.name == f"{len(found):,} executions that can run"
    assert {*zip(dots.x, dots.y, strict=True)} <= {*zip(memory, rate, strict=True)}
    for x, y in zip(front.x, front.y, strict=True):
        assert not ((rate > y) & (memory <= x)).any()


def test_a_frontier_is_drawn_by_its_own_objectives():
    front = results.found().pareto("total_time", "proc_mem_tier1_cap_req:min")
    (panel,) = chart(front, "pareto", x="", y="").panels
    assert (panel.x.label, panel.y.label) == ("Memory per processor", "Iteration time")
    (line,) = marks(panel, Line)  # without others
    assert len(line.x) == len(front)


def test_a_table_is_scattered_without_rows_that_cannot_run():
    rows = results.found().plan.to_frame().to_dict("records")
    mixed = calculon.evaluate("megatron-22B", "a100_80g", [*rows, rows[0] | {"microbatch_size": 7}])
    found = chart(mixed, "scatter", x="total_time", y="total_efficiency")
    assert legend(found)[0] == f"{len(rows)} executions that can run"
    assert found.title == f"{len(rows)} of {len(rows) + 1} executions"
    with pytest.raises(Infeasible, match="none of 1 executions"):
        mixed.take(slice(-1, None)).plot()


def test_a_sweep_has_a_curve_for_each_value(swept):
    found = chart(swept, "curves", x="microbatch_size", y="total_time", by=None)
    (panel,) = found.panels
    assert (panel.x.label, found.subtitle) == (
        "microbatch_size (sequences)",
        "curves: system.mem1.GBps",
    )
    for label, value in (("2,000", 2000.0), ("4,000", 4000.0)):
        (curve,) = marks(panel, Line, label)
        mine = (swept["system.mem1.GBps"] == value) & swept.feasible
        assert curve.x == [1, 2]
        assert curve.y == swept["total_time"][mine].tolist()
    crosses = marks(panel, Line, "cannot run")
    assert [cross.x for cross in crosses] == [[8, 64], [8, 64]]  # microbatches that do not fit


def test_rows_at_one_place_are_drawn_by_the_best(swept):
    faster = swept["system.mem1.GBps"] == 4000
    for y, mine in (("total_time", faster), ("total_time:max", ~faster)):
        found = chart(swept, "curves", x="microbatch_size", y=y, by="")
        curve = marks(found.panels[0], Line)[0]
        assert curve.y == swept["total_time"][mine & swept.feasible].tolist()


def test_names_have_places_in_their_order():
    systems = ["h100_80g_sxm", "a100_80g_sxm"]
    swept = calculon.sweep(LLAMA[0], systems, LLAMA[1])
    (panel,) = chart(swept, "curves", x="", y="sample_rate", by=None).panels
    assert tick_texts(panel.x) == systems
    assert marks(panel, Line)[0].x == [0, 1]


def test_what_cannot_be_drawn_says_why(swept):
    rows = [
        (lambda e, f, s: e.plot("schedul"), "did you mean 'schedule'"),
        (lambda e, f, s: e.plot("frontier"), "one of breakdown, schedule"),
        (lambda e, f, s: e.plot("schedule", micro=3), "an argument of schedule: microbatches"),
        (lambda e, f, s: e.plot(microbatches=3), "expected none for breakdown"),
        (lambda e, f, s: e.plot("schedule", microbatches=10**6), "at most the"),
        (lambda e, f, s: f.plot(x="sampl_rate"), "did you mean 'sample_rate'"),
        (lambda e, f, s: f.evaluation.plot(y="num_procs:up"), "y: num_procs: expected max or min"),
        (lambda e, f, s: s.plot("microbatch_siz"), "did you mean 'microbatch_size'"),
        (lambda e, f, s: s.plot(by="mem1"), "expected a column"),
        (lambda e, f, s: s.plot(y="tim"), "y: expected a statistic"),
    ]
    for call, said in rows:
        with pytest.raises(SpecError, match=re.escape(said)):
            call(results.estimate_of(), results.found(), swept)


def test_more_curves_than_can_be_told_apart_are_refused():
    values = {"mem1.GBps": range(1000, 4000, 100), "batch_size": [512, 1024]}
    many = calculon.sweep(LLAMA[0], LLAMA[2], LLAMA[1], set=values)
    with pytest.raises(SpecError, match="at most 20 curves"):
        many.plot("batch_size")
    single = calculon.sweep(*LLAMA[::2], LLAMA[1])
    with pytest.raises(SpecError, match="no input has several values"):
        single.plot()


def test_a_notebook_shows_the_figure_sharp(swept):
    figure = swept.plot("microbatch_size")
    data, shown = figure._repr_png_()
    assert data.startswith(b"\x89PNG")
    width = int.from_bytes(data[16:20], "big")
    assert width > 1.5 * shown["width"]
    assert shown["width"] / shown["height"] == pytest.approx(
        width / int.from_bytes(data[20:24], "big"), rel=0.01
    )
