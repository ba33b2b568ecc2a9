"""Why nothing fits, and what would mend it: every proposal is legal, and figures are the least that do."""

import re
from dataclasses import replace

import numpy as np
import pytest

import calculon
from calculon.advise.infeasibility import (
    fix_in_words,
    infeasibility_report,
    reasons_of,
    why_none,
)
from calculon.advise.nearest_infeasible import nearest_infeasible, with_memory
from calculon.advise.neighbors import SAVES, memory_savers
from calculon.advise.space_fixes import PRODUCTS
from calculon.base.errors import REASONS, Infeasible
from calculon.base.units import GIB, chance
from calculon.declarations.statistics import OFFLOADS, RISK, within_risk
from calculon.estimate.memory_limit import errors_of
from calculon.plan.rules.all_rules import MEMORY_REASONS, RULES
from calculon.search.best_first import search_space
from calculon.search.conditions import Condition
from calculon.search.driver import run
from calculon.search.objective import Objective
from calculon.search.override_checks import COMMAND_LINE
from calculon.search.ranking import Best
from calculon.search.request import make_condition, make_space
from calculon.search.search_counts import Counts
from tests.store import cache

CASES = {
    "175B on a box": ("gpt3-175B", "a100_80g_sxm", 8, 64, {}),
    "8B in large microbatches": ("llama3-8B", "h100_80g_sxm", 8, 64, {"microbatch_size": 64}),
    "70B on a thousand": ("llama3-70B", "h100_80g_sxm", 1000, 1024, {"batch_size": 1024}),
}
KINDS = {
    "175B on a box": ["memory", "processors"],
    "8B in large microbatches": [
        *("freed", "options", "sequence", "memory", "product", "processors"),
    ],
    "70B on a thousand": ["batch", "batch", "processors", "processors"],
}


def _space(model, system, procs, batch, fix, **options):
    options = {"edition": "corrected", "preset": "megatron-lm"} | options
    return make_space(model, system, procs, batch, "bfloat16", fix=fix, **options)


@cache
def _found(name):
    return infeasibility_report(_space(*CASES[name]))


@cache
def _searched():
    """Return a space in which memory is too small for everything, and the counts of a search of it."""
    space = _space("llama3-8B", {"base": "a100_80g_pcie", "mem1": {"GiB": 24}}, 4, 64, {})
    return space, search_space(space, Best(Objective.parse("sample_rate"), 1))


@pytest.fixture(params=[pytest.param("175B on a box", marks=pytest.mark.large), *[*CASES][1:]])
def case(request):
    """Why nothing of a space fits, and its name."""
    return request.param, _found(request.param)


def test_the_kinds_of_fixes_follow_from_the_case(case):
    name, found = case
    assert [one.kind for one in found.fixes] == KINDS[name]
    times = [one.found.stats["total_time"] for one in found.fixes if one.kind == "options"]
    assert times == sorted(times)  # the fastest settings first


def test_every_fix_is_a_plan_that_runs(case):
    _, found = case
    for one in found.fixes:
        again = calculon.estimate(found.space.model, one.found.execution, one.found.system)
        assert again.stats == one.found.stats
        assert one.found.system.networks == found.space.system.networks


def test_a_fix_changes_what_it_says(case):
    """The system where it is memory, else the execution alone."""
    _, found = case
    for one in found.fixes:
        execution, system = one.found.execution, one.found.system
        if one.kind in ("memory", "product"):
            assert {name: getattr(system, name).capacity for name in one.change} == one.change
            continue
        assert system == found.space.system
        for name, value in one.change.items():
            if one.kind == "freed":
                assert getattr(execution, name) not in found.space.fix[name]
            else:
                assert getattr(execution, name) == value
        asked = {"num_procs": found.space.num_procs, "batch_size": found.space.max_batch_size}
        for name in asked.keys() - one.change.keys():
            assert getattr(execution, name) == asked[name]


def test_the_least_memory_is_the_least_within_the_risk(case):
    _, found = case
    rate, condition = Objective.parse("sample_rate"), Condition.parse(within_risk(RISK))
    for one in found.fixes:
        if one.kind != "memory":
            continue
        system = found.space.system
        for less, fits in ((0, True), (1, False)):
            memory = replace(system.mem1, capacity=one.change["mem1"] - less)
            space = replace(found.space, system=replace(system, mem1=memory))
            assert bool(len(run(space, Best(rate, 1, condition)))) == fits


