"""Why executions cannot run, what would mend them, and what options of those that run are worth."""

from dataclasses import replace

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.advise.ablations import ablations
from calculon.advise.fixes import FixSearch
from calculon.advise.neighborhood import Neighborhood
from calculon.advise.neighbors import QUESTION
from calculon.advise.stage_needs import stage_needs
from calculon.base.errors import Infeasible
from calculon.declarations.statistics import RISK
from calculon.plan.rules.failures import failures
from tests.advise import by_hand
from tests.draws import some
from tests.helpers import document
from tests.plan.rules.test_all_rules import BASE, INFEASIBLE, MALFORMED, MODEL, SHAPES, SYSTEMS

PLAN = {"base": "megatron-lm", "pipeline_par": 1, "microbatch_size": 1}
FOUR = PLAN | {"num_procs": 4, "tensor_par": 2, "batch_size": 8}
RUNNING = ("gpt2-124M", FOUR, "h100_80g_sxm")
MANY = PLAN | {"num_procs": 32, "tensor_par": 8, "batch_size": 32}
LARGE = ("llama3-70B", MANY, "h100_80g_sxm")
SPECIAL = {**MALFORMED, **INFEASIBLE}
"""A case for every rule."""


@pytest.fixture(scope="module")
def running():
    return calculon.why(*RUNNING)


@pytest.fixture(scope="module")
def large():
    return calculon.why(*LARGE)


@pytest.mark.parametrize("reason", some(sorted(SPECIAL), 3))
def test_every_rule_is_told_and_the_proposals_run(reason):
    model, system = SHAPES.get(reason, MODEL), SYSTEMS.get(reason, "a100_80g")
    found = calculon.why(model, BASE | SPECIAL[reason][0], system)
    assert not found.runs
    assert found.failures == failures(found.model, found.execution, found.system)
    assert reason in {one.reason for one in found.failures}
    assert found.proposals
    for one in found.proposals:
        assert by_hand.runs(model, one.execution, system)
        assert {*one.changes} & {*QUESTION} == ({one.asks_for_another} - {""})


def test_memory_is_told_by_stage_and_tier(large):
    with pytest.raises(Infeasible) as error:
        calculon.estimate(*LARGE)
    assert {*large.short} == {error.value.tier}
    worst = large.short[1][0]
    assert worst.needed[0] == error.value.needed
    assert worst.over(1) == error.value.needed - error.value.available
    assert sum(worst.parts[0].values()) == pytest.approx(worst.needed[0], rel=1e-9)
    assert large.failures == ()
    assert large.estimate is None


def test_what_cannot_be_read_is_told_beside_the_rest():
    fields = document("examples", "llama3-8B_h100x64") | {"num_procs": 8, "data_par": 4}
    wrong = fields | {"batch_size": 32, "tensor_par": 3, "microbatch_size": "two", "zero_stag": 1}
    with pytest.raises(calculon.SpecError) as error:
        inputs.execution(wrong)
    found = calculon.why("megatron-126M", wrong, "h100_80g_sxm")
    told = [one.field for one in found.failures]
    assert told[: len(error.value.problems)] == [one.field for one in error.value.problems]
    assert "attn_heads_split" in {one.reason for one in found.failures}
    assert found.unread == {"microbatch_size": 1}
    for one in found.proposals:
        assert one.changes["microbatch_size"] == one.execution.microbatch_size
        assert by_hand.runs("megatron-126M", one.execution, "h100_80g_sxm")


def test_what_runs_as_it_is_read_says_so():
    wrong = document("examples", "llama3-8B_h100x64") | {"microbatch_size": 0}
    (proposal,) = calculon.why("llama3-8B", wrong, "h100_80g_sxm").proposals
    assert dict(proposal.changes) == {"microbatch_size": 1}
    right = calculon.estimate("llama3-8B", wrong | {"microbatch_size": 1}, "h100_80g_sxm")
    assert proposal.total_time == right.stats["total_time"]


@pytest.mark.large
def test_replicas_that_are_left_out_follow():
    mine = {"base": "megatron-lm", "num_procs": 64, "pipeline_par": 1, "batch_size": 512}
    found = calculon.why("llama3-8B", mine | {"tensor_par": 3}, "h100_80g_sxm")
    assert found.failures[0].field == "num_procs"
    assert not {"degrees_product", "batch_split"} & {one.reason for one in found.failures}
    assert dict(found.proposals[0].changes) == {"tensor_par": 4}
    assert found.proposals[0].follows["data_par"] == 16


@pytest.mark.parametrize("execution", [{}, {"num_procs": "many"}, "nowhere.json", 3])
def test_too_little_to_read_is_an_error(execution):
    with pytest.raises(calculon.SpecError):
        calculon.why("llama3-8B", execution, "h100_80g_sxm")


def test_records_are_never_unread():
    execution = replace(inputs.execution(FOUR), data_par=3)
    found = calculon.why("megatron-126M", execution, "h100_80g_sxm")
    assert [one.reason for one in found.failures] == ["degrees_product", "batch_split"]
    assert found.unread == {}


