"""Schedules and layouts in executions: what is estimated is what their execution, event by event, takes."""

import json
from dataclasses import replace

import pytest

import calculon
from calculon import inputs
from calculon.editions import CORRECTED, SC23
from calculon.estimate.evaluate import evaluate_rows
from calculon.estimate.stages import execute, stage_blocks, stage_memory, stage_passes, stage_rows
from calculon.plan.plan import Plan
from tests.helpers import LLAMA_X64_P4, document

SYSTEM = inputs.system("h100_80g_sxm")
LLAMA = LLAMA_X64_P4 | {"batch_size": 128}
NO_ENDS = {"model": "megatron-22B", "datatype": "float16"}
NO_ENDS |= {"attn_impl": "eager", "ce_impl": "eager", "grad_buffer": "sharded"}
INFERENCE = {"model": "megatron-22B", "training": False}
INFERENCE |= {"optimizer_sharding": False, "data_par_overlap": False}
TINY = 1e-12


def batch_of(model="llama3-8B", edition=CORRECTED, **changes):
    plan = Plan.of(inputs.execution(LLAMA | {"edition": edition.name} | changes))
    return next(evaluate_rows(inputs.model(model), SYSTEM, plan, edition))[1]


def executed(batch):
    """Return when the last pass of a batch ends."""
    return max(span.end for span in execute(batch, int(batch.schedule.microbatches[0])))


def estimated(batch):
    """Return the estimated time of an iteration but for what comes after the last pass."""
    times = batch.times
    after = times.optim_step_time + times.dp_comm_exposed_time + times.host_time
    return float((times.total_time - after)[0])


EXACT = {
    "1F1B": {},
    "recomputed": {"activation_recompute": "full"},
    "GPipe": {"pp_schedule": "gpipe"},
    "ZB-H1": {"pp_schedule": "zb_h1"},
    "few microbatches": {"pp_schedule": "zb_h1", "batch_size": 32},
    "GPipe, balanced": {"pp_schedule": "gpipe", "pp_layout": "balanced"},
    "GPipe, overlap": {"pp_schedule": "gpipe", "p2p_overlap": True},
    "three stages": {"pipeline_par": 3, "num_procs": 48, "pp_schedule": "gpipe"},
    "last is largest": {"last_stage_blocks": 14},
    "ZB-H1, last is largest": {"last_stage_blocks": 14, "pp_schedule": "zb_h1"},
    "two stages": {"pipeline_par": 2, "data_par": 16, "pp_schedule": "zb_h1"},
    "without ends": NO_ENDS,
    "without ends, published": NO_ENDS | {"edition": SC23},
    "inference": INFERENCE,
    "inference, overlap": INFERENCE | {"p2p_overlap": True},
}
"""The slowest stage is the last, or order does not matter."""


@pytest.mark.parametrize("changes", EXACT.values(), ids=EXACT)
def test_an_executed_batch_takes_the_estimated_time(changes):
    batch = batch_of(**changes)
    assert executed(batch) == pytest.approx(estimated(batch), rel=TINY)


V = {"pipeline_interleaving": 2}
SIMULATED = {
    "ZB-H2": {"pp_schedule": "zb_h2"},
    "ZB-H2, balanced": {"pp_schedule": "zb_h2", "pp_layout": "balanced"},
    "ZB-H2, overlap": {"pp_schedule": "zb_h2", "p2p_overlap": True},
    "ZBV": {"pp_schedule": "zbv"} | V,
    "ZBV, listed": {"pp_schedule": "zbv", "stage_blocks": "3-4-4-5-5-5-4-2"} | V,
    "ZBV, three ranks": {"pp_schedule": "zbv", "pipeline_par": 3, "num_procs": 48} | V,
    "ZBV, few microbatches": {"pp_schedule": "zbv", "batch_size": 32} | V,
    "DualPipe": {"pp_schedule": "dualpipe", "batch_size": 256},
    "DualPipe, overlap": {"pp_schedule": "dualpipe", "p2p_overlap": True},
    "DualPipe, listed": {"pp_schedule": "dualpipe", "stage_blocks": "7-9-9-7"},
    "DualPipeV": {"pp_schedule": "dualpipev"} | V,
    "DualPipeV, recomputed": {"pp_schedule": "dualpipev", "activation_recompute": "full"} | V,
}
"""Stages are not alike: the first rank has the embedding and, but for ZB-H2, the head."""


