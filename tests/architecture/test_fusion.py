"""What fusion leaves of traffic and launches: bytes per element of every region."""

from dataclasses import replace

import numpy as np
import pytest

from calculon import inputs
from calculon.architecture.block import block_layers
from calculon.architecture.segments import head_layers
from calculon.architecture.shape import BlockShape
from calculon.cost.embedding_head import plain_layout
from calculon.declarations.model import Model
from calculon.editions import CORRECTED
from calculon.editions.edition import When
from tests.architecture.layers_by_name import layers_of
from tests.helpers import layout_choice, sizes

PLAIN = Model(hidden=64, feedforward=256, seq_size=16, attn_heads=4, attn_size=16, num_blocks=2)
MODEL = replace(PLAIN, vocab=1000, mlp_bias=True)
GATED = replace(PLAIN, activation="swiglu", norm="rmsnorm", rotary=1.0, dropout=False)
B, S, H, F, A, V = 3.0, 16.0, 64.0, 256.0, 4.0, 1000.0
T = B * S
SIZES = sizes(microbatch_size=np.array([B]))
POLICIES = ("none", "compile", "max")


def _layers(model, fusion, layers=block_layers, **changes):
    return layers_of(model, layers, SIZES, fusion=fusion, **changes)


def _moved(layer):
    """Bytes forward and backward."""
    forward, inputs, weights = (float(np.sum(one)) for one in layer.accessed)
    return forward, inputs + weights


#: bytes per element forward and backward in 2-byte tensors, by policy
REGIONS = {
    "GeLU": (MODEL, "MlpBlock_GeLU", T * F, {"none": (4, 6), "compile": (4, 6), "max": (0, 2)}),
    "gate": (
        GATED,
        "MlpBlock_SwiGLU",
        T * F,
        {"none": (10, 12 + 6), "compile": (6, 10), "max": (2, 8)},
    ),
    "gate of attention": (
        replace(GATED, attention_gate=True),
        "AttnBlock_Gate",
        T * H,  # reads two and writes one; reads three and writes two
        {"none": (10, 12 + 6), "compile": (6, 10), "max": (6, 10)},
    ),
    "rotary": (
        GATED,
        "AttnBlock_Rotary",
        2 * T * H,
        {"none": (20, 30), "compile": (4, 4), "max": (0, 0)},
    ),
    "scores": (
        MODEL,
        "AttnBlock_Multihead_SoftMax",
        B * A * S * S,
        {
            "none": (2 * 4 + 6 + 8 + 6, 6 + 12 + 6 + 2 * 4),
            "compile": (8, 6),
            "max": (8, 6),
        },
    ),
    "sum": (MODEL, "MlpBlock_Residual", T * H, {"none": (6, 0), "compile": (6, 0), "max": (6, 0)}),
    "norm": (
        MODEL,
        "MlpBlock_LayerNorm",
        T * H,
        {"none": (6, 14), "compile": (2, 8 + 4), "max": (2, 8 + 4)},
    ),
    "RMSNorm": (
        GATED,
        "MlpBlock_RMSNorm",
        T * H,  # both conversions; square, mean, product; gain
        {"none": (12 + 20 + 4, 12 + 12 + 68), "compile": (2, 8 + 4), "max": (2, 8 + 4)},
    ),
    "fork": (MODEL, "MlpBlock_Fork", T * H, {"none": (0, 6), "compile": (0, 0), "max": (0, 0)}),
    "dropout": (
        MODEL,
        "MlpBlock_DropOut",
        T * H,
        {"none": (5, 5), "compile": (1, 5), "max": (1, 5)},
    ),
}


@pytest.mark.parametrize("region", REGIONS)
def test_bytes_per_element_of_a_region(region):
    model, name, elements, expected = REGIONS[region]
    for policy in POLICIES:
        layer = _layers(model, policy)[name]
        weights = float(np.sum(layer.weight_bytes))
        forward, backward = _moved(layer)
        assert forward == expected[policy][0] * elements + weights, policy
        assert backward == expected[policy][1] * elements + weights, policy


@pytest.mark.parametrize(("policy", "held"), [("none", 4), ("compile", 2), ("max", 2)])
def test_rmsnorm_operator_by_operator_keeps_its_input_in_4_bytes(policy, held):
    """Until norms are computed again; the buffer of 2 bytes is that of the stream otherwise."""
    layer = _layers(GATED, policy)["MlpBlock_RMSNorm"]
    assert np.sum(layer.activation) == held * T * H
    assert layer.flags.shares_activation == (held == 2)
    assert layer.flags.drops_activation == (When.ALWAYS if held == 2 else When.RECOMPUTE_NORM)


def test_the_norm_of_the_head_keeps_what_the_gain_multiplies_too():
    layer = _layers(replace(GATED, vocab=1000), "none", head_layers)["Head_RMSNorm"]
    assert np.sum(layer.activation) == (4 + 2) * T * H


