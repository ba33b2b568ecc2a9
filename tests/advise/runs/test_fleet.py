"""Fleets compared for a whole run: the best of all counts and machines, under limits, as brute force has it."""

from dataclasses import replace

import numpy as np
import pytest

import calculon
from calculon.advise.answer import best_on
from calculon.advise.ask import ask, most_processors
from calculon.advise.planning import plan
from calculon.advise.runs import fleet_search
from calculon.advise.runs.fleet import FleetAnswer
from calculon.advise.runs.fleet_search import (
    ANY,
    ask_fleet,
    counts_near,
    halves_and_doubles,
    usual_objective,
)
from calculon.base.errors import SpecError
from calculon.campaign.read import read_campaign
from calculon.campaign.run_columns import whole_runs
from calculon.declarations.usual_batch import TOKENS_PER_PROCESSOR, usual_batch
from calculon.inputs import Changed
from tests.cases import for_each
from tests.helpers import refusal
from tests.store import cache

MODEL, SYSTEM, BATCH = "llama3-8B", "h100_80g_sxm", 512
RUN = {"tokens": "1T", "fleet": {"price": 2.0}}
UNPRICED = "gaudi3"


@pytest.fixture(autouse=True)
def searched_once(monkeypatch):
    """Search each count of a machine once: limits and objectives compare the same plans."""
    monkeypatch.setattr(fleet_search, "best_on", _best_on)


_found = {}


def _best_on(question, num_procs, *, cache):
    key = question.model.name, question.system.name, num_procs, question.batch_size
    if key not in _found:
        _found[key] = best_on(question, num_procs, cache=cache)
    return _found[key]


@cache
def fleet(counts="32,64,128", systems=SYSTEM, objective="usd", **stated) -> FleetAnswer:
    """Return an answer about small fleets."""
    asked = read_campaign(RUN, stated)
    return plan(MODEL, counts, systems, batch=BATCH, campaign=asked, objective=objective)


def value(point, name):
    return point.figures[name]


# -- one count of one machine


def test_the_fastest_plan_of_a_count_is_its_best_in_days_and_money():
    """By brute force over all plans of a small space.

    Intervals between checkpoints are whole steps, whose rounding may lengthen a run by the square of a small part.
    """
    best = fleet("64").points[0]
    fix = {"batch_size": BATCH, "tensor_par": 1, "pipeline_par": [1, 2]}
    space = {"fix": fix, "preset": "megatron-lm", "edition": "corrected"}
    tables = [*calculon.executions(MODEL, SYSTEM, 64, BATCH, "bfloat16", **space)]
    times = np.concatenate([table["total_time"] for table in tables])
    assert len(times) > 100
    fastest = np.argmin(times)
    tokens, figures = np.asarray(best.question.tokens_per_step), {}
    whole = [
        whole_runs(best.campaign, best.system, "bfloat16", 1e12, tokens, table.column)
        for table in tables
    ]
    for rounded, slack in ((True, 1e-6), (False, 1e-12)):
        runs = [replace(run, rounded=rounded) for run in whole]
        for name in ("days", "usd", "processor_hours", "days_p90"):
            figures[name] = np.concatenate([np.atleast_1d(getattr(run, name)) for run in runs])
            assert figures[name][fastest] <= figures[name].min() * (1 + slack)
    days = figures["days"]
    assert (np.diff(days[np.argsort(times)]) >= -1e-12 * days.max()).all()


def test_a_point_is_the_best_plan_of_its_count_and_its_run():
    point = fleet().points[1]
    alone = point.answer
    assert point.num_procs == 64
    assert point.plan.time == alone.best.stats["total_time"]
    assert alone.plans[0].execution == point.plan.execution
    execution = dict(point.plan.execution)
    whole = calculon.campaign(MODEL, execution, SYSTEM, RUN)
    for name in ("days", "days_p90", "usd", "processor_hours", "mwh", "goodput"):
        assert value(point, name) == pytest.approx(whole.figures[name], rel=1e-12)


# -- under limits


@for_each(
    ("objective", "limit", "stated", "figure", "most"),
    [
        ("usd", "deadline", "20d", "days", 20),
        ("days", "deadline", "20d", "days", 20),
        ("mwh", "deadline", "20d", "days", 20),
        ("days", "budget_usd", 56_000, "usd", 56_000),
        ("processor_hours", "budget_usd", 56_000, "usd", 56_000),
    ],
)
def test_the_best_is_that_of_all_points_that_meet_the_limits(
    objective, limit, stated, figure, most
):
    answer = fleet(objective=objective, **{limit: stated})
    meet = [one for one in answer.points if value(one, figure) <= most]
    assert len(meet) == 2  # of 32, 64 and 128 processors
    assert answer.best in meet
    assert value(answer.best, objective) == min(value(one, objective) for one in meet)