@pytest.mark.parametrize("changes", SIMULATED.values(), ids=SIMULATED)
def test_a_simulated_batch_takes_as_long_as_its_execution(changes):
    """Of all ranks, where DualPipe is estimated from half of them; gradients of two of them are added up after it."""
    batch = batch_of(**changes)
    both = 2 if batch.schedule.choice.mirrored else 1
    spans = execute(batch, both * int(batch.schedule.microbatches[0]))
    last = max(span.end for span in spans)
    if changes["pp_schedule"] in ("zb_h2", "zbv"):  # ranks go on by themselves
        own = [[s for s in spans if s.stage == r] for r in {s.stage for s in spans}]
        last = max(max(s.end for s in one) - min(s.start for s in one) for one in own)
    shared = batch.times.pp_comm_link_time - batch.stage.transfers.link
    assert last == pytest.approx(estimated(batch) - float(shared[0]), rel=TINY)


@pytest.mark.parametrize("place", ["5-5-5-5-4-4-0m-0", "5-5-5-5-4-4m-0-0", "5-5-5-5-4-3-1m-0"])
def test_modules_in_a_chunk_of_their_own_take_the_estimated_time(place):
    model = inputs.model(document("models", "llama3-8B") | {"num_blocks": 28, "mtp_layers": 1})
    batch = batch_of(model, stage_blocks=place, tensor_par_overlap="none", **V)
    shared = float((batch.times.pp_comm_link_time - batch.pipeline.slowest.transfers.link)[0])
    assert executed(batch) == pytest.approx(estimated(batch) - shared, rel=TINY)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("chunks", [2, 4])
def test_chunks_take_the_estimated_time_but_for_the_embedding(chunks, overlap):
    batch = batch_of(pipeline_interleaving=chunks, p2p_overlap=overlap)
    assert executed(batch) == pytest.approx(estimated(batch), rel=0.002)
    alone = batch_of("megatron-22B", pipeline_interleaving=chunks, p2p_overlap=overlap)
    assert executed(alone) == pytest.approx(estimated(alone), rel=TINY)


@pytest.mark.parametrize(
    "changes",
    [
        {"pp_layout": "balanced", "pp_schedule": "zb_h1"},
        {"pp_layout": "balanced", "activation_recompute": "full"},
        {"first_stage_blocks": 10, "last_stage_blocks": 8},
        {"pipeline_par": 8, "data_par": 4, "pp_layout": "balanced"},
        {"pipeline_par": 16, "data_par": 2, "pp_layout": "balanced"},
    ],
    ids=str,
)
def test_of_other_layouts_the_estimate_is_a_bound_that_is_near(changes):
    batch = batch_of(**changes)
    assert executed(batch) <= estimated(batch) * (1 + TINY)
    assert estimated(batch) <= 1.05 * executed(batch)


def test_the_head_makes_the_last_stage_the_slowest():
    batch = batch_of()
    passes = stage_passes(batch)
    whole = (passes.forward + passes.backward).sum(axis=1)
    assert whole[-1] - whole[1] == pytest.approx(float(batch.pipeline.embedding_head.head[0]))
    assert whole[1] == whole[2]
    assert (passes.weight < passes.backward).all()


@pytest.mark.parametrize("changes", [{}, {"activation_recompute": "full"}])
def test_recomputation_is_the_forward_work_of_the_blocks_once_more(changes):
    batch = batch_of(**changes)
    again = float(batch.stage.block.re.time[0])
    assert (again > 0) == bool(changes)
    for row, blocks in zip(stage_rows(batch), stage_blocks(batch), strict=True):
        assert row["recompute_time"] == pytest.approx(blocks * again)
        assert row["recompute_time"] + row["weight_grad_time"] < row["backward_time"]


# -- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"activation_recompute": "full"},
        {"pp_schedule": "gpipe", "activation_recompute": "full"},
        {"pp_schedule": "zb_h1"},
        {"first_stage_blocks": 4, "last_stage_blocks": 4},
        {"last_stage_blocks": 20, "pp_schedule": "zb_h1"},
        {"pipeline_interleaving": 2},
        {"pipeline_par": 3, "num_procs": 48},
        {"zero_stage": 3, "grad_buffer": "sharded", "pp_layout": "balanced"},
        {"weight_offload": True, "activations_offload": True},
        {"batch_size": 16},
        *SIMULATED.values(),
    ],
    ids=str,
)
def test_the_fullest_stage_is_the_one_that_is_reported(changes):
    batch = batch_of(**changes)
    for tier in (1, 2):
        name = f"proc_mem_tier{tier}_cap_req"
        most = getattr(stage_memory(batch).capacity, name).max()
        assert most == pytest.approx(float(getattr(batch.capacity, name)[0]), rel=TINY)


