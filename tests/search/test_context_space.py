"""A search over parts of sequences, recipes and schedules finds what trying every one of them finds."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.presets import find_preset
from calculon.search.best_first import count_space, feasible_numbers, search_space
from calculon.search.candidates import REPLICATED
from calculon.search.objective import Objective
from calculon.search.ranking import Best
from calculon.search.request import make_space
from tests.helpers import document
from tests.search.brute import Case, score

MODEL = calculon.Model(
    hidden=1024,
    feedforward=4096,
    seq_size=16384,
    attn_heads=8,
    attn_size=128,
    kv_heads=4,
    num_blocks=4,
    activation="swiglu",
    vocab=4001,
)
FEW = {
    "activation_recompute": ("none",),
    "recompute_modules": ("none",),
    "mesh_order": ("tp-dp-pp",),
    "pp_layout": ("uniform",),
    "tensor_par": (1,),
    "tensor_par_comm_type": ("ar",),
    "seq_par_ag_redo": (False,),
    "tp_async": (False,),
    "p2p_overlap": (False,),
    "overlap_param_gather": (False,),
    "ep_overlap": ("none",),
    "pipeline_par": (1,),
    "pipeline_interleaving": (1, 2),
    "microbatch_size": (1, 2),
    "optimizer_sharding": (True,),
    "zero_stage": ("1",),
}
SPACES = {
    "exchanges": (
        "megatron-lm",
        {
            "tensor_par": (2,),
            "tensor_par_comm_type": ("rs_ag",),
            "seq_par_ag_redo": (True,),
            "context_par": (1, 2, 4),
            "cp_comm": ("p2p", "all_gather", "a2a"),
            "pipeline_par": (1, 2),
        },
    ),
    "heads over some ranks": (
        "megatron-lm",
        {"context_par": (2, 4), "cp_comm": ("p2p", "a2a_p2p"), "cp_a2a_size": (0, 2)},
    ),
    "stages of ZeRO": (
        "common",
        {
            "context_par": (1, 2, 4, 8),
            "zero_stage": ("0", "1", "fsdp"),
            "optimizer_sharding": (True, False),
            "cp_comm": ("p2p",),
        },
    ),
    "recipes": (
        "megatron-lm",
        {
            "context_par": (1, 2),
            "cp_comm": ("p2p",),
            "fp8_recipe": ("none", "tensorwise", "blockwise"),
            "fp8_param_gather": (False, True),
        },
    ),
    "schedules": (
        "common",
        {
            "context_par": (1, 2),
            "cp_comm": ("p2p",),
            "pipeline_par": (4,),
            "microbatch_size": (1,),
            "pp_schedule": ("1f1b", "zb_h1", "zb_h2", "zbv", "dualpipe", "dualpipev"),
        },
    ),
}
"""The framework, and values that are tried."""


def _written_down(name, capacity):
    """Return the space, and the same with every value that the framework tries, with so many GiB a processor."""
    framework, tried = SPACES[name]
    raw = document("systems", "h100_80g_sxm")
    raw["mem1"]["GiB"] = capacity
    asked = MODEL, inputs.system(raw), 8, 16, "bfloat16"
    under = Case(*asked, fused=(False,), edition="corrected", preset=framework, fix=FEW | tried)
    values = {
        field: values
        for field, values in under.space.switches.items()
        if field not in ("fused_activation", "pp_layout")
    }
    values |= {field: find_preset(framework).tried(field) for field in REPLICATED}
    return under.space, replace(under, fix=values | FEW | tried)


@pytest.mark.parametrize("name", SPACES)
def test_search_and_brute_force_agree(name):
    large, everything = _written_down(name, 80)
    needed = np.nanquantile(everything.needs[0], 0.7) + large.system.ext.memory.withheld
    most = float(needed) / 2**30
    space, case = _written_down(name, most)
    table = case.table
    reasons = Counter(table.reason.tolist())
    good = reasons.pop("", 0)
    assert 0 < good < len(case.rows)
    assert (case.plan.values("context_par")[table.feasible] > 1).any()
    for field, values in SPACES[name][1].items():
        if field in ("cp_comm", "fp8_recipe", "pp_schedule"):
            assert {*case.plan.values(field).tolist()} == {*values}
    assert count_space(space) == len(case.rows)
    for prune in (True, False):
        ranking = Best(Objective.parse("sample_rate"), 5, prune=prune)
        counts = search_space(space, ranking)
        assert (counts.total, counts.good, +counts.reasons) == (len(case.rows), good, reasons)
        rows = case.best(ranking.objectives[0], 5)
        assert (ranking.ranked()[0][0] == score(ranking.objectives[0], table)[rows]).all()


@pytest.mark.parametrize(
    ("length", "parts"),
    [(8192, (1,)), (12288, (1, 2)), (32768, (1, 2, 4, 8)), (131072, (1, 2, 4, 8, 16, 32))],
)
def test_frameworks_split_sequences_of_more_than_8_ki_tokens_over_ranks_with_4_ki_at_least(
    length, parts
):
    asked = replace(MODEL, seq_size=length), "h100_80g_sxm", 64, 64, "bfloat16"
    space = make_space(*asked, preset="megatron-lm")
    assert space.switches["context_par"] == parts
    assert space.switches["cp_comm"] == (("p2p", "a2a") if len(parts) > 1 else ("p2p",))
    wider = make_space(*asked, preset="megatron-lm", add={"context_par": 64})
    assert wider.switches["context_par"] == (*parts, 64)


def test_a_unit_has_one_degree_of_context_parallelism():
    space = make_space(
        replace(MODEL, seq_size=32768), "h100_80g_sxm", 48, 48, "bfloat16", preset="megatron-lm"
    )
    assert {u.further for u in space.units} == {1, 2, 4, 8}
    for unit in space.units:
        degrees = unit.tensor_par, unit.pipeline_par, unit.data_par, unit.further
        assert np.prod(degrees) == 48
    executions = space.plan(np.concatenate([*feasible_numbers(space)][:9]))
    ranks = [executions.values(f"{name}_par") for name in ("tensor", "context", "pipeline", "data")]
    assert (np.prod(ranks, axis=0) == 48).all()
