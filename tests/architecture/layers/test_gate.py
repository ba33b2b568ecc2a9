from dataclasses import replace

import numpy as np
import pytest

from calculon import inputs
from calculon.architecture.block import block_layers
from calculon.architecture.layers import Flags, gate
from calculon.architecture.model_flops import model_flops_per_token
from calculon.architecture.parameters import parameter_count
from calculon.architecture.shape import BlockShape
from calculon.editions import CORRECTED
from calculon.errors import SpecError
from calculon.spec.model import Model
from tests.helpers import layout_choice, sizes

E = np.array([30.0, 60.0])
MODEL = Model(
    hidden=64,
    feedforward=96,
    seq_size=16,
    attn_heads=8,
    attn_size=4,
    num_blocks=3,
    kv_heads=2,
    norm="rmsnorm",
    qk_norm="head",
    rotary=0.25,
    vocab=100,
)
GATED = replace(MODEL, attention_gate=True)
WIDTH = MODEL.attn_heads * MODEL.attn_size


def _layers(model, tensor_par=1.0, **changes):
    chosen = layout_choice(edition="corrected", attn_impl="flash", fusion="compile", **changes)
    shape = BlockShape.of(
        model,
        chosen,
        sizes(microbatch_size=np.array([1.0]), tensor_par=np.array([tensor_par])),
        CORRECTED,
    )
    return {layer.name: layer for layer in block_layers(shape)}


def test_it_saves_and_reads_both_factors_and_writes_both_gradients():
    layer = gate("x", E, dtype_bytes=2, flags=Flags())
    sigmoid, product = 4, 1  # negation, exponential, sum, quotient
    np.testing.assert_array_equal(layer.flops[0], (sigmoid + product) * E)
    np.testing.assert_array_equal(layer.flops[1], (sigmoid + 1 + 3 * product) * E)
    np.testing.assert_array_equal(layer.accessed[0], 2 * (2 * E + E))
    np.testing.assert_array_equal(layer.accessed[1], 2 * (3 * E + 2 * E))
    np.testing.assert_array_equal(layer.activation, 2 * 2 * E)
    assert layer.engine == "vector"
    assert layer.weights == 0


@pytest.mark.parametrize("tensor_par", [1.0, 2.0])
def test_queries_are_projected_twice_as_wide_and_heads_are_split(tensor_par):
    plain, gated = _layers(MODEL, tensor_par), _layers(GATED, tensor_par)
    own = WIDTH / tensor_par
    more = gated["AttnBlock_QKV"].weights - plain["AttnBlock_QKV"].weights
    assert more == MODEL.hidden * own
    assert gated["AttnBlock_Gate"].outputs == MODEL.seq_size * own
    for name in ("AttnBlock_QK_Norm", "AttnBlock_Rotary", "AttnBlock_Flash", "AttnBlock_MLP"):
        assert gated[name].flops == plain[name].flops
        assert gated[name].activation == plain[name].activation
    assert set(gated) - set(plain) == {"AttnBlock_Gate"}


def test_a_gate_is_h_a_d_more_weights_and_multiplications_of_a_block():
    more = MODEL.num_blocks * MODEL.hidden * WIDTH
    assert parameter_count(GATED) - parameter_count(MODEL) == more
    flops = [float(model_flops_per_token(one, training=True)) for one in (GATED, MODEL)]
    assert flops[0] - flops[1] == 6 * more


def test_attention_of_qwen3_next_has_the_parameters_that_transformers_states():
    """Its softmax blocks: Hugging Face transformers, ``Qwen3NextAttention``; sizes of its config.json."""
    model = Model(
        hidden=2048,
        feedforward=512,
        seq_size=4096,
        attn_heads=16,
        attn_size=256,
        num_blocks=1,
        kv_heads=2,
        qk_norm="head",
        rotary=0.25,
        attention_gate=True,
        part="attention",
    )
    q_proj, kv_proj, o_proj = 2048 * 16 * 256 * 2, 2 * 2048 * 2 * 256, 16 * 256 * 2048
    assert parameter_count(model) == q_proj + kv_proj + o_proj + 2 * 256


def test_latent_attention_has_no_gate():
    with pytest.raises(SpecError, match=r"attention_gate.*false, since kv_lora_rank=512"):
        replace(inputs.model("deepseek-v3"), attention_gate=True)
