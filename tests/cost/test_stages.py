"""Passes of single stages: their execution takes as long as the estimate says."""

import pytest

from calculon import inputs
from calculon.cost.stages import stage_passes
from calculon.editions import CORRECTED, SC23
from calculon.evaluate import evaluate_rows
from calculon.parallel.orders import order
from calculon.parallel.timeline import timeline
from calculon.plan.plan import Plan
from tests.helpers import document

SYSTEM = inputs.system("h100_80g_sxm")
LLAMA = document("examples", "llama3-8B_h100x64_p4") | {"batch_size": 128}


def batch_of(model, edition, **changes):
    plan = Plan.of(inputs.execution(LLAMA | {"edition": edition.name} | changes))
    return next(evaluate_rows(inputs.model(model), SYSTEM, plan, edition))[1]


def executed(batch, schedule="1f1b"):
    """Return when the last pass of a batch ends."""
    passes = stage_passes(batch)
    stages, chunks = passes.forward.shape
    count = int(batch.schedule.microbatches[0])
    orders = [order(schedule, stage, stages, count, chunks) for stage in range(stages)]
    spans = timeline(orders, lambda kind, stage, chunk: getattr(passes, kind)[stage, chunk])
    return max(span.end for span in spans)


def pipelined(batch):
    """Return the estimated time of an iteration but for what comes after the last pass."""
    times = batch.times
    after = times.optim_step_time + times.dp_comm_exposed_time + times.host_time
    return float((times.total_time - after)[0])


@pytest.mark.parametrize("chunks", [1, 2, 4])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_an_executed_batch_takes_the_estimated_time(chunks, recompute):
    batch = batch_of("llama3-8B", CORRECTED, pipeline_interleaving=chunks,
                     activation_recompute=recompute)  # fmt: skip
    assert executed(batch) == pytest.approx(pipelined(batch), rel=1e-12 if chunks == 1 else 0.002)


def test_without_ends_it_is_exact_in_both_editions():
    plain = {"attn_impl": "eager", "ce_impl": "eager", "grad_buffer": "sharded"}
    for edition in (SC23, CORRECTED):
        batch = batch_of("megatron-22B", edition, datatype="float16", **plain)
        assert executed(batch) == pytest.approx(pipelined(batch), rel=1e-12)


def test_inference_passes_forward_only():
    batch = batch_of("megatron-22B", CORRECTED, training=False, optimizer_sharding=False,
                     data_par_overlap=False)  # fmt: skip
    assert executed(batch, "forward") == pytest.approx(pipelined(batch), rel=1e-12)


def test_the_head_makes_the_last_stage_the_slowest():
    batch = batch_of("llama3-8B", CORRECTED)
    passes = stage_passes(batch)
    forward, backward = passes.forward.sum(axis=1), passes.backward.sum(axis=1)
    inner, last = (forward + backward)[1], (forward + backward)[-1]
    assert last - inner == pytest.approx(float(batch.end_times.head[0]))
    assert forward[1] == forward[2] < forward[-1]
    assert (passes.weight < passes.backward).all()


def test_stages_lack_blocks_where_they_do_not_divide():
    batch = batch_of("llama3-8B", CORRECTED, pipeline_par=3, num_procs=48)
    forward = stage_passes(batch).forward.sum(axis=1)
    block = batch.block_whole
    assert forward[0] - forward[1] == pytest.approx(
        float((block.forward_base + block.forward_edge)[0] / 2)
        + float(batch.ends.cost.embedding.fw.time[0])
        + float(batch.ends.cost.embedding.collectives.fw_tp.time_exposed[0, 0])
    )
    assert executed(batch) <= pipelined(batch) * (1 + 1e-12)
