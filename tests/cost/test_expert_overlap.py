"""What hides the exchange of experts: laws, and small cases by hand."""

from dataclasses import fields

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.cost.axis_overlap import ExpertTimes
from calculon.cost.block_cost import BlockCost
from calculon.cost.block_tables import only_choices
from calculon.cost.mixture import OF_WEIGHTS, RATES
from calculon.editions import CORRECTED
from calculon.estimate.evaluate import evaluate_one
from calculon.estimate.operators import block
from calculon.estimate.stages import execute, stage_memory, stage_rows
from calculon.plan.plan import Plan
from tests.cases import for_each
from tests.helpers import PLAIN, document

MODEL = document("models", "qwen1.5-moe") | {"num_blocks": 8}
ALONE = PLAIN | {
    "edition": "corrected",
    "datatype": "bfloat16",
    "num_procs": 8,
    "data_par": 8,
    "batch_size": 64,
    "microbatch_size": 2,
    "coll_algo": "auto",
    "expert_par": 4,
}
PIPED = ALONE | {
    "num_procs": 32,
    "pipeline_par": 4,
    "pipeline_interleaving": 2,
    "pipeline_par_net": 1,
    "microbatch_size": 1,
}
PAIRS = {"ep_overlap": "1f1b"}
NEAR = 1e-12


def system(usage=0.0, **ep):
    """Return a machine whose networks take so much of the engines, with other rates of the innermost one."""
    raw = document("systems", "h100_80g_sxm")
    raw["mem1"]["GiB"] = 10_000
    for network in raw["networks"]:
        network["processor_usage"] = usage
    raw["networks"][0] |= ep
    return inputs.system(raw)


SYSTEM = system()


def batch_of(execution, machine=SYSTEM, model=MODEL):
    plan = Plan.of(inputs.execution(execution))
    return evaluate_one(inputs.model(model), machine, plan, CORRECTED)


def stats_of(execution, machine=SYSTEM):
    return calculon.estimate(MODEL, execution, machine).stats


def choice(**changes):
    """Return the choice of a block with other values."""
    return only_choices(Plan.of(inputs.execution(ALONE | changes)))[0]


def times(
    dispatch, combine, experts, attention, usage=0.0, weights=0.0, shared=((0, 0, 0), (0, 0, 0))
):
    """Return the times of a block: forward, backward, repeated."""
    columns = [np.array(one, float)[:, None] for one in (dispatch, combine, experts, attention)]
    own = tuple(np.array(one, float)[:, None] for one in shared)
    return ExpertTimes(*columns, own, np.array([weights]), np.array([usage]))


# -- pairs of passes --------------------------------------------------------------------------------------------------

D, C, X, A = (3.0, 4.0, 0.0), (5.0, 6.0, 0.0), (2.0, 7.0, 0.5), (1.0, 8.0, 0.25)


def test_a_pair_leaves_what_its_work_is_too_short_for():
    left = max(0, C[1] - A[0]) + max(0, D[0] - X[1] - X[2]) + max(0, D[1] - X[0])
    left += max(0, C[0] - A[1] - A[2])
    found = times(D, C, X, A).paired(choice(**PAIRS, microbatch_size=1))
    assert found == pytest.approx(D[0] + D[1] + C[0] + C[1] - left)


def test_delayed_gradients_of_weights_run_beside_the_dispatch_of_gradients():
    weights = 5.0
    delayed = PAIRS | {"delay_wgrad": True, "microbatch_size": 1}
    left = max(0, C[1] - A[0]) + max(0, D[0] - (X[1] + X[2] - weights))
    left += max(0, D[1] - X[0] - weights) + max(0, C[0] - A[1] - A[2])
    found = times(D, C, X, A, weights=weights).paired(choice(**delayed))
    assert found == pytest.approx(D[0] + D[1] + C[0] + C[1] - left)


def test_an_exchange_slows_the_work_beside_it():
    share = 0.3
    small = (1.0, 1.0, 0.0)
    found = times(small, small, (9, 9, 0), (9, 9, 0), share).paired(choice(**PAIRS))
    assert found == pytest.approx(4 * (1 - share))


def test_a_single_stage_goes_forward_m_minus_1_pairs_and_backward():
    batch = batch_of(ALONE | PAIRS)
    forward, backward = batch.stage.times.forward_base, batch.stage.times.backward_base
    pair = forward + backward - batch.stage.block.paired
    microbatches = ALONE["batch_size"] // ALONE["data_par"] // ALONE["microbatch_size"]
    blocks = MODEL["num_blocks"] * (forward + (microbatches - 1) * pair + backward)
    alone = batch_of(ALONE)
    blocks_alone = MODEL["num_blocks"] * microbatches * (forward + backward)
    assert batch.stage.block.paired > 0
    assert batch.times.total_time - blocks == pytest.approx(alone.times.total_time - blocks_alone)