def test_the_frontier_is_what_no_other_beats_in_days_and_money():
    answer = fleet("32,64", f"{SYSTEM},a100_80g_sxm")
    known = [one for one in answer.points if one.plan]

    def beaten(one):
        return any(
            value(other, "days") <= value(one, "days")
            and value(other, "usd") <= value(one, "usd")
            and other is not one
            for other in known
        )

    assert {id(one) for one in answer.frontier} == {id(one) for one in known if not beaten(one)}
    days = [value(one, "days") for one in answer.frontier]
    assert days == sorted(days)


def test_where_nothing_meets_the_limits_the_nearest_says_by_how_much():
    answer = fleet(deadline="5d", budget_usd="10k")
    assert answer.best is None
    over = {limit.field: limit.over for limit in answer.nearest.limits}
    assert over["deadline"] == pytest.approx(value(answer.nearest, "days") - 5)
    assert over["budget_usd"] == pytest.approx(value(answer.nearest, "usd") - 10e3)
    assert min(answer.ranked, key=lambda one: one.excess) is answer.nearest
    assert f"{answer.nearest.num_procs:,} x {SYSTEM}" in answer.misses
    assert any("the cheapest, " in words for words in answer.ways)


def test_a_larger_count_is_named_where_none_of_those_asked_for_is_in_time():
    answer = fleet("32,64", deadline="10d")
    assert answer.best is None
    assert answer.further.num_procs > 64
    assert value(answer.further, "days") <= 10
    assert any(f"{answer.further.num_procs:,} x" in words for words in answer.ways)


# -- machines without a price


def test_processor_hours_of_one_machine_stand_for_dollars_that_are_not_known():
    asked = {"tokens": "1T"}
    found = plan(MODEL, "32,64", UNPRICED, batch=BATCH, campaign=asked, objective="usd")
    assert found.ranked_by == found.money == "processor_hours"
    hours = [value(one, "processor_hours") for one in found.points]
    assert value(found.best, "processor_hours") == min(hours)


def test_machines_without_a_price_come_after_the_others_by_days():
    asked = {"tokens": "1T", "deadline": "600d"}
    machines = [UNPRICED, SYSTEM]
    found = plan(MODEL, "32,64", machines, batch=BATCH, campaign=asked, objective="usd")
    assert [one.system.name for one in found.ranked[:2]] == [SYSTEM, SYSTEM]
    days = [value(one, "days") for one in found.ranked[2:]]
    assert days == sorted(days)
    assert UNPRICED not in {one.system.name for one in found.frontier}
    none = plan(MODEL, 32, [UNPRICED, "gaudi2"], batch=BATCH, campaign=asked, objective="usd")
    assert none.ranked_by == "days"
    assert none.frontier == ()


def test_a_budget_is_not_met_by_what_has_no_price():
    asked = {"tokens": "1T", "budget_usd": "100M"}
    found = plan(MODEL, 32, UNPRICED, batch=BATCH, campaign=asked, objective="usd")
    assert found.best is None
    assert found.points[0].unchecked == ("budget_usd",)
    assert "budget_usd" in found.misses
    asked["deadline"], machines = "5d", [UNPRICED, SYSTEM]
    both = plan(MODEL, 32, machines, batch=BATCH, campaign=asked, objective="usd")
    assert [one.system.name for one in both.ranked] == [SYSTEM, UNPRICED]
    assert SYSTEM in both.frameworks  # each has its own


# -- open counts


def test_open_counts_are_those_that_could_meet_the_deadline():
    answer = fleet(ANY, deadline="60d")
    counts = [one.num_procs for one in answer.points]
    assert counts == sorted(set(counts))
    assert all(count % 8 == 0 for count in counts)
    probed = fleet("1024").points[0]
    least = 0.7 * 1024 * value(probed, "days") / 60
    ladder = [*halves_and_doubles(8, least, 2**16)]
    tried = [one for one in answer.points if one.num_procs in ladder]
    in_time = next(one.num_procs for one in tried if one.plan and value(one, "days") <= 60)
    last = next(count for count in ladder if count >= 4 * in_time)
    assert [one.num_procs for one in tried] == ladder[: ladder.index(last) + 1]
    met = [one for one in answer.points if one.plan and value(one, "days") <= 60]
    assert answer.best in met
    first = replace(answer, points=tuple(tried)).best
    coarse = ladder[: len(tried)]
    assert {*counts} - {*coarse} == {*counts_near(coarse, first.num_procs, 8)}


def test_open_counts_end_at_the_size_of_the_networks():
    small = Changed.of(SYSTEM, {"networks[1].size": 24})
    asked = read_campaign(RUN, {"deadline": "1d"})
    answer = plan(MODEL, ANY, small, batch=BATCH, campaign=asked, objective="usd")
    assert answer.best is None
    assert max(one.num_procs for one in answer.points) == most_processors(answer.nearest.system)
    assert answer.further is None


@pytest.mark.large
def test_open_counts_end_where_more_are_no_faster():
    asked = read_campaign(RUN, {"deadline": "6h"})
    answer = plan(MODEL, ANY, SYSTEM, batch=64, campaign=asked, objective="usd")
    known = [one for one in answer.points if one.plan]
    fastest = min(known, key=lambda one: value(one, "days"))
    assert answer.best is None
    assert fastest.num_procs < max(one.num_procs for one in answer.points)
    assert value(fastest, "days") > 6 / 24


