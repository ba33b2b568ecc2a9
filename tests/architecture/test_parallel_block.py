"""Attention and MLP side by side."""

from dataclasses import replace

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.architecture.block import block_layers
from calculon.architecture.layer import COLUMN_INPUT, ROW_OUTPUT
from calculon.architecture.parameters import module_count, parameter_count
from calculon.architecture.shape import BlockShape
from calculon.editions import CORRECTED
from calculon.spec import catalog
from calculon.spec.model import Model
from tests.architecture.parameters_by_hand import block_parameters, blocks_parameters
from tests.draws import some
from tests.helpers import PLAIN, block_choice, layout_choice, sizes

MODEL = Model(
    hidden=48,
    feedforward=120,
    seq_size=20,
    attn_heads=4,
    attn_size=10,
    num_blocks=3,
    kv_heads=2,
    norms=1,
    parallel_attention=True,
)
S, H, F, A, D = 20.0, 48.0, 120.0, 4.0, 10.0
T, B = np.array([1.0, 2.0, 4.0]), np.array([3.0, 1.0, 2.0])
M, GROUPS = B * S, np.array([2.0, 1.0, 1.0])
CORE = ["Multihead_Key_Query", "Multihead_SoftMax", "Multihead_DropOut", "Multihead_Attn"]
HALVES = [*(f"AttnBlock_{name}" for name in CORE), "MlpBlock_GeLU"]
EXECUTION = PLAIN | {"edition": "corrected"}


def _block(model=MODEL, **changes):
    columns = sizes(tensor_par=T, microbatch_size=B)
    shape = BlockShape.of(model, layout_choice(edition="corrected", **changes), columns, CORRECTED)
    return list(block_layers(shape))


def _names(*args, **changes):
    return [layer.name for layer in _block(*args, **changes)]


def test_both_halves_read_one_input_and_write_one_output():
    entry, leave = ["Block_Fork", "Block_LayerNorm"], ["Block_DropOut", "Block_Residual"]
    plain = ["Block_F", "Block_In", *HALVES, "Block_Out", "Block_G"]
    assert _names() == [*entry, *plain, *leave]
    overlapped = ["Block_In_AG", *HALVES, "Block_Out_RS"]
    assert _names(tensor_par_overlap="ring") == [*entry, *overlapped, *leave]


def test_two_norms_read_the_same_input():
    names = _names(replace(MODEL, norms=2))
    assert names[:3] == ["Block_Fork", "Block_LayerNorm", "Block_LayerNorm"]
    fork = _block(replace(MODEL, norms=2))[0]
    np.testing.assert_array_equal(fork.flops[1], 3 * M * H)  # and the residual connection


@pytest.mark.parametrize("overlap", ["none", "ring"])
@pytest.mark.parametrize("comm_type", ["ar", "p2p_rs_ag", "rs_ag"])
def test_one_gather_and_one_reduction_and_both_are_next_to_a_transfer(overlap, comm_type):
    layers = _block(tensor_par_overlap=overlap, tensor_par_comm_type=comm_type)
    collectives = [layer.collective for layer in layers if layer.collective is not None]
    assert [one.operations for one in collectives] == [COLUMN_INPUT.whole, ROW_OUTPUT.whole]
    assert all(collective.outer for collective in collectives)
    for collective in collectives:
        np.testing.assert_array_equal(collective.message[1:], 2 * M[1:] * H)


@pytest.mark.parametrize(("activation", "products"), [("gelu", 1), ("swiglu", 2)])
def test_its_products_are_those_of_both_halves_in_one(activation, products):
    layers = {layer.name: layer for layer in _block(replace(MODEL, activation=activation))}
    inner = A * D / T + 2 * GROUPS * D + products * F / T
    np.testing.assert_array_equal(layers["Block_In"].weights, H * inner)
    np.testing.assert_array_equal(layers["Block_Out"].weights, (A * D + F) / T * H)


@pytest.mark.parametrize("overlap", ["none", "ring"])
def test_it_has_the_products_of_a_block_in_sequence(overlap):
    side_by_side, sequence = (
        sum(
            np.broadcast_to(layer.flops[0], 3)
            for layer in _block(
                replace(MODEL, parallel_attention=each, norms=2), tensor_par_overlap=overlap
            )
            if layer.engine == "matrix"
        )
        for each in (True, False)
    )
    np.testing.assert_array_equal(side_by_side, sequence)


@pytest.mark.parametrize("recompute", ["none", "attn_only"])
def test_its_input_is_gathered_again_or_stored(recompute):
    layers = {
        layer.name: layer
        for layer in _block(tensor_par_comm_type="rs_ag", activation_recompute=recompute)
    }
    chosen = _chosen(recompute)
    again = recompute == "attn_only"
    flags = layers["Block_F"].flags, layers["Block_In"].flags
    assert CORRECTED.happens(flags[0].recommunicate, chosen) == again
    assert CORRECTED.happens(flags[0].drops_activation, chosen) != again
    assert CORRECTED.happens(flags[1].drops_activation, chosen) == again


def _chosen(recompute):
    changes = {"tensor_par_comm_type": "rs_ag", "activation_recompute": recompute}
    return block_choice(**changes, edition="corrected")


# -- every model of the catalog, in sequence and side by side ----------------------------------------------------------


def test_the_layers_of_models_hold_their_parameters():
    models = {name: inputs.model(name) for name in catalog.names("model")}
    for name in some((name for name, model in models.items() if model.extensions), 40):
        model = models[name]
        stats = calculon.estimate(model, EXECUTION, "a100_80e").stats
        mean = blocks_parameters(model) / model.num_blocks  # where some have no experts
        assert stats["block_weight_space"] == pytest.approx(2 * mean, rel=1e-12), name
        held = parameter_count(model) + module_count(model)
        assert stats["weight_space"] == pytest.approx(2 * held, rel=1e-12), name


def test_the_layers_of_a_block_hold_its_parameters():
    for changes in [
        {"qk_norm": "head", "norm": "layernorm"},
        {"qk_norm": "full", "norm": "layernorm_plain"},
        {"norms": 4, "norm": "layernorm_no_bias"},
        {"activation": "geglu", "mlp_bias": True, "qkv_bias": True, "out_bias": True},
        {"parallel_attention": True, "norms": 2},
        {"parallel_attention": True, "qkv_bias": True},
        {"parallel_attention": True, "mlp_bias": True},
    ]:
        model = replace(MODEL, **{"norms": 2, "parallel_attention": False} | changes)
        stats = calculon.estimate(model, EXECUTION, "a100_80e").stats
        assert stats["block_weight_space"] == 2 * block_parameters(model), changes
