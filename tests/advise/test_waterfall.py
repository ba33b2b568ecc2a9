"""From one plan to another: each difference once, no rule broken on the way, and sums that add up."""

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings

import calculon
from calculon import inputs
from calculon.advise.differences import changes_between
from calculon.advise.nearest_infeasible import unlimited
from calculon.advise.waterfall import waterfall
from calculon.base.errors import Infeasible, SpecError
from calculon.declarations.statistics import ALL_PARTS_OF_TIME
from calculon.plan.plan import NAMES, Plan
from calculon.plan.rules.all_rules import check
from tests.advise.by_hand import fields_of
from tests.draws import FACTOR, draws
from tests.store import cache
from tests.strategies import every_table, tables

H100 = "h100_80g_sxm"
MINE = {
    "num_procs": 1024,
    "tensor_par": 8,
    "pipeline_par": 4,
    "data_par": 32,
    "batch_size": 512,
    "microbatch_size": 1,
    "datatype": "bfloat16",
    "edition": "corrected",
    "preset": "megatron-lm",
    "activation_recompute": "full",
}
BEST = {
    **MINE,
    "tensor_par": 4,
    "data_par": 64,
    "activation_recompute": "none",
    "pipeline_interleaving": 20,
}

AGAIN = {**MINE, "activation_recompute": "none"}


@cache
def to_the_best():
    return waterfall("llama3-70B", MINE, BEST, H100)


def _laws(model, system, mine, best, found=None):
    """Check what is true of every way from one plan to another; return it."""
    found = found or waterfall(model, mine, best, system)
    ends = fields_of(inputs.execution(mine)), fields_of(inputs.execution(best))
    points = [found.mine, *(step.after for step in found.steps)]
    assert points[0].execution == ends[0]
    assert points[-1].execution == found.best.execution == ends[1]
    assert all(step.before == point for step, point in zip(found.steps, points, strict=False))
    wide = unlimited(system)
    plans = Plan.from_records([point.execution for point in points])
    assert not check(model, system, plans).any()
    table = calculon.evaluate(model, wide, plans)
    assert table.feasible.all()
    assert math.fsum(step.seconds for step in found.steps) == pytest.approx(
        found.best.seconds - found.mine.seconds, rel=1e-12, abs=1e-12 * found.mine.seconds
    )
    if found.per == "step":
        assert [point.seconds for point in points] == table["total_time"].tolist()
    names = [name for step in found.steps for name in step.fields if name != "data_par"]
    assert sorted(names) == sorted(n for n in NAMES if ends[0][n] != ends[1][n] and n != "data_par")
    for step, (one, other) in zip(found.steps, pairwise(points), strict=True):
        assert step.fields
        assert {**one.execution, **{n: v for n, (_, v) in step.fields.items()}} == other.execution
        assert step.words
        assert math.fsum(step.parts.values()) == pytest.approx(
            step.seconds, rel=1e-6, abs=1e-9 * found.mine.seconds
        )
    usable = inputs.system(system).usable
    assert all(
        point.fits == all(n <= there for n, there in zip(point.memory, usable, strict=True))
        for point in points
        if point.execution["edition"] == "corrected"
    )
    return found


def test_one_change_at_a_time_the_largest_first():
    found = _laws(inputs.model("llama3-70B"), inputs.system(H100), MINE, BEST, to_the_best())
    assert [step.words for step in found.steps] == [
        "full recompute -> no recompute",
        "chunks 1 -> 20",
        "TP 8 -> 4, DP 32 -> 64",
    ]
    saved = [step.seconds for step in found.steps]
    assert saved == sorted(saved)  # here no change makes a later one larger
    frame = found.to_frame()
    assert frame["change"].tolist() == [step.words for step in found.steps]
    assert frame["seconds"].tolist() == saved


def test_each_step_saves_most_of_what_could_be_done():
    first = to_the_best().steps[0]
    changes = [
        {"activation_recompute": "none"},
        {"pipeline_interleaving": 20},
        {"tensor_par": 4, "data_par": 64},
    ]
    times = [
        calculon.estimate("llama3-70B", {**MINE, **one}, H100).stats["total_time"]
        for one in changes
    ]
    assert first.after.seconds == min(times) == times[0]


def test_estimates_say_the_same_as_executions():
    mine, best = (calculon.estimate("llama3-70B", one, H100) for one in (MINE, BEST))
    found = calculon.waterfall(mine, best)
    assert found.to_dict() == to_the_best().to_dict()
    assert found.mine.seconds == mine.stats["total_time"]
    assert found.best.seconds == best.stats["total_time"]
    assert found.best.memory[0] == best.stats["proc_mem_tier1_cap_req"]
    assert found.seconds == best.stats["total_time"] - mine.stats["total_time"]


def test_equal_plans_have_no_steps():
    found = waterfall("llama3-70B", MINE, MINE, H100)
    assert found.steps == ()
    assert found.seconds == 0
    assert len(found.to_frame()) == 0


