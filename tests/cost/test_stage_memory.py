import pytest

import calculon
from calculon.base.units import GIB, MIB
from tests.cases import for_each
from tests.helpers import PLAIN, document

MODEL = document("models", "megatron-22B")  # 48 blocks
RAW = PLAIN | {
    "num_procs": 64,
    "tensor_par": 8,
    "pipeline_par": 4,
    "data_par": 2,
    "batch_size": 32,
    "pipeline_par_net": 1,
    "data_par_net": 1,
    "fused_activation": True,
    "tensor_par_comm_type": "rs_ag",
}
BLOCKS, SYSTEM = 48 / 4, calculon.inputs.system("a100_80e")


def _stats(**changes):
    return calculon.estimate(MODEL, RAW | changes, SYSTEM).stats


@for_each(
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


@pytest.mark.parametrize(("dtype", "copied"), [("float8", 1), ("bfloat16", 0)])
def test_copies_of_weights_in_8_bits_serve_all_microbatches(dtype, copied):
    """Of the four products of attention and the two of the MLP, a byte for each weight, on every block once."""
    eight = {"edition": "corrected", "datatype": "bfloat16", "matmul_dtype": dtype}
    hidden, feedforward = MODEL["hidden"], MODEL["feedforward"]
    copies = copied * (4 * hidden**2 + 2 * hidden * feedforward) / RAW["tensor_par"]
    for microbatches, in_flight in ((16, 4), (3, 3)):
        raw = RAW | eight | {"batch_size": 2 * microbatches}
        s = calculon.estimate(MODEL, raw, "h100_80g_sxm").stats
        storage = s["block_act_storage_space"] * (BLOCKS * in_flight - 1)
        expected = s["block_act_working_space"] + storage + copies * (BLOCKS - 1)
        assert s["act_space"] == pytest.approx(expected, rel=1e-12)


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


# -- what others than the model take -----------------------------------------------------------------------------------

USE = {
    "withheld_GiB": 0.75,
    "context_MiB": 512,
    "workspaces_MiB": 12,
    "communicator_MiB": 688,
    "fragmentation": 0.05,
    "host_share": 0.5,
}
NEW = RAW | {"edition": "corrected", "preset": "published"}
NEEDS = "proc_mem_tier1_cap_req"


def _system(**memory):
    return document("systems", "a100_80g_sxm") | {"ext": {"memory": USE | memory}}


def _taken(system=None, **changes):
    return calculon.estimate(MODEL, NEW | changes, system or _system()).stats


@for_each(
    ("split", "groups"),
    [
        ({"num_procs": 8, "tensor_par": 8, "pipeline_par": 1, "data_par": 1}, 1),
        ({"num_procs": 16, "tensor_par": 8, "pipeline_par": 1, "data_par": 2}, 2),
        ({}, 3),
        (
            {
                "num_procs": 128,
                "data_par": 4,
                "optimizer_sharding": True,
                "zero_stage": "1",
                "dp_shard": 2,
            },
            4,
        ),
        (
            {
                "num_procs": 128,
                "data_par": 4,
                "optimizer_sharding": True,
                "zero_stage": "1",
                "dp_shard": 4,
            },
            3,
        ),
    ],
)
def test_each_group_of_ranks_has_a_communicator(split, groups):
    """Source: NVIDIA/nccl, issue 964: 688 MB for every group of A100s."""
    assert _taken(**split)["reserved_space"] == (512 + 12 + groups * 688) * MIB


def test_fragments_are_a_share_of_what_comes_and_goes():
    form = {"zero_stage": "fsdp", "optimizer_sharding": True, "grad_comm_dtype": "float32"}
    found = _taken(**form, activation_recompute="full")
    passing = ("act_space", "act_checkpoint_size", "act_grad_space")
    passing += ("gathered_space", "comm_buffer_space")
    assert found["fragment_space"] == pytest.approx(0.05 * sum(found[name] for name in passing))
    moved = _taken(activations_offload=True)
    near = moved["act_space_with_offload"] + moved["act_grad_space_with_offload"]
    assert moved["fragment_space"] == pytest.approx(0.05 * near)


@for_each("fused", [True, False])
def test_a_weight_gradient_exists_until_it_is_added_to_its_sum(fused):
    """Square products have two shapes, split by columns and by rows, and the LM head one of its own."""
    hidden, vocab, ranks = MODEL["hidden"], 2**20, RAW["tensor_par"]
    model = MODEL | {"feedforward": hidden, "vocab": vocab}
    form = {"edition": "corrected", "zero_stage": "0", "ce_impl": "fused", "grad_fusion": fused}
    form |= {"pipeline_par": 1, "num_procs": 16, "microbatch_size": 1}
    summed, plain = (
        calculon.estimate(model, RAW | form | more, SYSTEM).stats
        for more in ({"grad_dtype": "float32"}, {})
    )
    kept = summed["reserved_space"] - plain["reserved_space"]
    assert kept == (2 * 2 * hidden**2 / ranks if fused else 0)
    # The gradient of the logits takes their place; that of the head's input is next to its weights'.
    assert summed["act_grad_space"] == 2 * hidden * (vocab / ranks + MODEL["seq_size"])


def test_what_an_execution_states_counts_instead():
    found = _taken(mem_reserved_mib=100, mem_fragments_percent=0)
    assert (found["reserved_space"], found["fragment_space"]) == (100 * MIB, 0)
    bare = _taken(mem_reserved_mib=0, mem_fragments_percent=0)
    assert found[NEEDS] - bare[NEEDS] == 100 * MIB
    whole = _taken()
    more = whole["reserved_space"] + whole["fragment_space"]
    assert whole[NEEDS] - bare[NEEDS] == pytest.approx(more, rel=1e-9)


def test_the_published_edition_takes_nothing_and_uses_everything():
    plain = document("systems", "a100_80g_sxm")
    found = calculon.estimate(MODEL, RAW, _system()).stats
    assert found == calculon.estimate(MODEL, RAW, plain).stats
    needed = found[NEEDS] / GIB
    exact = _system() | {"mem1": plain["mem1"] | {"GiB": needed}}
    assert calculon.estimate(MODEL, RAW, exact).stats[NEEDS] == found[NEEDS]


def test_what_is_withheld_is_no_room_for_an_execution():
    needed = _taken()[NEEDS] / GIB
    memory = document("systems", "a100_80g_sxm")["mem1"] | {"GiB": needed}
    tight = _system() | {"mem1": memory, "ext": {"memory": USE | {"withheld_GiB": needed / 2}}}
    with pytest.raises(calculon.Infeasible, match=r"of .* available \(.* too much\)") as error:
        _taken(tight)
    assert error.value.available == pytest.approx(needed / 2 * GIB)
    assert not calculon.evaluate(MODEL, tight, [NEW]).feasible.any()
    assert _taken(tight | {"ext": {"memory": USE | {"withheld_GiB": 0}}})[NEEDS] == needed * GIB


def test_only_a_share_of_the_host_memory_is_there_for_offloading():
    offloaded = {"optimizer_offload": True, "weight_offload": True}
    needed = _taken(**offloaded)["proc_mem_tier2_cap_req"] / GIB
    mem2 = document("systems", "a100_80g_sxm")["mem2"]
    for size, fits in ((1.99 * needed, False), (2.01 * needed, True)):
        system = _system() | {"mem2": mem2 | {"GiB": size}}
        assert calculon.evaluate(MODEL, system, [NEW | offloaded]).feasible.all() == fits
