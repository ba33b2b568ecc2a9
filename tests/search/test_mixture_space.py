"""A search over executions that spread experts finds, under a framework, what trying every one of them finds."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.presets import find_preset
from calculon.search.best_first import search_space
from calculon.search.candidates import REPLICATED
from calculon.search.objective import Objective
from calculon.search.ranking import Best
from tests.helpers import document
from tests.search.brute import Case, score

MODEL = calculon.Model(
    hidden=1024,
    feedforward=4096,
    seq_size=256,
    attn_heads=8,
    attn_size=128,
    num_blocks=4,
    activation="swiglu",
    num_experts=8,
    experts_per_token=2,
    expert_feedforward=512,
    shared_feedforward=512,
    vocab=4001,
)
FRAMEWORK = "megatron-lm"
FEW = {
    "activation_recompute": ("none",),
    "recompute_modules": ("none",),
    "tensor_par": (2,),
    "data_par": (2, 4),
    "expert_par": (1, 4),
    "mesh_order": ("tp-dp-pp",),
}
SPACES = {
    "degrees": (
        {},
        {"tensor_par": (2, 4), "expert_par": (1, 2, 4, 8), "expert_tensor_par": (0, 1, 2)},
    ),
    "no tensor parallelism": (
        {},
        {
            "tensor_par": (1,),
            "tensor_par_comm_type": ("ar",),
            "data_par": (2, 4, 8),
            "expert_par": (1, 2, 4, 8),
        },
    ),
    "replicas beyond stages": (
        {},
        {"mesh_order": ("tp-pp-dp",), "expert_par": (1, 2, 4, 8), "expert_tensor_par": (0, 1)},
    ),
    "dispatchers": (
        {},
        {"moe_dispatcher": ("alltoall", "allgather"), "moe_imbalance_percent": (100, 150)},
    ),
    "modules": ({}, {"recompute_modules": ("none", "moe_act", "norm+moe_act", "moe")}),
    "overlaps": (
        {},
        {"ep_overlap": ("none", "1f1b"), "moe_shared_overlap": (False, True)},
    ),
    "blocks of two kinds": ({"first_k_dense": 1}, {"expert_tensor_par": (0, 1)}),
    "predicted tokens": ({"mtp_layers": 1}, {"expert_par": (1, 2)}),
}
"""Changes of the model, and values that are tried."""


def _written_down(name, capacity):
    """Return the space with every value that the framework tries, on processors with so many GiB."""
    model, tried = SPACES[name]
    raw = document("systems", "h100_80g_sxm")
    raw["mem1"]["GiB"] = capacity
    asked = replace(MODEL, **model), inputs.system(raw), 8, 16, "bfloat16"
    under = Case(*asked, fused=(False,), edition="corrected", preset=FRAMEWORK, fix=FEW | tried)
    values = {
        field: values
        for field, values in under.space.switches.items()
        if field not in ("fused_activation", "pp_layout")
    }
    values |= {field: find_preset(FRAMEWORK).tried(field) for field in REPLICATED}
    return under.space, replace(under, fix=values | FEW | tried)


@pytest.mark.parametrize("name", SPACES)
def test_search_and_brute_force_agree(name):
    needs = _written_down(name, 80)[1].needs[0]
    most = float(np.nanquantile(needs, 0.7)) / 2**30 + 2  # what the system withholds, about
    space, case = _written_down(name, most)
    table = case.table
    reasons = Counter(table.reason.tolist())
    good = reasons.pop("", 0)
    assert 0 < good < len(case.rows)
    spread = case.plan.values("expert_par")[table.feasible] > 1
    assert spread.any()
    for prune in (True, False):
        ranking = Best(Objective.parse("sample_rate"), 5, prune=prune)
        counts = search_space(space, ranking)
        assert (counts.total, counts.good, +counts.reasons) == (len(case.rows), good, reasons)
        rows = case.best(ranking.objectives[0], 5)
        assert (ranking.ranked()[0][0] == score(ranking.objectives[0], table)[rows]).all()
