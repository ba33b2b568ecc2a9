"""Modules that predict further tokens: parameters, arithmetic, and the layers that join their inputs."""

from dataclasses import replace

import numpy as np
import pytest

from calculon import inputs
from calculon.architecture.parameters import model_flops_per_token, module_count
from calculon.architecture.segments import (
    HEAD,
    joining_layers,
    kinds_of_block,
    module_totals,
    totals,
)
from calculon.base.errors import SpecError
from calculon.plan.stage_layout import head_blocks, module_blocks
from tests.architecture.layers_by_name import SMALL, B, T, layers_of
from tests.architecture.parameters_by_hand import block_parameters

DEEPSEEK = replace(inputs.model("deepseek-v3"), mtp_layers=1)
LLAMA = replace(inputs.model("llama3-8B"), mtp_layers=1)
H, V, S = LLAMA.hidden, LLAMA.vocab, LLAMA.seq_size


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mtp_layers": 3, "head_bias": True},
        {"tied": True, "positions": 10, "embedding_norm": True, "norm": "layernorm"},
    ],
)
def test_a_module_has_a_block_a_product_and_three_norms(changes):
    model = replace(LLAMA, **changes)
    norm = {"rmsnorm": 1, "layernorm": 2}[model.norm] * H
    each = block_parameters(model) + 2 * H**2 + 3 * norm
    assert module_count(model) == model.mtp_layers * each


def test_the_block_is_of_the_kind_of_the_last_one():
    model = replace(DEEPSEEK, num_blocks=5, first_k_dense=0, moe_layer_freq=2)
    dense, _ = (totals(model, kind) for kind in kinds_of_block(model))
    norm = replace(model, mtp_layers=0).hidden
    assert module_count(model) == dense.parameters + 2 * norm**2 + 3 * norm


def test_units_of_a_block_with_experts():
    def flop(one):
        return 2 * one.matrices + one.scores * 4096 / 2

    _, block = (flop(totals(DEEPSEEK, kind)) for kind in kinds_of_block(DEEPSEEK))
    assert flop(totals(DEEPSEEK, HEAD)) / block == pytest.approx(1.38, abs=0.01)
    assert flop(module_totals(DEEPSEEK)) / block == pytest.approx(2.54, abs=0.01)


def test_modules_count_in_training_alone():
    plain = replace(LLAMA, mtp_layers=0)
    block = block_parameters(LLAMA) - 2 * H
    for modules in (1, 2):
        model = replace(LLAMA, mtp_layers=modules)
        more = model_flops_per_token(model, training=True)
        more -= model_flops_per_token(plain, training=True)
        each = 6 * (block + 2 * H**2 + H * V) + 12 * LLAMA.attn_heads * LLAMA.attn_size * S
        assert more == modules * each
        assert model_flops_per_token(model, training=False) == model_flops_per_token(
            plain, training=False
        )


def test_a_layout_that_balances_stages_counts_head_and_block_of_each_module():
    plain = replace(LLAMA, mtp_layers=0)
    block = block_parameters(LLAMA) - 2 * H
    for modules in (1, 2):
        model = replace(LLAMA, mtp_layers=modules)
        assert head_blocks(model) == pytest.approx((1 + modules) * head_blocks(plain))
        assert module_blocks(model) == pytest.approx(modules * (1 + 2 * H**2 / block))


MODEL = replace(SMALL, vocab=1001, norm="rmsnorm", mtp_layers=1)
TOKENS = B * MODEL.seq_size


@pytest.mark.parametrize(
    ("comm_type", "gathered", "back"),
    [("ar", (None, "all_reduce"), None), ("rs_ag", ("all_gather", "reduce_scatter"), "all_gather")],
)
def test_layers_that_join_hidden_states_and_embeddings(comm_type, gathered, back):
    h, layers = MODEL.hidden, layers_of(MODEL, joining_layers, tensor_par_comm_type=comm_type)
    assert [*layers] == [
        "Mtp_Fork",
        "Mtp_Hidden_RMSNorm",
        "Mtp_Embedding_RMSNorm",
        "Mtp_Concat",
        "Mtp_F",
        "Mtp_Product",
        "Mtp_Gather",
    ]
    own = TOKENS / T if comm_type == "rs_ag" else TOKENS  # tokens of a rank between products
    product = layers["Mtp_Product"]
    np.testing.assert_array_equal(product.flops[0], 2 * TOKENS * (2 * h) * (h / T))
    np.testing.assert_array_equal(product.weights, 2 * h * h / T)
    for name in ("Mtp_Hidden_RMSNorm", "Mtp_Embedding_RMSNorm"):
        np.testing.assert_array_equal(layers[name].inputs, own * h)
        assert layers[name].weights == h
    np.testing.assert_array_equal(layers["Mtp_Concat"].accessed[0], 2 * 2 * (2 * h) * own)
    used = layers["Mtp_F"].collective
    operations = used.split_operations if comm_type == "rs_ag" else used.operations
    assert operations == gathered
    several = T > 1
    np.testing.assert_array_equal(used.message, np.where(several, 2 * TOKENS * 2 * h, 0))
    output = layers["Mtp_Gather"].collective
    assert output.operations == ("all_gather", back)
    np.testing.assert_array_equal(output.message, np.where(several, 2 * TOKENS * h, 0))


def test_a_module_needs_a_vocabulary():
    with pytest.raises(SpecError, match="mtp_layers: expected 0, since vocab is 0"):
        replace(LLAMA, vocab=0)
