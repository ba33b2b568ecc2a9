"""Overlap of tensor parallelism as the user buffers of Transformer Engine have it, and gathers of 8-bit operands."""

from dataclasses import replace

import pytest

from calculon import inputs
from calculon.architecture.segments import ONE_RANK
from calculon.cost.embedding_head import plain_layout
from calculon.editions import CORRECTED
from calculon.estimate.layer_list import breakdown
from tests.cases import for_each
from tests.cost.test_tensor_forms import BETA, EXECUTION, MODEL, RANKS, SEQ, H

SYSTEM = inputs.system("h100_80g_sxm")
MICRO = 16
SPLIT = EXECUTION | {
    "tensor_par_comm_type": "rs_ag",
    "seq_par_ag_redo": True,
    "attn_impl": "flash",
    "activation_recompute": "none",
    "microbatch_size": MICRO,
    "batch_size": MICRO,
}
RING = {"tensor_par_overlap": "ring"}
BUFFERS = RING | {"tp_user_buffers": True}
COLUMN, ROW = "MlpBlock_Mlp1_AG", "MlpBlock_Mlp2_RS"


def _layers(**changes):
    found = breakdown(MODEL, SYSTEM, inputs.execution(SPLIT | changes), CORRECTED)
    return {layer["name"]: layer for layer in found}


def test_backward_collectives_of_column_split_products_run_beside_whole_ones():
    """Gathered again beside the gradients of inputs, reduced beside those of weights, as without overlap in tiles."""
    whole, found = _layers()["MlpBlock_Mlp1"], _layers(**BUFFERS)[COLUMN]
    usage = SYSTEM.networks[0].processor_usage
    for pass_, collective in (("wgrad", "bw_tp_comm"), ("agrad", "recomm")):
        work = found[f"{pass_}_processing_time"]
        assert work == pytest.approx(whole[f"{pass_}_processing_time"])
        traffic = found[f"baseblock_{collective}_time"]
        exposed = min(traffic, max(traffic - work, usage * traffic))
        assert found[f"baseblock_{collective}_time_exposed"] == pytest.approx(exposed)


def test_nothing_runs_beside_the_reduction_of_the_last_of_four_pieces():
    ring, found = _layers(**RING), _layers(**BUFFERS)
    link = found[ROW]["baseblock_fw_tp_comm_time"]
    assert found[ROW]["baseblock_fw_tp_comm_time_exposed"] >= link / 4
    weights = BETA * (4 * H * H + H) / RANKS  # each of the pieces reads all of them
    assert found[ROW]["fw_mem_accessed"] - ring[ROW]["fw_mem_accessed"] == (4 - RANKS) * weights
    for name, pass_ in ((COLUMN, "fw"), (ROW, "agrad")):  # these go round a ring
        for key in (f"{pass_}_processing_time", f"{pass_}_mem_accessed"):
            assert found[name][key] == pytest.approx(ring[name][key])


@for_each("overlap", [{}, RING, BUFFERS])
def test_eight_bit_operands_are_gathered_and_results_reduced_in_sixteen(overlap):
    """Inputs of column-split products, and gradients of outputs of row-split ones, in one byte."""
    layers = _layers(**overlap, matmul_dtype="float8")
    before, after = ("MlpBlock_F", "MlpBlock_G") if not overlap else (COLUMN, ROW)
    elements = MICRO * SEQ * H
    for name, forward, backward in ((before, 1, 2), (after, 2, 1)):
        assert layers[name]["baseblock_fw_tp_comm_size"] == forward * elements
        assert layers[name]["baseblock_bw_tp_comm_size"] == backward * elements
    wide = _layers(**overlap)
    slower = wide[before]["baseblock_fw_tp_comm_time"]
    assert layers[before]["baseblock_fw_tp_comm_time"] < slower


def test_logits_are_a_product_of_sixteen_bits():
    for datatype, wanted in (("bfloat16", "same"), ("float16", "same"), ("float32", "bfloat16")):
        layout = replace(ONE_RANK, datatype=datatype, matmul_dtype="float8")
        assert plain_layout(layout, SYSTEM).matmul_dtype == wanted
    layout = replace(ONE_RANK, datatype="float32", matmul_dtype="float16")
    assert plain_layout(layout, SYSTEM).matmul_dtype == "float16"
