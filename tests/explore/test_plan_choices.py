"""What may be changed of a plan: only what rules allow, and as the estimate of the changed plan says."""

from dataclasses import replace
from math import isclose, prod

import pytest

import calculon
from calculon.base.errors import Infeasible
from calculon.declarations.statistics import FITS, RISK
from calculon.explore.controls import adjusted_state, controls
from calculon.explore.page_state import State
from calculon.explore.plan.plan_changes import _best_of
from calculon.explore.plan_choices import CHUNKS, MICROBATCH, SIZES
from calculon.plan.mesh import DEGREES
from tests.draws import some
from tests.explore.asking import answers

DENSE = State(model="llama3-8B", system="h100_80g_sxm", procs=64)
MIXTURE = State(model="mixtral-8x7B", system="h100_80g_sxm", procs=32)
PLAIN = {"tensor_par": 2, "pipeline_par": 4, "microbatch_size": 1, "pipeline_interleaving": 8}
STATES = {
    "own": replace(DENSE, plan=PLAIN),
    "switches": replace(
        DENSE, plan={**PLAIN, "activation_recompute": "full", "p2p_overlap": False}
    ),
    "long": replace(DENSE, seq="64k", plan={**PLAIN, "context_par": 2, "cp_comm": "all_gather"}),
    "too large": replace(DENSE, model="llama3-70B", plan={**PLAIN, "pipeline_par": 2, CHUNKS: 1}),
    "experts": replace(MIXTURE, plan={**PLAIN, "expert_par": 4}),
}


QUICK = ("too large", "experts")


@pytest.fixture(
    params=[
        name if name in QUICK else pytest.param(name, marks=pytest.mark.large) for name in STATES
    ]
)
def state(request):
    return STATES[request.param]


def estimated(state, fields):
    """Return the time of an execution, or the tier of memory that is too small."""
    q = answers().question(replace(state, plan={}))
    try:
        return calculon.estimate(q.model, dict(fields), q.system).stats["total_time"]
    except Infeasible as error:
        return f"mem{error.tier}_capacity"


def test_sizes_offer_what_divides(state):
    found = answers().choices(state)
    offered = {one.field: one.values for one in found.sizes}
    assert {"tensor_par", "pipeline_par", MICROBATCH, CHUNKS} <= offered.keys()
    outcomes = {
        (name, value): one
        for one in answers().single_changes(state)
        for name, value in one.changes.items()
    }
    model = answers().question(state).model
    for name, values in offered.items():
        assert [*values] == sorted({*values})
        assert found.fields[name] in values
        for value in values:
            if value != found.fields[name]:
                fields = outcomes[name, value].fields  # each has an outcome: rules allow it
                assert fields[name] == value
                assert prod(fields[one] for one in DEGREES) == state.procs
                assert fields["batch_size"] % (fields["data_par"] * fields[MICROBATCH]) == 0
                assert model.hidden % fields["tensor_par"] == 0


def test_a_change_costs_what_its_estimate_says(state):
    changes = answers().single_changes(state)
    assert changes
    for one in some(changes, 6):
        told = estimated(state, one.fields)
        assert one.reason == told if one.reason else isclose(one.time, told, rel_tol=1e-12)


def test_a_change_of_a_control_leads_to_the_plan_that_was_told(state):
    """The plan of the changed page is that of the table of all changes, whatever follows."""
    stated = answers().stated(state)
    for one in some(answers().single_changes(state), 6):
        ((name, value),) = one.changes.items()
        then = adjusted_state(replace(state, plan={**stated, name: value}), answers(), name)
        shown = answers().plan(then)
        assert shown.fields == one.fields, one.changes
        if one.reason:
            assert shown.estimate is None
            assert "memory" in shown.problem
        else:
            assert isclose(shown.estimate.stats["total_time"], one.time, rel_tol=1e-12)
        assert bool(then.note) == bool(one.follows)


def test_chunks_that_do_not_divide_follow_and_that_is_said():
    asked = replace(DENSE, plan={**PLAIN, "pipeline_par": 8})  # 32 blocks on 8 stages: 4 in each
    then = adjusted_state(asked, answers(), "pipeline_par")
    assert then.plan[CHUNKS] == 4
    assert then.note == "Chunks per stage 8 → 4 follows"
    assert "note" not in then.query
    assert str(controls(then, answers())).count(then.note) == 1


