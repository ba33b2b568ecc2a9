"""Plans as frameworks run them: recomputed operators, sums of gradients, gradients split in groups."""

import pytest

import calculon
from calculon import inputs
from calculon.plan.stage_layout import chunks_of_stage
from tests.cases import for_each
from tests.helpers import LLAMA_X64, document

MODEL, SYSTEM = inputs.model("llama3-8B"), inputs.system("h200_141g_sxm")
TOKENS, HIDDEN, INNER, KEYS = 8192, 4096, 14336, 1024
ALONE = LLAMA_X64 | {
    "num_procs": 8,
    "tensor_par": 1,
    "data_par": 8,
    "batch_size": 8,
    "microbatch_size": 1,
    "fused_activation": False,
    "tensor_par_comm_type": "ar",
    "tensor_par_overlap": "none",
    "fusion": "compile",
    "zero_stage": "1",
    "grad_buffer": "sharded",
    "mem_reserved_mib": 0,
}
PIPED = ALONE | {"num_procs": 32, "pipeline_par": 4, "batch_size": 64}


def stats(changes, model=MODEL, plain=ALONE):
    return calculon.estimate(model, plain | changes, SYSTEM).stats


# -- what is recomputed -----------------------------------------------------------------------------------------------

EVERYTHING = 2 * (2 * HIDDEN + 3 * HIDDEN + 2 * KEYS + HIDDEN + 3 * INNER) + 4 * 32
"""Inputs of both norms and of products after them; queries, keys, values, their result, statistics; gate, up, down."""

DROPPED = {
    "none": 0,
    "norm": 2 * 2 * HIDDEN,
    "activation": 2 * INNER,
    "norm_activation": 2 * (2 * HIDDEN + INNER),
    "mlp": 2 * 3 * INNER,
    "ops": EVERYTHING - 2 * (HIDDEN + HIDDEN + KEYS + HIDDEN + INNER) - 4 * 32,
}
"""Bytes of a token and block; by operator stay block input, queries, values, result of attention, and gate."""


@for_each("modules", DROPPED)
def test_what_is_recomputed_is_not_kept(modules):
    found = stats({"recompute_modules": modules})
    assert found["block_act_storage_space"] == TOKENS * (EVERYTHING - DROPPED[modules])


def test_selective_recomputation_by_operator_repeats_every_other_product():
    """Keys, the output of attention, and up: the second, fourth and sixth product of torchtitan's block."""
    repeated = 2 * TOKENS * (HIDDEN * KEYS + HIDDEN * HIDDEN + HIDDEN * INNER)
    found = stats({"recompute_modules": "ops"})
    plain = stats({})
    products = found["hfu"] * found["total_time"] - plain["hfu"] * plain["total_time"]
    executed = products * 8 * SYSTEM.matrix["bfloat16"].peak
    assert executed == pytest.approx(32 * 8 * repeated, rel=1e-9)
    assert stats({"recompute_modules": "mlp"})["block_re_flops"] >= 2 * TOKENS * 3 * HIDDEN * INNER


def test_split_sequences_keep_the_reduction_and_gather_again():
    """By operator, the output product of attention is not repeated: its reduction is kept."""
    split = {"num_procs": 64, "tensor_par": 8, "tensor_par_comm_type": "rs_ag"}
    kept = TOKENS * (2 * HIDDEN + HIDDEN + KEYS + HIDDEN + INNER) * 2 / 8 + TOKENS * 4 * 4
    found = stats(split | {"recompute_modules": "ops"})
    assert found["block_act_storage_space"] == kept
    again = stats(split | {"recompute_modules": "norm"})
    redone = stats(split | {"seq_par_ag_redo": True})
    assert again["recomm_link_time"] == redone["recomm_link_time"] > 0
    dropped = redone["block_act_storage_space"] - again["block_act_storage_space"]
    assert dropped == TOKENS * 2 * HIDDEN * 2 / 8


@pytest.mark.parametrize("form", [{"activation_recompute": "full"}, {"recompute_modules": "norm"}])
def test_so_many_of_the_blocks_recompute(form):
    """Megatron-LM's block method: of 8 blocks of a stage the first 3 recompute; of all, or of none, as usual."""
    plain = PIPED | {"recompute_every": 8}

    def found(blocks):
        return stats(form | {"recompute_blocks": blocks}, plain=plain)

    whole, none = stats(form, plain=PIPED), stats({}, plain=PIPED)
    some = found(3)
    for name in ("recompute_time", "block_act_storage_space", "block_act_checkpoint_size"):
        assert some[name] == pytest.approx((3 * whole[name] + 5 * none[name]) / 8, rel=1e-12), name
    assert found(0) == found(1)
    every = found(8)
    assert every["total_time"] == pytest.approx(whole["total_time"], rel=1e-12)
    assert every["proc_mem_tier1_cap_req"] == pytest.approx(
        whole["proc_mem_tier1_cap_req"], rel=1e-12
    )
    sizes = [found(blocks)["act_space"] for blocks in (1, 3, 7)]
    assert sizes == sorted(sizes, reverse=True)


# -- gradients --------------------------------------------------------------------------------------------------------

PLAIN = inputs.model(MODEL.to_dict() | {"vocab": 0})


