"""Traffic between replicas of stages that differ: each is stalled for its own, and the slowest one counts."""

import copy

import pytest

import calculon
from tests.cases import for_each
from tests.cost.data.test_replication import (
    BASE,
    BLOCKS,
    FAST,
    MODEL,
    RANKS,
    SLOW,
    _each,
    _time,
)
from tests.helpers import document

PLAN = BASE | {
    "num_procs": 2 * RANKS,
    "pipeline_par": 2,
    "batch_size": 5 * 2 * RANKS,
    "pp_layout": "uniform",
    "zero_stage": "3",
}
MICROBATCHES = 5
VOCAB = 51200


def _stats(system, model=MODEL, **changes):
    return calculon.estimate(model, PLAN | changes, system).stats


def _pass(stats, blocks):
    """Return the time of a stage for a microbatch, transfers included."""
    block = stats["block_fw_time"] + stats["block_agrad_time"] + stats["block_wgrad_time"]
    return blocks * block + stats["pp_comm_link_time"] / MICROBATCHES


@for_each("first", [2, 8])
@for_each("schedule", ["1f1b", "gpipe"])
def test_each_stage_waits_for_the_weights_of_its_own_blocks(first, schedule):
    """Nothing overlaps: a stage gathers the weights of each block twice, and reduces its gradients."""
    found = _stats(SLOW, first_stage_blocks=first, pp_schedule=schedule)
    each = _each("all_gather", "all_gather", "reduce_scatter", system=SLOW)
    most = max(first, BLOCKS - first)
    least = BLOCKS - most
    assert found["dp_comm_exposed_time"] == pytest.approx(MICROBATCHES * most * each, rel=1e-9)
    fill = _pass(found, least) + least * each
    assert found["bubble_time"] == pytest.approx(fill, rel=1e-9)


def test_the_slowest_stage_counts_where_another_is_stalled_longer():
    """The first stage waits for its one block and for the embedding, the last for the first unit of its eleven.

    All else hides behind the passes, on a network that is fast and takes nothing of the engines.
    """
    model = MODEL | {"vocab": VOCAB}
    changes = {"first_stage_blocks": 1, "data_par_overlap": True}
    found, alone = (_stats(FAST, model, zero_stage=stage, **changes) for stage in ("3", "1"))
    last = MICROBATCHES * _each("all_gather", "all_gather", "reduce_scatter")
    assert found["dp_comm_exposed_time"] == pytest.approx(last, rel=1e-9)
    table = 2 * VOCAB * MODEL["hidden"]
    first = _each("all_gather", "all_gather", "reduce_scatter")
    first += _time("all_gather", table) + _time("reduce_scatter", table)
    assert first > last / MICROBATCHES
    assert found["bubble_time"] - alone["bubble_time"] == pytest.approx(first, rel=1e-6)


def test_gradients_reduced_once_wait_for_the_stage_that_has_most():
    found = _stats(SLOW, first_stage_blocks=2, zero_stage="1")
    once = _each("reduce_scatter", "all_gather", system=SLOW)
    assert found["dp_comm_exposed_time"] == pytest.approx((BLOCKS - 2) * once, rel=1e-9)
    assert found["bubble_time"] == pytest.approx(_pass(found, 2), rel=1e-9)


@for_each("overlap", [False, True])
@for_each("stage", ["0", "1"])
def test_a_stage_without_blocks_reduces_nothing_in_buckets(stage, overlap):
    """The other stage reduces as many buckets as a stage with all blocks."""
    changes = {"zero_stage": stage, "ddp_bucket_mib": 25, "data_par_overlap": overlap}
    changes["optimizer_sharding"] = stage != "0"
    alone = {"num_procs": RANKS, "pipeline_par": 1, "batch_size": 5 * 2 * RANKS}
    found = _stats(FAST, **changes, stage_blocks=f"{BLOCKS}-0")
    expected = _stats(FAST, **changes, **alone)
    for name in ("dp_comm_link_time", "dp_comm_exposed_time"):
        assert found[name] == pytest.approx(expected[name], rel=1e-9)
        assert found[name] > 0


def test_offload_traffic_that_transfers_hide_widens_no_window():
    """Each block is a chunk, whose transfer takes longer than its offload traffic."""
    systems = [copy.deepcopy(document("systems", "a100_80g_sxm")) for _ in range(2)]
    for system, slower in zip(systems, (16, 1), strict=True):
        system["networks"][1]["bandwidth"] = 0.1
        system["mem2"]["GBps"] /= slower
    changes = {"weight_offload": True, "data_par_overlap": True, "zero_stage": "1"}
    chunks = changes | {"pipeline_interleaving": BLOCKS // 2}
    slow, fast = (_stats(system, **changes) for system in systems)
    assert slow["bw_offload_exposed_time"] > fast["bw_offload_exposed_time"]
    assert slow["dp_comm_exposed_time"] < fast["dp_comm_exposed_time"]
    slow, fast = (_stats(system, **chunks) for system in systems)
    assert slow["fw_offload_exposed_time"] == slow["bw_offload_exposed_time"] == 0
    assert 0 < slow["dp_comm_exposed_time"] == fast["dp_comm_exposed_time"]
    assert slow["dp_comm_exposed_time"] < slow["dp_comm_link_time"]
