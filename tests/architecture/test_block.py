import numpy as np
import pytest

from calculon.editions import SC23
from tests.architecture.layers_by_name import SMALL, B, T, layers_of
from tests.helpers import block_choice

S, H, F, A, D = 20.0, 48.0, 120.0, 4.0, 10.0
M = B * S

ENTRY = ["Fork", "LayerNorm"]
EXIT = ["DropOut", "Residual"]
CORE = ["Multihead_Key_Query", "Multihead_SoftMax", "Multihead_DropOut", "Multihead_Attn"]
SEPARATE = ["F", "Multihead_Fork", "Query", "Key", "Value"]
ATTENTION = {
    ("none", "multihead"): [*ENTRY, *SEPARATE, *CORE, "MLP", "G", *EXIT],
    ("none", "multiquery"): [*ENTRY, *SEPARATE, *CORE, "MLP", "G", *EXIT],
    ("ring", "multihead"): [*ENTRY, "QKV_AG", *CORE, "MLP_RS", *EXIT],
    ("ring", "multiquery"): [*ENTRY, "Query_AG", "KV_Fork", "Key", "Value", *CORE, "MLP_RS", *EXIT],
}
MLP = {
    "none": [*ENTRY, "F", "Mlp1", "GeLU", "Mlp2", "G", *EXIT],
    "ring": [*ENTRY, "Mlp1_AG", "GeLU", "Mlp2_RS", *EXIT],
}


def _block(**changes):
    return layers_of(SMALL, edition=SC23, **changes)


def _flagged(flag, **changes):
    """Return the names of the layers for which a flag holds."""
    chosen = block_choice(**changes)
    layers = _block(**changes).items()
    return {name for name, layer in layers if SC23.happens(getattr(layer.flags, flag), chosen)}


@pytest.mark.parametrize(("overlap", "attention"), ATTENTION)
def test_a_block_is_attention_then_mlp(overlap, attention):
    found = list(_block(tensor_par_overlap=overlap, attention_type=attention))
    assert found == [
        *(f"AttnBlock_{name}" for name in ATTENTION[overlap, attention]),
        *(f"MlpBlock_{name}" for name in MLP[overlap]),
    ]


WEIGHTS = {
    "AttnBlock_LayerNorm": 2 * H,
    "AttnBlock_Query": H * (A * D / T),
    "AttnBlock_Key": H * (A * D / T),
    "AttnBlock_Value": H * (A * D / T),
    "AttnBlock_MLP": (A * D / T) * H,
    "MlpBlock_LayerNorm": 2 * H,
    "MlpBlock_Mlp1": H * (F / T),
    "MlpBlock_Mlp2": (F / T) * H,
}


def test_projections_are_split_over_tensor_parallelism_and_norms_are_not():
    for name, layer in _block().items():
        expected = np.broadcast_to(WEIGHTS.get(name, 0.0), 3)
        np.testing.assert_array_equal(np.broadcast_to(layer.weights, 3), expected)


def test_attention_over_the_sequence_is_split_by_heads():
    block = _block()
    scores = (A / T) * S * S * B
    heads = B * A / T
    np.testing.assert_array_equal(block["AttnBlock_Multihead_SoftMax"].inputs, scores)
    np.testing.assert_array_equal(block["AttnBlock_Multihead_DropOut"].inputs, scores)
    for name in ("Key_Query", "Attn"):
        flops = block[f"AttnBlock_Multihead_{name}"].flops[0]
        np.testing.assert_array_equal(flops, 2 * heads * S * S * D)


@pytest.mark.parametrize("comm_type", ["ar", "p2p_rs_ag", "rs_ag"])
def test_only_sequence_parallelism_splits_the_residual_region(comm_type):
    block = _block(tensor_par_comm_type=comm_type)
    residual = M / T * H if comm_type == "rs_ag" else M * H
    for half in ("AttnBlock", "MlpBlock"):
        for name in ("Fork", "LayerNorm", "DropOut"):
            np.testing.assert_array_equal(block[f"{half}_{name}"].inputs, residual)
        np.testing.assert_array_equal(block[f"{half}_Residual"].inputs, 2 * residual)
    np.testing.assert_array_equal(block["AttnBlock_Multihead_Fork"].inputs, M * H)


FLAGGED = {
    ("none", False): (set(), set()),
    ("none", True): ({"AttnBlock_Multihead_Fork"}, {"AttnBlock_F", "MlpBlock_F"}),
    ("attn_only", False): (
        {"AttnBlock_Multihead_Fork", *(f"AttnBlock_{name}" for name in CORE[:3])},
        {"AttnBlock_F"},
    ),
    ("attn_only", True): (
        {"AttnBlock_Multihead_Fork", *(f"AttnBlock_{name}" for name in CORE[:3])},
        {"AttnBlock_F", "MlpBlock_F"},
    ),
}


@pytest.mark.parametrize(("recompute", "redo"), FLAGGED)
def test_what_is_computed_and_communicated_again(recompute, redo):
    changes = {
        "activation_recompute": recompute,
        "seq_par_ag_redo": redo,
        "tensor_par_comm_type": "rs_ag",
    }
    found = _flagged("recompute", **changes), _flagged("recommunicate", **changes)
    assert found == FLAGGED[recompute, redo]


@pytest.mark.parametrize("overlap", ["none", "ring"])
def test_full_recompute_repeats_every_layer_and_every_collective(overlap):
    changes = {"activation_recompute": "full", "tensor_par_overlap": overlap}
    block = _block(**changes)
    communicates = {name for name, layer in block.items() if layer.collective is not None}
    alone = {name for name in communicates if not block[name].collective.overlapped}
    assert _flagged("recommunicate", **changes) == communicates
    assert _flagged("recompute", **changes) == set(block) - alone