def test_a_product_is_the_smallest_that_is_enough(case):
    _, found = case
    sizes = {one.kind: one.change["mem1"] / GIB for one in found.fixes if "mem1" in one.change}
    if "product" in sizes:
        assert sizes["product"] == min(size for size in PRODUCTS if size >= sizes["memory"])
    elif "memory" in sizes:
        assert sizes["memory"] > max(PRODUCTS)


def test_what_would_do_has_little_risk_where_something_has(case):
    _, found = case
    space, condition = found.space, Condition.parse(within_risk(RISK))
    for one in found.fixes:
        if one.kind == "processors":
            changed = replace(space, num_procs=one.change["num_procs"])
        elif one.kind == "product":
            memory = replace(space.system.mem1, capacity=one.change["mem1"])
            changed = replace(space, system=replace(space.system, mem1=memory))
        else:
            continue
        safe = run(changed, Best(Objective.parse("sample_rate"), 1, condition))
        assert len(safe) == 0 or one.found.execution == safe[0].execution


def test_the_nearest_miss_has_its_probability_of_fitting(case):
    _, found = case
    for miss in found.nearest:
        execution = miss.estimate.execution
        errors = errors_of(found.space.model, execution.preset, execution.zero_stage)
        assert miss.fits == float(errors.fits(np.array(miss.needed), miss.available))
        assert f"risk of running out {chance(1 - miss.fits)}." in found.lines()[1]


@pytest.mark.large
def test_no_smaller_multiple_of_the_processors_does():
    found = _found("175B on a box")
    (more,) = (one for one in found.fixes if one.kind == "processors")
    assert more.change == {"num_procs": 64}
    assert not any(_fits(replace(found.space, num_procs=count)) for count in (16, 32))


def test_the_next_counts_and_batches_are_the_next():
    """Nothing between them and what was asked for divides and fits."""
    found = _found("70B on a thousand")
    space = found.space
    for one in found.fixes:
        ((field, value),) = one.change.items()
        asked = space.num_procs if field == "num_procs" else space.max_batch_size
        step = 1 if value > asked else -1
        for between in range(asked + step, value, step):
            other = replace(space, num_procs=between)
            if field == "batch_size":
                other = replace(space, max_batch_size=between, fix={"batch_size": (between,)})
            assert not other.divides or not other.units or not _fits(other), (field, between)


def test_the_next_counts_are_below_and_above():
    fix = {"batch_size": 64, "microbatch_size": 1, "tensor_par": 1}
    found = infeasibility_report(_space("llama3-8B", "h100_80g_sxm", 63, 64, fix))
    counts = [one.change["num_procs"] for one in found.fixes if one.kind == "processors"]
    assert counts == [62, 64]


def _fits(space):
    return search_space(space, Best(Objective.parse("sample_rate"), 1)).good


def test_the_nearest_miss_needs_the_least(case):
    _, found = case
    for miss in found.nearest:
        assert sum(miss.parts.values()) == pytest.approx(miss.needed, rel=1e-9)
        assert list(miss.parts.values()) == sorted(miss.parts.values(), reverse=True)
        assert miss.over == miss.needed - found.space.system.usable[miss.tier - 1] > 0
        with pytest.raises(Infeasible) as error:
            calculon.estimate(found.space.model, miss.estimate.execution, found.space.system)
        assert (error.value.reason, error.value.needed) == ("mem1_capacity", miss.needed)


def test_the_nearest_miss_is_that_of_the_counts():
    space, counts = _searched()
    (miss,) = nearest_infeasible(space, counts.reasons)
    assert miss.over == counts.nearest_miss["mem1_capacity"]


@pytest.mark.large
def test_each_tier_may_be_too_small_alone():
    """In the published edition offloading is always tried: what either tier lacks is a miss of its own."""
    found = infeasibility_report(make_space("turing-530B", "a100_80g", 8, 8, "float16"))
    assert [miss.tier for miss in found.nearest] == [1, 2]
    memory = [[*one.change] for one in found.fixes if one.kind == "memory"]
    assert memory == [["mem1"], ["mem2"]]


