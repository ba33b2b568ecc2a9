"""Two classes of parameters: what all replicas share, and routed experts with replicas of their own."""

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.cost.data.data_collectives import both_classes
from calculon.cost.process_groups import CollectiveCost, ProcessGroup
from tests.cases import for_each
from tests.helpers import CORRECTED_FLASH, document

MIXTRAL = document("models", "mixtral-8x7B")
HIDDEN, WIDTH, EXPERTS, BLOCKS = 4096, 14336, 8, 32
EXPERT = 3 * HIDDEN * WIDTH
"""Weights of an expert: gate, up and down."""

LARGE = CORRECTED_FLASH | {
    "num_procs": 128,
    "tensor_par": 2,
    "pipeline_par": 4,
    "data_par": 16,
    "batch_size": 1024,
    "fused_activation": True,
    "optimizer_sharding": True,
    "tensor_par_comm_type": "rs_ag",
    "zero_stage": "1",
    "grad_dtype": "float32",
    "grad_comm_dtype": "float32",
    "mesh_order": "tp-dp-pp",
    "coll_algo": "ring",
    "expert_par": 4,
}
"""Megatron-LM's release test of Mixtral-8x7B on 128 H100: tests/functional_tests, mixtral_8x7b_alltoall_tp2pp4ep4."""

SMALL = LARGE | {
    "num_procs": 64,
    "data_par": 8,
    "batch_size": 256,
    "pipeline_interleaving": 8,
    "expert_par": 8,
    "expert_tensor_par": 1,
}
"""The one on 64: mixtral_8x7b_tp1pp4ep8vpp8, whose arguments have TP 2 and expert TP 1."""

STATE = ("weight_space", "weight_grad_space", "optimizer_space")


def _estimate(execution, vocab=32000, system="h200_141g_sxm"):
    return calculon.estimate(MIXTRAL | {"vocab": vocab}, execution, system)


def _degrees(execution):
    """Return ranks that have all experts once, and replicas of experts."""
    tensor = execution["tensor_par"]
    ranks = execution["expert_par"] * execution.get("expert_tensor_par", tensor)
    return ranks, tensor * execution["data_par"] // ranks


@pytest.mark.parametrize(
    ("execution", "vocab", "printed", "measured", "lowest"),
    [
        (LARGE, 256_000, 17.36, (17.448, 17.704), -0.02),
        (SMALL, 32_000, 18.66, (19.743,), -0.055),
    ],
    ids=("e=4", "e=8"),
)
def test_state_of_mixtral_is_what_releases_of_megatron_hold(
    execution, vocab, printed, measured, lowest
):
    """Bytes that the allocator holds after a step: golden values of its release tests (Megatron-LM, d98e8a6).

    The formula is a floor: in the second one the allocator holds 1.1 GB that no rule explains.
    """
    stats = _estimate(execution, vocab).stats
    state = sum(stats[name] for name in STATE) / 1e9
    assert round(state, 2) == printed
    for logged in measured:
        assert lowest < state / logged - 1 < 0.01


