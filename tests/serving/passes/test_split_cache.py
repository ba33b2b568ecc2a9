"""Caches that ranks share token by token."""

import pytest

from calculon import inputs
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.passes.split_cache import SplitCache
from calculon.serving.serve import serve
from tests.serving.given import SMALL, rows_of, timed, total, types

DEEPSEEK = inputs.model("deepseek-v3")
DECODE = {"decoded": 32, "context": 8000}
SPLITS = [(SMALL, 16, 4), (DEEPSEEK, 8, 8)]


def attention(model, quantity, **sizes):
    return total(rows_of(model, **sizes), "decode attention", quantity)


@pytest.mark.parametrize(("model", "ranks", "most"), SPLITS)
def test_parts_of_a_cache_are_read_once(model, ranks, most):
    """The work of all ranks together is the same; of the cache each reads its part."""
    whole, part = ({"tensor_par": ranks, "context_par": parts, **DECODE} for parts in (1, most))
    assert attention(model, "flops", **part) == attention(model, "flops", **whole)
    assert attention(model, "cache", **part) == attention(model, "cache", **whole) / most


@pytest.mark.parametrize(("model", "ranks", "most"), SPLITS)
def test_one_part_exchanges_nothing(model, ranks, most):
    found = timed(model, tensor_par=ranks, context_par=[1, most], **DECODE)
    alone = timed(model, tensor_par=ranks, **DECODE)
    assert not alone.of("split cache")
    assert found.time[0] == alone.time[0]
    sent = sum(row.time for row in found.of("split cache"))
    assert sent[0] == 0 < sent[1]
    assert sum(row.time for row in found.rows) == pytest.approx(found.time)


def test_results_are_joined_in_four_bytes():
    """A value, its largest score and its sum, for each head of the ranks that share the cache."""
    sizes = PassSizes.of(tensor_par=16, context_par=4, prompts=2, chunk=10, cached=100, **DECODE)
    found = SplitCache.of(SMALL, types(), sizes, 0)
    heads = SMALL.attn_heads * 4 / 16
    assert found.results[0] == 32 * heads * (SMALL.attn_size + 2) * 4
    assert found.queries[0] == 32 * heads * SMALL.attn_size * 2
    assert found.keys[0] == 2 * 100 * 2 * SMALL.attn_size * 2
    assert SplitCache.of(SMALL, types(), sizes, 30).keys[0] == 2 * 30 * 2 * SMALL.attn_size * 2


def served(model, **split):
    return serve(
        model, {"num_procs": 8, "tensor_par": 8, **split}, "h200_141g_sxm", prompt=2000, output=200
    )


def test_shared_caches_have_room_for_more():
    narrow = {"weights_dtype": "float8_block", "max_batch": 8}
    whole, parts = (served("deepseek-v3", context_par=one, **narrow) for one in (1, 8))
    assert parts["mem_cache"] == pytest.approx(whole["mem_cache"] / 8)
    assert parts["max_context"] > 7 * whole["max_context"]
