"""What options of an execution contribute: an estimate without each."""

import pytest

import calculon
from calculon import inputs
from calculon.planner.contributions import contributions
from tests.planner import by_hand


def test_options_are_worth_what_an_estimate_says_without_them():
    now = calculon.estimate("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")
    time, memory = now.stats["total_time"], now.stats["proc_mem_tier1_cap_req"]
    found = contributions(now.model, now.execution, now.system)
    assert {"tp_async", "data_par_overlap", "microbatch_size"} <= {one.field for one in found}
    for one in found:
        assert one.value == getattr(now.execution, one.field) != one.without
        row = by_hand.followed(now.model, now.execution, {one.field: one.without})
        if one.gain is None:
            assert not by_hand.runs(now.model, row, now.system)
            continue
        without = calculon.estimate(now.model, row, now.system).stats
        assert one.gain == pytest.approx(time / without["total_time"] - 1)
        assert one.memory == pytest.approx(memory - without["proc_mem_tier1_cap_req"])
    gains = [one.gain for one in found if one.gain is not None]
    assert gains == sorted(gains)


def test_an_option_that_the_preset_has_otherwise_is_set_back_to_that():
    changes = {"activation_recompute": "full", "ce_impl": "fused"}
    execution = inputs.execution("llama3-8B_h100x64", changes=changes)
    found = contributions(inputs.model("llama3-8B"), execution, inputs.system("h100_80g_sxm"))
    back = {one.field: (one.of, one.without) for one in found}
    assert back["activation_recompute"] == ("preset", "none")
    assert back["ce_impl"] == ("preset", "megatron")
    assert back["data_par_overlap"] == ("field", False)
