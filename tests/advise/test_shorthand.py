"""A plan in short words is the plan in the fields of an execution."""

import pytest

from calculon.advise.shorthand import read_baseline
from calculon.base.errors import SpecError


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("tp=8 pp=4 mbs=1", {"tensor_par": 8, "pipeline_par": 4, "microbatch_size": 1}),
        ("TP=8,PP=4, vpp=5", {"tensor_par": 8, "pipeline_par": 4, "pipeline_interleaving": 5}),
        ("zero=1 recompute=selective", {"zero_stage": "1", "activation_recompute": "attn_only"}),
        ("sp=on", {"tensor_par_comm_type": "rs_ag"}),
        ("sp=0 weight_offload=true", {"tensor_par_comm_type": "ar", "weight_offload": True}),
        ("gbs=512 dp=16", {"batch_size": 512, "data_par": 16}),
    ],
)
def test_short_words_are_fields(text, fields):
    assert read_baseline(text).fields == fields


def test_a_mapping_is_a_plan():
    assert read_baseline({"tp": 2}).fields == {"tensor_par": 2}


def test_anything_else_is_a_file():
    assert read_baseline("mine.json").file == "mine.json"


def test_unknown_names_are_all_told_with_the_nearest():
    with pytest.raises(SpecError) as caught:
        read_baseline("tpp=8 pp=4 mircobatch_size=1")
    assert "tpp" in str(caught.value)
    assert "microbatch_size" in str(caught.value)
