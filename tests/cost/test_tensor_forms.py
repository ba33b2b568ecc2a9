"""Forms of tensor parallelism and of products that only the corrected edition has."""

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.editions import CORRECTED
from calculon.estimate.layer_list import breakdown
from tests.cases import for_each
from tests.helpers import LLAMA_X64

SYSTEM = inputs.system("a100_80g_sxm")

H, SEQ, MICRO, RANKS = 1024, 256, 2, 4
MODEL = calculon.Model(
    hidden=H,
    feedforward=4 * H,
    seq_size=SEQ,
    attn_heads=16,
    attn_size=64,
    num_blocks=4,
    mlp_bias=True,
    out_bias=True,
    norm="rmsnorm",
)
MLP = MODEL.only("mlp")
TOKENS, BETA = MICRO * SEQ, 2
EXECUTION = LLAMA_X64 | {
    "num_procs": RANKS,
    "tensor_par": RANKS,
    "data_par": 1,
    "batch_size": MICRO,
    "optimizer_sharding": False,
    "data_par_overlap": False,
    "tensor_par_overlap": "none",
    "tensor_par_comm_type": "ar",
    "grad_buffer": "sharded",
}


def _stats(model=MLP, system=SYSTEM, **changes):
    return calculon.estimate(model, EXECUTION | changes, system).stats


def _layers(model=MLP, system=SYSTEM, **changes):
    execution = inputs.execution(EXECUTION | changes)
    found = breakdown(model, system, execution, CORRECTED)
    return {layer["name"]: layer for layer in found}


def _moved(operation, size):
    """Bytes of a message of one operation through each port of the tensor-parallel network."""
    arguments = np.array(0), operation, np.array(float(size)), np.array(float(RANKS))
    return float(SYSTEM.fabric.volume(*arguments))


def test_gathering_every_output_moves_two_and_a_half_times_the_bytes_of_megatron():
    """Of an MLP with f = 4 h: 5 T h (t - 1) / t in each pass, against 2 T h (t - 1) / t."""
    share, unit = (RANKS - 1) / RANKS, TOKENS * H * BETA
    naive, split, reduced = (
        _stats(tp_impl="allgather"),
        _stats(tensor_par_comm_type="rs_ag"),
        _stats(),
    )
    for pass_, operation in (("fw", "all_gather"), ("bw", "reduce_scatter")):
        name = f"baseblock_{pass_}_tp_size"
        assert naive[name] == 5 * unit
        assert split[name] == 2 * unit
        assert reduced[name] == unit
        assert _moved(operation, naive[name]) == pytest.approx(5 * unit * share)
        megatron = _moved("all_reduce", reduced[name])
        assert _moved(operation, naive[name]) == pytest.approx(2.5 * megatron)


@for_each("model", [MODEL, MLP, MODEL.only("attention")])
def test_sequence_parallelism_moves_the_bytes_of_the_all_reduce(model):
    reduced, split = _stats(model), _stats(model, tensor_par_comm_type="rs_ag")
    for pass_ in ("fw", "bw"):
        name = f"baseblock_{pass_}_tp_size"
        in_two = _moved("all_gather", split[name] / 2)
        in_two += _moved("reduce_scatter", split[name] / 2)
        assert in_two == pytest.approx(_moved("all_reduce", reduced[name]))


def test_gathered_inputs_are_saved_whole_and_the_arithmetic_stays():
    naive, megatron = _layers(tp_impl="allgather"), _layers()
    assert [name.partition("_")[2] for name in naive] == [
        "Mlp1",
        "GeLU",
        "Mlp2_Gather",
        "Mlp2",
        "Gather",
    ]
    assert naive["MlpBlock_Mlp2"]["activation"] == TOKENS * 4 * H * BETA
    assert megatron["MlpBlock_Mlp2"]["activation"] == TOKENS * H * BETA
    for name in ("Mlp1", "GeLU", "Mlp2"):
        for pass_ in ("fw", "agrad", "wgrad"):
            key = f"{pass_}_flops"
            assert naive[f"MlpBlock_{name}"][key] == megatron[f"MlpBlock_{name}"][key]
    weights = H * 4 * H / RANKS
    assert naive["MlpBlock_Mlp2"]["weight"] == BETA * (weights + H / RANKS)
    assert megatron["MlpBlock_Mlp2"]["weight"] == BETA * (weights + H)


