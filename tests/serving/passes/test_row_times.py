"""Times of passes: laws that hold whatever the machine."""

from dataclasses import replace

import numpy as np
import pytest

from calculon.serving.caches.cache import token_bytes
from calculon.serving.passes.pass_rows import ROWS
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.passes.row_times import pass_times
from calculon.serving.records.deployment import Deployment
from tests.cases import for_each
from tests.serving.given import H100, LLAMA_70B, PLAIN, SMALL, rising, rows_of, timed

BATCHES = np.array([1.0, 3, 16, 64, 257])
KERNELS = SMALL.num_blocks * 9 + 4
"""Of a pass on one rank: two norms, four products, attention, positions and a function in each block; embedding, norm,
head and sampling."""


@pytest.mark.parametrize(
    "sizes", [{"decoded": BATCHES, "context": 900}, {"prompts": 1, "chunk": 700}]
)
def test_rows_sum_up_to_the_pass(sizes):
    found = timed(**sizes)
    np.testing.assert_allclose(found.total("time"), found.time, rtol=1e-12)
    np.testing.assert_allclose(sum(found.causes().values()), found.time, rtol=1e-12)
    assert [row.name for row in found.rows] == sorted(
        (row.name for row in found.rows), key=ROWS.index
    )


def test_a_pass_takes_the_reading_of_weights_and_caches_at_least():
    found = timed(decoded=BATCHES, context=1500)
    assert np.all(found.time >= found.total("weights") / H100.mem1.bandwidth)
    read = found.total("weights") + BATCHES * 1500 * token_bytes(SMALL, 2.0)
    np.testing.assert_allclose(found.total("weights") + found.total("cache"), read)
    assert np.all(found.time >= read / H100.mem1.bandwidth)


def test_the_bound_of_a_70b_model_in_8_bits_on_8_h100():
    """70.55 G parameters; the table of the embedding is not read, and the head is read in 16 bits."""
    found = timed(LLAMA_70B, weights="float8", tensor_par=8, decoded=1)
    vocabulary, norms = 128256 * 8192, 8192 * (2 * 80 + 1)
    products = 80 * (8192 * 128 * (2 * 64 + 2 * 8) + 3 * 8192 * 28672)
    read = (products + 2 * vocabulary) / 8 + 2 * norms
    assert found.total("weights")[0] == read
    assert round(1e3 * read / H100.mem1.bandwidth, 2) == 2.63
    assert found.time[0] > read / H100.mem1.bandwidth


@for_each("weights", ["bfloat16", "float8", "int4_g128"])
def test_more_never_takes_less(weights):
    assert rising(timed(decoded=np.arange(1.0, 200), context=700, weights=weights).time)
    assert rising(timed(decoded=32, context=np.arange(1.0, 9000, 50), weights=weights).time)
    assert rising(timed(prompts=1, chunk=np.arange(1.0, 3000, 30), weights=weights).time)
    assert rising(timed(prompts=1, chunk=256, cached=np.arange(0.0, 9000, 300)).time)


def test_a_sequence_more_costs_no_more_than_the_mean_of_those_before():
    """Arithmetic apart: where tiles are filled up, a row more may open a wave."""
    each = timed(decoded=np.arange(1.0, 65), context=700).time / np.arange(1.0, 65)
    assert rising(-each)


def test_wider_numbers_take_longer():
    by_cache = [timed(decoded=64, context=3000, cache=one).time for one in ("float8", "bfloat16")]
    assert by_cache[0] < by_cache[1]
    alone = [timed(decoded=1, weights=one).time for one in ("int4_g128", "int8", "bfloat16")]
    assert alone[0] < alone[1] < alone[2]


@pytest.mark.parametrize(
    "sizes", [{"decoded": BATCHES, "context": 2000}, {"prompts": 1, "chunk": 900}]
)
def test_a_better_machine_is_never_slower(sizes):
    before = timed(LLAMA_70B, tensor_par=8, **sizes).time
    engines = {name: replace(one, peak=1.5 * one.peak) for name, one in H100.matrix.items()}
    floors = replace(H100.ext.serving, matrix_floor=0.0, attention_floor=0.0, vector_floor=0.0)
    for better in (
        replace(H100, mem1=replace(H100.mem1, bandwidth=1.5 * H100.mem1.bandwidth)),
        replace(H100, matrix=engines),
        replace(H100, ext=replace(H100.ext, serving=floors)),
        replace(
            H100,
            networks=tuple(replace(one, bandwidth=1.5 * one.bandwidth) for one in H100.networks),
        ),
    ):
        assert np.all(timed(LLAMA_70B, better, tensor_par=8, **sizes).time <= before * (1 + 1e-12))


