"""Searches of pipeline schedules: they find what every execution by itself tells to be best, whatever bounds skip."""

from collections import Counter

import pytest

import calculon
from calculon.search.best_first import search_space
from calculon.search.objective import Objective
from calculon.search.ranking import Best
from calculon.spec.named_values import PP_SCHEDULES
from tests.helpers import document
from tests.search.brute import Case, score

FIX = {
    "tensor_par": (1,),
    "pipeline_par": (2, 4),
    "pipeline_interleaving": (1, 2),
    "microbatch_size": (1, 2),
    "activation_recompute": ("full", "none"),
    "tensor_par_comm_type": ("ar",),
    "tensor_par_overlap": ("none",),
    "seq_par_ag_redo": (False,),
    "weight_offload": (False,),
    "activations_offload": (False,),
    "optimizer_offload": (False,),
    "tensor_par_net": (0,),
    "pipeline_par_net": (0,),
    "data_par_net": (0,),
}
SPREAD = {"expert_par": (4,), "ep_overlap": ("1f1b",)}
DENSE = document("models", "llama3-8B") | {"num_blocks": 8}
EXPERTS = document("models", "qwen1.5-moe") | {"num_blocks": 8}


@pytest.mark.parametrize(
    ("model", "more"),
    [(DENSE, {}), (DENSE, {"p2p_overlap": (True,), "zero_stage": ("1", "3")}), (EXPERTS, SPREAD)],
    ids=["dense", "overlapped", "experts"],
)
def test_search_and_brute_force_agree(model, more):
    system = calculon.inputs.system("h100_80g_sxm")
    add = {"pp_schedule": PP_SCHEDULES[1:], **more}
    case = Case(
        calculon.inputs.model(model),
        system,
        8,
        32,
        "bfloat16",
        fix=FIX,
        add=add,
        edition="corrected",
    )
    reasons = Counter(case.table.reason.tolist())
    good = reasons.pop("", 0)
    fitting = {
        name
        for name, reason in zip(case.plan.values("pp_schedule"), case.table.reason, strict=True)
        if not reason
    }
    assert fitting == set(PP_SCHEDULES)
    for prune in (True, False):
        ranking = Best(Objective.parse("sample_rate"), 5, prune=prune)
        counts = search_space(case.space, ranking)
        assert (counts.total, counts.good, +counts.reasons) == (len(case.rows), good, reasons)
        scores, _ = ranking.ranked()
        rows = case.best(ranking.objectives[0], 5)
        assert (scores[0] == score(ranking.objectives[0], case.table)[rows]).all()
