"""The examples of data parallelism show what they are shipped for: memory and traffic as formulas."""

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.architecture.parameters import parameter_count
from calculon.hardware.collectives.algorithm_times import bus_bandwidth, times
from calculon.hardware.collectives.placement import place
from calculon.units import GIB, MIB
from tests.helpers import ROOT, document

STATE = ("weight_space", "weight_grad_space", "optimizer_space")
BUFFERS = ("gathered_space", "comm_buffer_space", "reserved_space")
LATENCY, RATE, USAGE = 1e-5, 300e9 * 0.65, 0.15
"""NVLink of ``a100_80g_sxm``: latency of a collective, bytes per second, share of the engines."""


def _stats(model, execution, system, **changes):
    return calculon.estimate(model, document("examples", execution) | changes, system).stats


def _state(stats):
    return sum(stats[name] for name in STATE)


# -- 12 bytes per parameter: GPT 13B, fully sharded --------------------------------------------------------------------

GPT = "gpt3-13B-hf"
FSDP = [(4, "a100_40g_sxm"), (2, "a100_80g_sxm")]


@pytest.mark.parametrize(("ranks", "system"), FSDP)
def test_lion_takes_12_bytes_per_parameter_and_fits(ranks, system):
    stats = _stats(GPT, f"gpt3-13B_a100x{ranks}_fsdp", system)
    parameters = parameter_count(inputs.model(GPT))
    assert parameters == 12_853_386_240
    for name in STATE:  # sharded weights of 4 bytes, gradients, one moment
        assert stats[name] == pytest.approx(4 * parameters / ranks, rel=1e-12)
    assert _state(stats) == pytest.approx(12 * parameters / ranks, rel=1e-12)


@pytest.mark.parametrize(("ranks", "system"), FSDP)
def test_adam_takes_16_bytes_per_parameter_and_does_not_fit(ranks, system):
    name = f"gpt3-13B_a100x{ranks}_fsdp"
    with pytest.raises(calculon.Infeasible, match=r"tier-1 memory .* too much"):
        _stats(GPT, name, system, optimizer="adam")
    roomy = document("systems", system)
    roomy["mem1"]["GiB"] *= 2
    stats = _stats(GPT, name, roomy, optimizer="adam")
    expected = 16 * parameter_count(inputs.model(GPT)) / ranks
    assert _state(stats) == pytest.approx(expected, rel=1e-12)
    assert stats["proc_mem_tier1_cap_req"] > roomy["mem1"]["GiB"] / 2 * GIB


def test_beside_the_state_are_blocks_at_work_tables_and_checkpoints():
    stats = _stats(GPT, "gpt3-13B_a100x4_fsdp", "a100_40g_sxm")
    h, tokens = 5120, 2048
    block = 2 * (12 * h * h + 13 * h)
    ends = 2 * ((50257 + 2048) * h + 2 * h)
    assert stats["gathered_space"] == 2 * block + ends  # at work, and ahead
    assert stats["comm_buffer_space"] == block  # larger than the table
    assert stats["act_checkpoint_size"] == 40 * 2 * tokens * h
    working = stats["act_space"] + stats["act_grad_space"]
    parts = sum(stats[name] for name in (*STATE, *BUFFERS)) + stats["act_checkpoint_size"] + working
    assert stats["proc_mem_tier1_cap_req"] == pytest.approx(parts, rel=1e-12)


def test_a_reserve_of_one_gibibyte_is_too_much_for_the_smaller_ones_only():
    small, large = (f"gpt3-13B_a100x{ranks}_fsdp" for ranks, _ in FSDP)
    with pytest.raises(calculon.Infeasible):
        _stats(GPT, small, "a100_40g_sxm", mem_reserved_mib=1024)
    kept = _stats(GPT, large, "a100_80g_sxm", mem_reserved_mib=1024)
    whole = _stats(GPT, large, "a100_80g_sxm")
    assert kept["reserved_space"] == 1024 * MIB
    more = kept["proc_mem_tier1_cap_req"] - whole["proc_mem_tier1_cap_req"]
    assert more == pytest.approx(1024 * MIB, rel=1e-12)


@pytest.mark.parametrize(("tensor_par", "data_par"), [(1, 4), (2, 4), (4, 2)])
def test_with_tensor_parallelism_each_rank_stores_one_part_of_the_product(tensor_par, data_par):
    parts = tensor_par * data_par
    ranks = {"tensor_par": tensor_par, "data_par": data_par, "num_procs": parts}
    stats = _stats("mlp-2x1024", "mlp-2x1024_x8_fsdp_t2", "a100_80g_sxm", **ranks)
    assert stats["weight_space"] == 4 * (2 * 1024 * 1024) / parts
    assert _state(stats) == 16 * (2 * 1024 * 1024) / parts  # Adam
    assert stats["gathered_space"] == 2 * (2 * 1024 * 1024) / tensor_par


