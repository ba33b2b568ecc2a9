"""The view of the search: plans and numbers of the command, feasible points, cells and rows that agree."""

import re
from dataclasses import replace
from itertools import chain

import pytest

from calculon.advise.answer import Answer, space_of
from calculon.base.errors import SpecError
from calculon.cli.main import main
from calculon.declarations.plan_words import degrees_words
from calculon.estimate.estimate import estimate
from calculon.explore.exports.equivalent_commands import equivalents
from calculon.explore.page_state import OPTIONS, State, read_state
from calculon.explore.search.found_plans import FoundPlans, split_name
from calculon.explore.search.search_view import PARTS
from calculon.explore.search.searches import (
    OPENED,
    each_split,
    offered,
    opened,
    pareto_plans,
    search_settings,
)
from calculon.render.chart import Cells, Line
from calculon.search.best_first import count_space
from calculon.search.driver import run
from tests.documents.charts.reading import marks
from tests.draws import some
from tests.explore.asking import answers, at, made, words

BEST = State(model="gpt3-13B", system="a100_80g_sxm", procs=16, batch="64", view="search")

ASKED = {
    "nothing": {},
    "a condition": {"where": "proc_mem_tier1_cap_req < 60 * GiB and pipeline_par > 1"},
    "any risk": {"where": ""},
    "all": {
        "objective": "proc_mem_tier1_cap_req",
        "fix": "tensor_par=2,4 zero_stage=1",
        "open": "optimizer_offload",
    },
}


def with_options(state=BEST, **options):
    return replace(state, options=options)


of_all = pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, id=name, marks=() if name == "all" else pytest.mark.large)
        for name, options in ASKED.items()
    ],
)


@of_all
def test_the_best_has_the_numbers_of_the_command(options, capsys):
    state = with_options(**options)
    argv = equivalents(state, answers())[1].argv
    assert main(["-" if word == "best.json" else word for word in argv] + ["-v"]) == 0
    told = capsys.readouterr().out
    said = words(made("search-best", state))
    plans = FoundPlans(
        search_settings(state, answers()), each_split(state, answers()), state, answers()
    )
    line = next(one for one in told.splitlines() if degrees_words(plans.winners[0][0]) in one)
    for one in re.findall(r"\d[\d.,]* s\b|\d[\d.,]*(?= GiB)", said.split("plan that")[0]):
        assert one in line
    total, good = (re.search(rf"{word} executions: (\d+)", told)[1] for word in ("Total", "Good"))
    assert f"{int(total):,} plans tried" in said
    assert f"{int(good):,} can run" in said


@of_all
def test_map_table_and_best_agree(options):
    state = with_options(**options)
    rows = re.findall(r'data-key="([\d.]+)"', made("search-plans", state).html)
    (panel,) = made("search-splits", state).chart.panels
    (tiles,) = marks(panel, Cells)
    flat = [chain.from_iterable(rows) for rows in (tiles.values, tiles.texts)]
    cells = {
        name: (ratio, text) for name, ratio, text in zip(tiles.keys, *flat, strict=True) if name
    }
    assert {*rows} == {*cells}
    assert cells[rows[0]][0] == 1.0 == min(ratio for ratio, _ in cells.values())
    ratios = [cells[name][0] for name in rows]
    assert ratios == sorted(ratios)
    assert not {key for one in marks(panel, Line) for key in one.keys} & {*rows}


def test_crosses_say_why_nothing_can_run():
    state = replace(BEST, model="gpt3-175B", procs=32)
    it = search_settings(state, answers())
    (panel,) = made("search-splits", state).chart.panels
    (crosses,) = marks(panel, Line)
    assert not any(crosses.links)
    places = zip(crosses.x, crosses.y, crosses.keys, crosses.words, strict=True)
    for column, row, name, said in some(places, 3):
        x, y = panel.y.ticks[row][1], panel.x.ticks[column][1]
        fix = {"tensor_par": int(x), "pipeline_par": int(y)}
        found = run(space_of(replace(it.question, fix=fix), 32), it.best())
        assert found.counts.total > 0 == found.counts.good
        assert name == split_name(int(x), int(y))
        assert said.startswith(f"TP {x}, PP {y}: ")


def test_ties_are_those_of_the_plan():
    found = each_split(BEST, answers())
    plan = Answer(answers().question(BEST), found, None, (), None, None)
    alike = [one.execution for one in plan.tie.plans]
    shown = FoundPlans(search_settings(BEST, answers()), found, BEST, answers())
    tied = [shown.winners[rank][0] for rank in range(len(found)) if shown.tied(rank)]
    assert [shown.winners[0][0], *tied] == alike
    told = words(made("search-plans", BEST))
    assert f"{len(alike)} of {len(found)}, including the fastest, are too close to call" in told
    listed = [rank for rank in shown.ranks if shown.tied(rank)]
    assert made("search-plans", BEST).html.count(">~</td>") == len(listed)


