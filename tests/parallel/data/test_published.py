import numpy as np
import pytest

from calculon import inputs
from calculon.editions import SC23
from calculon.parallel.data.published_laws import published_sync
from calculon.parallel.data.synced import BackwardPass, SyncedBlock, SyncedBytes
from calculon.parallel.process_groups import CollectiveCost
from calculon.plan.plan import Plan
from tests.helpers import PLAIN, document, schedule_of

RAW = PLAIN | {
    "pipeline_par": 4,
    "data_par": 8,
    "data_par_net": 1,
    "batch_size": 256,
    "num_procs": 3072,
    "tensor_par": 4,
    "fused_activation": True,
    "activation_recompute": "full",
    "tensor_par_comm_type": "rs_ag",
}
SYSTEM = inputs.system("a100_80g")
MODEL = inputs.model(document("models", "megatron-126M") | {"num_blocks": 24})
BLOCKS, LATENCY, RATE, WEIGHT = 24 / 4, 2e-5, 25e9 * 0.9, 9e6
ONE = LATENCY + WEIGHT / RATE
"""Time of any collective: on network 1 each moves its message once."""


def _sync(seconds=1.0, **changes):
    """Reduce gradients beside a backward pass of so many seconds per block, half of it arithmetic."""
    schedule = schedule_of(Plan.from_records([RAW | changes]), MODEL, SYSTEM)
    none = np.zeros(1)
    time = np.array([seconds])
    backward = BackwardPass(
        forward=time,
        tensor_forward=none,
        head=none,
        base=time,
        edge=time,
        p2p=none,
        memory=none,
        tensor_base=none,
        tensor_edge=none,
        arithmetic=time / 2,
        step=none,
        step_memory=none,
        step_arithmetic=none,
    )
    synced = SyncedBytes(weight=np.array([WEIGHT]), gradient=np.array([WEIGHT]))
    return published_sync(
        SyncedBlock(dense=synced), None, backward, CollectiveCost(SYSTEM, schedule), SC23
    )


@pytest.mark.parametrize(("sharding", "collectives"), [(False, 1), (True, 2)])
def test_without_overlap_the_traffic_of_every_block_is_exposed(sharding, collectives):
    found = _sync(optimizer_sharding=sharding)
    assert found.message == WEIGHT
    assert found.link == found.exposed == BLOCKS * (collectives * ONE)
    assert found.chunk_bandwidth == found.tail_bandwidth == 0


@pytest.mark.parametrize("changes", [{"data_par": 1}, {"training": False}], ids=str)
def test_there_is_no_traffic_with(changes):
    found = _sync(**changes)
    assert (found.message, found.link, found.exposed) == (0, 0, 0)


def test_a_long_backward_pass_hides_all_but_the_last_block_and_its_share_of_the_engines():
    usage = SYSTEM.networks[1].processor_usage
    found = _sync(seconds=1.0, data_par_overlap=True)
    assert found.exposed == pytest.approx(ONE + (BLOCKS - 1) * ONE * usage, rel=1e-12)
    assert found.link == BLOCKS * ONE


def test_a_backward_pass_of_no_time_hides_nothing():
    found = _sync(seconds=0.0, data_par_overlap=True)
    assert found.exposed == pytest.approx(BLOCKS * ONE, rel=1e-12)


def test_the_longer_the_backward_pass_the_more_it_hides():
    usage = SYSTEM.networks[1].processor_usage
    seconds = ONE / 2
    window = BLOCKS * seconds - seconds  # of the last chunk, without its last block
    expected = ONE + (BLOCKS - 1) * ONE + seconds / 2 * usage - window
    found = _sync(seconds=seconds, data_par_overlap=True)
    assert found.exposed == pytest.approx(expected, rel=1e-12)
