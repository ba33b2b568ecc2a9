"""Changes of executions in words."""

import calculon
from calculon import inputs
from calculon.planner.in_words import change_in_words

ONE = inputs.execution("llama3-8B_h100x64").to_dict()
UNDER = {"num_procs": 64, "tensor_par": 2, "pipeline_par": 1, "data_par": 32, "batch_size": 512}
UNDER |= {"microbatch_size": 1, "datatype": "bfloat16", "edition": "corrected"}


def test_fields_that_are_not_stated_say_what_they_mean():
    long = {**ONE, "seq_length": 8192}
    assert change_in_words(long, ONE, ["seq_length"]) == "sequences of 8,192 -> the model's own"
    assert change_in_words(ONE, long, ["seq_length"]) == "sequences of the model's own -> 8,192"
    whole = {**ONE, "expert_tensor_par": 1}
    assert change_in_words(whole, ONE, ["expert_tensor_par"]) == "ETP 1 -> as TP"


def test_a_preset_tells_what_goes_along_with_it():
    along = {**ONE, "preset": "torchtitan", "recompute_modules": "ops"}
    names = ["preset", "recompute_modules"]
    text = change_in_words(ONE, along, ["preset"], names)
    assert text == f"preset {ONE['preset']} -> torchtitan, with selective recompute"
    assert change_in_words(ONE, along, ["preset"]) == text.partition(", with")[0]


def test_a_waterfall_between_presets_tells_each_other_choice():
    plans = ({**UNDER, "preset": name} for name in ("megatron-lm", "torchtitan"))
    found = calculon.waterfall("llama3-8B", *plans, "h100_80g_sxm")
    (step,) = (step for step in found.steps if "preset" in step.fields)
    assert ("recompute_modules" in step.fields) == ("selective recompute" in step.words)
    assert len(step.fields) == 1 or ", with " in step.words
