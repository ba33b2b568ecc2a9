"""Memory of a rank: exact sizes, and what fits beside."""

import numpy as np
import pytest

from calculon import inputs
from calculon.architecture.parameters import parameter_count
from calculon.base.errors import SpecError
from calculon.base.units import GIB
from calculon.serving.caches.cache import CachedBlocks, cached_width, token_bytes
from calculon.serving.caches.rank_memory import (
    SequenceCapacity,
    cached_bytes,
    logit_bytes,
    rank_memory,
    weight_bytes,
)
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.passes.replica import Replica
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.read_records import read_deployment, read_workload
from tests.cases import for_each
from tests.serving.given import H100, LLAMA_70B, SMALL, types


@for_each(
    ("name", "size"),
    [
        ("llama3-8B", 131_072),
        ("llama3-70B", 327_680),
        ("llama3.1-405B", 516_096),
        ("deepseek-v3", 70_272),
        ("gpt3-175B-hf", 4_718_592),
        ("gpt-oss-120b", 73_728),
    ],
)
def test_cache_per_token(name, size):
    assert token_bytes(inputs.model(name), 2.0) == size


def test_weights_in_16_bits_are_two_bytes_a_parameter():
    for name in ("llama3-8B", "gpt2-124M", "mixtral-8x7B", "gpt-oss-20b", "deepseek-v2-lite"):
        model = inputs.model(name)
        found = weight_bytes(model, types(), PassSizes.of(tensor_par=1, decoded=1), np.ones(1))
        assert found[0] == pytest.approx(2 * parameter_count(model), rel=2e-5), name


def test_weights_of_gpt_oss_120b():
    """65.2 GB, of which experts have 4.25 bits a weight (OpenAI, model card of gpt-oss, section 2.1)."""
    model = inputs.model("gpt-oss-120b")
    sizes = PassSizes.of(tensor_par=1, decoded=1)
    found = weight_bytes(model, types(experts="mxfp4"), sizes, np.ones(1))[0]
    assert round(found / 1e9, 1) == 65.2


def test_ranks_share_weights_and_stages_share_blocks():
    sizes = PassSizes.of(tensor_par=[1, 2, 4], decoded=1)
    found = weight_bytes(SMALL, types(), sizes, np.ones(3))
    norms = 2 * SMALL.hidden * (2 * SMALL.num_blocks)
    # the norm before the head is in no block
    np.testing.assert_allclose((found - norms) * np.array([1, 2, 4]), found[0] - norms, rtol=1e-12)
    whole, half = (
        weight_bytes(SMALL, types(), PassSizes.of(tensor_par=1, decoded=1), np.full(1, p))[0]
        for p in (1.0, 2.0)
    )
    table = 2 * SMALL.vocab * SMALL.hidden
    assert half == pytest.approx((whole - 2 * table) / 2 + table)


def test_heads_are_copied_to_ranks_beyond_them():
    splits = np.array([1.0, 2, 4, 8, 16])
    width = cached_width(SMALL, splits) * splits
    whole = 2 * SMALL.kv_heads * SMALL.attn_size
    assert (width / whole).tolist() == [1, 1, 1, 2, 4]


def fitting(model=LLAMA_70B, system=H100, prompt=2000, output=500, hit=0.0, **fields):
    """Return how many sequences fit, and the longest."""
    given = {"num_procs": 8, "tensor_par": 8, **fields}
    load = read_workload(None, {"prompt": prompt, "output": output, "prefix_hit": hit})
    replica = Replica(model, system, Deployments.of(read_deployment(given)), load)
    room = SequenceCapacity(replica, rank_memory(replica, 8192.0))
    return room.fitting[0], room.longest[0], room


def test_as_many_sequences_as_the_cache_has_room_for():
    count, longest, found = fitting()
    tokens = 2000 + 500 + 15 / 2
    each = tokens * 327_680 / 8
    logits = 0.9 * 128256 / 8 * 4
    room = 0.9 * found.memory.free[0]
    assert count * (each + logits) <= room < (count + 1) * (each + logits)
    by_length = cached_bytes(found.replica, np.array([longest, longest + 1]))
    alone = by_length + 0.9 * logit_bytes(LLAMA_70B, np.full(1, 8.0))
    assert alone[0] <= found.memory.cache_capacity[0] < alone[1]


@pytest.mark.parametrize("share", [0.5, 0.9, 0.999])
def test_a_share_of_all_memory_includes_what_it_names_and_leaves_the_rest(share):
    """Of the engine's remainder at most the reserve is kept; a share that leaves nothing caches nothing."""
    for name in ("total", "static"):
        *_, found = fitting(memory_share=name, memory_fraction=share)
        m = found.memory
        held = m.weights + (m.activation if name == "total" else 0)
        expected = min(share * m.capacity - held, m.capacity - m.weights - m.activation)
        np.testing.assert_allclose(m.cache_capacity, expected)
        rest = m.capacity - m.weights - m.activation - m.cache_capacity
        np.testing.assert_allclose(m.reserve, np.minimum(rest, 4 * GIB), atol=1)
    assert fitting(memory_share="total", memory_fraction=0.1)[0] == 0


@pytest.mark.parametrize(
    ("name", "field"), [("qwen3-next-80B", "linear_attention"), ("nanogpt-mlp", "part")]
)
def test_models_without_a_cache_of_tokens(name, field):
    with pytest.raises(SpecError, match=field):
        CachedBlocks.of(inputs.model(name))
