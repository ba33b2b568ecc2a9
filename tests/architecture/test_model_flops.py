from dataclasses import replace

import numpy as np
import pytest

from calculon import inputs
from calculon.architecture.attention import mean_keys
from calculon.architecture.parameters import model_flops_per_token, parameter_count
from tests.architecture.parameters_by_hand import norm_parameters

LLAMA = inputs.model("llama3-8B")
CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])


def _products(model):
    """Parameters that a token meets in a product: neither the embedding nor norms."""
    norms = (model.num_blocks * model.norms + 1) * norm_parameters(model)
    return parameter_count(model) - model.vocab * model.hidden - norms


@CAUSAL
def test_six_flop_per_parameter_and_twelve_per_block_head_and_key(causal):
    """Source: Chowdhery et al., arXiv 2204.02311, appendix B."""
    model, keys = LLAMA, (8192 + 1) / 2 if causal else 8192
    attention = 12 * model.num_blocks * model.attn_heads * model.attn_size * keys
    found = model_flops_per_token(model, training=True, causal=causal)
    assert found == 6 * _products(model) + attention


@CAUSAL
def test_inference_is_a_third(causal):
    training, inference = (
        model_flops_per_token(LLAMA, training=training, causal=causal) for training in (True, False)
    )
    assert training == 3 * inference


def test_a_tied_head_counts_and_positions_norms_and_biases_do_not():
    plain = model_flops_per_token(LLAMA, training=True)
    for changes in (
        {"tied": True},
        {"positions": 100, "embedding_norm": True},
        {"norm": "layernorm", "qkv_bias": True, "mlp_bias": True, "head_bias": True},
    ):
        assert model_flops_per_token(replace(LLAMA, **changes), training=True) == plain
    headless = model_flops_per_token(replace(LLAMA, vocab=0), training=True)
    assert plain - headless == 6 * LLAMA.hidden * LLAMA.vocab


def test_windows_and_the_mask_count_in_the_causal_figure_only():
    window = replace(LLAMA, sliding_window=1024)
    full, causal = (
        model_flops_per_token(window, training=True, causal=causal) for causal in (False, True)
    )
    assert full == model_flops_per_token(LLAMA, training=True)
    keys = LLAMA.seq_size - mean_keys(window, np.array(float(LLAMA.seq_size)))
    assert full - causal == 12 * LLAMA.num_blocks * LLAMA.attn_heads * LLAMA.attn_size * keys
