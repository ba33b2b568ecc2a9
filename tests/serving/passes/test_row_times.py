"""Times of passes: laws that hold whatever the machine."""

from dataclasses import replace

import numpy as np
import pytest

from calculon.hardware.extension import Extension
from calculon.hardware.serving import Serving
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.passes.row_times import pass_times
from calculon.serving.records.deployment import Deployment
from tests.cases import for_each
from tests.serving.given import H100, LLAMA_70B, PLAIN, SMALL, rising, rows_of, timed

KERNELS = SMALL.num_blocks * 9 + 4
"""Of a pass on one rank: two norms, four products, attention, positions and a function in each block; embedding, norm,
head and sampling."""


def test_the_bound_of_a_70b_model_in_8_bits_on_8_h100():
    """70.55 G parameters; the table of the embedding is not read, and the head is read in 16 bits."""
    found = timed(LLAMA_70B, weights="float8", tensor_par=8, decoded=1)
    vocabulary, norms = 128256 * 8192, 8192 * (2 * 80 + 1)
    products = 80 * (8192 * 128 * (2 * 64 + 2 * 8) + 3 * 8192 * 28672)
    read = (products + 2 * vocabulary) / 8 + 2 * norms
    assert found.total("weights")[0] == read
    assert round(1e3 * read / H100.mem1.bandwidth, 2) == 2.63
    assert found.time[0] > read / H100.mem1.bandwidth


def test_more_never_takes_less():
    assert rising(timed(prompts=1, chunk=np.arange(1.0, 3000, 30)).time)
    assert rising(timed(prompts=1, chunk=256, cached=np.arange(0.0, 9000, 300)).time)


@for_each("machine", [H100, PLAIN])
def test_a_row_without_anything_to_do_takes_nothing(machine):
    """Of three passes one is empty, one has a prompt, and one a token that sees nothing but itself."""
    sizes = {"decoded": [0, 0, 1], "context": [0, 0, 1], "prompts": [0, 1, 0], "chunk": [0, 1, 0]}
    found = timed(SMALL, machine, **sizes)
    for row in found.rows:
        for part in (row.floor, row.arithmetic, row.memory, row.network, row.time):
            assert np.all(part[(row.moved == 0) & (row.floor == 0)] == 0), row.name
    for name, busy in (("attention", 1), ("decode attention", 2), ("embedding", (1, 2))):
        (row,) = found.of(name)
        assert np.array_equal(np.flatnonzero(row.time), np.ravel(busy)), name
        assert np.all(row.memory >= row.moved / machine.mem1.bandwidth), name


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


def test_products_of_experts_have_a_law_by_the_type_of_their_weights():
    """Half the rate takes twice the arithmetic of experts with these weights, and nothing else longer."""
    mixed = replace(SMALL, num_experts=8, experts_per_token=2, expert_feedforward=512)
    law = H100.rate("product", "bfloat16")
    slow = replace(law, max_efficiency=law.max_efficiency / 2)
    for stated, changes in (("bfloat16", 2), ("float8", 1)):
        serving = replace(H100.ext.serving, grouped={stated: slow})
        machine = replace(H100, ext=replace(H100.ext, serving=serving))
        plain = replace(H100, ext=replace(H100.ext, serving=replace(serving, grouped=None)))
        found, slower = (timed(mixed, one, prompts=1, chunk=4096) for one in (plain, machine))
        for before, after in zip(found.rows, slower.rows, strict=True):
            times = changes if before.name == "experts" else 1
            np.testing.assert_allclose(after.arithmetic, times * before.arithmetic)
            assert after.time > before.time or times == 1


def test_floors_of_a_70b_model_are_longer_than_its_weights_are_read():
    """80 blocks of 4 products, attention, 4 small kernels and 2 reductions: 37 us each, with weights of 2.63 ms."""
    machine = replace(H100, ext=Extension(serving=Serving(), networks=H100.ext.networks))
    found = timed(LLAMA_70B, machine, decoded=1, context=1, tensor_par=8)
    blocks = [row for row in found.rows if row.stage == "block"]
    floors = sum(row.floor[0] for row in blocks)
    assert floors == pytest.approx(80 * (4 * 3 + 10 + 4 * 2) * 1e-6)
    reductions = sum(row.network[0] for row in blocks)
    wire = 8192 * 2 * 7 / (0.5 * H100.networks[0].bandwidth)  # in one shot
    assert reductions == pytest.approx(160 * (3.5e-6 + wire), rel=1e-9)
    assert round(1e3 * (floors + 160 * 3.5e-6), 1) == 3.0
