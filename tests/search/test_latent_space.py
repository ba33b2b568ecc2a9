"""A search over executions of latent attention finds what trying every one finds, and counts what a rule refuses."""

from collections import Counter

import pytest

import calculon
from calculon.search.best_first import search_space
from calculon.search.objective import Objective
from calculon.search.ranking import Best
from tests.search.brute import Case, score

MODEL = calculon.Model(
    hidden=1536,
    feedforward=3840,
    seq_size=64,
    attn_heads=8,
    attn_size=96,
    num_blocks=4,
    activation="swiglu",
    q_lora_rank=256,
    kv_lora_rank=128,
    qk_nope_head_dim=64,
    qk_rope_head_dim=32,
    v_head_dim=64,
    vocab=4001,
)
FIX = {
    "pipeline_interleaving": (1,),
    "weight_offload": (False,),
    "activations_offload": (False,),
    "optimizer_offload": (False,),
    "tensor_par_net": (0,),
    "pipeline_par_net": (0,),
    "data_par_net": (0,),
    "tensor_par": (1, 2, 4),
}


@pytest.mark.parametrize("add", [{}, {"attention_type": ("multiquery",)}], ids=["", "multiquery"])
def test_search_and_brute_force_agree(add):
    system = calculon.inputs.system("h100_80g_sxm")
    case = Case(MODEL, system, 8, 8, "bfloat16", fix=FIX, add=add, edition="corrected")
    table = case.table
    reasons = Counter(table.reason.tolist())
    good = reasons.pop("", 0)
    assert good
    for prune in (True, False):
        ranking = Best(Objective.parse("sample_rate"), 5, prune=prune)
        counts = search_space(case.space, ranking)
        assert (counts.total, counts.good, +counts.reasons) == (len(case.rows), good, reasons)
        scores, numbers = ranking.ranked()
        rows = case.best(ranking.objectives[0], 5)
        assert (scores[0] == score(ranking.objectives[0], table)[rows]).all()
        found, wanted = case.space.plan(numbers), case.plan.take(rows)
        for name in ("tensor_par", "pipeline_par", "tensor_par_comm_type", "microbatch_size"):
            assert (found.values(name) == wanted.values(name)).all()


def test_what_latents_cannot_be_combined_with_is_never_tried():
    """The published loops cut products, and split collectives around transfers: here no execution has either."""
    found = calculon.search(
        MODEL, "h100_80g_sxm", 8, 8, "bfloat16", fix=FIX, edition="corrected", top=50
    )
    assert set(found.plan.values("tensor_par_overlap")) == {"none"}
    assert "p2p_rs_ag" not in set(found.plan.values("tensor_par_comm_type"))
