"""Attention and MLP side by side."""

from dataclasses import replace

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.architecture.block import block_layers
from calculon.architecture.layer import COLUMN_INPUT, ROW_OUTPUT
from calculon.architecture.parameters import module_count, parameter_count
from calculon.declarations import catalog
from calculon.editions import CORRECTED
from tests.architecture.layers_by_name import SMALL, B, T, layers_of, shape_of
from tests.draws import some
from tests.helpers import PLAIN, block_choice

MODEL = replace(SMALL, kv_heads=2, norms=1, parallel_attention=True)
S, H, F, A, D = 20.0, 48.0, 120.0, 4.0, 10.0
M, GROUPS = B * S, np.array([2.0, 1.0, 1.0])
CORE = ["Multihead_Key_Query", "Multihead_SoftMax", "Multihead_DropOut", "Multihead_Attn"]
HALVES = [*(f"AttnBlock_{name}" for name in CORE), "MlpBlock_GeLU"]
EXECUTION = PLAIN | {"edition": "corrected"}


def test_both_halves_read_one_input_and_write_one_output():
    entry, leave = ["Block_Fork", "Block_LayerNorm"], ["Block_DropOut", "Block_Residual"]
    plain = ["Block_F", "Block_In", *HALVES, "Block_Out", "Block_G"]
    assert list(layers_of(MODEL)) == [*entry, *plain, *leave]
    overlapped = ["Block_In_AG", *HALVES, "Block_Out_RS"]
    assert list(layers_of(MODEL, tensor_par_overlap="ring")) == [*entry, *overlapped, *leave]


def test_two_norms_read_the_same_input():
    first = list(block_layers(shape_of(replace(MODEL, norms=2))))[:3]
    assert [one.name for one in first] == ["Block_Fork", "Block_LayerNorm", "Block_LayerNorm"]
    np.testing.assert_array_equal(first[0].flops[1], 3 * M * H)  # and the residual connection


@pytest.mark.parametrize("overlap", ["none", "ring"])
@pytest.mark.parametrize("comm_type", ["ar", "p2p_rs_ag", "rs_ag"])
def test_one_gather_and_one_reduction_and_both_are_next_to_a_transfer(overlap, comm_type):
    changes = {"tensor_par_overlap": overlap, "tensor_par_comm_type": comm_type}
    layers = layers_of(MODEL, **changes).values()
    collectives = [layer.collective for layer in layers if layer.collective is not None]
    assert [one.operations for one in collectives] == [COLUMN_INPUT.whole, ROW_OUTPUT.whole]
    assert all(collective.outer for collective in collectives)
    for collective in collectives:
        np.testing.assert_array_equal(collective.message[1:], 2 * M[1:] * H)


@pytest.mark.parametrize(("activation", "products"), [("gelu", 1), ("swiglu", 2)])
def test_its_products_are_those_of_both_halves_in_one(activation, products):
    layers = layers_of(replace(MODEL, activation=activation))
    inner = A * D / T + 2 * GROUPS * D + products * F / T
    np.testing.assert_array_equal(layers["Block_In"].weights, H * inner)
    np.testing.assert_array_equal(layers["Block_Out"].weights, (A * D + F) / T * H)


@pytest.mark.parametrize("recompute", ["none", "attn_only"])
def test_its_input_is_gathered_again_or_stored(recompute):
    changes = {"tensor_par_comm_type": "rs_ag", "activation_recompute": recompute}
    layers, chosen = layers_of(MODEL, **changes), block_choice(**changes, edition="corrected")
    again = recompute == "attn_only"
    flags = layers["Block_F"].flags, layers["Block_In"].flags
    assert CORRECTED.happens(flags[0].recommunicate, chosen) == again
    assert CORRECTED.happens(flags[0].drops_activation, chosen) != again
    assert CORRECTED.happens(flags[1].drops_activation, chosen) == again


def test_the_layers_of_models_hold_their_parameters():
    models = {name: inputs.model(name) for name in catalog.names("model")}
    for name in some((name for name, model in models.items() if model.extensions), 12):
        stats = calculon.estimate(models[name], EXECUTION, "a100_80e").stats
        held = parameter_count(models[name]) + module_count(models[name])
        assert stats["weight_space"] == pytest.approx(2 * held, rel=1e-12), name
