"""A search over models with several kinds of block finds what trying every execution finds."""

from collections import Counter

import pytest

import calculon
from calculon.search.best_first import search_space
from calculon.search.objective import Objective
from calculon.search.ranking import Best
from tests.search.brute import Case, score

MODEL = calculon.Model(
    hidden=1536,
    feedforward=15360,
    seq_size=256,
    attn_heads=8,
    attn_size=96,
    num_blocks=8,
    activation="swiglu",
    num_experts=8,
    experts_per_token=2,
    expert_feedforward=768,
    vocab=4001,
)
FIX = {
    "activation_recompute": ("none", "full"),
    "weight_offload": (False,),
    "activations_offload": (False,),
    "optimizer_offload": (False,),
    "tensor_par_net": (0,),
    "pipeline_par_net": (0, 1),
    "data_par_net": (0,),
    "tensor_par": (1, 2),
}


@pytest.mark.parametrize(
    ("pattern", "stage"),
    [
        ({"first_k_dense": 2}, "1"),
        ({"moe_layer_freq": 2}, "3"),
        ({"first_k_dense": 1, "moe_layer_freq": 3, "sliding_window": 64}, "1"),
        ({"sliding_window": 16, "full_attention_every": 4}, "2"),
    ],
    ids=["leading", "groups", "both", "windows"],
)
def test_search_and_brute_force_agree(pattern, stage):
    model = calculon.Model(**MODEL.to_dict() | pattern)
    system = calculon.inputs.system("h100_80g_sxm")
    add = {"zero_stage": (stage,), "pp_layout": ("balanced",)}
    case = Case(model, system, 8, 16, "bfloat16", fix=FIX, add=add, edition="corrected")
    table = case.table
    reasons = Counter(table.reason.tolist())
    good = reasons.pop("", 0)
    assert good
    for prune in (True, False):
        ranking = Best(Objective.parse("sample_rate"), 5, prune=prune)
        counts = search_space(case.space, ranking)
        assert (counts.total, counts.good, +counts.reasons) == (len(case.rows), good, reasons)
        scores, _ = ranking.ranked()
        rows = case.best(ranking.objectives[0], 5)
        assert (scores[0] == score(ranking.objectives[0], table)[rows]).all()
