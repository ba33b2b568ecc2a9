"""The answer is the best of a search, its rivals are the best of theirs, and every figure follows from a step."""

from functools import cache

import pytest

import calculon
from calculon.inspect.told_apart import least_ratio
from calculon.planner.answer import REPEATED, TOKENS, Answer, plan


@cache
def answer() -> Answer:
    return plan("llama3-8B", 64, "h100_80g_sxm", batch=512, tokens="15T", mine="tp=2 pp=2 mbs=1")


@cache
def search(num_procs: int = 64, **options):
    fixed = {"batch_size": 512, **options}
    return calculon.search(
        "llama3-8B", "h100_80g_sxm", num_procs, 512, "bfloat16", preset="megatron-lm", fix=fixed
    )


def test_the_best_is_that_of_a_search():
    assert answer().best.execution == search().best.execution
    assert answer().found.counts == search().counts


def test_every_rival_is_the_best_of_its_split():
    for one in answer().splits[:4]:
        tp, pp = one.execution["tensor_par"], one.execution["pipeline_par"]
        assert one.time == search(tensor_par=tp, pipeline_par=pp).best.stats["total_time"]


def test_rivals_are_in_the_order_of_their_times():
    times = [one.time for one in answer().splits]
    assert times == sorted(times)
    assert len(
        {(s.execution["tensor_par"], s.execution["pipeline_par"]) for s in answer().splits}
    ) == len(times)


def test_a_tie_is_all_within_its_ratio_and_names_the_simplest():
    for tie, ratio in zip(answer().ties, (REPEATED, least_ratio()), strict=True):
        best = answer().plans[0].time
        assert tie.ratio == ratio
        assert tie.plans == tuple(one for one in answer().plans if one.time < best * ratio)
        assert tie.simplest.simplicity == min(one.simplicity for one in tie.plans)


def test_counts_are_half_and_twice_the_processors():
    counts = answer().counts
    assert [one.num_procs for one in counts] == [32, 64, 128]
    assert counts[1].best == answer().plans[0]
    assert counts[0].best.time == search(32).best.stats["total_time"]


def test_days_and_hours_follow_from_the_step():
    one = answer().plans[0]
    told = one.training(15e12, answer().question.tokens_per_step)
    steps = 15e12 / (512 * 8192)
    assert told["steps"] == steps
    assert told["days"] == pytest.approx(steps * one.time / 86400, rel=1e-12)
    assert told["processor_hours"] == pytest.approx(told["days"] * 24 * 64, rel=1e-12)
    assert told["days_low"] < told["days"] < told["days_high"]


def test_a_plan_of_ones_own_is_its_estimate():
    fields = {"num_procs": 64, "tensor_par": 2, "pipeline_par": 2, "microbatch_size": 1}
    fields |= {"batch_size": 512, "datatype": "bfloat16", "base": "megatron-lm"}
    wanted = calculon.estimate("llama3-8B", fields, "h100_80g_sxm")
    assert answer().mine.estimate.execution == wanted.execution
    assert answer().mine.candidate.time == wanted.stats["total_time"]


def test_a_plan_of_ones_own_that_cannot_run_says_why():
    own = plan("llama3-70B", 8, "h100_80g_sxm", batch=8, mine="tp=1 pp=1").mine
    assert own.estimate is None
    assert "GiB" in own.problem


def test_plain_data_have_the_plans_by_rank_and_the_training():
    told = answer().to_dict()
    assert told["plans"]["0"]["execution"] == answer().plans[0].execution
    assert told["plans"]["0"]["training"]["tokens"] == 15e12
    assert told["question"]["preset"]["name"] == "megatron-lm"
    assert told["mine"]["execution"]["tensor_par"] == 2
    unasked = plan("llama3-8B", 64, "h100_80g_sxm").to_dict()
    assert unasked["question"]["tokens"] is None
    assert unasked["plans"]["0"]["training"]["tokens"] == TOKENS


def test_nothing_that_fits_says_why_and_what_would():
    found = plan("llama3-70B", 8, "a100_40g_sxm")
    assert found.best is None
    assert found.unfit is not None
    assert found.to_dict()["unfit"]["lines"]
    assert found.counts[0].reason
