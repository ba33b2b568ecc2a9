"""Blocks with experts: where their time goes, and the imbalance at which tier 1 is full (memory is linear in it)."""

import dataclasses
from types import SimpleNamespace

import pytest

import calculon
from calculon import inputs
from calculon.estimate.operators import EXPERT_PARTS, SHARED, block, parts_of
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


@pytest.mark.parametrize(("model", "changes"), some(CASES, 4), ids=str)
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


def test_a_layer_belongs_to_the_part_that_its_place_among_the_products_of_experts_says():
    routed = [("Router", "router"), ("TopK", "router"), ("Permute", "dispatch")]
    routed += [(f"Experts_{name}", "experts") for name in ("FC1", "Act", "FC2")]
    routed += [("Unpermute", "combine"), ("Sum", "combine")]
    layers = [("AttnBlock_Q", "core_attn", "attention"), ("MlpBlock_Norm", "", "other")]
    layers += [(f"MlpBlock_{name}", "moe", part) for name, part in routed]
    layers += [("FC1", "shared_experts", SHARED), ("Shared_Gate", "", SHARED)]
    of_name = [SimpleNamespace(name=n, flags=SimpleNamespace(module=m)) for n, m, _ in layers]
    assert parts_of(of_name) == [part for _, _, part in layers]


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


RUN = {"base": "megatron-lm", "batch_size": 256, "seq_length": 4096}
RUN |= {"tensor_par": 2, "pipeline_par": 4, "data_par": 8, "expert_par": 8, "expert_tensor_par": 1}


def _estimate(model="mixtral-8x7B", system="h100_80g_sxm", **changes):
    return calculon.estimate(model, RUN | changes, system)


def _needed(percent):
    return _estimate(moe_imbalance_percent=percent).stats["proc_mem_tier1_cap_req"]


def test_it_is_where_the_line_of_memory_over_the_imbalance_meets_the_capacity():
    """Rows that are saved, at work and on both sides of the dispatch are proportional to it."""
    found = _estimate().imbalance_headroom
    one, two, three = (_needed(percent) for percent in (100, 150, 200))
    assert three - two == pytest.approx(two - one, rel=1e-9)
    capacity = inputs.system("h100_80g_sxm").usable[0]
    assert found == int(100 + 100 * (capacity - one) / (three - one)) / 100
    assert _needed(round(100 * found)) <= capacity
    assert _needed(round(100 * found) + 1) > capacity


def test_it_does_not_depend_on_the_imbalance_that_is_stated():
    assert _estimate(moe_imbalance_percent=250).imbalance_headroom == _estimate().imbalance_headroom


def test_no_rank_has_more_than_all_rows_or_than_the_capacity():
    large = inputs.system({"base": "h100_80g_sxm", "mem1": {"GiB": 10_000}})
    assert _estimate(system=large).imbalance_headroom == RUN["expert_par"]
    assert _estimate(moe_capacity_percent=150).imbalance_headroom == 1.5


def test_there_is_none_where_all_ranks_have_as_many_rows():
    dense = {"expert_par": 1, "expert_tensor_par": 0}
    assert _estimate("llama2-7B", **dense).imbalance_headroom is None
    assert (
        _estimate(expert_par=1, expert_tensor_par=1, pipeline_par=8, data_par=4).imbalance_headroom
        is None
    )
    padded = {"moe_capacity_percent": 150, "moe_pad_to_capacity": True}
    assert _estimate(**padded).imbalance_headroom is None