# -- collectives, DDP and owners of layers: four linear layers ---------------------------------------------------------

LAYERS, LAYER = 4, 4 * 1024 * 1024
"""Layers of the network, and bytes of one in float32."""


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_ring_of_few_ranks_has_the_bus_bandwidth_of_its_links(ranks):
    system = inputs.system("a100_80g_sxm")
    group, size = place(system, ranks), np.array([float(GIB)])
    ring = times(system, "all_reduce", group, size)["ring"]
    bus = bus_bandwidth("all_reduce", size, ring, ranks)
    assert bus[0] == pytest.approx(size[0] * 2 * (ranks - 1) / ranks / ring[0], rel=1e-12)
    shown = system.law(0, "all_reduce").rates
    reached = 300e9 * shown.shares[shown.ranks.index(ranks)]
    assert 0.99 * reached < bus[0] < reached


@pytest.mark.parametrize("ranks", [2, 4])
def test_ddp_reduces_the_gradient_of_each_layer_over_all(ranks):
    stats = _stats("mlp-4x1024", f"mlp-4x1024_x{ranks}_ddp", "a100_80g_sxm")
    one = LATENCY + 2 * (ranks - 1) / ranks * LAYER / RATE
    assert stats["dp_comm_link_time"] == pytest.approx(LAYERS * one, rel=1e-12)
    assert stats["dp_comm_exposed_time"] == stats["dp_comm_link_time"]
    assert _state(stats) == 16 * LAYERS * 1024 * 1024


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("form", ["ddp", "owner"])
def test_each_link_carries_what_the_lecture_counts(form, ranks):
    execution = document("examples", f"mlp-4x1024_x{ranks}_{form}")
    (group,) = calculon.estimate("mlp-4x1024", execution, "a100_80g_sxm").groups
    each = {"ddp": 2 * (ranks - 1) / ranks, "owner": 3.0}[form]
    assert (group.kind, group.ranks, group.groups) == ("data", ranks, 1)
    assert group.bytes[0] == pytest.approx(LAYERS * each * LAYER, rel=1e-12)


@pytest.mark.parametrize("ranks", [2, 4])
def test_owners_broadcast_each_layer_twice_and_are_sent_its_gradient(ranks):
    stats = _stats("mlp-4x1024", f"mlp-4x1024_x{ranks}_owner", "a100_80g_sxm")
    one = 3 * (LATENCY + LAYER / RATE)
    assert stats["dp_comm_link_time"] == pytest.approx(LAYERS * one, rel=1e-12)
    assert stats["dp_comm_exposed_time"] == stats["dp_comm_link_time"]
    assert _state(stats) == 16 * LAYERS * 1024 * 1024 / ranks
    assert stats["gathered_space"] == stats["comm_buffer_space"] == LAYER


# -- DDP with gradient accumulation: GPT-2 124M on two processors ------------------------------------------------------

LADDER = ROOT / "validation" / "gpt2_ladder"


def _ddp(name, **changes):
    return _stats(str(LADDER / "gpt2.json"), name, str(LADDER / "a100.json"), **changes)


def test_gradients_are_reduced_once_per_batch_behind_the_last_microbatch():
    stats = _ddp("gpt2-124M_a100x2_ddp")
    block = 4 * (12 * 768 * 768 + 13 * 768)
    ends = 4 * ((50304 + 1024) * 768 + 2 * 768)  # one table for both, known last
    others = 11 * (LATENCY + block / RATE)
    last = 2 * LATENCY + (block + ends) / RATE
    assert stats["dp_comm_link_time"] == pytest.approx(others + last, rel=1e-12)
    assert stats["dp_comm_exposed_time"] == pytest.approx(last + USAGE * others, rel=1e-12)


def test_without_no_sync_every_microbatch_pays():
    once, always = _ddp("gpt2-124M_a100x2_ddp"), _ddp("gpt2-124M_a100x2_ddp_sync")
    for name in ("dp_comm_link_time", "dp_comm_exposed_time"):
        assert always[name] == pytest.approx(16 * once[name], rel=1e-12)
    more = 15 * once["dp_comm_exposed_time"]
    assert always["total_time"] - once["total_time"] == pytest.approx(more, rel=1e-9)


def test_each_of_two_does_half_of_the_work_of_one():
    one = calculon.estimate(
        *(str(LADDER / name) for name in ("gpt2.json", "8_accumulation.json", "a100.json"))
    ).stats
    two = _ddp("gpt2-124M_a100x2_ddp")
    assert 2 * two["fw_time"] == pytest.approx(one["fw_time"], rel=1e-12)
    assert 2 * two["bw_time"] < one["bw_time"]  # the first microbatch of each finds no sums to read
    assert two["optim_step_time"] == one["optim_step_time"]
    assert two["proc_mem_tier1_cap_req"] == one["proc_mem_tier1_cap_req"]