def test_a_microbatch_that_replicas_leave_no_sequences_for_follows():
    """32 replicas of 64 sequences have 2 each; 64 replicas have one."""
    plan = {**PLAIN, "pipeline_par": 1, "pipeline_interleaving": 1, MICROBATCH: 2}
    state = replace(DENSE, batch="64", plan=plan)
    assert answers().plan(state).legal
    then = adjusted_state(replace(state, plan={**plan, "tensor_par": 1}), answers(), "tensor_par")
    assert then.plan[MICROBATCH] == 1
    assert then.note == "Microbatch 2 → 1 follows"
    sizes = {one.field: one.values for one in answers().choices(state).sizes}
    assert sizes[MICROBATCH] == (1, 2)
    assert 1 in sizes["tensor_par"]


def test_the_fastest_of_what_may_follow_is_taken():
    asked = replace(DENSE, plan={**PLAIN, "pipeline_par": 8})
    then = answers().plan(adjusted_state(asked, answers(), "pipeline_par")).estimate
    for chunks in (1, 2, 4):
        other = answers().plan(replace(asked, plan={**asked.plan, CHUNKS: chunks})).estimate
        assert other.stats["total_time"] >= then.stats["total_time"] * (1 - 1e-12)


def test_the_first_change_of_the_best_plan_keeps_the_rest_of_it():
    best = answers().plan(DENSE).fields
    then = adjusted_state(
        replace(DENSE, plan={"p2p_overlap": False, "zero_stage": "2"}), answers(), "zero_stage"
    )
    shown = answers().plan(then)
    assert shown.fields["zero_stage"] == "2"
    assert {name: shown.fields[name] for name in SIZES} == {name: best[name] for name in SIZES}


def test_what_follows_from_the_framework_stays_unstated():
    """Sequence parallelism needs ranks to split sequences over: without these it goes, and comes back with them."""
    state = replace(DENSE, plan={**PLAIN, "tensor_par": 4})
    assert answers().plan(state).fields["tensor_par_comm_type"] == "rs_ag"
    alone = adjusted_state(
        replace(state, plan={**state.plan, "tensor_par": 1}), answers(), "tensor_par"
    )
    assert answers().plan(alone).fields["tensor_par_comm_type"] == "ar"
    again = adjusted_state(
        replace(alone, plan={**alone.plan, "tensor_par": 4}), answers(), "tensor_par"
    )
    assert answers().plan(again).fields == answers().plan(state).fields


def test_a_field_that_means_nothing_any_more_goes():
    state = STATES["long"]
    then = adjusted_state(
        replace(state, plan={**state.plan, "context_par": 1}), answers(), "context_par"
    )
    assert "cp_comm" not in then.plan
    assert answers().plan(then).legal


def test_what_cannot_be_mended_stays_and_is_told():
    asked = replace(DENSE, plan={**PLAIN, "tensor_par": 3})
    then = adjusted_state(asked, answers(), "tensor_par")
    assert then.plan["tensor_par"] == 3
    assert "tensor_par" in answers().plan(then).problem


def test_a_value_that_cannot_be_read_changes_nothing_else():
    asked = replace(DENSE, plan={**PLAIN, "data_par": "x"})
    assert adjusted_state(asked, answers(), "data_par") == asked


def test_degrees_that_do_not_divide_the_processors_are_offered_what_does():
    state = replace(
        DENSE,
        preset="megatron-lm",
        procs=12,
        plan={**PLAIN, "pipeline_par": 8, CHUNKS: 1},
        batch="48",
    )
    assert answers().plan(state).estimate is None
    offered = {one.field: one.values for one in answers().choices(state).sizes}
    told = {
        (name, value)
        for one in answers().single_changes(state)
        for name, value in one.changes.items()
    }
    assert {value for name, value in told if name == "pipeline_par"} == {1, 2, 3, 6}  # TP 2 is kept
    assert {*offered["pipeline_par"]} == {1, 2, 3, 6, 8}


def test_other_processors_keep_a_plan_of_ones_own():
    then = adjusted_state(replace(DENSE, procs=128, plan=PLAIN), answers(), "procs")
    assert then.plan == PLAIN
    assert answers().plan(then).fields["data_par"] == 16


def test_the_best_single_change_is_no_riskier_than_recommended_plans_or_now(state):
    shown, found = answers().plan(state), answers().single_changes(state)
    now = shown.estimate.stats[FITS] if shown.estimate else 1 - RISK
    best = _best_of(found, shown)
    accepted = [one for one in found if not one.reason and one.fits >= min(1 - RISK, now)]
    assert (best is None) == (not accepted)
    assert best is None or best.time == min(one.time for one in accepted)
    for one in some([one for one in found if not one.reason], 3):
        question = answers().question(state)
        whole = calculon.estimate(question.model, dict(one.fields), question.system)
        assert one.fits == whole.stats[FITS]
