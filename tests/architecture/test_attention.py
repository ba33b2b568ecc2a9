"""What attention consists of in today's architectures."""

from dataclasses import replace

import numpy as np
import pytest

from calculon.architecture.attention import attention_layers, mean_keys
from calculon.declarations.model import Model
from tests.architecture.layers_by_name import B, T, layers_of

MODEL = Model(
    hidden=48, feedforward=120, seq_size=20, attn_heads=8, attn_size=10, num_blocks=6, kv_heads=2
)
S, H, A, G, D = 20.0, 48.0, 8.0, 2.0, 10.0
M = B * S
GROUPS = np.array([2.0, 1.0, 1.0])  # on one rank: two ranks share one in the last column


def _attention(model=MODEL, **changes):
    return layers_of(model, attention_layers, prefix="AttnBlock_", **changes)


def _mask(model):
    """Return which keys each query of a windowed block attends to, counted one by one."""
    query, key = np.ogrid[: model.seq_size, : model.seq_size]
    seen = (key <= query) if model.causal else np.ones((model.seq_size,) * 2, bool)
    if model.sliding_window and model.causal:
        seen &= key > query - model.sliding_window
    return seen


def _mean_keys(model):
    (keys,) = mean_keys(model, np.array([float(model.seq_size)]))
    return keys


def test_mean_keys_are_what_the_causal_mask_lets_through():
    for length in [1, 2, 7, 64]:
        for window in [0, 1, 2, 6, 7, 8, 100]:
            model = replace(MODEL, seq_size=length, sliding_window=window)
            expected = _mask(model).sum(axis=1).mean()
            assert _mean_keys(model) == pytest.approx(expected, rel=1e-14), (length, window)


@pytest.mark.parametrize(("window", "keys"), [(0, 20), (6, 6), (20, 20), (99, 20)])
def test_without_a_mask_a_query_has_all_keys_of_its_window(window, keys):
    model = replace(MODEL, causal=False, sliding_window=window)
    assert _mean_keys(model) == keys


def test_some_blocks_attend_to_the_whole_sequence():
    for every, full in [(0, 0), (1, 6), (2, 3), (4, 1), (6, 1), (7, 0)]:
        model = replace(MODEL, sliding_window=4, full_attention_every=every)
        window = _mask(replace(model, full_attention_every=0)).sum(axis=1).mean()
        whole = (20 + 1) / 2
        expected = (full * whole + (6 - full) * window) / 6
        assert _mean_keys(model) == pytest.approx(expected, rel=1e-14), (every, full)


def test_grouped_projections_have_whole_heads_and_ranks_may_share_one():
    layers = _attention()
    for name in ("Key", "Value"):
        np.testing.assert_array_equal(layers[name].weights, H * GROUPS * D)
    np.testing.assert_array_equal(layers["Query"].weights, H * A * D / T)
    joint = _attention(tensor_par_overlap="ring")["QKV_AG"]
    np.testing.assert_array_equal(joint.weights, H * (A * D / T + 2 * GROUPS * D))


def test_the_products_read_the_heads_of_the_groups():
    layers = _attention()
    keys = B * GROUPS * S * D
    np.testing.assert_array_equal(layers["Multihead_Key_Query"].inputs, B * A / T * S * D + keys)
    np.testing.assert_array_equal(layers["Multihead_Attn"].inputs, B * A / T * S * S + keys)
    for name in ("Multihead_Key_Query", "Multihead_Attn"):
        np.testing.assert_array_equal(layers[name].flops[0], 2 * B * A / T * S * S * D)


def test_flash_replaces_the_core():
    eager, flash = _attention(), _attention(attn_impl="flash")
    core = ["Multihead_Key_Query", "Multihead_SoftMax", "Multihead_DropOut", "Multihead_Attn"]
    assert [name for name in eager if name not in core] == [n for n in flash if n != "Flash"]
    assert list(flash).index("Flash") == list(eager).index(core[0])
    layer = flash["Flash"]
    np.testing.assert_array_equal(layer.keys, (20 + 1) / 2)
    np.testing.assert_array_equal(layer.flops[0], 4 * M * (20 + 1) / 2 * A / T * D)
    np.testing.assert_array_equal(layer.outputs, M * A / T * D)
    np.testing.assert_array_equal(layer.inputs, M * (A / T + 2 * GROUPS) * D)


def test_eager_attention_computes_what_the_mask_hides():
    masked, full = (_attention(replace(MODEL, causal=causal)) for causal in (True, False))
    for name, layer in masked.items():
        np.testing.assert_array_equal(layer.flops[0], full[name].flops[0])


def test_without_dropout_the_probabilities_are_stored_once():
    with_it, without = _attention(), _attention(replace(MODEL, dropout=False))
    assert set(with_it) - set(without) == {"Multihead_DropOut", "DropOut"}
    scores = B * A / T * S * S
    softmax, values = without["Multihead_SoftMax"], without["Multihead_Attn"]
    np.testing.assert_array_equal(softmax.activation, 2 * scores)
    assert softmax.flags.shares_activation  # the next product saves them as its operand
    np.testing.assert_array_equal(values.activation, 2 * values.inputs)


@pytest.mark.parametrize(
    ("kind", "gain"), [("head", 2 * D), ("full", (A + G) * D)], ids=["head", "full"]
)
@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
def test_queries_and_keys_are_normalized_with_a_gain(kind, gain, norm):
    layers = _attention(replace(MODEL, qk_norm=kind, norm=norm))
    layer = layers["QK_Norm"]
    np.testing.assert_array_equal(layer.inputs, M * (A / T + GROUPS) * D)
    assert layer.weights == gain
    assert "QK_Norm" not in _attention()


def test_a_gate_is_projected_beside_queries_and_scales_the_heads():
    changes = {"attn_impl": "flash", "fusion": "compile"}
    plain, gated = (
        _attention(replace(MODEL, attention_gate=each), **changes) for each in (False, True)
    )
    assert set(gated) - set(plain) == {"Gate"}
    np.testing.assert_array_equal(gated["QKV"].weights - plain["QKV"].weights, H * A * D / T)
    np.testing.assert_array_equal(gated["Gate"].outputs, M * A / T * D)
    for name in ("Flash", "MLP"):
        np.testing.assert_array_equal(gated[name].flops[0], plain[name].flops[0])


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_a_share_of_queries_and_keys_is_turned(share):
    layer = _attention(replace(MODEL, rotary=share))["Rotary"]
    np.testing.assert_array_equal(layer.inputs, share * M * (A / T + GROUPS) * D)
    assert "Rotary" not in _attention()


def test_biases_are_as_wide_as_their_products():
    plain, biased = _attention(), _attention(replace(MODEL, qkv_bias=True, out_bias=True))
    widths = {"Query": A * D / T, "Key": GROUPS * D, "Value": GROUPS * D, "MLP": H + 0 * T}
    for name, layer in biased.items():
        more = np.broadcast_to(layer.weights - plain[name].weights, 3)
        np.testing.assert_array_equal(more, np.broadcast_to(widths.get(name, 0), 3))
        np.testing.assert_array_equal(layer.flops[0], plain[name].flops[0])


def test_four_norms_end_each_half_with_one():
    layers = list(_attention(replace(MODEL, norms=4, norm="rmsnorm")))
    assert layers[:2] == ["Fork", "RMSNorm"]
    assert layers[-3:] == ["Post_RMSNorm", "DropOut", "Residual"]
