"""Searches of what hides the exchange of experts: they find what every execution by itself tells to be best."""

from collections import Counter

import pytest

import calculon
from calculon.search.best_first import search_space
from calculon.search.objective import Objective
from calculon.search.ranking import Best
from tests.helpers import document
from tests.search.brute import Case, score

MODEL = calculon.inputs.model(document("models", "qwen1.5-moe") | {"num_blocks": 8})
FIX = {
    "tensor_par": (1,),
    "pipeline_par": (1, 2),
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
ADD = {
    "expert_par": (4,),
    "ep_overlap": ("1f1b", "two_batch"),
    "delay_wgrad": (True,),
    "moe_shared_overlap": (True,),
}


@pytest.mark.parametrize("layout", ["uniform", "balanced"])
def test_search_and_brute_force_agree(layout):
    system = calculon.inputs.system("h100_80g_sxm")
    add = ADD | ({"pp_layout": (layout,)} if layout != "uniform" else {})
    case = Case(MODEL, system, 8, 32, "bfloat16", fix=FIX, add=add, edition="corrected")
    reasons = Counter(case.table.reason.tolist())
    good = reasons.pop("", 0)
    assert good
    assert {"1f1b", "two_batch"} <= set(case.plan.values("ep_overlap"))
    for prune in (True, False):
        ranking = Best(Objective.parse("sample_rate"), 5, prune=prune)
        counts = search_space(case.space, ranking)
        assert (counts.total, counts.good, +counts.reasons) == (len(case.rows), good, reasons)
        scores, _ = ranking.ranked()
        rows = case.best(ranking.objectives[0], 5)
        assert (scores[0] == score(ranking.objectives[0], case.table)[rows]).all()
