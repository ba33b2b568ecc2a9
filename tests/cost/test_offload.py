import numpy as np
import pytest

import calculon
from calculon.cost.offload import exposed
from tests.helpers import document

MODEL = document("models", "megatron-22B")
RAW = document("examples", "3072_t4_p64_d12_mbs4_full") | {
    "num_procs": 8,
    "tensor_par": 8,
    "pipeline_par": 1,
    "data_par": 1,
    "batch_size": 4,
    "microbatch_size": 1,
    "optimizer_sharding": False,
    "data_par_overlap": False,
}


@pytest.mark.parametrize(
    ("transfer", "memory", "busy", "waits"),
    [(3.0, 1.0, 10.0, 0.0), (9.0, 2.0, 10.0, 1.0), (8.0, 2.0, 10.0, 0.0)],
)
def test_a_transfer_uses_the_memory_while_the_block_does_not(transfer, memory, busy, waits):
    assert exposed(*(np.array(x) for x in (transfer, memory, busy))) == waits


@pytest.mark.parametrize("recompute", ["full", "attn_only", "none"])
@pytest.mark.parametrize(
    "switches",
    [(), ("weight",), ("activations",), ("optimizer",), ("weight", "activations", "optimizer")],
    ids=lambda switches: " and ".join(switches) or "nothing",
)
def test_the_bandwidth_that_hides_everything_moves_what_is_offloaded(switches, recompute):
    changes = {
        f"{name}_offload": name in switches for name in ("weight", "activations", "optimizer")
    }
    changes |= {"activation_recompute": recompute}
    s = calculon.estimate(MODEL, RAW | changes, "a100_80e").stats
    stored = "block_act_checkpoint_size" if recompute == "full" else "block_act_storage_space"
    weight = s["block_weight_space"] * ("weight" in switches)
    activations = s[stored] * ("activations" in switches)
    optimizer = s["block_optimizer_space"] * ("optimizer" in switches)
    forward = s["block_fw_time"] + s["baseblock_fw_tp_time_exposed"] - s["block_fw_mem_time"]
    backward = (
        s["block_re_time"]
        + s["baseblock_recomm_time_exposed"]
        + s["block_agrad_time"]
        + s["block_wgrad_time"]
        + s["baseblock_agrad_tp_time_exposed"]
        - (s["block_agrad_mem_time"] + s["block_wgrad_mem_time"])
    )
    expected = max(
        max(weight, activations) / forward, (weight + activations + optimizer) / backward
    )
    assert s["offload_mem_bw_req"] == pytest.approx(expected, rel=1e-12)
    assert s["act_offload_bw_req"] == pytest.approx(s[stored] / forward, rel=1e-12)
    assert s["weight_offload_bw_req"] == pytest.approx(s["block_weight_space"] / forward, rel=1e-12)
