"""Published figures beside those of a run: its model, and jobs of its size."""

import math

import pytest

import calculon
from calculon.advise.runs.published_comparison import NEAR, published_comparison
from calculon.campaign.published import published_failures, published_trainings
from calculon.campaign.record import HOUR
from calculon.documents.published_runs_section import published_section
from calculon.render.digits import Digits
from tests.documents.drawing import drawn

BLOOM = ("bloom-176B", "bloom-176B_a100x384", "a100_80g_sxm")


@pytest.fixture(scope="module")
def run():
    return calculon.campaign(*BLOOM, tokens="366T")


def test_hours_are_for_as_many_tokens(run):
    (row,) = (
        one for one in published_comparison(run.whole, "bloom-176B") if "hours" in one["figure"]
    )
    assert row["published"] == 1_082_990
    working = 384 * run.figures["days"] * 24
    assert math.isclose(row["ours"], working / run.tokens * 366e9)


def test_failures_are_those_of_as_many_processors_and_hours(run):
    known = {one.run: one for one in published_failures()}
    rows = [
        one for one in published_comparison(run.whole, "bloom-176B") if one["figure"] == "failures"
    ]
    assert "BLOOM 176B" in [row["run"] for row in rows]
    mtbf = run.campaign.reliability.mtbf_processor / HOUR
    for row in rows:
        one = known[row["run"]]
        assert math.isclose(row["ours"], one.hours * one.num_procs / mtbf)
        assert not row["assumed_from"]


def test_jobs_of_another_model_are_of_a_similar_size(run):
    rows = published_comparison(run.whole, "another")
    sizes = [row["num_procs"] for row in rows if row["run"] != "BLOOM 176B"]
    assert sizes
    assert all(1 / NEAR <= 384 / size <= NEAR for size in sizes)


def test_the_default_rate_of_failures_is_told_to_be_from_its_row():
    row = ("llama3.1-405B", "llama3.1-405B_h100x16384", "h100_80g_sxm_24k")
    whole = calculon.campaign(*row, tokens="1T").whole
    failures = [one for one in published_comparison(whole, "llama3.1-405B") if one["assumed_from"]]
    assert [(one["run"], one["published"]) for one in failures] == [("Llama 3 405B", 419)]
    assert math.isclose(failures[0]["ours"], 419, rel_tol=1e-5)


def test_hours_of_steps_are_set_beside_those_of_steps(run):
    (row,) = (
        one
        for one in published_comparison(run.whole, "deepseek-v3")
        if one["figure"] == "step_hours"
    )
    steps = 384 * run.figures["useful_days"] * 24 / run.tokens
    assert math.isclose(row["ours"], steps * 14.8e12)


def test_hours_say_what_their_source_leaves_open(run):
    told = {
        row["run"]: row["configuration"]
        for model in ("llama3-70B", "bloom-176B", "llama2-7B")
        for row in published_comparison(run.whole, model)
        if "hours" in row["figure"] and row["figure"] != "mtbf_hours"
    }
    assert told == {"Llama 3 70B": "unknown", "BLOOM 176B": "known", "Llama 2 7B": "partly"}


def test_hours_name_both_processors(run):
    (row,) = (
        one
        for one in published_comparison(run.whole, "llama3-70B")
        if one["figure"] == "processor_hours"
    )
    assert (row["processor"], row["own_processor"]) == ("h100_80g_sxm_24k", "a100_80g_sxm")
    section = published_section([row], run.to_dict()["parts"], Digits(0.1))
    assert "(H100 in the published run, A100 in ours)" in drawn(section, width=300)


def test_hours_of_another_kind_of_processor_are_left_out(run):
    assert "PaLM 540B" in [one.run for one in published_trainings()]
    rows = published_comparison(run.whole, "palm-540B")  # on TPUs, this run on GPUs
    assert "PaLM 540B" not in {one["run"] for one in rows if "hours" in one["figure"]}


def test_the_failure_rate_of_the_h100_is_told_to_be_taken_for_another_machine(run):
    told = {one["field"]: one["source"] for one in run.to_dict()["assumed"]}
    assert "also assumed for a100_80g_sxm, without a source" in told["reliability.mtbf_processor"]
