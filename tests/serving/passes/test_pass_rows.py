"""Rows of passes: FLOP and bytes as formulas."""

import numpy as np
import pytest

from calculon import inputs
from calculon.serving.caches.cache import CachedBlocks
from calculon.serving.passes.pass_sizes import seen_keys
from tests.cases import for_each
from tests.serving.given import SMALL, rows_of, total


@for_each("split", [1, 2, 4])
def test_products_of_a_dense_block(split):
    rows = rows_of(decoded=10, context=50, tensor_par=split)
    h, f, d = SMALL.hidden, SMALL.feedforward, SMALL.attn_size
    widths = {
        "qkv": h * d * (SMALL.attn_heads + 2 * SMALL.kv_heads) // split,
        "output": h * d * SMALL.attn_heads // split,
        "mlp": 3 * h * f // split,
    }
    for name, weights in widths.items():
        assert total(rows, name, "flops") == SMALL.num_blocks * 2 * 10 * weights
        assert total(rows, name, "weights") == SMALL.num_blocks * 2 * weights
    assert total(rows, "head", "flops") == 2 * 10 * h * SMALL.vocab // split


def test_ranks_beyond_the_key_value_heads_have_copies_of_them():
    d, h = SMALL.attn_size, SMALL.hidden
    rows = rows_of(decoded=1, tensor_par=16)
    assert total(rows, "qkv", "weights") == SMALL.num_blocks * 2 * h * d * (1 + 2)


def test_decode_attention_reads_the_cache_once():
    rows = rows_of(decoded=7, context=300)
    cache = 7 * 300 * 2 * SMALL.kv_heads * SMALL.attn_size * 2
    assert total(rows, "decode attention", "cache") == SMALL.num_blocks * cache
    flops = 4 * 7 * 300 * SMALL.attn_heads * SMALL.attn_size
    assert total(rows, "decode attention", "flops") == SMALL.num_blocks * flops


def test_latents_are_read_once_for_all_heads():
    model = inputs.model("deepseek-v3")
    rows = rows_of(model, decoded=3, context=100)
    width = model.kv_lora_rank + model.qk_rope_head_dim
    assert total(rows, "decode attention", "cache") == 61 * 3 * 100 * width * 2
    flops = 2 * 3 * 100 * model.attn_heads * (width + model.kv_lora_rank)
    assert total(rows, "decode attention", "flops") == 61 * flops


def test_a_chunk_sees_the_prompt_before_it():
    whole = rows_of(prompts=1, chunk=600)
    parts = [rows_of(prompts=1, chunk=200, cached=before) for before in (0, 200, 400)]
    flops = sum(total(rows, "attention", "flops") for rows in parts)
    assert total(whole, "attention", "flops") == pytest.approx(flops)


@for_each(("window", "chunked"), [(0, False), (5, False), (50, False), (5, True)])
@for_each("cached", [0, 3, 17])
def test_seen_keys_are_counted_token_by_token(window, chunked, cached):
    def of_token(place):
        if not window:
            return place
        return (place - 1) % window + 1 if chunked else min(place, window)

    expected = sum(of_token(cached + j) for j in range(1, 12))
    found = seen_keys(np.array([float(cached)]), np.array([11.0]), window, chunked=chunked)
    assert found[0] == pytest.approx(expected)


def test_experts_that_no_token_passes_are_not_read():
    model = inputs.model("mixtral-8x7B")
    rows = rows_of(model, decoded=1, context=10)
    each = 3 * model.hidden * model.feedforward * 2
    assert total(rows, "experts", "weights") == pytest.approx(32 * 2 * each)
    assert total(rows, "experts", "flops") == pytest.approx(32 * 2 * each)


def test_cached_keys_are_read_in_their_type():
    wide, narrow = (
        rows_of(prompts=1, chunk=100, cached=400, cache=one) for one in ("bfloat16", "float8")
    )
    width = 2 * SMALL.kv_heads * SMALL.attn_size
    assert total(wide, "attention", "cache") == SMALL.num_blocks * 400 * width * 2
    less = total(wide, "attention", "moved") - total(narrow, "attention", "moved")
    assert less == SMALL.num_blocks * 400 * width


def test_windowed_blocks_are_counted():
    model = inputs.model("gpt-oss-20b")
    assert CachedBlocks.of(model) == CachedBlocks(12, 12, 128)
    rows = rows_of(model, decoded=1, context=1000)
    width = 2 * model.key_value_heads * model.attn_size * 2
    assert total(rows, "decode attention", "cache") == 12 * (1000 + 128) * width
