"""Changes of executions in words."""

from calculon import inputs
from calculon.advise.in_words import change_in_words

ONE = inputs.execution("llama3-8B_h100x64").to_dict()


def test_fields_that_are_not_stated_say_what_they_mean():
    long = {**ONE, "seq_length": 8192}
    assert change_in_words(long, ONE, ["seq_length"]) == "sequences of 8,192 -> the model's length"
    assert change_in_words(ONE, long, ["seq_length"]) == "sequences of the model's length -> 8,192"
    whole = {**ONE, "expert_tensor_par": 1}
    assert change_in_words(whole, ONE, ["expert_tensor_par"]) == "ETP 1 -> as TP"


def test_a_preset_tells_what_goes_along_with_it():
    along = {**ONE, "preset": "torchtitan", "recompute_modules": "ops"}
    names = ["preset", "recompute_modules"]
    text = change_in_words(ONE, along, ["preset"], names)
    assert text == f"preset {ONE['preset']} -> torchtitan, with selective recompute"
    assert change_in_words(ONE, along, ["preset"]) == text.partition(", with")[0]
