"""Parts of a block: attention, MLP, or one linear layer alone."""

from dataclasses import replace

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.architecture.parameters import model_flops_per_token, parameter_count
from calculon.base.errors import SpecError
from tests.architecture.layers_by_name import SMALL, B, T, layers_of
from tests.helpers import LLAMA_X64

MODEL = replace(SMALL, activation="swiglu", norm="rmsnorm", mlp_bias=True, out_bias=True)
LINEAR = replace(MODEL, feedforward=48, activation="gelu", part="linear")
RESIDUAL = ("Fork", "RMSNorm", "DropOut", "Residual")
EXECUTION = LLAMA_X64 | {
    "num_procs": 8,
    "tensor_par": 4,
    "data_par": 1,
    "batch_size": 4,
    "optimizer_sharding": False,
    "data_par_overlap": False,
    "tensor_par_overlap": "none",
    "tensor_par_comm_type": "ar",
    "pipeline_par": 2,
}


@pytest.mark.parametrize("overlap", ["none", "ring"])
def test_a_block_is_its_parts_and_the_residual_region(overlap):
    whole = layers_of(MODEL, tensor_par_overlap=overlap)
    parts = [layers_of(MODEL.only(p), tensor_par_overlap=overlap) for p in ("attention", "mlp")]
    names = [name for part in parts for name in part]
    assert names == [name for name in whole if name.partition("_")[2] not in RESIDUAL]
    for part in parts:
        for name, layer in part.items():
            for found, wanted in zip(
                layer.flops + layer.accessed, whole[name].flops + whole[name].accessed, strict=True
            ):
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("training", [False, True])
def test_model_flops_of_a_block_are_those_of_its_parts(training):
    whole, attention, mlp, linear = (
        model_flops_per_token(model, training=training)
        for model in (MODEL, MODEL.only("attention"), MODEL.only("mlp"), LINEAR)
    )
    assert whole == attention + mlp
    assert linear == (3 if training else 1) * 3 * 2 * 48**2


def test_a_linear_layer_gathers_its_output_and_reduces_the_gradient_of_its_input():
    layers = layers_of(LINEAR)
    assert list(layers) == ["Linear_F", "Linear_Product", "Linear_GeLU", "Linear_Gather"]
    tokens = B * 20
    np.testing.assert_array_equal(layers["Linear_Product"].flops[0], 2 * tokens * 48 * (48 / T))
    for name in ("Linear_F", "Linear_Gather"):
        message = np.where(T > 1, 2 * tokens * 48, 0.0)
        np.testing.assert_array_equal(layers[name].collective.message, message)
    result = calculon.estimate(replace(LINEAR, num_blocks=4), EXECUTION, "a100_80g_sxm")
    message = 2 * 2 * 20 * 48
    stats = result.stats
    assert stats["baseblock_fw_tp_size"] == message  # gathered
    assert stats["baseblock_bw_tp_size"] == message  # all-reduced
    assert stats["baseblock_fw_tp_time"] < stats["baseblock_agrad_tp_time"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"part": "linear"}, "feedforward"),
        ({"part": "linear", "feedforward": 48}, "activation"),
        ({"part": "mlp", "vocab": 1000}, "vocab"),
        ({"part": "norm"}, "part"),
    ],
)
def test_a_part_that_does_not_exist_is_refused(changes, field):
    with pytest.raises(SpecError) as error:
        replace(MODEL, **changes)
    assert error.value.problems[0].field == field


def test_a_part_of_a_model_of_the_catalog_has_no_ends():
    llama = inputs.model("llama3-8B")
    assert llama.only("mlp").vocab == 0
    assert parameter_count(llama.only("mlp")) == 32 * 3 * 4096 * 14336
    assert llama.only("block") == llama