@pytest.mark.parametrize("axes", some([{"x": "tp_comm_exposed_time", "y": "mfu"}, {}], 1))
def test_points_are_plans_that_run_and_cells_and_links_lead_to_them(axes):
    state = with_options(**axes, **ASKED["all"])
    (panel,) = made("search-front", state).chart.panels
    x, y = (state.option(name) for name in ("x", "y"))
    units = []
    for mark in marks(panel, Line):
        if not mark.links:
            continue
        places = zip(mark.x, mark.y, mark.links, mark.keys, strict=True)
        for across, up, link, name in some(places, 5):
            shown = answers().plan(at(link)).estimate
            again = estimate(shown.model, shown.execution, shown.system).stats
            units += [again[y] / up, again[x] / across] if across else []
            assert name == split_name(shown.execution.tensor_par, shown.execution.pipeline_par)
    assert units[::2] == pytest.approx([units[0]] * len(units[::2]))
    assert units[1::2] == pytest.approx([units[1]] * len(units[1::2]))


def test_no_plan_beats_one_of_the_front_in_both():
    found = pareto_plans(BEST, answers()).evaluation
    each = each_split(BEST, answers()).evaluation
    for time, memory in zip(found["total_time"], found["proc_mem_tier1_cap_req"], strict=True):
        better = (each["total_time"] < time) & (each["proc_mem_tier1_cap_req"] < memory)
        assert not better.any()


def test_rows_lead_to_their_plans():
    plans = FoundPlans(
        search_settings(BEST, answers()), each_split(BEST, answers()), BEST, answers()
    )
    for rank in some(plans.ranks, 4):
        taken = answers().plan(at(plans.link(rank))).estimate
        fields, stats = plans.winners[rank]
        assert {name: getattr(taken.execution, name) for name in fields} == fields
        assert taken.stats["total_time"] == stats["total_time"]


def test_a_condition_that_no_plan_meets_is_said():
    state = with_options(where="GiB < 1")
    feasible = count_space(search_settings(BEST, answers()).space)
    said = words(made("search-best", state))
    assert re.match(r"None of [\d,]+ plans that can run meets the condition\.", said)
    assert f"{feasible:,} plans tried" in said


def test_all_that_is_offered_adds_to_the_search():
    usual = count_space(search_settings(BEST, answers()).space)
    names = offered(BEST, answers())
    assert {"zero_stage", "context_par", "optimizer_offload"} <= {*names} <= {*OPENED}
    for name, values in some(names.items(), 6):
        state = with_options(open="context_par,cp_comm" if name == "cp_comm" else name)
        it = search_settings(state, answers())
        assert {*values} <= {*it.space.switches[name]}
        assert count_space(it.space) >= usual


def test_counts_are_compared_with_the_same_batch():
    part = made("search-counts", with_options(counts="8,48"))  # and 16, that of the page
    told = words(part)
    assert told.index(" 8 ") < told.index(" 16 ") < told.index(" 48 ")
    assert "100.0 %" in told
    points = {
        count: link
        for panel in part.chart.panels
        for one in marks(panel, Line)
        for count, link in zip(one.x, one.links, strict=bool(one.links))
    }
    assert sorted(points) == [8, 16, 48]
    assert [at(link).procs for link in points.values()] == [*points]
    assert made("search-counts", BEST) is None


def test_nonsense_is_refused():
    for options, word in [
        ({"objective": "fastness"}, "fastness"),
        ({"objective": "days"}, "--tokens"),
        ({"where": "total_time <"}, "condition"),
        ({"where": "tensor_par == 'a'"}, "tensor_par"),
        ({"fix": "tensor_par=3"}, "tensor_par"),
        ({"fix": "tensor_par"}, "FIELD=VALUE"),
        ({"open": "datatype"}, "datatype"),
        ({"x": "nothing"}, "nothing"),
        ({"counts": "some"}, "some"),
        ({"counts": "1:1000"}, "at most"),
    ]:
        assert {*options} <= {*OPTIONS}
        with pytest.raises(SpecError, match=re.escape(word)):
            [kind.make(with_options(**options), answers()) for kind in PARTS]


def test_no_plan_fits_and_says_why():
    state = replace(BEST, model="gpt3-175B", procs=4)
    assert "memory is too small" in words(made("search-best", state))
    assert made("search-plans", state) is None
    assert made("search-front", state) is None


def test_several_values_of_a_list_are_joined_in_an_address():
    state = read_state([("open", "zero_stage"), ("open", "pp_layout")], answers().allowed, BEST)
    assert opened(state) == {"zero_stage", "pp_layout"}
    assert at(state.link()) == state