def test_rmsnorm_of_4_bytes_has_no_copy():
    layer = _layers(GATED, "none", datatype="float32")["MlpBlock_RMSNorm"]
    assert np.sum(layer.activation) == 4 * T * H
    assert layer.flags.shares_activation


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("none", (6 + 16, 20 + 6)), ("compile", (4, 4)), ("max", (4, 4))],
)
def test_bytes_per_logit_of_the_loss(policy, expected):
    layer = _layers(MODEL, policy, head_layers)["Head_Loss"]
    assert _moved(layer) == tuple(each * T * V for each in expected)
    held = {"none": (2 + 4 + 4, 4), "compile": (2, 2), "max": (2, 2)}[policy]
    assert (np.sum(layer.activation), np.sum(layer.activation_grad)) == tuple(
        each * T * V for each in held
    )


@pytest.mark.parametrize("policy", ["published", *POLICIES])
@pytest.mark.parametrize(("model", "inputs"), [(MODEL, 1), (GATED, 2)], ids=["plain", "gated"])
def test_a_fused_activation_is_computed_again(policy, model, inputs):
    """[A60] Its inputs are read, and its output written, once more."""
    name = "MlpBlock_SwiGLU" if inputs == 2 else "MlpBlock_GeLU"
    kept = _layers(model, policy)[name]
    fused = _layers(model, policy, fused_activation=True)[name]
    forward, backward = _moved(kept)
    assert _moved(fused) == (forward, backward + 2 * (inputs + 1) * T * F)
    first, second, third = kept.launches or (1, 1, 0)
    assert fused.launches == (first, second + 1, third)
    assert np.sum(kept.activation - fused.activation) == 2 * T * F


def test_float32_needs_no_conversion():
    layers = _layers(MODEL, "none", datatype="float32")
    assert _moved(layers["AttnBlock_Multihead_SoftMax"])[0] == (8 + 8 + 8) * B * A * S * S
    assert not any(name.endswith("Cast") for name in layers)


def test_without_fusion_the_gradient_of_a_bias_is_a_sum_of_its_own():
    bias = _layers(MODEL, "none")["MlpBlock_Mlp1_Bias"]
    assert _moved(bias) == (0, 2 * T * F)
    assert "MlpBlock_Mlp1_Bias" not in _layers(MODEL, "compile")
    assert "AttnBlock_QKV_Bias" not in _layers(MODEL, "none")  # which has no bias


@pytest.mark.parametrize("policy", POLICIES)
def test_fusion_changes_neither_arithmetic_nor_what_is_stored(policy):
    """Apart from query, key and value, which are one product: their input is stored once; and RMSNorm in 4 bytes."""
    plain, fused = _layers(GATED, "published"), _layers(GATED, policy)
    for name in set(plain) & set(fused):
        members = ["flops", "activation_grad", "weight_bytes"]
        if policy != "none" or not name.endswith("RMSNorm"):
            members += ["activation", "flags"]
        for member in members:
            np.testing.assert_equal(getattr(fused[name], member), getattr(plain[name], member))
    assert fused["AttnBlock_QKV"].weights == sum(
        plain[f"AttnBlock_{part}"].weights for part in ("Query", "Key", "Value")
    )


# -- programs of their own --------------------------------------------------------------------------------------------


def test_the_first_norm_of_a_compiled_block_reads_the_stream():
    """The sum before it is in the block before; that between attention and MLP is in the same program."""
    whole, alone = (_layers(GATED, "compile", compile_scope=scope) for scope in ("step", "blocks"))
    first, second = "AttnBlock_RMSNorm", "MlpBlock_RMSNorm"
    assert _moved(alone[first])[0] == _moved(whole[first])[0] + 2 * T * H
    assert alone[first].launches == (1, 2, 0)
    assert _moved(alone[first])[1] == _moved(whole[first])[1]
    assert _moved(alone[second]) == _moved(whole[second])


@pytest.mark.parametrize(("scope", "like"), [("blocks", "none"), ("blocks_and_loss", "compile")])
def test_the_loss_is_compiled_where_that_is_said(scope, like):
    """Source: torchtitan, train.py of December 2024 and components/loss.py of 2025."""
    changes = {"edition": "corrected", "fusion": "compile", "compile_scope": scope}
    shape = BlockShape.of(
        MODEL,
        plain_layout(layout_choice(**changes), inputs.system("h100_80g_sxm")),
        SIZES,
        CORRECTED,
    )
    found = {layer.name: layer for layer in head_layers(shape)}
    loss = _layers(MODEL, like, head_layers)["Head_Loss"]
    assert _moved(found["Head_Loss"]) == _moved(loss)
    assert float(np.sum(found["Head_Loss"].activation)) == float(np.sum(loss.activation))
    norm = _layers(MODEL, "none", head_layers)["Head_LayerNorm"]
    assert _moved(found["Head_LayerNorm"]) == _moved(norm)


def test_complex_rotary_embeddings_are_widened_multiplied_and_narrowed():
    for policy in POLICIES:
        for datatype, moved in [("bfloat16", 6 + 8 + 6), ("float32", 8)]:
            found = _layers(GATED, policy, rotary_impl="complex", datatype=datatype)[
                "AttnBlock_Rotary"
            ]
            assert _moved(found) == (moved * 2 * T * H, moved * 2 * T * H), (policy, datatype)
