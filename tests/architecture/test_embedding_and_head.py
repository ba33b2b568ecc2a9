"""Embedding, output head and loss."""

from dataclasses import replace

import numpy as np
import pytest

from calculon.architecture.layer import COLUMN_INPUT, ROW_OUTPUT
from calculon.architecture.segments import embedding_layers, head_layers
from tests.architecture.layers_by_name import SMALL, B, T, layers_of

MODEL = replace(SMALL, vocab=1001)
S, H = 20.0, 48.0
M = B * S
COLUMNS = np.array([1001.0, 501.0, 251.0])  # filled up to equal shares


def _ends(layers, model=MODEL, **changes):
    return layers_of(model, layers, **changes)


comm_types = pytest.mark.parametrize("comm_type", ["ar", "p2p_rs_ag", "rs_ag"])


def test_an_embedding_is_a_lookup_and_its_reduction():
    for changes, more in [
        ({}, ["Embedding_DropOut"]),
        ({"dropout": False}, []),
        ({"positions": 9}, ["Embedding_Positions", "Embedding_DropOut"]),
        ({"embedding_norm": True}, ["Embedding_LayerNorm", "Embedding_DropOut"]),
        ({"embedding_norm": True, "norm": "rmsnorm", "dropout": False}, ["Embedding_RMSNorm"]),
    ]:
        found = _ends(embedding_layers, replace(MODEL, **changes))
        assert list(found) == ["Embedding", "Embedding_G", *more], (changes, more)


def test_a_head_is_a_norm_a_product_and_the_loss():
    sums = ["Head_Max", "Head_Sum", "Head_Target"]
    expected = ["Head_LayerNorm", "Head_F", "Head_Logits", "Head_Loss", *sums]
    assert list(_ends(head_layers)) == expected


def test_the_vocabulary_is_split_in_equal_shares():
    embedding, head = _ends(embedding_layers), _ends(head_layers)
    np.testing.assert_array_equal(embedding["Embedding"].weights, COLUMNS * H)
    np.testing.assert_array_equal(head["Head_Logits"].weights, COLUMNS * H)
    np.testing.assert_array_equal(head["Head_Logits"].outputs, M * COLUMNS)
    np.testing.assert_array_equal(head["Head_Loss"].inputs, M * COLUMNS)
    for pass_ in head["Head_Logits"].flops:
        np.testing.assert_array_equal(pass_, 2 * M * H * COLUMNS)


@comm_types
def test_only_sequence_parallelism_splits_what_is_between_ends_and_blocks(comm_type):
    model = replace(MODEL, positions=9, embedding_norm=True)
    embedding, head = (
        _ends(layers, model, tensor_par_comm_type=comm_type)
        for layers in (embedding_layers, head_layers)
    )
    residual = M / T * H if comm_type == "rs_ag" else M * H
    for name in ("Embedding_Positions", "Embedding_LayerNorm", "Embedding_DropOut"):
        np.testing.assert_array_equal(embedding[name].inputs, residual)
    np.testing.assert_array_equal(head["Head_LayerNorm"].inputs, residual)
    np.testing.assert_array_equal(embedding["Embedding"].outputs, M * H)
    np.testing.assert_array_equal(head["Head_Logits"].inputs, M * H)


@comm_types
def test_the_ranks_reduce_embeddings_gather_inputs_and_agree_on_three_values_per_token(comm_type):
    changes = {"tensor_par_comm_type": comm_type}
    messages = {
        name: (layer.collective.operations, layer.collective.message)
        for layers in (embedding_layers, head_layers)
        for name, layer in _ends(layers, **changes).items()
        if layer.collective is not None
    }
    operators = {"Embedding_G": ROW_OUTPUT.whole, "Head_F": COLUMN_INPUT.whole}
    parallel = T > 1
    assert len(messages) == 2 + 3
    for name, (operations, message) in messages.items():
        assert operations == operators.get(name, ("all_reduce", None))
        expected = 2 * M * H if name in operators else 4 * M
        np.testing.assert_array_equal(message, parallel * expected)


@pytest.mark.parametrize(
    ("impl", "bytes_each"), [("eager", 2 + 4 + 4 + 4), ("megatron", 2 + 4), ("fused", 2)]
)
def test_memory_of_the_logits(impl, bytes_each):
    head = _ends(head_layers, ce_impl=impl)
    loss, logits = head["Head_Loss"], head["Head_Logits"]
    held = loss.activation + loss.activation_grad
    np.testing.assert_array_equal(held, M * COLUMNS * bytes_each)
    assert logits.activation_grad == 0  # counted by the loss


def test_a_split_tensor_with_the_batch_first_is_copied_whole():
    """Read and written in both passes; nothing on one rank. Source: pytorch/torchtitan#437."""
    changes = {"tensor_par_comm_type": "rs_ag", "seq_par_copies": True}
    moved = np.where(T > 1, 2 * 2 * M * H, 0.0)
    for layers, name in ((embedding_layers, "Embedding_G"), (head_layers, "Head_F")):
        found = _ends(layers, **changes)
        assert f"{name}_Copy" not in _ends(layers, tensor_par_comm_type="rs_ag")
        for phase in found[f"{name}_Copy"].accessed[:2]:
            np.testing.assert_array_equal(phase, moved)
