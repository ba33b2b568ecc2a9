"""``calculon campaign any``: the largest model for a fleet, its page, its file and what it needs."""

import json

import pytest

import calculon

ASKED = ("campaign", "any", "64", "h100", "--deadline", "30d")


def test_the_page_tells_both_laws_and_the_nearest_model(run):
    code, out, err = run(*ASKED)
    assert (code, err) == (0, "")
    found = calculon.largest_model("h100_80g_sxm", 64, "30d")
    for words in ("64 x h100_80g_sxm in 30 days", "Hoffmann", "Besiroglu", "the laws disagree"):
        assert words in out
    assert f"Nearest of the catalog: {found.nearest.model.name}" in out


def test_json_has_all_of_it(run):
    code, out, _ = run(*ASKED, "-f", "json")
    assert code == 0
    own = calculon.largest_model("h100_80g_sxm", 64, "30d").to_dict()
    told = json.loads(out)
    assert told.keys() == own.keys()
    assert told["optima"] == own["optima"]


def test_it_needs_days(run):
    code, _, err = run(*ASKED[:4])
    assert code == 2
    assert "deadline: expected the days that there are" in err


def test_an_execution_is_one_of_a_model(run):
    code, _, err = run("campaign", "any", "llama3-8B_h100x64", "h100", "--deadline", "30d")
    assert code == 2
    assert "a number of processors, since the model is any" in err


def test_it_refuses_what_it_does_not_use(run):
    rows = [
        (("--deadline", "0"), "--deadline: expected a time above 0"),
        (("--deadline", "9d", "--tokens", "1T"), "--tokens: expected a run of one model"),
        (("--deadline", "9d", "--budget-usd", "1M"), "--budget-usd: expected a run of one model"),
        (("--deadline", "9d", "--set", "campaign.steps=9"), "--set: steps: expected a run of one"),
    ]
    for options, said in rows:
        code, out, err = run(*ASKED[:4], *options)
        assert (code, out) == (2, "")
        assert err.startswith(f"calculon: error: {said}")
        assert err.count("\n") == 1


def test_days_that_no_model_can_use_are_infeasible(run):
    code, out, err = run(*ASKED[:4], "--deadline", "1e-6")
    assert (code, out) == (1, "")
    assert "calculon: infeasible: in 1e-06 days 64 x h100_80g_sxm train" in err


def test_the_page_tells_failures_costs_and_what_is_assumed(run):
    _, out, _ = run(*ASKED, "--price", "2.5")
    hours = 64 * 24 * 30
    found = calculon.largest_model("h100_80g_sxm", 64, "30d", fleet__price=2.5)
    assert found.cost("usd") == pytest.approx(hours * 2.5 * _paid(found), rel=1e-9)
    for words in ("failures  one in", "costs     ", " USD, ", "Assumed", "reliability.restart"):
        assert words in out
    assert "memory_lost" not in out
    _, every, _ = run(*ASKED, "--price", "2.5", "-v")
    assert "checkpoints.memory_lost" in every


def _paid(found):
    """Return processors that are paid over those of the job: spares stand by."""
    figures = found.nearest.figures
    return figures["processor_hours"] / (figures["days"] * 24 * found.num_procs)
