"""The corrected edition meets formulas of the literature and its own promises, in arrays and in the twin."""

import pytest

import calculon
from tests import twin
from tests.helpers import PLAIN, differences, document
from tests.strategies import DATATYPES

HIDDEN, HEADS, SEQUENCE, TENSOR = 6144, 64, 2048, 8
MODEL = document("models", "megatron-22B")
SYSTEM = document("systems", "a100_80e")
BASE = PLAIN | {
    "num_procs": 8,
    "tensor_par": 8,
    "pipeline_par_net": 1,
    "data_par_net": 1,
    "batch_size": 64,
    "microbatch_size": 2,
    "datatype": "bfloat16",
}
BLOCKS, LATENCY = MODEL["num_blocks"], SYSTEM["networks"][1]["latency"]
SEQUENCE_PAR = {"tensor_par_comm_type": "rs_ag"}
DATA_PAR = {"data_par": 4, "num_procs": 32}
PIPELINE = {"pipeline_par": 4, "num_procs": 32}
EVERY_IMPLEMENTATION = pytest.mark.parametrize(
    "stats_of",
    [
        pytest.param(twin.estimate, id="twin"),
        pytest.param(lambda *question: calculon.estimate(*question).stats, id="arrays"),
    ],
)


ENGINES = {
    engine: SYSTEM[engine] | dict.fromkeys(DATATYPES, SYSTEM[engine]["float16"])
    for engine in ("matrix", "vector")
}


def _ask(stats_of, **changes):
    return stats_of(
        MODEL, BASE | {"edition": "corrected", "preset": "published"} | changes, SYSTEM | ENGINES
    )


@EVERY_IMPLEMENTATION
@pytest.mark.parametrize(
    ("changes", "per_token"),
    [
        ({}, 10 + 24 / TENSOR + 5 * HEADS * SEQUENCE / HIDDEN / TENSOR),
        ({"activation_recompute": "attn_only"}, 10 + 24 / TENSOR),
        (SEQUENCE_PAR | {"seq_par_ag_redo": True}, (34 + 5 * HEADS * SEQUENCE / HIDDEN) / TENSOR),
        # Both gathered inputs are kept whole, or that of the MLP: 2 bytes per element each.
        (SEQUENCE_PAR, (30 + 5 * HEADS * SEQUENCE / HIDDEN) / TENSOR + 4),
        (SEQUENCE_PAR | {"activation_recompute": "attn_only"}, 32 / TENSOR + 2),
    ],
    ids=["all", "all but attention", "split", "split but gathered", "split but attention"],
)
@pytest.mark.parametrize("overlap", ["none", "ring"])
def test_stored_activations(stats_of, changes, per_token, overlap):
    """Source: Korthikanti et al., arXiv 2205.05198, table 2."""
    stats = _ask(stats_of, **changes, tensor_par_overlap=overlap)
    tokens = BASE["microbatch_size"] * SEQUENCE
    assert stats["block_act_storage_space"] == pytest.approx(tokens * HIDDEN * per_token)


@EVERY_IMPLEMENTATION
@pytest.mark.parametrize(
    ("changes", "per_parameter", "traffic"),
    [
        ({}, 2 + 4 + 12, 24 + 4 + 2),
        ({"datatype": "float32"}, 4 + 4 + 8, 16 + 4 + 8),
        (DATA_PAR | {"optimizer_sharding": True}, 2 + (2 + 12) / 4, (24 + 2 + 2) / 4),
        (
            DATA_PAR | {"optimizer_sharding": True, "grad_buffer": "full"},
            2 + 4 + 12 / 4,
            (24 + 4 + 2) / 4,
        ),
    ],
    ids=["16 bit", "32 bit", "sharded", "whole gradients"],
)
def test_bytes_per_parameter(stats_of, changes, per_parameter, traffic):
    """Weights, gradients and optimizer state; what a step of the optimizer moves."""
    stats = _ask(stats_of, **changes)
    weights = stats["block_weight_space"]
    parameters = weights / (4 if changes.get("datatype") == "float32" else 2)
    # Published and kept: one block's gradients are whole, before they are sharded.
    whole = stats["block_weight_grad_space_no_sharding"] - stats["block_weight_grad_space"]
    space = stats["weight_space"] + stats["weight_grad_space"] + stats["optimizer_space"]
    assert space - whole == pytest.approx(parameters * per_parameter * BLOCKS)
    assert stats["block_optim_mem_accessed"] == pytest.approx(parameters * traffic)


@EVERY_IMPLEMENTATION
def test_full_recomputation_is_one_more_forward_pass(stats_of):
    stats = _ask(stats_of, tensor_par=1, num_procs=1, activation_recompute="full")
    for name in ("flops", "flops_time", "mem_accessed", "mem_time", "time"):
        assert stats[f"block_re_{name}"] == pytest.approx(stats[f"block_fw_{name}"])


