"""One block, operator by operator: its sums are what an estimate reports."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calculon
from calculon import inputs
from calculon.estimate.operators import WORK_PASSES, block
from tests.draws import draws
from tests.helpers import LLAMA_X64, document

LLAMA = inputs.model("llama3-8B")
ODD = dataclasses.replace(LLAMA, vocab=0, dropout=True, mlp_bias=True, activation="gelu", norms=4)
SIDE_BY_SIDE = dataclasses.replace(LLAMA, parallel_attention=True, norms=1)
EXECUTION = LLAMA_X64 | {
    "num_procs": 8,
    "tensor_par": 4,
    "pipeline_par": 2,
    "data_par": 1,
    "batch_size": 8,
    "optimizer_sharding": False,
    "data_par_overlap": False,
}


def _with_room(system):
    machine = inputs.system(system)
    return dataclasses.replace(machine, mem1=dataclasses.replace(machine.mem1, capacity=1e20))


ROOMY = _with_room("h100_80g_sxm")
NAMES = dict(zip(WORK_PASSES, ("fw", "agrad", "wgrad", "re"), strict=True))
SENT = {"forward": "fw_tp", "activation_grad": "agrad_tp", "recompute": "recomm"}
SIZES = {"forward": "fw_tp", "activation_grad": "bw_tp", "recompute": "recomm"}


executions = st.fixed_dictionaries(
    {
        "activation_recompute": st.sampled_from(("none", "attn_only", "full")),
        "tensor_par_comm_type": st.sampled_from(("ar", "p2p_rs_ag", "rs_ag")),
        "tensor_par_overlap": st.sampled_from(("none", "none", "ring", "pipe")),
        "attn_impl": st.sampled_from(("eager", "flash")),
        "fusion": st.sampled_from(("published", "none", "compile")),
        "tp_async": st.booleans(),
        "fused_activation": st.booleans(),
    }
).map(lambda e: EXECUTION | e | {"tp_async": e["tp_async"] and e["tensor_par_overlap"] == "none"})


def _sums_are(found, stats):
    """Check the sums over the operators against the statistics of an estimate."""
    operators = found.operators
    for pass_, name in NAMES.items():
        for kind, statistic in (("flops", "flops"), ("bytes", "mem_accessed"), ("time", "time")):
            total = sum(operator[kind][pass_] for operator in operators)
            assert total == pytest.approx(stats[f"block_{name}_{statistic}"], rel=1e-12)
    for kind in ("base", "edge"):
        sent = [
            one
            for operator in operators
            for one in operator.get(f"{kind}_collectives", operator["collectives"])
        ]
        for pass_, name in SENT.items():
            inside = [one for one in sent if one["pass"] == pass_]
            values = {
                f"{name}_time": sum(one["time"] for one in inside),
                f"{name}_time_exposed": sum(one["exposed"] for one in inside),
                f"{SIZES[pass_]}_size": sum(one["message"] for one in inside),
            }
            for statistic, total in values.items():
                assert total == pytest.approx(stats[f"{kind}block_{statistic}"], rel=1e-12)
    assert sum(operator["weights"] for operator in operators) == stats["block_weight_space"]
    saved = sum(operator["saved"] for operator in operators)
    assert saved == pytest.approx(stats["block_act_storage_space"])
    assert all(operator["saved"] >= 0 for operator in operators)


@settings(max_examples=draws(12))
@given(
    execution=executions,
    model=st.sampled_from((LLAMA, ODD, SIDE_BY_SIDE, ODD.only("mlp"), LLAMA.only("attention"))),
    system=st.sampled_from(("h100_80g_sxm", "a100_80g_sxm")),
)
def test_sums_over_operators_are_what_an_estimate_reports(execution, model, system):
    machine = _with_room(system)
    found = block(model, execution, machine)
    stats = calculon.estimate(model, execution, machine).stats
    _sums_are(found, stats)
    assert found.stats == {name: stats[name] for name in found.stats}


@pytest.mark.parametrize(
    "changes",
    [
        {"tp_impl": "allgather"},
        {"bias_after_reduce": True},
        {"matmul_impl": "mul_sum"},
        {"training": False},
        {"tensor_par": 1, "num_procs": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("part", ["block", "mlp"])
def test_sums_of_other_forms(changes, part):
    plain = {"tensor_par_comm_type": "ar", "tensor_par_overlap": "none"}
    execution, model = EXECUTION | plain | changes, ODD.only(part)
    _sums_are(block(model, execution, ROOMY), calculon.estimate(model, execution, ROOMY).stats)


@pytest.mark.parametrize("recompute", ["none", "attn_only", "full"])
@pytest.mark.parametrize("overlap", ["none", "ring"])
def test_sums_of_the_published_edition(recompute, overlap):
    execution = document("examples", "3072_t4_p64_d12_mbs4_full") | {
        "activation_recompute": recompute,
        "tensor_par_overlap": overlap,
    }
    found = block("megatron-1T", execution, "a100_80e")
    assert found.edition == "sc23"
    _sums_are(found, calculon.estimate("megatron-1T", execution, "a100_80e").stats)


def test_what_does_not_fit_can_still_be_looked_at():
    execution = document("examples", "3072_t4_p64_d12_mbs4_full") | {"activation_recompute": "none"}
    with pytest.raises(calculon.Infeasible):
        calculon.estimate("megatron-1T", execution, "a100_80g")
    assert block("megatron-1T", execution, "a100_80g").operators
    with pytest.raises(calculon.Infeasible, match="too small"):
        block("megatron-1T", execution, "a100_80g", changes={"num_procs": 12288, "tensor_par": 16})


def test_a_ring_moves_what_passes_through_each_port():
    """An all-reduce among t ranks moves 2 (t - 1) / t of its message, both of its halves half of that."""
    changes = {"tensor_par_overlap": "none", "tensor_par_comm_type": "ar"}
    share = (4 - 1) / 4
    for comm, factor, algorithm in (
        ("ar", 2, "published"),
        ("rs_ag", 1, "published"),
        ("ar", 2, "auto"),
    ):
        asked = changes | {"tensor_par_comm_type": comm, "coll_algo": algorithm}
        found = block(LLAMA, EXECUTION, "a100_80g_sxm", changes=asked)
        sent = [one for operator in found.operators for one in operator["collectives"]]
        assert sent
        for one in sent:
            assert one["moved"] == pytest.approx(factor * share * one["message"])


def test_blocks_next_to_a_transfer_are_told_where_they_differ():
    changes = {"tensor_par_overlap": "none", "tensor_par_comm_type": "p2p_rs_ag"}
    found = block(LLAMA, EXECUTION, "h100_80g_sxm", changes=changes)
    differing = {o["name"] for o in found.operators if "edge_collectives" in o}
    assert differing == {"AttnBlock_F", "MlpBlock_G"}
    alone = block(
        LLAMA, EXECUTION, "h100_80g_sxm", changes=changes | {"pipeline_par": 1, "num_procs": 4}
    )
    assert not any("edge_collectives" in operator for operator in alone.operators)


@pytest.mark.parametrize("fusion", ["published", "compile", "max"])
def test_arithmetic_intensity_is_flops_per_byte_and_null_without_traffic(fusion):
    layers = calculon.estimate(LLAMA, EXECUTION | {"fusion": fusion}, ROOMY, layers=True).layers
    json.dumps(layers, allow_nan=False)
    kinds = set()
    for layer in layers:
        for phase in ("fw", "agrad", "wgrad", "optim"):
            flops, accessed = layer[f"{phase}_flops"], layer[f"{phase}_mem_accessed"]
            expected = 0.0 if flops == 0 else None if accessed == 0 else flops / accessed
            assert layer[f"{phase}_arithmetic_intensity"] == expected
            kinds.add((flops > 0, accessed > 0))
    assert {(True, True), (False, False)} <= kinds
    assert ((True, False) in kinds) == (fusion != "published")


def test_what_an_exchange_of_experts_moves_is_told_also_where_networks_tell_of_none():
    ranks = 8
    split = {"tensor_par": 1, "data_par": 64, "expert_par": ranks}
    execution = LLAMA_X64 | split | {"tensor_par_overlap": "none"}
    assert execution["preset"] == "published"
    found = block("mixtral-8x7B", execution, ROOMY)
    exchanges = [
        sent
        for one in found.operators
        for sent in one["collectives"]
        if sent["operation"] == "all_to_all"
    ]
    assert exchanges
    for sent in exchanges:
        assert sent["moved"] == pytest.approx(sent["message"] * (ranks - 1) / ranks)
