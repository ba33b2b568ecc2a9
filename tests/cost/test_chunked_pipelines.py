"""ZB-H2, ZBV, DualPipe and DualPipeV in executions: bubble, exchange of experts, both ends of the model on one rank."""

import numpy as np
import pytest

from calculon import inputs
from calculon.cost import in_flight
from calculon.cost.pipeline.orders import numbers
from calculon.declarations.axes import FURTHER_NAMES
from calculon.editions import CORRECTED
from calculon.estimate.evaluate import evaluate_rows
from calculon.estimate.stages import stage_hidden
from calculon.plan.plan import Plan
from tests.helpers import document

SYSTEM = inputs.system("h100_80g_sxm")
PLAN = {"base": "common", "num_procs": 32, "tensor_par": 1, "pipeline_par": 4, "batch_size": 128, "microbatch_size": 1,
        "datatype": "bfloat16", "zero_stage": "1", "mem_reserved_mib": 0}  # fmt: skip
SPREAD = PLAN | {"expert_par": 8, "ep_overlap": "1f1b", "no_sync": True}
V = {"pipeline_interleaving": 2}
MORE = {"zbv": V, "dualpipev": V}
ALIKE = inputs.model(document("models", "megatron-22B"))
EXPERTS = inputs.model(document("models", "qwen1.5-moe") | {"num_blocks": 16})


def batch_of(model, plan, **changes):
    name = changes.get("pp_schedule", "1f1b")
    execution = inputs.execution(plan | MORE.get(name, {}) | changes)
    return next(evaluate_rows(model, SYSTEM, Plan.of(execution), CORRECTED))[1]


def one(value):
    return float(np.ravel(value)[0])


def passes_of(batch):
    """Return F, B and W of a chunk of ranks that are alike."""
    whole, weight = batch.stage.times, one(batch.stage.block.wgrad.time)
    blocks, chunks = one(batch.schedule.blocks), one(batch.schedule.interleaving)
    each = blocks / chunks
    forward = (each - 1) * one(whole.forward_base) + one(whole.forward_edge)
    backward = (each - 1) * one(whole.backward_base) + one(whole.backward_edge)
    if batch.stage.accumulation is not None:  # sums of gradients are read
        backward += each * one(batch.stage.accumulation[0])
    return forward, backward, each * weight


def test_bubbles_of_ranks_that_are_alike_are_those_of_the_closed_forms():
    """As :func:`~calculon.cost.pipeline.schedules.chunked_time` states them; DualPipe has half of its ranks."""
    forward, backward, weight = passes_of(batch := batch_of(ALIKE, PLAN, pp_schedule="zb_h2"))
    inputs_only = backward - weight
    left = max(0.0, inputs_only - forward, forward + inputs_only - 2 * weight)
    assert one(batch.times.bubble_time) == pytest.approx(3 * left)
    for name, ranks in (("dualpipe", 2), ("dualpipev", 4)):
        batch = batch_of(ALIKE, PLAN, pp_schedule=name)
        forward, backward, weight = passes_of(batch)
        inputs_only = backward - weight
        assert inputs_only >= forward >= weight
        drain = forward + 2 * inputs_only - weight
        kept = min(forward, (ranks - 1) * (inputs_only - forward))
        assert one(batch.times.bubble_time) == pytest.approx((ranks - 1) * drain - kept)


@pytest.mark.parametrize("name", ["dualpipe", "dualpipev"])
def test_pairs_hide_the_exchange_of_experts(name):
    batch = batch_of(EXPERTS, SPREAD, pp_schedule=name)
    plain = batch_of(EXPERTS, SPREAD | {"ep_overlap": "none"})
    ep = FURTHER_NAMES.index("ep")
    link, exposed = one(batch.axes.link[ep]), one(batch.axes.exposed[ep])
    assert 0 < exposed < link
    blocks, pairs = (
        one(batch.pipeline.slowest_schedule.blocks),
        one(batch.pipeline.slowest_schedule.pairs),
    )
    assert link - exposed == pytest.approx(blocks * pairs * one(batch.stage.block.paired))
    assert one(plain.axes.exposed[ep]) == pytest.approx(one(plain.axes.link[ep]))


@pytest.mark.parametrize("name", ["dualpipe", "dualpipev"])
def test_pairs_of_ranks_are_those_of_their_order(name):
    batch = batch_of(EXPERTS, SPREAD, pp_schedule=name)
    ranks, schedule = int(batch.schedule.ranks[0]), batch.schedule
    count = one(schedule.microbatches) * (2 if name == "dualpipe" else 1)
    for rank in range(ranks):
        listed = numbers(name, rank, 4, int(count)).paired.sum() / 2  # passes of a pair
        assert one(schedule.pairs_of_rank(np.full(1, float(rank)))) == listed / 2  # of two chunks
    hidden = stage_hidden(batch)
    assert hidden.shape == (4,)
    if name == "dualpipe":
        assert (hidden == hidden[::-1]).all()


def test_ranks_hold_what_their_schedules_say():
    """Of equal stages of 12 blocks: p microbatches of ZBV as the first stage of 1F1B, 2 p - 1 of ZB-H2."""
    held = {
        name: batch_of(ALIKE, PLAN, pp_schedule=name)
        for name in ("1f1b", "zb_h2", "zbv", "dualpipe")
    }
    each = one(held["1f1b"].stage.block.act_storage) * one(held["1f1b"].schedule.blocks)

    def act(name):
        batch = held[name]
        working = one(batch.stage.block.act_working) - one(batch.stage.block.act_storage)
        return (one(batch.space.act) - working) / each

    assert act("1f1b") == pytest.approx(4)
    assert act("zbv") == pytest.approx(4)
    assert act("zb_h2") == pytest.approx(7)
    assert act("dualpipe") == pytest.approx(5)


def test_ranks_of_a_kind_hold_what_the_fullest_of_them_does():
    """Of 4 microbatches rank r of 4 of ZBV holds 4 of its first chunk and r + 1 of its second."""
    schedule = batch_of(ALIKE, PLAN, pp_schedule="zbv", batch_size=32).schedule
    place, count = schedule.layout.place[:, 0], schedule.layout.count[:, 0]
    assert sorted(count) == [0, 0, 1, 3]
    for kind in np.flatnonzero(count):
        last = place[kind] + count[kind] - 1
        assert one(in_flight.on_folded(schedule, kind)) == (4 + last + 1) / 2