def test_stages_write_null_for_statistics_without_a_value():
    found = calculon.estimate("llama3-8B", LLAMA, SYSTEM)
    json.dumps(found.stages, allow_nan=False)
    absent = {name for name, value in found.stats.items() if value is None}
    for row in found.stages:
        assert {name for name, value in row.items() if value is None} == absent & set(row)


# -- what is gained -------------------------------------------------------------------------------


def test_balanced_stages_beat_equal_ones():
    """The slowest stage has 9 blocks in place of 8 and the head, which is worth more than one."""

    def estimate(**changes):
        return calculon.estimate("llama3-8B", LLAMA | changes, SYSTEM)

    balanced = estimate(pp_layout="balanced")
    assert [stage["blocks"] for stage in balanced.stages] == [8, 9, 9, 6]
    time = balanced.stats["total_time"]
    assert time < 0.95 * estimate().stats["total_time"]
    assert time == estimate(last_stage_blocks=6).stats["total_time"]


def test_ranks_of_dualpipe_have_two_stages():
    """Twice the weights and gradients of a stage, and the sum of both over the pipeline's network."""
    one, two = batch_of(), batch_of(pp_schedule="dualpipe")
    assert stage_blocks(two) == [2 * blocks for blocks in stage_blocks(one)]
    weights = [sum(row["weight_space"] for row in stage_rows(batch)) for batch in (one, two)]
    assert weights[1] == pytest.approx(2 * weights[0])
    message = two.pipeline.mirrored_gradient
    assert two.times.pp_comm_link_time[0] - two.stage.transfers.link[0] == pytest.approx(
        float(SYSTEM.fabric.time(two.schedule.networks["pp"], "all_reduce", message, 2.0)[0])
    )


def test_the_first_rank_of_a_v_has_both_ends():
    """A table that both use is there once, and nothing of it is exchanged between stages."""
    batch = batch_of(pp_schedule="zbv", **V)
    passes, ends = stage_passes(batch), batch.stage.embedding_head
    more = passes.forward[0] - passes.forward[1]
    of_ends = [float(ends.forward(one)[0]) for one in (ends.cost.embedding, ends.cost.head)]
    assert more.tolist() == pytest.approx(of_ends)
    tied = replace(inputs.model("llama3-8B"), tied=True)
    split, turned = batch_of(tied), batch_of(tied, pp_schedule="zbv", **V)
    assert split.times.pp_comm_link_time > split.stage.transfers.link
    assert turned.times.pp_comm_link_time == turned.stage.transfers.link


@pytest.mark.parametrize("stages", [2, 4])
def test_a_chain_of_layers_forward_over_ranks(stages):
    """4 layers of width 1024 and a batch of 128 in 4 microbatches: m + p - 1 passes, transfers waited for."""
    chain = {"hidden": 1024, "feedforward": 1024, "seq_size": 1, "attn_heads": 1, "attn_size": 1024,
             "num_blocks": 4, "part": "linear", "activation": "relu", "dropout": False}  # fmt: skip
    alone = {"num_procs": stages, "tensor_par": 1, "pipeline_par": stages, "data_par": 1,
             "microbatch_size": 32, "training": False, "optimizer_sharding": False,
             "data_par_overlap": False, "tensor_par_comm_type": "ar", "tensor_par_overlap": "none"}  # fmt: skip
    batch = batch_of(chain, **alone)
    one = float(
        (
            batch.stage.times_without_offload.forward_edge
            + (4 / stages - 1) * batch.stage.times_without_offload.forward_base
        )[0]
    )
    sent = float(batch.stage.transfers.forward[0])
    assert sent > 0
    assert estimated(batch) == pytest.approx((4 + stages - 1) * one, rel=TINY)
    assert float(batch.times.pp_comm_exposed_time[0]) == pytest.approx(4 * sent, rel=TINY)
    assert executed(batch) == pytest.approx(estimated(batch), rel=TINY)
