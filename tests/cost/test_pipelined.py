"""What offloading, overlapped transfers and odd blocks do to pipelines: times and memory of plans that broke a law."""

import copy
import json

import pytest

import calculon
from calculon.spec import catalog
from tests.cases import for_each
from tests.helpers import PLAIN

SCHEDULES = ("1f1b", "gpipe", "zb_h1")


def _system(name, **faster):
    """Return a system of the catalog that is never too small, some of its engines so many times as fast."""
    system = copy.deepcopy(catalog.load("system", name)[1])
    system["mem1"]["GiB"] = system["mem2"]["GiB"] = 1e9
    for network in system["networks"]:
        network["size"], network["must_be_filled"] = 10**6, False
    for part, factor in faster.items():
        for engine in system[part].values():
            engine["tflops"] *= factor
    return system


def _stats(model, system, pipeline_par, data_par=1, tensor_par=1, **changes):
    processors = pipeline_par * data_par * tensor_par
    degrees = {"pipeline_par": pipeline_par, "data_par": data_par, "tensor_par": tensor_par}
    execution = (
        PLAIN
        | degrees
        | {"num_procs": processors, "edition": "corrected", "preset": "published"}
        | changes
    )
    return calculon.estimate(model, execution, system).stats


def test_a_stage_of_one_block_keeps_one_of_what_is_offloaded():
    """The last of the balanced stages has one block, beside the head, and needs most."""
    system = _system("h100_80g_nvl8")
    plan = {"training": False, "pp_layout": "balanced", "batch_size": 4}
    kept = _stats("gpt3-350M", system, 6, 4, **plan)
    moved = _stats("gpt3-350M", system, 6, 4, **plan, weight_offload=True)
    assert moved["weight_space_with_offload"] == moved["weight_space"]
    assert moved["proc_mem_tier1_cap_req"] <= kept["proc_mem_tier1_cap_req"]


@for_each("offloaded", ["activations_offload", "optimizer_offload"])
@for_each("recompute", ["none", "full"])
def test_a_block_that_holds_one_microbatch_needs_no_more_when_it_is_offloaded(offloaded, recompute):
    plan = {"pp_layout": "balanced", "activation_recompute": recompute, "batch_size": 4}
    system = _system("h100_80g_nvl8")
    kept, moved = (
        _stats("gpt3-350M", system, 6, 4, **plan, **{offloaded: there}) for there in (False, True)
    )
    assert moved["proc_mem_tier1_cap_req"] <= kept["proc_mem_tier1_cap_req"]


def test_transfers_beside_passes_are_no_slower_where_offload_traffic_hid_behind_them():
    plan = {"training": False, "weight_offload": True, "batch_size": 16}
    system = _system("a100_80e")
    apart, beside = (
        _stats("gpt3-13B", system, 8, **plan, p2p_overlap=there)["total_time"]
        for there in (False, True)
    )
    assert beside <= apart * (1 + 1e-12)


def test_gradients_find_the_same_window_whether_or_not_transfers_are_beside_passes():
    plan = {"data_par_net": 1, "pipeline_interleaving": 5, "data_par_overlap": True}
    system = _system("a100_80e")
    system["networks"][1]["bandwidth"] /= 20
    apart, beside = (
        _stats("gpt3-13B", system, 8, 2, **plan, batch_size=16, p2p_overlap=there)
        for there in (False, True)
    )
    assert beside["dp_comm_exposed_time"] == pytest.approx(apart["dp_comm_exposed_time"], rel=1e-12)
    assert beside["total_time"] < apart["total_time"]


@pytest.mark.parametrize("stages", [4, 10])
def test_a_faster_engine_does_not_slow_zb_h1_that_offload_traffic_bounds(stages):
    """Gradients of weights that get shorter leave the time in which the stage waits for the traffic."""
    plan = {"pp_schedule": "zb_h1", "activations_offload": True, "microbatch_size": 2}
    slower, faster = (
        _stats("mpt-7B", _system("a100_80g_sxm", matrix=n), stages, 2, 2, **plan, batch_size=16)
        for n in (1, 2)
    )
    assert slower["bw_offload_exposed_time"] > 0
    assert faster["total_time"] < slower["total_time"]


def test_half_the_batch_takes_no_longer_where_the_last_group_of_microbatches_is_short():
    plan = {"pipeline_interleaving": 16, "data_par_overlap": True, "data_par_net": 1}
    half, whole = (
        _stats("mpt-7B", _system("a100_80g_sxm"), 2, 4, **plan, microbatch_size=2, batch_size=size)
        for size in (8, 16)
    )
    assert half["dp_comm_exposed_time"] <= whole["dp_comm_exposed_time"]
    assert half["total_time"] < whole["total_time"]


def test_the_odd_blocks_are_on_the_same_stages_with_every_schedule():
    """32 blocks on 6 stages; of 12 on 11 the last stage has two, so that the first holds more microbatches of one."""
    plan = {"activation_recompute": "attn_only", "batch_size": 4}
    memory = {
        _stats("mpt-3B", _system("a100_80e"), 6, 4, 4, **plan, pp_schedule=name)[
            "proc_mem_tier1_cap_req"
        ]
        for name in SCHEDULES
    }
    assert len(memory) == 1
    one = _stats("megatron-126M", _system("a100_80e"), 11, batch_size=30)
    assert one["weight_space"] == one["block_weight_space"]
    published = _stats("megatron-126M", _system("a100_80e"), 11, batch_size=30, edition="sc23")
    assert published["weight_space"] == 2 * published["block_weight_space"]


@pytest.mark.parametrize("form", ["allgather", "megatron"])
def test_what_no_bandwidth_would_hide_is_null_in_files(form):
    plan = {"pipeline_interleaving": 3, "data_par_overlap": True, "batch_size": 128}
    system = _system("a100_80g_sxm", matrix=4)
    stats = _stats("megatron-126M", system, 2, 16, 8, **plan, tp_impl=form)
    assert (stats["dp_bw_overlap_req_chunk"] is None) == (form == "allgather")
    assert json.loads(json.dumps(stats, allow_nan=False)) == stats