def test_memory_that_does_not_suffice_stops_nothing():
    full = {
        **MINE,
        "num_procs": 64,
        "data_par": 2,
        "microbatch_size": 4,
        "optimizer_sharding": False,
    }
    thrifty = {**full, "microbatch_size": 1, "activation_recompute": "none"}
    found = _laws(inputs.model("llama3-70B"), inputs.system("a100_40g_sxm"), full, thrifty)
    with pytest.raises(Infeasible):
        calculon.estimate("llama3-70B", thrifty, "a100_40g_sxm")
    assert not found.best.fits
    there = inputs.system("a100_40g_sxm").usable[0]
    assert found.best.over[0] == found.best.memory[0] - there


def test_replicas_follow_each_degree():
    other = {**MINE, "tensor_par": 4, "pipeline_par": 2, "data_par": 128}
    changes = changes_between(fields_of(inputs.execution(MINE)), fields_of(inputs.execution(other)))
    degrees = [one for one in changes if one.moves_replicas]
    assert [one.names for one in degrees] == [("tensor_par",), ("pipeline_par",)]
    _laws(inputs.model("llama3-70B"), inputs.system(H100), MINE, other)


def test_degrees_are_exchanged_together_where_the_replicas_stay():
    other = {**MINE, "tensor_par": 4, "pipeline_par": 8}
    changes = changes_between(fields_of(inputs.execution(MINE)), fields_of(inputs.execution(other)))
    assert ("tensor_par", "pipeline_par") in [one.names for one in changes]


def test_what_can_only_be_made_together_is_one_step():
    """A batch that only many replicas divide, and replicas that only that batch has."""
    one = {
        **MINE,
        "num_procs": 24,
        "tensor_par": 8,
        "pipeline_par": 1,
        "data_par": 3,
        "batch_size": 9,
    }
    other = {**one, "num_procs": 32, "data_par": 4, "batch_size": 16}
    found = _laws(inputs.model("llama3-8B"), inputs.system(H100), one, other)
    assert [set(step.fields) for step in found.steps] == [{"num_procs", "data_par", "batch_size"}]
    assert found.per == "sample"
    assert found.mine.seconds * 9 == pytest.approx(
        calculon.estimate("llama3-8B", one, H100).stats["total_time"]
    )


def test_sequences_of_other_lengths_count_by_token():
    found = waterfall("llama3-8B", MINE, {**MINE, "seq_length": 4096}, H100)
    assert found.per == "token"
    own = inputs.model("llama3-8B").seq_size
    assert waterfall("llama3-8B", MINE, {**MINE, "seq_length": own}, H100).per == "step"


@pytest.mark.parametrize(
    ("mine", "best", "told"),
    [
        (("llama3-70B", MINE, H100), ("llama3-8B", MINE, H100), "model"),
        (("llama3-8B", MINE, H100), ("llama3-8B", MINE, "a100_80g_sxm"), "system"),
        (("llama3-8B", AGAIN, H100), ("llama3-8B", {**AGAIN, "training": False}, H100), "training"),
    ],
)
def test_what_cannot_be_compared_says_so(mine, best, told):
    plans = (calculon.estimate(*one) for one in (mine, best))
    with pytest.raises(SpecError, match=f"{told}: expected one"):
        calculon.waterfall(*plans)


def test_an_execution_that_breaks_a_rule_says_which():
    with pytest.raises(SpecError, match="num_procs"):
        waterfall("llama3-70B", MINE, {**MINE, "tensor_par": 4}, H100)


UNDER = {"num_procs": 64, "tensor_par": 1, "pipeline_par": 1, "data_par": 64}
UNDER |= {"batch_size": 256, "microbatch_size": 1, "datatype": "bfloat16", "edition": "corrected"}


OTHERS = ["torchtitan"] if FACTOR == 1 else ["deepspeed", "torchtitan", "llm-foundry"]


@pytest.mark.parametrize("preset", OTHERS)
def test_laws_hold_between_frameworks(preset):
    """One change names the preset and each field that is not changed by itself."""
    model, system = inputs.model("llama3-8B"), inputs.system(H100)
    mine, best = ({**UNDER, "preset": one} for one in ("megatron-lm", preset))
    found = _laws(model, system, mine, best)
    (step,) = (step for step in found.steps if "preset" in step.fields)
    assert ("recompute_modules" in step.fields) == ("selective recompute" in step.words)
    assert len(step.fields) == 1 or ", with " in step.words


@settings(max_examples=draws(2))
@given(tables())
def test_laws_hold_in_the_published_edition(drawn):
    _between_all(*drawn)


@pytest.mark.large
@settings(max_examples=draws(2))
@given(every_table(rows=2))
def test_laws_hold_between_any_plans(drawn):
    _between_all(*drawn)


def _between_all(model, system, rows):
    model, system = inputs.model(model), inputs.system(system)
    plans = Plan.from_records(rows)
    good = np.flatnonzero(check(model, system, plans) == 0)[:3].tolist()
    for mine, best in combinations([plans.row(row) for row in good], 2):
        if mine.training == best.training and mine.edition == best.edition:
            found = _laws(model, system, mine, best)
            assert set(found.mine.parts) <= set(ALL_PARTS_OF_TIME)
