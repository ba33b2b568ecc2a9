"""Oddities of the published model that tests of corrections do not compare; tags of ``validation/README.md``."""

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
REPLICATED = {"num_procs": 16, "data_par": 4, "batch_size": 32}
LATENCY = 2e-5  # of network 1


def _estimate(**changes):
    """Estimate on a system whose memory never matters; layers by name."""
    result = calculon.estimate(MODEL, BASE | changes, MACHINE, layers=True)
    return result.stats, {layer["name"]: layer for layer in result.layers}


def test_every_oddity_is_in_the_fidelity_table():
    table = (ROOT / "validation" / "README.md").read_text()
    tags = {tag for tag in range(1, 26) if f"| O{tag} |" in table or f"|O{tag}|" in table}
    assert tags >= set(range(1, 26)) - {9}


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


def test_o16_collective_layers_add_to_arithmetic_and_memory_time_but_not_to_processing():
    stats, layers = _estimate()
    apart = stats["block_fw_flops_time"] + stats["block_fw_mem_time"]
    assert layers["MlpBlock_G"]["fw_flops"] > 0
    assert layers["MlpBlock_G"]["fw_processing_time"] == 0
    assert stats["block_fw_time"] < apart


def test_o25_offload_traffic_is_a_maximum_forward_and_a_sum_backward():
    weights, activations, optimizer = (np.array([v]) for v in (3.0, 5.0, 7.0))
    assert SC23.offload_bytes(weights, activations, optimizer) == (5.0, 15.0)