def test_better_changes_are_the_best_of_one_and_of_two_fields(running):
    """No single change by hand is faster than the best, of those that keep to practice."""
    now = running.estimate.stats["total_time"]
    model, execution, system = running.model, running.execution, running.system
    rows = []
    for name, value in by_hand.single_changes(model, execution, system):
        row = by_hand.followed(model, execution, {name: value})
        if row is not None and row[name] == value and row["tensor_par"] <= 8:
            rows += [row] if row["context_par"] == 1 else []
    times = calculon.evaluate(model, system, rows)["total_time"]
    first, *more = running.better
    assert len(first.changes) == 1
    assert first.total_time == pytest.approx(np.nanmin(times))
    for one, count, before in zip(more, (2,), (first.total_time,), strict=True):
        assert len(one.changes) == count
        assert one.total_time < before
    assert first.total_time < now


def test_a_pair_replaces_full_recomputation_that_alone_could_not_be_left_out():
    """Without recomputation it does not fit, and MLPs cannot be recomputed next to everything."""
    fields = MANY | {"num_procs": 64, "pipeline_par": 8, "batch_size": 64, "microbatch_size": 4}
    whole, kept = ({"activation_recompute": one} for one in ("full", "none"))
    with pytest.raises(Infeasible):
        calculon.estimate("llama3-70B", fields | kept, "h100_80g_sxm")
    wanted = fields | kept | {"recompute_modules": "mlp"}
    right = calculon.estimate("llama3-70B", wanted, "h100_80g_sxm")
    execution = inputs.execution(fields | whole)
    near = Neighborhood(right.model, execution, right.system)
    pairs = FixSearch(near).pairs
    (row,) = (
        row
        for row in np.flatnonzero(pairs.plan.is_choice("recompute_modules", "mlp"))
        if pairs.fields(row) == {"activation_recompute", "recompute_modules"}
        and pairs.plan.row(row) == right.execution
    )
    assert pairs.time[row] == right.stats["total_time"]


def test_an_execution_that_may_run_out_of_memory_is_first_made_to_fit():
    fields = MANY | {"pipeline_par": 2, "batch_size": 64}
    found = calculon.why("llama3-70B", fields, "h100_80g_sxm")
    assert found.runs
    assert found.fits < 1 - RISK
    assert found.proposals
    assert min(one.fits for one in (*found.proposals, *found.better)) >= 1 - RISK
    times = [one.longer for one in found.proposals]
    now = found.estimate.stats["total_time"]
    assert times == pytest.approx([one.total_time / now - 1 for one in found.proposals])


def test_published_executions_know_published_options_only():
    found = calculon.why("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
    published = {*found.execution.to_dict()} - {*found.execution.extensions}
    assert found.runs
    assert {one.field for one in found.contributions} <= published
    assert all({*one.changes} <= published for one in found.better)


def test_proposals_are_a_frame(large):
    frame = large.to_frame()
    assert frame["total_time"].tolist() == [one.total_time for one in large.proposals]
    assert frame["changes"].tolist() == [dict(one.changes) for one in large.proposals]
    assert "5 proposals" in repr(large)


def test_options_are_worth_what_an_estimate_says_without_them():
    now = calculon.estimate("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")
    time, memory = now.stats["total_time"], now.stats["proc_mem_tier1_cap_req"]
    found = ablations(Neighborhood(now.model, now.execution, now.system))
    assert {"tp_async", "data_par_overlap", "microbatch_size"} <= {one.field for one in found}
    for one in found:
        assert one.value == getattr(now.execution, one.field) != one.without
        row = by_hand.followed(now.model, now.execution, {one.field: one.without})
        if one.gain is None:
            assert not by_hand.runs(now.model, row, now.system)
            continue
        without = calculon.estimate(now.model, row, now.system).stats
        assert one.gain == pytest.approx(time / without["total_time"] - 1)
        assert one.memory == pytest.approx(memory - without["proc_mem_tier1_cap_req"])
    gains = [one.gain for one in found if one.gain is not None]
    assert gains == sorted(gains)


def test_an_option_that_the_preset_has_otherwise_is_set_back_to_that():
    changes = {"activation_recompute": "full", "ce_impl": "fused"}
    execution = inputs.execution("llama3-8B_h100x64", changes=changes)
    found = ablations(
        Neighborhood(inputs.model("llama3-8B"), execution, inputs.system("h100_80g_sxm"))
    )
    back = {one.field: (one.of, one.without) for one in found}
    assert back["activation_recompute"] == ("preset", "none")
    assert back["ce_impl"] == ("preset", "megatron")
    assert back["data_par_overlap"] == ("field", False)


LLAMA = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")


@pytest.mark.parametrize(
    ("model", "execution", "system"),
    [
        LLAMA,
        ("llama3.1-405B", "llama3.1-405B_h100x16384", "h100_80g_sxm"),
        ("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g"),
        ("gpt3-13B-hf", "gpt3-13B_a100x2_fsdp", "a100_80g_sxm"),
    ],
)
def test_the_fullest_stage_is_what_an_estimate_needs(model, execution, system):
    found = calculon.estimate(model, execution, system)
    stages = stage_needs(found.model, found.execution, found.system)
    assert len(stages) == found.execution.pipeline_par
    for tier in (0, 1):
        needed = found.stats[f"proc_mem_tier{tier + 1}_cap_req"]
        assert max(one.needed[tier] for one in stages) == pytest.approx(needed, rel=1e-9)
    for one in stages:
        assert sum(one.parts[0].values()) == pytest.approx(one.needed[0], rel=1e-6)