def test_sums_are_read_while_the_pipeline_drains():
    """The bubble is of stages' own time: three other stages of eight blocks, which read sums of 4 bytes."""
    adding, auto = (
        stats({"grad_dtype": x, "data_par_overlap": False}, PLAIN, PIPED)
        for x in ("float32", "auto")
    )
    read = SYSTEM.move_time(4 * auto["block_weight_space"] / 2)
    assert adding["bubble_time"] - auto["bubble_time"] == pytest.approx(3 * 8 * read, rel=1e-6)
    assert adding["bw_time"] - auto["bw_time"] == pytest.approx(7 * 8 * read, rel=1e-6)


def test_gradients_beside_sums_take_twenty_bytes_a_parameter():
    """2 for weights, 2 and 4 for gradients, 4 for the master copy, 8 for moments (DeepSpeed's bfloat16 optimizer)."""
    alone = {"num_procs": 1, "data_par": 1, "zero_stage": "0", "optimizer_sharding": False}
    alone |= {"data_par_overlap": False, "grad_dtype": "bfloat16"}
    small = inputs.model(MODEL.to_dict() | {"num_blocks": 4})
    found, less = (stats(alone | {"grad_sums": x}, small) for x in (True, False))
    state = sum(found[name] for name in ("weight_space", "weight_grad_space", "optimizer_space"))
    parameters = found["weight_space"] / 2
    assert state == 20 * parameters
    assert found["weight_grad_space"] == 3 * less["weight_grad_space"]


def test_the_pass_that_adds_gradients_to_sums_moves_ten_bytes_in_every_microbatch():
    form = {"grad_dtype": "bfloat16", "data_par_overlap": False}
    sums, auto = (
        stats(x | {"data_par_overlap": False}, PLAIN, PIPED)
        for x in (form | {"grad_sums": True}, {})
    )
    moved = SYSTEM.move_time(10 * auto["block_weight_space"] / 2)
    assert sums["bw_time"] - auto["bw_time"] == pytest.approx(8 * 8 * moved, rel=1e-6)


def test_gradients_that_are_added_in_a_pass_are_read_beside_the_sums_that_it_writes():
    form = {"grad_dtype": "bfloat16", "data_par_overlap": False}
    fused, apart = (stats(form | {"grad_fusion": x}, PLAIN, PIPED) for x in (True, False))
    gradients = fused["block_weight_space"]  # of 2 bytes, as weights
    more = SYSTEM.move_time(3 * gradients) - SYSTEM.move_time(gradients)
    first = SYSTEM.move_time(3 * gradients)
    assert apart["bw_time"] - fused["bw_time"] == pytest.approx(8 * (7 * more + first), rel=1e-6)
    assert apart["weight_grad_space"] == fused["weight_grad_space"]


def test_gradients_in_one_piece_are_beside_their_copy():
    form = {"grad_dtype": "bfloat16", "main_grad": True}
    flat, apart = (stats(form | {"grad_flat": x}, PLAIN, PIPED) for x in (True, False))
    share = flat["weight_grad_space"] / 8  # of eight replicas
    assert flat["optimizer_space"] - apart["optimizer_space"] == pytest.approx(share, rel=1e-9)
    assert flat["optim_step_time"] > apart["optim_step_time"]
    alone = {"grad_dtype": "bfloat16"}
    assert stats(alone | {"grad_flat": True}) == stats(alone)


def test_gradients_are_reduced_once_for_a_group_of_microbatches():
    """Eight microbatches in groups of four: two reductions, and whole gradients of two of four chunks."""
    form = {"zero_stage": "2", "pipeline_interleaving": 4, "grad_dtype": "float32"}
    every, group = (stats(form | x, PLAIN, PIPED) for x in ({}, {"grad_group": 4}))
    once = stats(form | {"grad_group": 8}, PLAIN, PIPED)
    reduction = (every["dp_comm_link_time"] - group["dp_comm_link_time"]) / (8 - 2)
    assert group["dp_comm_link_time"] - once["dp_comm_link_time"] == pytest.approx(reduction)
    assert group["comm_buffer_space"] == 2 * 2 * 4 * every["block_weight_space"] / 2
    assert group["weight_grad_space"] == every["weight_grad_space"]


# -- layouts ----------------------------------------------------------------------------------------------------------


def test_llama3_405b_interleaves_stages_of_seven_and_eight_blocks():
    model = inputs.model("llama3.1-405B")
    plan = inputs.execution("llama3.1-405B_h100x16384")
    found = calculon.estimate(model, plan, "h100_80g_sxm")
    one_chunk = plan.to_dict() | {"pipeline_interleaving": 1, "p2p_overlap": False}
    roomy = document("systems", "h100_80g_sxm")
    roomy["mem1"]["GiB"] *= 2
    apart = calculon.estimate(model, one_chunk, roomy).stats
    assert [row["blocks"] for row in found.stages] == [7, *[8] * 14, 7]
    assert found.stats["bubble_time"] < apart["bubble_time"] / 5
    assert chunks_of_stage(7, 8).tolist() == [1] * 7 + [0]


# -- hosts ------------------------------------------------------------------------------------------------------------


def test_stages_of_a_pipeline_stand_still_beside_each_microbatch():
    """Eight microbatches of four stages: seconds of eight passes, and of three while the pipeline fills and drains."""
    for interleaving in (1, 2):
        form = PIPED | {"pipeline_interleaving": interleaving}
        found, plain = (stats({"stage_stop_us": us}, PLAIN, form) for us in (500_000, 0))
        stopped = 0.5 * (8 * interleaving + 4 - 1)
        assert found["host_time"] - plain["host_time"] == pytest.approx(stopped)
        assert found["total_time"] - plain["total_time"] == pytest.approx(stopped)
    assert stats({"stage_stop_us": 500_000}) == stats({})
