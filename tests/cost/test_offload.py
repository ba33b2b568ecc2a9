import numpy as np
import pytest

import calculon
from calculon.cost.block_times import exposed_transfer
from tests.cases import for_each
from tests.helpers import LLAMA_X64, document

MODEL = document("models", "megatron-22B")
SYSTEM = calculon.inputs.system("a100_80e")
RAW = document("examples", "3072_t4_p64_d12_mbs4_full") | {
    "num_procs": 8,
    "tensor_par": 8,
    "pipeline_par": 1,
    "data_par": 1,
    "batch_size": 4,
    "microbatch_size": 1,
    "optimizer_sharding": False,
    "data_par_overlap": False,
}


@for_each(
    ("transfer", "memory", "busy", "waits"),
    [(3.0, 1.0, 10.0, 0.0), (9.0, 2.0, 10.0, 1.0), (8.0, 2.0, 10.0, 0.0)],
)
def test_a_transfer_uses_the_memory_while_the_block_does_not(transfer, memory, busy, waits):
    assert exposed_transfer(*(np.array(x) for x in (transfer, memory, busy))) == waits


@for_each("recompute", ["full", "attn_only", "none"])
@for_each(
    "switches",
    [(), ("weight",), ("activations",), ("optimizer",), ("weight", "activations", "optimizer")],
)
def test_the_bandwidth_that_hides_everything_moves_what_is_offloaded(switches, recompute):
    changes = {
        f"{name}_offload": name in switches for name in ("weight", "activations", "optimizer")
    }
    changes |= {"activation_recompute": recompute}
    s = calculon.estimate(MODEL, RAW | changes, SYSTEM).stats
    stored = "block_act_checkpoint_size" if recompute == "full" else "block_act_storage_space"
    weight = s["block_weight_space"] * ("weight" in switches)
    activations = s[stored] * ("activations" in switches)
    optimizer = s["block_optimizer_space"] * ("optimizer" in switches)
    forward = s["block_fw_time"] + s["baseblock_fw_tp_time_exposed"] - s["block_fw_mem_time"]
    backward = (
        s["block_re_time"]
        + s["baseblock_recomm_time_exposed"]
        + s["block_agrad_time"]
        + s["block_wgrad_time"]
        + s["baseblock_agrad_tp_time_exposed"]
        - (s["block_agrad_mem_time"] + s["block_wgrad_mem_time"])
    )
    expected = max(
        max(weight, activations) / forward, (weight + activations + optimizer) / backward
    )
    assert s["offload_mem_bw_req"] == pytest.approx(expected, rel=1e-12)
    assert s["act_offload_bw_req"] == pytest.approx(s[stored] / forward, rel=1e-12)
    assert s["weight_offload_bw_req"] == pytest.approx(s["block_weight_space"] / forward, rel=1e-12)


def _crowded(**host):
    raw = document("systems", "h100_80g_sxm")
    raw["mem1"]["GiB"] = raw["mem2"]["GiB"] = 1e5
    raw["ext"]["host"] = {"GBps": 1e5, "efficiency": 1.0, "processors": 8} | host
    return raw


SHARDED = LLAMA_X64 | {
    "tensor_par": 1,
    "data_par": 64,
    "tensor_par_comm_type": "ar",
    "tensor_par_overlap": "none",
    "grad_buffer": "sharded",
    "activation_recompute": "full",
    "fused_activation": False,
    "activations_offload": True,
    "mesh_order": "tp-dp-pp",
    "coll_algo": "ring",
    "batch_size": 128,
    "microbatch_size": 1,
    "zero_stage": "fsdp",
}


def _of(system, **changes):
    return calculon.estimate("llama3-8B", SHARDED | changes, system).stats


def test_processors_of_a_node_share_its_memory_in_both_directions():
    """The memory of a node, and not the link, bounds what all its processors move at once."""
    moved = _of(_crowded())["block_act_checkpoint_size"]
    rate = 100e9
    system = _crowded(GBps=rate / 0.5 / 1e9, efficiency=0.5)
    for processors in (1, 8):
        found = _of(
            system
            | {"ext": system["ext"] | {"host": system["ext"]["host"] | {"processors": processors}}}
        )
        backward = moved * processors / rate
        link = moved / (63e9 * 0.88)
        busy = found["block_fw_time"] - found["block_fw_mem_time"]
        waits = max(0.0, max(backward, link) - busy)
        microbatches, blocks = 2, 32
        assert found["fw_offload_exposed_time"] == pytest.approx(microbatches * blocks * waits)


def test_offloading_waits_for_what_the_network_leaves_of_the_link():
    full, crowded = (
        _of(_crowded(**more) | {"mem2": _crowded()["mem2"] | {"GBps": 8}})
        for more in ({}, {"network": 1})
    )
    rank = 63 / 64 / 8  # of a ring through nodes of 8 that shares 8 ports
    parameters = 2 * (full["weight_space"] / 4 * 64)
    moved = 3 * 2 * rank * parameters  # two gathers and a reduction of each microbatch
    more = crowded["bw_offload_exposed_time"] - full["bw_offload_exposed_time"]
    assert 0 < more <= moved / 8e9 * (1 + 1e-9)
    assert crowded["total_time"] - full["total_time"] == pytest.approx(more)
    for quiet in ({"data_par_overlap": False}, {"activations_offload": False}):
        assert _of(_crowded(network=1), **quiet) == _of(_crowded(), **quiet)


def test_the_link_carries_what_passes_wait_for():
    """Time that passes wait for data-parallel traffic is not waited for a second time."""

    def times(slower):
        stats = []
        for more in ({}, {"network": 1}):
            system = _crowded(**more)
            system["mem2"]["GBps"] = 8
            system["networks"][1]["bandwidth"] /= slower
            stats.append(_of(system))
        left = stats[1]["bw_offload_exposed_time"] - stats[0]["bw_offload_exposed_time"]
        return stats[0]["dp_comm_exposed_time"], left

    (fast, left), (slow, less) = times(1), times(4)
    assert slow > fast
    assert less > 0
    assert left - less == pytest.approx(slow - fast)
