"""Oddities of the published model that tests of corrections do not compare; tags of ``validation/README.md``."""

import itertools

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.editions import SC23
from tests.helpers import PLAIN, ROOT, document

MODEL = document("models", "megatron-22B")  # 48 blocks
BASE = PLAIN | {
    "num_procs": 4,
    "tensor_par": 4,
    "pipeline_par_net": 1,
    "data_par_net": 1,
    "batch_size": 8,
    "fused_activation": True,
}
SYSTEM, MACHINE = inputs.system("a100_80g"), inputs.system("a100_80e")
FULL = {"activation_recompute": "full"}
REPLICATED = {"num_procs": 16, "data_par": 4, "batch_size": 32}
INFERENCE = {"training": False}
LATENCY = 2e-5  # of network 1


def _estimate(**changes):
    """Estimate on a system whose memory never matters; layers by name."""
    result = calculon.estimate(MODEL, BASE | changes, MACHINE, layers=True)
    return result.stats, {layer["name"]: layer for layer in result.layers}


def test_every_oddity_is_in_the_fidelity_table():
    table = (ROOT / "validation" / "README.md").read_text()
    tags = {tag for tag in range(1, 26) if f"| O{tag} |" in table or f"|O{tag}|" in table}
    assert tags >= set(range(1, 26)) - {9}


@pytest.mark.parametrize("recompute", ["full", "attn_only"])
def test_o1_recomputed_work_adds_up_running_totals_and_its_time_does_not(recompute):
    stats, layers = _estimate(activation_recompute=recompute)
    redone = [
        (recompute == "full" and not name.endswith(("_F", "_G")))
        or name in ("AttnBlock_Multihead_Fork", "AttnBlock_Multihead_Key_Query")
        or name in ("AttnBlock_Multihead_SoftMax", "AttnBlock_Multihead_DropOut")
        for name in layers
    ]
    for member, name in (("fw_flops", "flops"), ("fw_mem_accessed", "mem_accessed")):
        totals = itertools.accumulate(layer[member] for layer in layers.values())
        expected = sum(total for total, again in zip(totals, redone, strict=True) if again)
        assert stats[f"block_re_{name}"] == pytest.approx(expected, rel=1e-13)
    times = (layer["fw_processing_time"] for layer in layers.values())
    expected = sum(time for time, again in zip(times, redone, strict=True) if again)
    assert stats["block_re_time"] == pytest.approx(expected, rel=1e-13)


OVERLAPPED = {"tensor_par_overlap": "pipe", "tensor_par_comm_type": "rs_ag"}


def test_o2_a_repeated_overlapped_collective_is_exposed_as_in_the_forward_pass():
    stats, layers = _estimate(**OVERLAPPED, **FULL)
    forward = [x["baseblock_fw_tp_comm_time_exposed"] for x in layers.values()]
    again = [x["baseblock_recomm_time_exposed"] for x in layers.values()]
    assert stats["baseblock_recomm_time_exposed"] == pytest.approx(sum(forward), rel=1e-13)
    assert sum(again) < sum(forward)  # [O24]


def _times(link, *, pipelined, arithmetic=1.0, memory=0.25, tiles=4.0, usage=0.2):
    """Times of an overlapped linear whose base and edge links take so long, without roofline."""
    processing, exposed = SC23.overlapped_times(
        np.array([arithmetic]),
        np.array([memory]),
        np.array(link)[:, None],
        np.array([tiles]),
        np.array([usage]),
        SYSTEM,
        pipelined=pipelined,
    )
    return processing[0], exposed[:, 0].tolist()


def test_an_overlapped_linear_waits_for_communication_that_is_longer_than_arithmetic():
    slowed, link = 1.0 / 0.8, 5.0
    processing, exposed = _times([link, link], pipelined=False)
    assert processing == pytest.approx(1.25 / 4 + 3 * (slowed + 0.25) / 4)
    assert exposed == pytest.approx([3 * (link / 4 - slowed / 4)] * 2)


def test_an_overlapped_linear_is_slowed_while_its_communication_lasts():
    processing, exposed = _times([0.5, 0.5], pipelined=False)
    assert processing == pytest.approx(1.25 + 3 * 0.5 / 4 * 0.2)
    assert exposed == [0, 0]


@pytest.mark.parametrize("pipelined", [False, True])
def test_without_communication_an_overlapped_linear_is_an_ordinary_one(pipelined):
    assert _times([0.0, 3.0], pipelined=pipelined) == (1.25, [0, 0])


