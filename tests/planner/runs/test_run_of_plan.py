"""The whole run of a plan, and of the best plan on a number of processors."""

import pytest

import calculon
from calculon.errors import Infeasible, SpecError

LLAMA = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")


def test_it_is_planned_for_the_batch_and_the_length_of_the_end_of_the_run():
    ramp = [{"from": 0, "batch": "1M"}, {"from": "1G", "batch": "2M"}]
    asked = {"tokens": "1T", "batch_ramp": ramp, "seq_ramp": [{"from": 0, "seq_size": "4k"}]}
    run = calculon.campaign("llama3.2-1B", 8, "h100_80g_sxm", asked)
    assert [one.tokens_per_step for one in run.parts] == [2**20, 2**21]
    best = calculon.plan("llama3.2-1B", (8,), "h100_80g_sxm", batch="2M", seq="4k").best
    assert run.main.estimate.execution == best.execution


def test_what_fits_nowhere_says_so():
    with pytest.raises(Infeasible, match="no plan fits"):
        calculon.campaign("llama3.1-405B", 8, "h100_80g_sxm", tokens="1T")


def test_a_run_that_never_ends_says_so():
    with pytest.raises(Infeasible, match=r"never ends.*mtbf_processor"):
        calculon.campaign(*LLAMA, tokens="1T", reliability__mtbf_processor="1min")


def test_a_frame_has_a_row_for_each_part():
    ramp = [{"from": 0, "batch": 256}, {"from": "10G", "batch": 512}]
    run = calculon.campaign(*LLAMA, {"tokens": "1T", "batch_ramp": ramp})
    frame = run.to_frame()
    assert list(frame["batch_size"]) == [256, 512]
    assert list(frame["days"]) == [one.days for one in run.parts]
    assert "execution" not in frame


def test_a_campaign_is_the_argument_run():
    with pytest.raises(SpecError, match="run=") as refused:
        calculon.campaign(*LLAMA, campaign="llama3-405B")
    assert refused.value.field == "campaign"