def test_both_tiers_may_be_too_small():
    tiny = {"base": "a100_80g", "mem1": {"GiB": 8}}
    fix = dict.fromkeys(OFFLOADS, True) | {"tensor_par": 8, "tensor_par_comm_type": "rs_ag"}
    found = infeasibility_report(make_space("turing-530B", tiny, 8, 8, "float16", fix=fix))
    assert [miss.tier for miss in found.nearest] == [1, 2]
    assert found.nearest[0].estimate.execution == found.nearest[1].estimate.execution
    assert list(found.fixes[0].change) == ["mem1", "mem2"]
    words = r"[\d.]+ GiB of memory and [\d.]+ GiB of host memory per processor"
    assert re.fullmatch(words, fix_in_words(found.fixes[0], found.space))


def test_memory_that_is_asked_for_is_there():
    system = calculon.inputs.system("a100_80g_sxm")
    for size in (1.0, 37.3 * GIB, 1e9 + 1 / 3, 79.25 * GIB):
        for tier in (1, 2):
            larger = with_memory(system, {tier: size})
            assert size <= larger.usable[tier - 1] < size + 2


@pytest.mark.large
def test_options_are_those_that_the_framework_has():
    """TorchTitan has no fused loss, Megatron-LM has."""
    large = CASES["8B in large microbatches"]
    without, found = (
        infeasibility_report(_space(*large, preset="torchtitan")),
        _found("8B in large microbatches"),
    )
    options = [[o.change for o in one.fixes if o.kind == "options"] for one in (without, found)]
    assert {"ce_impl": "fused"} not in options[0]
    assert {"ce_impl": "fused"} in options[1]


def test_parts_of_sequences_are_the_fewest_that_are_not_tried():
    """A part for each of 48 processors at most: 8192 tokens divide into powers of two alone."""
    for tried, proposed in (((1,), (2, 4, 8)), ((4,), (2, 8, 16)), ((2, 4, 8), (16,))):
        space = _space("llama3-8B", "h100_80g_sxm", 48, 64, {}, add={"context_par": tried})
        found = memory_savers(space, activations=True)
        assert [value for name, value in found if name == "context_par"] == [*proposed]
        assert {name for name, _ in memory_savers(space, activations=False)} <= {*SAVES}


def test_options_are_written_as_they_are_asked_for():
    found = _found("8B in large microbatches")
    (one,) = (one for one in found.fixes if one.kind == "options")
    assert fix_in_words(one, found.space) == "ce_impl=fused"
    text = fix_in_words(one, found.space, COMMAND_LINE)
    assert text == "--add ce_impl=fused"
    added = _space(*CASES["8B in large microbatches"], add={"ce_impl": "fused"})
    again = run(added, Best(Objective.parse("sample_rate"), 1))
    assert again.best.execution == one.found.execution


def test_reasons_are_in_words_the_most_frequent_first():
    found = _found("8B in large microbatches")
    times = [one.executions for one in found.reasons]
    assert times == sorted(times, reverse=True)
    assert sum(times) == found.executions
    assert [one.words for one in found.reasons] == [REASONS[one.reason] for one in found.reasons]


def test_every_reason_of_a_search_has_words():
    counted = [rule.reason for rule in RULES if rule.counted]
    assert {*counted, *MEMORY_REASONS} == set(REASONS)


def test_without_a_split_the_degrees_are_named():
    lines = _found("70B on a thousand").lines()
    assert "no split of 1,000 = 2^3 x 5^3 processors" in lines[0]
    assert "TP 1, 2, 4, 8, PP" in lines[0]
    assert "DP 1, 2, 4, 8." in lines[0]


def test_a_condition_that_nothing_meets_is_the_reason():
    space = _space("llama3-8B", "h100_80g_sxm", 8, 64, {"tensor_par": 1})
    condition = make_condition("total_time < 4", "corrected")
    counts = search_space(space, Best(Objective.parse("sample_rate"), 1, condition))
    found = infeasibility_report(space, counts, condition)
    assert found.nearest == ()
    assert found.lines()[0].startswith("Nothing meets the condition: ")
    assert "they do not meet the condition" in found.lines()[0]
    (more,) = (one for one in found.fixes if one.kind == "processors")
    assert more.found.stats["total_time"] < 4
    assert {one.reason for one in reasons_of(counts)} >= {"", "mem1_capacity"}


def test_a_line_says_why_nothing_was_found():
    _, counts = _searched()
    least = min(counts.nearest_miss.values())
    assert why_none(counts) == f"memory is too small (by at least {least / GIB:.1f} GiB)"
    assert why_none(Counts()) == "no split of the processors divides model and batch"