def _executed_and_estimated(batch):
    """Return when the last pass of a batch ends, and the estimate of that."""
    spans = execute(batch, int(batch.schedule.microbatches[0]))
    found = batch.times
    after = found.optim_step_time + found.dp_comm_exposed_time + found.host_time
    return max(span.end for span in spans), float((found.total_time - after)[0])


@for_each("batch_size", [32, 64, 128])
def test_an_executed_pipeline_of_pairs_takes_the_estimated_time(batch_size):
    pairs = PIPED | PAIRS | {"batch_size": batch_size}
    executed, estimated = _executed_and_estimated(batch_of(pairs, model=MODEL | {"vocab": 0}))
    assert executed == pytest.approx(estimated, rel=NEAR)


@for_each("changes", [{}, {"pp_layout": "balanced"}, {"batch_size": 88}])
def test_pairs_save_an_executed_pipeline_as_much_as_the_estimate(changes):
    plain, pairs = (_executed_and_estimated(batch_of(PIPED | way | changes)) for way in ({}, PAIRS))
    assert pairs[0] < plain[0]
    assert pairs[0] / pairs[1] == pytest.approx(plain[0] / plain[1], rel=0.015)


@pytest.mark.parametrize("way", [{}, PAIRS], ids=["apart", "pairs"])
@pytest.mark.parametrize("first_k_dense", [0, 1])
def test_chunks_that_differ_are_estimated_as_they_execute(way, first_k_dense):
    model = MODEL | {"first_k_dense": first_k_dense}
    batch = batch_of(PIPED | way | {"stage_blocks": "2-1-1-2-0-1-1-0"}, model=model)
    executed, estimated = _executed_and_estimated(batch)
    assert executed == pytest.approx(estimated, rel=NEAR)


@pytest.mark.parametrize("execution", [ALONE, PIPED], ids=["alone", "piped"])
def test_pairs_hold_one_block_more(execution):
    """Each block that goes forward replaces one of another microbatch that has gone backward."""
    before, after = batch_of(execution), batch_of(execution | PAIRS)
    more = after.space.act - before.space.act
    assert more == pytest.approx(before.stage.block.act_storage)


def test_the_fullest_stage_is_that_of_pairs():
    batch = batch_of(PIPED | PAIRS)
    most = stage_memory(batch).capacity.proc_mem_tier1_cap_req.max()
    assert most == pytest.approx(float(batch.capacity.proc_mem_tier1_cap_req[0]), rel=NEAR)


# -- laws -------------------------------------------------------------------------------------------------------------

WAYS = {
    "pairs": PAIRS,
    "delayed": PAIRS | {"delay_wgrad": True},
    "shared": {"moe_shared_overlap": True},
}


@for_each(("execution", "usage"), [(ALONE, 0.2), (PIPED, 0.0)])
@for_each("way", WAYS.values())
def test_overlap_is_no_slower_and_hides_no_more_than_there_is(execution, way, usage):
    machine = system(usage)
    plain, beside = stats_of(execution, machine), stats_of(execution | way, machine)
    assert beside["ep_comm_link_time"] == plain["ep_comm_link_time"]
    assert plain["ep_comm_exposed_time"] == plain["ep_comm_link_time"]
    assert 0 <= beside["ep_comm_exposed_time"] < plain["ep_comm_exposed_time"]
    saved = plain["ep_comm_exposed_time"] - beside["ep_comm_exposed_time"]
    fill = plain["bubble_time"] - beside["bubble_time"]  # shared experts make that shorter, too
    assert plain["total_time"] - beside["total_time"] == pytest.approx(saved + fill)
    assert fill == 0 or way == WAYS["shared"]


# -- shared experts, halves -------------------------------------------------------------------------------------------


def test_shared_experts_hide_dispatch_by_their_first_product_and_combine_by_the_second():
    shared = (2.0, 5.0, 0.0), (1.0, 9.0, 0.0)
    found = times(D, C, X, A, shared=shared).hidden(choice(moe_shared_overlap=True))
    for number in range(3):
        for kind in range(2):
            assert found[0, number, kind] == min(D[number], shared[0][number])
            assert found[1, number, kind] == min(C[number], shared[1][number])


def test_halves_hide_all_but_the_first_or_last_transfer():
    small = (1.0, 1.0, 1.0)
    work = (9.0, 9.0, 9.0)
    found = times(small, small, work, work).hidden(choice(ep_overlap="two_batch")).sum(axis=0)
    inner, edge = found[:, 0, 0], found[:, 1, 0]
    assert inner == pytest.approx([2, 2, 1.5])  # of a half: dispatch and combine
    assert edge == pytest.approx([1.5, 1.5, 1.5])