def test_one_pass_is_the_same_alone_and_in_a_column():
    contexts, splits = np.array([10.0, 500, 4000]), np.array([1.0, 2, 4])
    column = timed(decoded=np.array([1.0, 7, 90]), context=contexts, tensor_par=splits)
    for i, batch in enumerate((1.0, 7, 90)):
        alone = timed(decoded=batch, context=contexts[i], tensor_par=splits[i])
        assert alone.time[0] == column.time[i]


def test_decoding_without_context_is_a_pass_without_attention():
    decoding = timed(decoded=96, context=0, logits=96)
    prefill = timed(prompts=1, chunk=96, logits=96)
    attention = sum(row.time for row in prefill.of("attention"))
    np.testing.assert_allclose(decoding.time, prefill.time - attention, rtol=1e-12)


def test_wide_windows_and_full_attention_are_alike():
    sizes = {"decoded": BATCHES, "context": 900}
    windows = replace(SMALL, sliding_window=1000, full_attention_every=2)
    np.testing.assert_allclose(timed(windows, **sizes).time, timed(**sizes).time, rtol=0.01)
    narrow = replace(windows, sliding_window=100)
    cache = timed(narrow, **sizes).total("cache") / timed(**sizes).total("cache")
    np.testing.assert_allclose(cache, (900 + 100) / (2 * 900))


def test_seconds_scale_with_the_machine():
    """Twice the rates of everything halve the time; four times the units of a byte leave it."""
    sizes = {"decoded": BATCHES, "context": 900}
    engines = {name: replace(one, peak=2 * one.peak) for name, one in PLAIN.matrix.items()}
    vectors = {name: replace(one, peak=2 * one.peak) for name, one in PLAIN.vector.items()}
    memory = replace(PLAIN.mem1, bandwidth=2 * PLAIN.mem1.bandwidth)
    twice = replace(PLAIN, matrix=engines, vector=vectors, mem1=memory)
    assert np.array_equal(timed(SMALL, twice, **sizes).time * 2, timed(SMALL, PLAIN, **sizes).time)


def test_without_graphs_the_host_launches_every_kernel():
    sizes = PassSizes.of(tensor_par=1, decoded=1, context=10)
    rows = rows_of(decoded=1, context=10)
    eager = pass_times(SMALL, H100, rows, sizes, graphs=False)
    host = H100.ext.serving.step_host
    assert eager.time[0] == pytest.approx(KERNELS * H100.ext.launch.eager + host)
    assert timed(decoded=1, context=10).time < eager.time


def test_passes_with_prompts_alone_may_wait_for_launches():
    columns = {"decoded": 1, "context": 10, "prompts": [0, 1], "chunk": 8}
    sizes, rows = PassSizes.of(tensor_par=1, **columns), rows_of(**columns)
    plain = Deployment(num_procs=1)
    eager = replace(plain, prefill_graphs=False)
    times = {
        one: pass_times(SMALL, H100, rows, sizes, graphs=one.in_graphs(sizes.prompts))
        for one in (plain, eager)
    }
    assert times[eager].time[0] == times[plain].time[0]
    kernels = KERNELS + SMALL.num_blocks  # attention of the chunk beside that of the token
    host = H100.ext.serving.step_host
    assert times[eager].time[1] == pytest.approx(kernels * H100.ext.launch.eager + host)
    assert np.array_equal(replace(eager, graphs=False).in_graphs(sizes.prompts), [False, False])


def test_each_stage_launches_its_own_kernels():
    """What passes without graphs wait for is in the blocks, which stages share, and not in the last of them."""
    sizes = PassSizes.of(tensor_par=1, decoded=1, context=10)
    rows = rows_of(decoded=1, context=10)
    eager, plain = (pass_times(SMALL, H100, rows, sizes, graphs=one) for one in (False, True))
    assert eager.last == plain.last
    assert eager.blocks > plain.blocks
    assert eager.time == pytest.approx(eager.first + eager.blocks + eager.last)


def test_products_of_experts_reach_a_share_of_the_rate_of_others():
    """Half the rate takes twice the arithmetic of experts, and nothing else longer; so in systems with a curve."""
    mixed = replace(SMALL, num_experts=8, experts_per_token=2, expert_feedforward=512)
    for machine in (H100, PLAIN):
        slow = replace(machine.ext.serving, grouped_efficiency=0.5)
        half = replace(machine, ext=replace(machine.ext, serving=slow))
        found, slower = (timed(mixed, one, prompts=1, chunk=4096) for one in (machine, half))
        for before, after in zip(found.rows, slower.rows, strict=True):
            times = 2 if before.name == "experts" else 1
            np.testing.assert_allclose(after.arithmetic, times * before.arithmetic)
            assert after.time > before.time or times == 1