def test_o4_the_weight_gradient_of_an_overlapped_linear_that_gathers_again_is_slowed():
    _, kept = _estimate(**OVERLAPPED)
    _, again = _estimate(**OVERLAPPED, seq_par_ag_redo=True)
    slower = {
        n for n in kept if again[n]["wgrad_processing_time"] > kept[n]["wgrad_processing_time"]
    }
    assert slower == {"AttnBlock_QKV_AG", "MlpBlock_Mlp1_AG"}


def test_o5_an_edge_block_is_timed_by_the_link_of_a_base_block():
    assert _times([5.0, 0.5], pipelined=True) == _times([5.0, 99.0], pipelined=True)
    assert _times([5.0, 0.5], pipelined=True) != _times([0.5, 0.5], pipelined=True)


def test_o10_a_single_block_chunk_still_pays_the_slow_down_of_a_block():
    shape = {"num_procs": 64, "pipeline_par": 4, "data_par": 4, "batch_size": 32}
    shape |= {"pipeline_interleaving": 12, "data_par_net": 0, "tensor_par_net": 1}
    changes = shape | {"data_par_overlap": True}
    s = calculon.estimate(MODEL, BASE | changes, MACHINE).stats
    usage = 0.15
    one = s["dp_comm_link_time"] / 12
    k = s["block_agrad_flops_time"] + s["block_wgrad_flops_time"] + s["block_re_flops_time"]
    k += s["block_optim_flops_time"]
    early = 11 * one * usage  # a backward pass over four stages hides the first chunks
    assert s["dp_comm_exposed_time"] == pytest.approx(one + early + k * usage, rel=1e-12)


def test_o11_the_bandwidth_of_a_tail_counts_the_block_that_nothing_hides():
    s, _ = _estimate(**REPLICATED, data_par_overlap=True)
    slack = s["block_optim_time"] - s["block_optim_mem_time"]
    backward = s["block_agrad_time"] + s["block_wgrad_time"] + s["baseblock_agrad_tp_time_exposed"]
    usable = backward - s["block_agrad_mem_time"] - s["block_wgrad_mem_time"] + slack
    window = 48 * usable + LATENCY - LATENCY - (backward + LATENCY / 2) + slack
    traffic = 47 * s["dp_comm_link_time"] / 48
    expected = 48 * s["block_dp_size"] / (window + traffic * 0.02)
    assert s["dp_bw_overlap_req_tail"] == pytest.approx(expected, rel=1e-12)
    assert s["dp_bw_overlap_req_chunk"] == 0  # a single chunk


def test_o13_offloading_activations_raises_the_need_of_inference():
    kept, _ = _estimate(**INFERENCE)
    moved, _ = _estimate(**INFERENCE, activations_offload=True)
    added = moved["proc_mem_tier1_cap_req"] - kept["proc_mem_tier1_cap_req"]
    assert added == kept["block_act_storage_space"] > 0


def test_o15_a_split_for_the_pipeline_shows_in_collectives_of_edge_blocks_only():
    (ar, _), (split, _) = _estimate(), _estimate(tensor_par_comm_type="p2p_rs_ag")
    differ = {name for name in ar if ar[name] != split[name]}
    block = {name for name in differ if "block_" in name}
    assert block == {
        *("edgeblock_fw_tp_size", "edgeblock_bw_tp_size"),
        *("edgeblock_fw_tp_time", "edgeblock_fw_tp_time_exposed"),
        *("edgeblock_agrad_tp_time", "edgeblock_agrad_tp_time_exposed"),
    }


def test_o16_collective_layers_add_to_arithmetic_and_memory_time_but_not_to_processing():
    stats, layers = _estimate()
    apart = stats["block_fw_flops_time"] + stats["block_fw_mem_time"]
    assert layers["MlpBlock_G"]["fw_flops"] > 0
    assert layers["MlpBlock_G"]["fw_processing_time"] == 0
    assert stats["block_fw_time"] < apart


def test_o22_multiquery_replicates_its_key_and_value_projections():
    _, layers = _estimate(attention_type="multiquery")
    for name in ("AttnBlock_Key", "AttnBlock_Value"):
        assert layers[name]["weight"] == 2 * MODEL["hidden"] * MODEL["attn_size"]
    _, multihead = _estimate()
    for name in layers:
        if name not in ("AttnBlock_Key", "AttnBlock_Value"):
            assert layers[name] == multihead[name]


def test_o25_offload_traffic_is_a_maximum_forward_and_a_sum_backward():
    weights, activations, optimizer = (np.array([v]) for v in (3.0, 5.0, 7.0))
    assert SC23.offload_bytes(weights, activations, optimizer) == (5.0, 15.0)