@pytest.mark.parametrize("execution", [LARGE, SMALL], ids=("e=4", "e=8"))
def test_each_class_is_split_over_its_own_replicas(execution):
    """Bytes of weights and sums of gradients 2 + 4, of Adam 12 over the replicas of a class (ZeRO, section 5.1)."""
    stats = _estimate(execution).stats
    ranks, replicas = _degrees(execution)
    experts = BLOCKS / execution["pipeline_par"] * EXPERTS * EXPERT / ranks
    assert stats["expert_weight_space"] == 2 * experts
    assert stats["expert_optimizer_space"] == 12 * experts / replicas
    dense = stats["weight_space"] / 2 - experts
    assert stats["weight_grad_space"] == pytest.approx(4 * (dense + experts), rel=1e-12)
    expected = 12 * (dense / execution["data_par"] + experts / replicas)
    assert stats["optimizer_space"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("stage", ["0", "1"])
def test_one_replica_of_experts_splits_and_reduces_nothing(stage):
    """An expert weight then costs 18 bytes: 2 of it, 4 of its gradient, 12 of Adam."""
    alone = LARGE | {"tensor_par": 4, "data_par": 8, "expert_par": 8, "expert_tensor_par": 4}
    assert _degrees(alone)[1] == 1
    found = _estimate(alone | {"zero_stage": stage, "optimizer_sharding": stage == "1"})
    experts = BLOCKS / 4 * EXPERTS * EXPERT / 32
    assert found.stats["expert_weight_space"] == 2 * experts
    assert found.stats["expert_optimizer_space"] == 12 * experts
    groups = {group.kind: group for group in found.groups}
    assert "expert data" not in groups
    dense = found.stats["block_weight_space"] - 2 * EXPERTS * EXPERT / 32
    assert found.stats["block_dp_size"] == pytest.approx(2 * dense, rel=1e-12)  # in 4 bytes


@for_each(
    ("experts", "width", "tensor"),
    [(1, 1, 1), (2, 1, 1), (4, 1, 1), (8, 1, 1), (2, 2, 4), (8, 1, 2), (1, 8, 8), (2, 4, 4)],
)
def test_ranks_of_a_replica_have_every_weight_once(experts, width, tensor):
    """Copies counted once: what one rank has of all experts, times the ranks among which they are shared out."""
    alone = LARGE | {
        "num_procs": 8,
        "tensor_par": tensor,
        "pipeline_par": 1,
        "data_par": 8 // tensor,
        "optimizer_sharding": tensor < 8,
        "zero_stage": "1" if tensor < 8 else "0",
        "batch_size": 64,
        "expert_par": experts,
        "expert_tensor_par": width,
        "mem_reserved_mib": 0,
    }
    system = document("systems", "h200_141g_sxm")
    system["mem1"]["GiB"] = 4096
    stats = _estimate(alone, system=system).stats
    held = stats["expert_weight_space"] / 2
    assert held * experts * width == BLOCKS * EXPERTS * EXPERT
    others = stats["weight_space"] / 2 - held
    copied = BLOCKS * (2 * HIDDEN + HIDDEN * EXPERTS) + HIDDEN  # norms, routers: on every rank
    shared = (others - copied) * tensor + copied
    assert shared + held * experts * width == stats["parameters"]


def test_bytes_of_experts_pass_between_their_replicas():
    """Gradients of 4 bytes are reduced and scattered, weights of 2 gathered: (n - 1) / n of each in a ring."""
    found = _estimate(LARGE)
    groups = {group.kind: group for group in found.groups}
    ranks, replicas = _degrees(LARGE)
    group = groups["expert data"]
    assert (group.ranks, group.stride, group.groups) == (replicas, ranks, 128 // replicas)
    experts = BLOCKS / 4 * EXPERTS * EXPERT / ranks
    assert sum(group.bytes) == pytest.approx(
        (4 + 2) * experts * (replicas - 1) / replicas, rel=1e-12
    )
    assert groups["data"].ranks == 16
    link = groups["data"].link_time + group.link_time  # both leave their nodes
    assert found.stats["dp_comm_link_time"] == pytest.approx(link, rel=1e-12)


def test_traffic_of_both_classes_adds_up_on_one_network_only():
    system = inputs.system("h200_141g_sxm")
    near, far = ProcessGroup(np.array([8]), np.array(0)), ProcessGroup(np.array([4]), np.array(1))
    alone = ProcessGroup(np.array([1]), np.array(0))
    seconds = CollectiveCost(system, None)
    one, other = np.array([3.0]), np.array([2.0])
    assert both_classes(one, other, (near, near), seconds) == 5
    assert both_classes(one, other, (near, far), seconds) == 3
    assert both_classes(one, other, (near, alone), seconds) == 3
    assert both_classes(one, other, (alone, far), seconds) == 2
    count = CollectiveCost(system, None, bytes=True)
    assert both_classes(one, other, (near, far), count) == 5


def test_memory_of_deepseek_v2_cut_to_four_blocks_is_what_a_run_allocates():
    """State of 37.5 GiB with one replica of experts; 45.63 GiB at the most on 8 B200 (study simumax/deepseek_v2)."""
    model = document("models", "deepseek-v2") | {"num_blocks": 4, "seq_size": 4096}
    run = {
        "preset": "megatron-lm",
        "edition": "corrected",
        "num_procs": 8,
        "tensor_par": 1,
        "pipeline_par": 1,
        "data_par": 8,
        "expert_par": 8,
        "expert_tensor_par": 1,
        "batch_size": 32,
        "microbatch_size": 1,
        "datatype": "bfloat16",
        "attn_kernel": "cudnn",
        "ce_impl": "fused",
        "mem_reserved_mib": 0,
        "mem_fragments_percent": 0,
    }
    stats = calculon.estimate(model, run, "b200_sxm").stats
    assert round(sum(stats[name] for name in STATE) / 2**30, 1) == 37.5
    assert stats["proc_mem_tier1_cap_req"] == pytest.approx(48_994_839_429, rel=0.06)