def test_it_is_decided_of_every_cost_of_a_block_whether_both_halves_share_it():
    twice = {"fw", "re", "agrad", "wgrad", "collectives", "axis_time", "axis_exposed", "paired"}
    twice |= {"expert_bytes", "expert_rows", "dispatch_space", "act_working", "act_storage"}
    twice |= {"act_checkpoint", "act_grad", "pipeline_message", "matrix_flops", "host_wait"}
    members = {field.name for field in fields(BlockCost)}
    assert members == twice | (members & (OF_WEIGHTS | RATES))


def test_halves_are_blocks_of_half_the_rows_twice():
    halves = stats_of(ALONE | {"ep_overlap": "two_batch"})
    whole, half = stats_of(ALONE), stats_of(ALONE | {"microbatch_size": 1})
    for name in ("fw_time", "bw_time", "ep_comm_link_time"):
        assert halves[name] == pytest.approx(half[name], rel=0.02)  # the head sees all tokens
    assert halves["block_fw_flops"] == pytest.approx(2 * half["block_fw_flops"], rel=NEAR)
    assert halves["block_fw_time"] == pytest.approx(2 * half["block_fw_time"], rel=NEAR)
    assert halves["act_space"] == pytest.approx(whole["act_space"], rel=1e-3)
    assert halves["weight_space"] == whole["weight_space"]
    assert halves["ep_comm_exposed_time"] < halves["ep_comm_link_time"]


@pytest.mark.parametrize(
    "way", [{"ep_overlap": "two_batch"}, {"moe_shared_overlap": True}], ids=str
)
def test_the_operators_of_a_block_add_up_to_it(way):
    found = block(MODEL, ALONE | way, SYSTEM)
    stats = stats_of(ALONE | way)
    forward = sum(one["time"]["forward"] for one in found.operators)
    assert forward == pytest.approx(stats["block_fw_time"])
    sent = [c for one in found.operators for c in one["collectives"] if c.get("axis") == "ep"]
    count = (
        MODEL["num_blocks"] * ALONE["batch_size"] // ALONE["data_par"] // ALONE["microbatch_size"]
    )
    assert sum(c["time"] for c in sent) * count == pytest.approx(stats["ep_comm_link_time"])
    if way.get("moe_shared_overlap"):
        exposed = sum(c["exposed"] for c in sent) * count
        assert exposed == pytest.approx(stats["ep_comm_exposed_time"])


# -- stages -----------------------------------------------------------------------------------------------------------

LAST = {"vocab": 400_000, "mtp_layers": 1}
"""A head that makes the last stage the slowest, and a module on it that hides nothing."""


@for_each("model", [{"vocab": 0}, LAST, {"first_k_dense": 1}, {"first_k_dense": 3} | LAST])
@for_each("layout", [{}, {"last_stage_blocks": 2, "first_stage_blocks": 2}])
def test_the_stage_that_limits_the_time_after_hiding_is_the_one_that_is_described(model, layout):
    """Its passes less what they hide are what a microbatch takes; the rest of the step is waited for or comes after."""
    batch = batch_of(PIPED | PAIRS | layout, model=MODEL | model)
    rows = stage_rows(batch)
    times = [row["forward_time"] + row["backward_time"] - row["hidden_time"] for row in rows]
    slowest = max(range(len(rows)), key=lambda stage: (round(times[stage], 12), stage))
    found, microbatches = batch.times, float(batch.schedule.microbatches[0])
    after = found.bubble_time + found.optim_step_time + found.dp_comm_exposed_time + found.host_time
    after = (
        after + batch.times.pp_comm_link_time - batch.stage.transfers.link
    )  # gradients of the table of a module
    busy = float((found.total_time - after)[0])
    assert busy == pytest.approx(microbatches * times[slowest], rel=1e-9)
    paired = float(batch.pipeline.slowest.block.paired[0]) * rows[slowest]["blocks"]
    share = float(batch.schedule.pairs[0]) / microbatches
    assert rows[slowest]["hidden_time"] == pytest.approx(share * paired)
    assert paired > 0


def test_a_stage_hides_as_much_as_its_own_blocks_with_experts():
    rows = stage_rows(batch_of(PIPED | PAIRS, model=MODEL | {"first_k_dense": 1}))
    dense, other = rows[0]["hidden_time"], rows[1]["hidden_time"]
    assert dense == pytest.approx(other / rows[1]["blocks"] * (rows[0]["blocks"] - 1))
    assert not any(row["hidden_time"] for row in stage_rows(batch_of(PIPED)))
