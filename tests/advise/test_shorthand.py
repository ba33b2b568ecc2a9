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
        ("recompute=norms", {"recompute_modules": "norm"}),
        ("recompute=expert-activations+norms", {"recompute_modules": "norm+moe_act"}),
        ("recompute=full", {"activation_recompute": "full"}),
    ],
)
def test_short_words_are_fields(text, fields):
    assert read_baseline(text).fields == fields


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("tp=8 batch=512", {"tensor_par": 8, "batch_size": 512}),
        ("batch=4M", {"batch_size": 2**22 // 8192}),
        ("batch=4M seq=4k", {"batch_size": 2**22 // 4096, "seq_length": 4096}),
        ("seq=8k procs=1k", {"num_procs": 1024}),
        ("dtype=fp16", {"datatype": "float16"}),
        (
            "dtype=mxfp8 preset=common",
            {"preset": "common", "datatype": "bfloat16", "fp8_recipe": "mxfp8"},
        ),
    ],
)
def test_words_of_a_question_are_fields_of_the_plan(text, fields):
    assert read_baseline(text).of_model(seq_size=8192).fields == fields


def test_a_mapping_is_a_plan():
    assert read_baseline({"tp": 2}).fields == {"tensor_par": 2}


def test_anything_else_is_a_file():
    assert read_baseline("mine.json").file == "mine.json"


def test_unknown_names_are_all_told_with_the_nearest():
    with pytest.raises(SpecError) as caught:
        read_baseline("tpp=8 pp=4 mircobatch_size=1")
    assert "tpp" in str(caught.value)
    assert "microbatch_size" in str(caught.value)
