"""What of a question the deployments of a space have."""

import pytest

from calculon.search.deployments.serving_search import make_space

ASKED = {"prompt": 1000, "output": 200}


def space(fix=None, add=None, model="llama3-8B", counts=4, **options):
    return make_space(model, counts, "h100_80g_sxm", None, ASKED, fix, add, **options)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (
            {"add": {"tensor_par": [16, 3], "expert_par": 2}},
            {"tensor_par": (16, 3), "expert_par": (2,)},
        ),
        ({"fix": {"tensor_par": [2, 8]}}, {"tensor_par": (8,)}),
        ({"fix": {"tensor_par": 2, "acceptance": 0.5}}, {"acceptance": (0.5,)}),
        ({"fix": {"acceptance": 0.5, "draft": "ngram", "draft_tokens": 2}}, {}),
        ({"fix": {"price": 2.7, "reserve_gib": 3.3, "graphs": False, "memory_fraction": 0.83}}, {}),
        ({"fix": {"batching": "static", "token_budget": 512}}, {}),
        ({"fix": {"token_budget": 0}, "add": {"max_batch": [3, 5]}}, {}),
        ({"add": {"expert_par": 2}, "model": "mixtral-8x7B"}, {}),
        ({"counts": 1, "apart": True}, {"prefill": (True,)}),
        ({"counts": 2, "apart": True}, {}),
        ({"fix": {"batching": "static"}, "apart": True}, {"prefill": (True,)}),
        ({"fix": {"tensor_par": 16}}, {}),
        ({}, {}),
    ],
)
def test_values_that_no_deployment_has_are_left_out(options, left):
    assert space(**options).left_out == left


def test_fields_of_several_values_are_those_that_tell_deployments_apart():
    found = space(
        {"price": [2, 3], "admission": "mean"}, {"kv_dtype": "float8", "tensor_par": 16}
    ).asked
    assert found == {"price": (2, 3), "kv_dtype": ("bfloat16", "float8")}


def test_ranks_divide_the_width_of_experts():
    """Experts of Qwen3 235B have a width of 1,536, which 3 and 6 ranks divide, 5 and 7 ranks do not."""
    groups = space({"pipeline_par": 1}, model="qwen3-235B-a22B", counts=(3, 5, 6, 7)).groups
    ranks = {(int(t), int(e)) for one in groups for t, e in one.splits[[1, 4]].T}
    assert {t // e for t, e in ranks} == {1, 2, 3, 6}