@EVERY_IMPLEMENTATION
@pytest.mark.parametrize("overlap", ["none", "ring", "pipe"])
def test_scattered_transfers_need_a_pipeline(stats_of, overlap):
    ar, scattered = (
        _ask(stats_of, tensor_par_comm_type=comm, tensor_par_overlap=overlap)
        for comm in ("ar", "p2p_rs_ag")
    )
    assert differences(scattered, ar) == []


@EVERY_IMPLEMENTATION
def test_one_gather_and_one_scatter_meet_a_transfer(stats_of):
    stats = _ask(stats_of, tensor_par_comm_type="p2p_rs_ag", **PIPELINE)
    message = 2 * BASE["microbatch_size"] * SEQUENCE * HIDDEN
    assert stats["baseblock_fw_tp_size"] == 2 * message  # two all-reduces
    assert stats["edgeblock_fw_tp_size"] == 3 * message  # gather, all-reduce, scatter
    assert stats["edgeblock_bw_tp_size"] == 3 * message


@EVERY_IMPLEMENTATION
def test_a_pipe_exposes_a_tile_and_slows_nothing(stats_of):
    ring, pipe = (_ask(stats_of, tensor_par_overlap=overlap) for overlap in ("ring", "pipe"))
    assert pipe["block_fw_time"] <= ring["block_fw_time"]  # which also adds up what goes round
    tiles = pipe["baseblock_fw_tp_time_exposed"] - ring["baseblock_fw_tp_time_exposed"]
    assert tiles == pytest.approx(pipe["baseblock_fw_tp_time"] / TENSOR)


@EVERY_IMPLEMENTATION
def test_a_recomputed_layer_slows_one_pass(stats_of):
    """What is repeated runs beside the repeated forward pass, not beside the weight gradients."""
    plain, full = (
        _ask(stats_of, tensor_par_overlap="ring", activation_recompute=recompute, **SEQUENCE_PAR)
        for recompute in ("none", "full")
    )
    assert full["block_wgrad_time"] == pytest.approx(plain["block_wgrad_time"])


@EVERY_IMPLEMENTATION
def test_no_more_microbatches_in_flight_than_there_are(stats_of):
    changes = {"activation_recompute": "full", "pipeline_interleaving": 2, "batch_size": 4}
    stats = _ask(stats_of, **PIPELINE, **changes)  # two microbatches in four stages
    assert stats["act_checkpoint_size"] == 2 * BLOCKS / 4 * stats["block_act_checkpoint_size"]
    activation = 2 * BASE["microbatch_size"] * SEQUENCE * HIDDEN
    assert stats["block_act_checkpoint_size"] == activation
    split = _ask(stats_of, **PIPELINE, **changes, **SEQUENCE_PAR)
    assert split["block_act_checkpoint_size"] == activation / TENSOR


@EVERY_IMPLEMENTATION
def test_inference_sends_and_keeps_nothing_backward(stats_of):
    stats = _ask(stats_of, training=False, activations_offload=True, **PIPELINE)
    microbatches = BASE["batch_size"] / BASE["microbatch_size"]
    busy = stats["fw_time"] + stats["tp_comm_exposed_time"] + stats["pp_comm_exposed_time"]
    busy += stats["fw_offload_exposed_time"]
    assert stats["bubble_time"] == pytest.approx(3 * busy / microbatches)
    assert stats["act_space_with_offload"] == stats["act_space"]
    assert stats["act_checkpoint_size_with_offload"] == 0


@EVERY_IMPLEMENTATION
def test_an_offloaded_optimizer_moves_once_per_batch(stats_of):
    exposed = {
        _ask(stats_of, optimizer_offload=True, batch_size=size)["bw_offload_exposed_time"]
        for size in (2, 64)
    }
    assert len(exposed) == 1
    assert min(exposed) > 0


@EVERY_IMPLEMENTATION
def test_latency_in_every_step_of_a_ring(stats_of):
    for sharding in (False, True):
        changes = DATA_PAR | {"optimizer_sharding": sharding}
        once, steps = (
            _ask(stats_of, latency_per_step=per_step, **changes)["dp_comm_link_time"]
            for per_step in (False, True)
        )
        # An all-reduce, or reduce-scatter and all-gather, over four.
        latencies = 2 * (4 - 1) - (2 if sharding else 1)
        assert steps - once == pytest.approx(BLOCKS * latencies * LATENCY)


@EVERY_IMPLEMENTATION
def test_datatype_of_the_reduction(stats_of):
    same, wide = (
        _ask(stats_of, grad_comm_dtype=datatype, optimizer_sharding=True, **DATA_PAR)
        for datatype in ("same", "float32")
    )
    assert wide["block_dp_size"] == 2 * same["block_dp_size"] == 2 * same["block_weight_space"]


@EVERY_IMPLEMENTATION
def test_multiquery_has_one_key_and_one_value(stats_of):
    multihead, multiquery = (
        _ask(stats_of, attention_type=kind)["block_act_working_space"]
        for kind in ("multihead", "multiquery")
    )
    head = 2 * BASE["microbatch_size"] * SEQUENCE * MODEL["attn_size"]
    assert multihead - multiquery == 2 * (HEADS / TENSOR - 1) * head
