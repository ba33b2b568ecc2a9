import numpy as np
import pytest

from calculon import inputs
from calculon.plan.plan import Plan
from tests.helpers import document, schedule_of

RAW = document("examples", "3072_t4_p64_d12_mbs4_full")

SYSTEM = inputs.system("a100_80g")


def _schedule(num_blocks, **changes):
    model = inputs.model(document("models", "megatron-1T") | {"num_blocks": num_blocks})
    return schedule_of(Plan.from_records([RAW | changes]), model, SYSTEM)


@pytest.mark.parametrize(
    ("num_blocks", "stages", "chunks", "blocks", "missing", "chunk"),
    [
        (128, 64, 1, 2, 0, 2),
        (128, 64, 2, 2, 0, 1),
        (105, 35, 3, 3, 0, 1),
        (118, 8, 5, 15, 2, 3),
        (1, 1, 1, 1, 0, 1),
        (5, 4, 1, 2, 3, 2),
    ],
)
def test_blocks_divide_over_stages_and_chunks(num_blocks, stages, chunks, blocks, missing, chunk):
    found = _schedule(num_blocks, pipeline_par=stages, pipeline_interleaving=chunks)
    assert found.blocks == blocks
    assert found.missing_blocks == missing == blocks * stages - num_blocks
    assert found.chunk_blocks == chunk
    assert found.base_blocks == chunk - 1


def test_microbatches_are_those_of_one_pipeline():
    found = _schedule(128, batch_size=3072, data_par=12, microbatch_size=4)
    assert found.microbatches == 3072 / 12 / 4


@pytest.mark.parametrize(("sharding", "shards"), [(True, 12), (False, 1)])
def test_the_optimizer_is_sharded_over_data_parallelism_if_at_all(sharding, shards):
    assert _schedule(128, data_par=12, optimizer_sharding=sharding).shards == shards


def test_sums_over_a_chunk_and_a_batch_weigh_base_and_edge_blocks():
    found = _schedule(120, pipeline_par=8, pipeline_interleaving=5, batch_size=96)
    base, edge = np.array([2.0]), np.array([7.0])
    assert found.chunk_sum(base, edge) == (3 - 1) * 2.0 + 7.0
    assert found.batch_sum(base, edge) == 96 / 12 / 4 * 5 * found.chunk_sum(base, edge)
