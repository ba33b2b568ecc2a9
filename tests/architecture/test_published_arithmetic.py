"""Arithmetic of models with experts that others have published: FLOP of a token, saved bytes, expert latents."""

from dataclasses import replace

import pytest

from calculon import inputs
from calculon.architecture.model_flops import model_flops_per_token
from calculon.architecture.parameters import active_count, parameter_count
from calculon.spec.model import Model


@pytest.mark.parametrize(
    ("name", "seq_length", "gigaflop", "tolerance"),
    [
        ("deepseek-v3", 4096, 249.81, 0.006),  # and 259.99 with its module: tests of further tokens
        ("qwen3-235B-a22B", 4096, 148.03, 0.006),  # xtuner prints 148.05
        ("qwen3-30B-a3B", 4096, 23.006, 0.0006),
        ("llama4-maverick", 8192, 108.9, 0.06),
    ],
)
def test_model_flop_of_a_token(name, seq_length, gigaflop, tolerance):
    """Half of the keys of a sequence each, as Megatron-LM counts, and no window."""
    plain = {"sliding_window": 0, "full_attention_every": 0, "chunked_window": False}
    model = replace(inputs.model(name), mtp_layers=0, **plain)
    found = float(model_flops_per_token(model, training=True, causal=True, seq_length=seq_length))
    one = replace(model, seq_size=seq_length)
    keys = float(model_flops_per_token(one, training=True)) - found
    diagonal = keys / (seq_length - 1)  # (s + 1) / 2 keys are counted, and not s / 2
    assert (found - diagonal) / 1e9 == pytest.approx(gigaflop, abs=tolerance)


def _with_latents(hidden, width, experts, inner, shared, latent):
    """One block with experts of Nemotron 3, attention and norms apart."""
    return Model(
        hidden=hidden,
        feedforward=inner,
        seq_size=4096,
        attn_heads=32,
        attn_size=width,
        num_blocks=1,
        kv_heads=2,
        activation="squared_relu",
        num_experts=experts,
        experts_per_token=22,
        expert_feedforward=inner,
        shared_feedforward=shared,
        router_bias=True,
        moe_latent=latent,
        part="mlp",
    )


@pytest.mark.parametrize(
    ("hidden", "inner", "shared", "latent"),
    [(4096, 2688, 5376, 1024), (8192, 5120, 10240, 2048)],
    ids=["nemotron-3-super", "nemotron-3-ultra"],
)
def test_routed_experts_of_a_latent_are_as_narrow_as_it(hidden, inner, shared, latent):
    """E (2 l f) + 2 h l + 2 h f_s + E (h + 1) weights, k of E experts active: shapes of both config.json."""
    model = _with_latents(hidden, 128, 512, inner, shared, latent)
    each = 2 * latent * inner
    rest = 2 * hidden * latent + 2 * hidden * shared + 512 * (hidden + 1)
    assert parameter_count(model) == 512 * each + rest
    assert active_count(model) == 22 * each + rest
    products = 22 * each + 2 * hidden * latent + 2 * hidden * shared
    assert float(model_flops_per_token(model, training=True)) == 6 * products
