import numpy as np
import pytest

from calculon import inputs
from calculon.editions import SC23
from calculon.parallel.pipeline.transfers import bubble_time, transfers
from calculon.plan.plan import Plan
from tests.helpers import document, schedule_of

RAW = document("examples", "3072_t4_p64_d12_mbs4_full") | {"data_par": 2, "microbatch_size": 1}
SYSTEM = inputs.system("a100_80g")
LATENCY, RATE = 2e-5, 25e9 * 0.9  # of network 1
MESSAGE = np.array([3e6])


def _schedule(num_blocks=24, microbatches=6, **changes):
    model = inputs.model(document("models", "megatron-126M") | {"num_blocks": num_blocks})
    row = RAW | {"batch_size": 2 * microbatches} | changes
    return schedule_of(Plan.from_records([row]), model, SYSTEM)


@pytest.mark.parametrize("training", [True, False])
def test_a_microbatch_passes_once_in_each_direction_it_runs_and_chunk(training):
    schedule = _schedule(pipeline_par=4, pipeline_interleaving=3, training=training)
    sent = transfers(MESSAGE, schedule, SYSTEM, SC23)
    one = LATENCY + 3e6 / RATE
    assert sent.forward == one
    assert sent.backward == (one if training else LATENCY)
    assert (sent.forward_size, sent.backward_size) == (3e6, 3e6 if training else 0)
    assert sent.link == 6 * 3 * (one + (one if training else 0))


def test_without_a_pipeline_nothing_is_sent():
    sent = transfers(MESSAGE, _schedule(pipeline_par=1), SYSTEM, SC23)
    assert (sent.forward_size, sent.backward_size, sent.link) == (0, 0, 0)


BASE, EDGE = np.array([2.0]), np.array([5.0])


@pytest.mark.parametrize("microbatches", [4, 8], ids=lambda n: f"{n} microbatches")
def test_a_full_pipeline_idles_for_a_chunk_per_further_stage(microbatches):
    schedule = _schedule(microbatches=microbatches, pipeline_par=4, pipeline_interleaving=2)
    chunk = (3 - 1) * 2.0 + 5.0  # 24 blocks over 4 stages and 2 chunks
    assert bubble_time(schedule, BASE, EDGE) == (4 - 1) * chunk


def test_a_rest_of_microbatches_idles_in_every_further_chunk():
    schedule = _schedule(microbatches=6, pipeline_par=4, pipeline_interleaving=2)
    chunk = (3 - 1) * 2.0 + 5.0
    assert bubble_time(schedule, BASE, EDGE) == (4 - 1) * chunk + (2 - 1) * (4 - 6 % 4) * chunk


@pytest.mark.parametrize(
    ("num_blocks", "mean"), [(22, (2.0 + 5.0) / 2), (3, 5.0)], ids=["base and edge", "edge only"]
)
def test_blocks_that_later_stages_lack_shorten_the_bubble(num_blocks, mean):
    schedule = _schedule(num_blocks=num_blocks, microbatches=4, pipeline_par=4)
    blocks = -(-num_blocks // 4)
    missing = 4 * blocks - num_blocks
    chunk = (blocks - 1) * 2.0 + 5.0
    assert missing > 0
    assert bubble_time(schedule, BASE, EDGE) == (4 - 1) * chunk - missing * mean


def test_one_stage_never_idles():
    assert bubble_time(_schedule(num_blocks=23, pipeline_par=1), BASE, EDGE) == 0
