"""What packed sequences change of a step: the time of attention, the FLOP that MFU counts, nothing else."""

import numpy as np
import pytest

import calculon
from tests.helpers import CORRECTED_PLAIN, document

MODEL = document("models", "llama3-8B") | {"num_blocks": 8, "seq_size": 8192}
BLOCKS, WIDTH, SEQUENCE = 8, 32 * 128, 8192
SYSTEM = document("systems", "a100_80e")  # its tier-1 memory is never full
SYSTEM["matrix"]["float16"]["gflops_efficiency"] = [[0, 1.0]]
SYSTEM["processing_mode"] = "no_overlap"
PEAK = 1e12 * SYSTEM["matrix"]["float16"]["tflops"]
RAW = CORRECTED_PLAIN | {
    "batch_size": 8,
    "tensor_par_net": 1,
    "attn_impl": "flash",
    "fused_activation": True,
}
PIPELINE = {"num_procs": 4, "pipeline_par": 4}
PARTS = {"num_procs": 2, "context_par": 2, "context_par_net": 1}
SHAPES = pytest.mark.parametrize(
    ("changes", "passes"),
    [
        ({}, 8),
        ({"data_par": 4, "num_procs": 4}, 2),
        (PARTS | {"cp_comm": "all_gather"}, 8 / 2),
        (PIPELINE, (8 + 4 - 1) / 4),  # of a quarter of the blocks: microbatches and bubbles
        (PIPELINE | {"pp_schedule": "gpipe"}, (8 + 4 - 1) / 4),
        (PIPELINE | {"pipeline_interleaving": 2}, (8 + (4 - 1) / 2) / 4),
    ],
    ids=["one", "replicas", "parts", "1f1b", "gpipe", "interleaved"],
)
FORWARD_AND_BACKWARD = 1 + 2.5


def _stats(**changes):
    return calculon.estimate(MODEL, RAW | changes, SYSTEM).stats


def _attention(percent, passes):
    """Time of the products of scores: of two forward, of five backward."""
    keys = (percent / 100 * SEQUENCE + 1) / 2
    return passes * BLOCKS * FORWARD_AND_BACKWARD * 4 * SEQUENCE * keys * WIDTH / PEAK


@SHAPES
def test_attention_alone_takes_the_time_of_its_keys(changes, passes):
    whole, packed = _stats(**changes), _stats(packed_percent=40, **changes)
    saved = _attention(100, passes) - _attention(40, passes)
    assert whole["total_time"] - packed["total_time"] == pytest.approx(saved, rel=1e-9)
    for name in ("proc_mem_tier1_cap_req", "dp_comm_link_time", "optim_step_time"):
        assert packed[name] == whole[name]


@SHAPES
def test_all_wait_for_the_slowest_rank_in_every_microbatch(changes, passes):
    even = _stats(packed_percent=40, **changes)
    found = _stats(packed_percent=40, pack_imbalance_percent=130, **changes)
    waits = (130 / 100 - 1) * _attention(40, passes)
    assert found["total_time"] - even["total_time"] == pytest.approx(waits, rel=1e-9)
    for name in ("block_fw_flops", "block_agrad_flops", "proc_mem_tier1_cap_req"):
        assert found[name] == even[name]
    slower = even["total_time"] / found["total_time"]
    for name in ("mfu", "mfu_causal", "hfu"):
        assert found[name] == pytest.approx(even[name] * slower, rel=1e-12)


def test_steps_of_a_ring_share_the_keys_of_documents():
    """Each document is split over the ranks, as a whole sequence is."""
    whole = _stats(**PARTS)
    even = _stats(packed_percent=40, **PARTS)
    uneven = _stats(packed_percent=40, pack_imbalance_percent=250, **PARTS)
    forward = 1 / (8 * BLOCKS * FORWARD_AND_BACKWARD)  # of one block and microbatch
    name = "block_fw_flops_time"
    saved = forward * (_attention(100, 8 / 2) - _attention(40, 8 / 2))
    assert whole[name] - even[name] == pytest.approx(saved, rel=1e-9)
    waits = forward * 1.5 * _attention(40, 8 / 2)
    assert uneven[name] - even[name] == pytest.approx(waits, rel=1e-9)
    assert even["cp_comm_link_time"] == whole["cp_comm_link_time"]
    for longer, shorter in ((whole, even), (uneven, even)):
        assert shorter["cp_comm_exposed_time"] >= longer["cp_comm_exposed_time"]


def test_longer_documents_and_more_imbalance_are_never_faster():
    rows = [RAW | {"packed_percent": percent} for percent in range(1, 101)]
    uneven = [{"packed_percent": 20, "pack_imbalance_percent": i} for i in range(100, 501, 25)]
    rows += [RAW | changes for changes in uneven]
    rows = [row | {"tensor_par": 8, "num_procs": 8, "tensor_par_net": 0} for row in rows]
    found = calculon.evaluate(MODEL, "h100_80g_sxm", calculon.Plan.from_records(rows))
    assert found.feasible.all()
    times = found["total_time"]
    assert (np.diff(times[:100]) > 0).all()
    assert (np.diff(times[100:]) > 0).all()
    assert times[-1] == pytest.approx(times[99], rel=1e-3)  # one document, on the slowest rank
