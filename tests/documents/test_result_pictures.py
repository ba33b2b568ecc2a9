"""Pictures from Python are those of ``calculon plot``; what cannot be drawn says why."""

import re

import pytest

import calculon
from calculon.base.errors import Infeasible, SpecError
from calculon.cli.main import main
from calculon.documents import drawn_charts
from calculon.render import canvas
from tests.documents import results

LLAMA = ("llama3-8B", "llama3-8B_h100x64_p4", "h100_80g_sxm")


@pytest.fixture
def content(monkeypatch):
    """What pictures are drawn of, in place of drawing them."""
    drawn = []
    monkeypatch.setattr(drawn_charts, "drawn", lambda _, given: drawn.append(given))
    monkeypatch.setattr(canvas, "save", lambda *_: None)
    return drawn


@pytest.fixture(scope="module")
def swept():
    values = {"microbatch_size": [1, 2, 4, 64], "system.mem1.GBps": [2000.0, 4000.0]}
    return calculon.sweep(LLAMA[0], LLAMA[2], LLAMA[1], set=values)


def test_the_breakdown_of_an_estimate_has_its_numbers(content):
    estimate = results.estimate_of()
    estimate.plot()
    ((one,),) = content
    assert one.stats == estimate.stats
    assert one.label == LLAMA[1]


def test_the_schedule_is_that_of_the_command(content):
    results.estimate_of().plot("schedule", microbatches=5)
    command = ["plot", "schedule", *LLAMA, "--microbatches", "5", "-o", "schedule.svg"]
    assert main(command) == 0
    assert content[0] == content[1]


def test_pictures_of_deployments_are_those_of_the_command(content):
    asked = ("llama3-8B", "1", "h100_80g_sxm")
    one = calculon.serve(asked[0], 1, asked[2], prompt=1000, output=200)
    one.plot()
    calculon.by_batch(one).plot()
    lengths = ["--prompt", "1000", "--output", "200"]
    assert main(["plot", "batch", *asked, *lengths, "-o", "batch.svg"]) == 0
    assert content[0] == content[1] == content[2]
    few = {"token_budget": 2048}
    figures = ["output_rate_per_proc", "interactivity"]
    found = calculon.search_deployments(
        asked[0], 1, asked[2], prompt=1000, output=200, fix=few, pareto=figures
    )
    found.plot()
    fixed = ["--fix", "token_budget=2048"]
    assert main(["plot", "frontier", *asked, *lengths, *fixed, "-o", "frontier.svg"]) == 0
    assert content[3] == content[4]


def test_an_answer_has_my_plan_before_the_best(content):
    answer = results.answer()
    answer.plot()
    mine, best = content.pop()
    assert (mine.label, best.label) == ("mine", "best")
    assert mine.stats == answer.mine.estimate.stats
    assert best.stats == answer.best.stats
    answer.plot("scaling")
    ((series,),) = content
    counts = {count.num_procs: count.best.stats["sample_rate"] for count in answer.counts}
    assert {point.num_procs: point.rate for point in series.points} == counts


def test_an_answer_without_a_plan_has_nothing_to_draw():
    answer = results.no_answer()
    for kind in ("breakdown", "scaling"):
        with pytest.raises(Infeasible, match="no plan fits"):
            answer.plot(kind)


def test_a_run_has_its_days_and_its_goodput_over_sizes(content):
    run = calculon.campaign(*LLAMA, tokens="1T")
    run.plot()
    run.plot("goodput", procs="64,128", mtbf=[20_000])
    days, goodput = content
    assert days.run == run.to_dict()
    assert (goodput["num_procs"], len(goodput["curves"])) == ([64, 128], 1)
    with pytest.raises(SpecError, match="an argument of goodput: procs, mtbf"):
        run.plot("goodput", sizes=8)


def test_fleets_have_days_against_money(content):
    results.fleets().plot()
    (document,) = content
    assert document == results.fleets().to_dict()


def test_a_search_has_its_executions_and_those_that_nothing_beats(content):
    found = results.found()
    found.plot()
    (drawn,) = content
    memory, rate = drawn.columns
    assert memory.tolist() == found.evaluation["proc_mem_tier1_cap_req"].tolist()
    assert rate.tolist() == found.evaluation["sample_rate"].tolist()
    assert drawn.complete
    for row in drawn.front:
        assert not ((rate > rate[row]) & (memory <= memory[row])).any()


def test_a_frontier_is_drawn_by_its_own_objectives(content):
    front = results.found().pareto("total_time", "proc_mem_tier1_cap_req:min")
    front.plot()
    (drawn,) = content
    assert (drawn.x, drawn.y) == ("proc_mem_tier1_cap_req", "total_time")
    assert not drawn.complete
    assert len(drawn.front) == len(front)


def test_a_table_is_scattered_without_rows_that_cannot_run(content):
    rows = results.found().plan.to_frame().to_dict("records")
    mixed = calculon.evaluate("megatron-22B", "a100_80g", [*rows, rows[0] | {"microbatch_size": 7}])
    mixed.plot("total_time", "total_efficiency")
    (drawn,) = content
    assert drawn.columns.shape == (2, len(rows))
    assert drawn.title == f"{len(rows)} of {len(rows) + 1} executions"
    with pytest.raises(Infeasible, match="none of 1 executions"):
        mixed.take(slice(-1, None)).plot()


def test_a_sweep_has_a_curve_for_each_value(content, swept):
    swept.plot("microbatch_size", "total_time")
    (drawn,) = content
    assert [one.label for one in drawn.curves] == ["2,000", "4,000"]
    assert (drawn.x, drawn.by) == ("microbatch_size (sequences)", "system.mem1.GBps")
    for label, one in zip((2000.0, 4000.0), drawn.curves, strict=True):
        assert list(one.places) == [1, 2, 4, 64]
        mine = (swept["system.mem1.GBps"] == label) & swept.feasible
        known = [value for value in one.values if value is not None]
        assert known == swept["total_time"][mine].tolist()
        assert one.values[-1] is None  # a microbatch of 64 sequences does not fit


def test_rows_at_one_place_are_drawn_by_the_best(content, swept):
    swept.plot("microbatch_size", "total_time", by="")
    swept.plot("microbatch_size", "total_time:max", by="")
    best, worst = (drawn.curves[0] for drawn in content)
    faster = swept["system.mem1.GBps"] == 4000
    assert [v for v in best.values if v] == swept["total_time"][faster & swept.feasible].tolist()
    assert [v for v in worst.values if v] == swept["total_time"][~faster & swept.feasible].tolist()


def test_names_have_places_in_their_order(content):
    systems = ["h100_80g_sxm", "a100_80g_sxm"]
    calculon.sweep(LLAMA[0], systems, LLAMA[1]).plot()
    (drawn,) = content
    assert list(drawn.names) == systems
    assert list(drawn.curves[0].places) == [0, 1]


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
    with pytest.raises(SpecError, match="nothing that was asked has several values"):
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
