"""Where the time of a block with experts goes: the parts add up to what the operators take."""

import dataclasses

import pytest

import calculon
from calculon import inputs
from calculon.inspect.expert_parts import EXPERT_PARTS
from calculon.inspect.operators import block
from tests.draws import some
from tests.helpers import document

EXECUTION = document("examples", "mixtral-8x7B_h100x64")
MODELS = {
    "mixtral-8x7B": inputs.model("mixtral-8x7B"),
    "shared": dataclasses.replace(
        inputs.model("mixtral-8x7B"), shared_feedforward=14336, shared_gate=True
    ),
    "dense first": dataclasses.replace(inputs.model("mixtral-8x7B"), first_k_dense=4),
}
CHANGES = [
    {},
    {"expert_par": 1},
    {"expert_par": 4, "expert_tensor_par": 2},
    {"moe_dispatcher": "allgather"},
    {"ep_overlap": "1f1b"},
    {"recompute_modules": "moe"},
    {"activation_recompute": "full"},
    {"training": False, "pipeline_interleaving": 1, "p2p_overlap": False},
    {"tensor_par": 1, "data_par": 16, "tensor_par_comm_type": "ar", "seq_par_ag_redo": False},
]


SYSTEM = inputs.system({"base": "h100_80g_sxm", "mem1": {"GiB": 10_000}})
CASES = [(model, changes) for model in MODELS for changes in CHANGES]


@pytest.mark.parametrize(("model", "changes"), some(CASES, 6), ids=str)
def test_parts_are_sums_over_the_operators_of_a_block_with_experts(model, changes):
    asked = MODELS[model], EXECUTION | changes, SYSTEM
    told = calculon.estimate(*asked).expert_parts
    operators = [one for one in block(*asked).operators if "part" in one]
    assert told["blocks"] == (28 if model == "dense first" else 32)
    assert [one["part"] for one in told["parts"]] == [
        part for part in EXPERT_PARTS if part != "shared experts" or model == "shared"
    ]
    for row in told["parts"]:
        inside = [one for one in operators if one["part"] == row["part"]]
        computing = sum(sum(one["time"].values()) for one in inside)
        sending = sum(sent["time"] for one in inside for sent in one["collectives"])
        assert row["computing"] == pytest.approx(computing, rel=1e-12)
        assert row["sending"] == pytest.approx(sending, rel=1e-12)


def test_dispatch_and_combine_send_what_experts_take_on_the_link():
    found = calculon.estimate("mixtral-8x7B", EXECUTION, SYSTEM)
    parts = {one["part"]: one["sending"] for one in found.expert_parts["parts"]}
    blocks, microbatches = 32 / 4, 256 / 8
    expected = (parts["dispatch"] + parts["combine"]) * blocks * microbatches
    assert expected == pytest.approx(found.stats["ep_comm_link_time"], rel=1e-9)
    assert parts["experts"] == parts["router"] == 0


def test_a_dense_model_has_no_parts():
    found = calculon.estimate("llama3-8B", document("examples", "llama3-8B_h100x64"), SYSTEM)
    assert found.expert_parts == {}
    dense = block("llama3-8B", document("examples", "llama3-8B_h100x64"), SYSTEM)
    assert all("part" not in one for one in dense.operators)
