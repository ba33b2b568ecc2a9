import pytest

import calculon
from tests.helpers import document

MODEL = document("models", "megatron-22B")  # 48 blocks
RAW = document("examples", "3072_t4_p64_d12_mbs4_full") | {
    "num_procs": 64,
    "tensor_par": 8,
    "pipeline_par": 4,
    "data_par": 2,
    "batch_size": 32,
    "microbatch_size": 1,
    "activation_recompute": "none",
    "pipeline_interleaving": 1,
    "optimizer_sharding": False,
    "data_par_overlap": False,
}
BLOCKS = 48 / 4


def _stats(**changes):
    return calculon.estimate(MODEL, RAW | changes, "a100_80e").stats


@pytest.mark.parametrize(
    ("microbatches", "chunks", "in_flight"),
    [(16, 1, 4), (3, 1, 3), (16, 3, 4 * (1 + 3 / (3 * 4))), (2, 12, 2 * (1 + 3 / (12 * 4)))],
)
def test_the_first_stage_holds_as_many_microbatches_as_are_in_flight(
    microbatches, chunks, in_flight
):
    shape = {"batch_size": 2 * microbatches, "pipeline_interleaving": chunks}
    stored = _stats(**shape)
    working, storage = stored["block_act_working_space"], stored["block_act_storage_space"]
    expected = working + storage * (BLOCKS * in_flight - 1)
    assert stored["act_space"] == pytest.approx(expected, rel=1e-12)
    full = _stats(**shape, activation_recompute="full")
    checkpoint = BLOCKS * full["block_act_checkpoint_size"] * in_flight
    assert full["act_checkpoint_size"] == pytest.approx(checkpoint, rel=1e-12)
    assert full["act_space"] == working


@pytest.mark.parametrize("sharding", [False, True])
def test_gradients_and_optimizer_of_a_block_are_sharded_and_those_in_work_are_not(sharding):
    s, plain = _stats(optimizer_sharding=sharding), _stats()
    shards = 2 if sharding else 1
    assert s["block_weight_grad_space"] == s["block_weight_space"] / shards
    assert s["block_optimizer_space"] == 6 * s["block_weight_space"] / shards
    assert s["block_weight_grad_space_no_sharding"] == 2 * s["block_weight_space"]
    for name in ("block_weight_grad_space_no_sharding", "weight_space", "act_space"):
        assert s[name] == plain[name]
    first, rest = s["block_weight_grad_space_no_sharding"], s["block_weight_grad_space"]
    assert s["weight_grad_space"] == pytest.approx(first + rest * (BLOCKS - 1), rel=1e-14)
    assert s["optimizer_space"] == pytest.approx(s["block_optimizer_space"] * BLOCKS, rel=1e-14)


def test_inference_holds_weights_and_the_activations_in_work():
    s = _stats(training=False)
    for name in ("act_checkpoint_size", "act_grad_space", "weight_grad_space", "optimizer_space"):
        assert s[name] == 0
    assert s["weight_space"] == s["block_weight_space"] * BLOCKS
    assert s["act_space"] == s["block_act_working_space"]
    assert s["proc_mem_tier1_cap_req"] == s["weight_space"] + s["act_space"]


def test_two_blocks_stay_of_what_is_offloaded():
    s = _stats(activation_recompute="full")
    assert s["weight_space_with_offload"] == 2 * s["block_weight_space"]
    assert s["optimizer_space_with_offload"] == 2 * s["block_optimizer_space"]
    assert s["act_checkpoint_size_with_offload"] == 2 * s["block_act_checkpoint_size"]