def _added(traffic, work):
    """Time that traffic adds to the work beside it, of which it takes a share of the engines."""
    return max(traffic - work, SYSTEM.networks[0].processor_usage * traffic)


@for_each(("comm", "again"), [("ar", False), ("rs_ag", False), ("rs_ag", True)])
@for_each("fusion", ["published", "compile"])
@for_each("recompute", ["none", "attn_only", "full"])
def test_collectives_run_beside_the_gradients_of_their_products(comm, again, fusion, recompute):
    """Source: Megatron-LM, LinearWithGradAccumulationAndAsyncCommunication."""
    changes = {"tensor_par_comm_type": comm, "fusion": fusion, "activation_recompute": recompute}
    changes["seq_par_ag_redo"] = again and recompute != "full"
    plain, beside = (_layers(MODEL, tp_async=one, **changes) for one in (False, True))
    names = ("Query", "Key", "Value") if fusion == "published" else ("QKV",)
    readers = {
        "AttnBlock_F": [plain[f"AttnBlock_{name}"] for name in names],
        "MlpBlock_F": [plain["MlpBlock_Mlp1"]],
    }
    for name, layer in beside.items():
        weights, inputs = (
            sum(reader[f"{pass_}_processing_time"] for reader in readers.get(name, []))
            for pass_ in ("wgrad", "agrad")
        )
        if recompute == "full":  # the product waits for its input before it is computed again
            inputs = 0.0
        for collective, work in (("bw_tp_comm", weights), ("recomm", inputs)):
            key = f"baseblock_{collective}_time"
            assert layer[f"{key}_exposed"] == pytest.approx(_added(plain[name][key], work))
        forward = "baseblock_fw_tp_comm_time_exposed"
        assert layer[forward] == plain[name][forward]


@pytest.mark.parametrize(("comm", "residual"), [("ar", TOKENS * H), ("rs_ag", TOKENS * H / RANKS)])
def test_a_late_bias_is_a_pass_over_the_reduced_output(comm, residual):
    late, folded = (
        _layers(bias_after_reduce=one, tensor_par_comm_type=comm) for one in (True, False)
    )
    added = late.pop("MlpBlock_BiasAdd")
    assert late == folded
    assert added["fw_mem_accessed"] == 2 * residual * BETA
    assert added["weight"] == added["agrad_mem_accessed"] == added["wgrad_mem_accessed"] == 0
    per_block = _stats(bias_after_reduce=True)["block_fw_mem_accessed"]
    assert per_block - _stats()["block_fw_mem_accessed"] == 2 * TOKENS * H * BETA


def test_multiplying_and_summing_has_the_flops_of_the_product_and_its_single_products_in_memory():
    gemm, fused, stored = (_layers(matmul_impl=one) for one in ("gemm", "mul_sum_fused", "mul_sum"))
    for name, (n, k) in {"Mlp1": (H, H), "Mlp2": (H, H)}.items():
        product, whole = gemm[f"MlpBlock_{name}"], fused[f"MlpBlock_{name}"]
        parts = stored[f"MlpBlock_{name}"], stored[f"MlpBlock_{name}_Sum"]
        single = TOKENS * n * k * BETA
        for pass_ in ("fw", "agrad", "wgrad"):
            flops, moved = f"{pass_}_flops", f"{pass_}_mem_accessed"
            assert product[flops] == whole[flops] == sum(part[flops] for part in parts)
            assert product[moved] == whole[moved]
            assert sum(part[moved] for part in parts) == product[moved] + 2 * single
        arithmetic = float(SYSTEM.vector_time("bfloat16", np.array(whole["fw_flops"])))
        assert whole["fw_processing_time"] >= arithmetic
        assert parts[1]["activation"] == single
    without, within = _stats(), _stats(matmul_impl="mul_sum")
    assert within["block_act_storage_space"] == without["block_act_storage_space"]
    assert within["hfu"] == 0
    more = within["block_act_working_space"] - without["block_act_working_space"]
    assert more == 2 * TOKENS * H * H * BETA