def test_wide_searches_are_fewer(monkeypatch):
    assert not fleet(ANY, deadline="60d").coarse  # before the patch: the result is cached
    monkeypatch.setattr(fleet_search, "WIDE", 0)
    asked = read_campaign(RUN, {"deadline": "60d"})
    answer = plan(MODEL, ANY, SYSTEM, batch=BATCH, campaign=asked, objective="usd")
    counts = [one.num_procs for one in answer.points]
    assert answer.coarse
    assert counts == [*halves_and_doubles(8, min(counts), max(counts))]
    assert answer.best is not None


def test_halves_and_doubles_are_powers_of_two_of_nodes_and_those_times_a_half_more():
    found = [*halves_and_doubles(4, 5, 200)]
    assert found == sorted(found)
    assert set(found) == {4 * n for n in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48)}


def test_each_count_has_the_batch_that_a_plan_of_this_count_alone_assumes():
    answer = plan(MODEL, "64,96", SYSTEM, campaign=RUN, objective="days")
    alone = [ask(MODEL, count, SYSTEM).batch_size for count in (64, 96)]
    assert [one.plan.execution["batch_size"] for one in answer.points] == alone
    assert alone[0] != alone[1]
    assert alone[1] % 3 == 0
    assert answer.batch_size is None
    assert "for each processor" in answer.assumed["--batch"]
    assert answer.uneven == answer.small == ()
    assert [one["tokens_per_step"] for one in answer.to_dict()["points"]] == [
        batch * 8192 for batch in alone
    ]
    assert usual_batch(2**14, 8192) * 8192 == TOKENS_PER_PROCESSOR * 2**14


def test_one_batch_says_which_counts_it_does_not_suit():
    answer = fleet("64,96")
    assert answer.batch_size == BATCH
    assert answer.uneven == (96,)  # 3 is not in 512
    assert answer.small == ()
    steps = plan(MODEL, "64,96", SYSTEM, campaign={"steps": 1000}, objective="days")
    assert steps.batch_size == ask(MODEL, 64, SYSTEM).batch_size  # a run of steps has one batch
    few = plan(MODEL, "64,128", SYSTEM, batch=8, campaign=RUN, objective="days")
    assert few.small == (128,)  # 64 Ki tokens are 1 Ki on each of 64


@pytest.mark.parametrize("objective", ["t_co2", "mwh"])
def test_an_objective_that_is_known_of_no_machine_is_refused(objective):
    machine, hint = ("a100_80g", "fleet.tdp") if objective == "mwh" else (SYSTEM, "--carbon")
    with pytest.raises(SpecError, match="objective") as caught:
        plan(MODEL, 64, machine, batch=BATCH, campaign=RUN, objective=objective)
    assert hint in str(caught.value)
    known = RUN | {"fleet": {"tdp": 700, "g_co2_per_kwh": 400}}
    asked = ask_fleet(
        MODEL, 64, machine, campaign=read_campaign(known), objective=objective, batch=BATCH
    )
    assert asked.objective == objective


# -- questions and results


@for_each(
    ("words", "said"),
    [
        ({"num_procs": ANY}, "expected a deadline with any"),
        ({"objective": "dollars"}, "expected one of usd, days"),
        ({"objective": "usd:max"}, "expected min"),
        ({"mine": "tp=8"}, "expected no baseline plan"),
        ({"campaign": {"tokens": "1T", "batch_ramp": [{"from": 0, "batch": 64}]}}, "batch_ramp"),
        ({"campaign": {}}, "expected the length of the run"),
    ],
)
def test_what_cannot_be_asked_says_why(words, said):
    asked = {"num_procs": 64, "campaign": RUN, "objective": "usd"} | words
    counts = asked.pop("num_procs")
    assert said in refusal(plan, MODEL, counts, SYSTEM, batch=BATCH, **asked)


@for_each(
    ("counts", "systems", "run", "objective"),
    [
        (64, 1, {"deadline": "60d"}, "usd"),
        (64, 1, {"budget_usd": 1e6}, "usd"),
        (64, 2, {}, "usd"),
        (ANY, 1, {}, "usd"),
        ("64,96", 1, {}, None),
    ],
)
def test_limits_and_several_machines_are_ranked_by_money(counts, systems, run, objective):
    assert usual_objective(counts, systems, read_campaign(RUN | run)) == objective


def test_a_deadline_needs_no_objective():
    asked = {"batch": BATCH, "campaign": RUN, "deadline": "600d"}
    stated = plan(MODEL, 64, SYSTEM, objective="usd", **asked)
    assert plan(MODEL, 64, SYSTEM, **asked).to_dict() == stated.to_dict()


def test_a_count_without_a_plan_says_why():
    found = plan("llama3-70B", "8,64", SYSTEM, batch=64, campaign=RUN, objective="usd")
    none = found.points[0]
    assert none.plan is None
    assert "memory" in none.to_dict()["reason"]
    assert none not in found.ranked
    assert not none.meets
