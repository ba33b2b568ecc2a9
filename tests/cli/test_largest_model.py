"""``calculon campaign any``: the largest model for a fleet, its page, its file and what it needs."""

import json

import pytest

import calculon

ASKED = ("campaign", "any", "64", "h100", "--deadline", "30d")


@pytest.fixture(scope="module")
def found():
    return calculon.largest_model("h100_80g_sxm", 64, "30d", fleet__price=2.5)


def test_the_page_tells_both_laws_failures_costs_and_the_nearest_model(output_of, found):
    out = output_of(*ASKED, "--price", "2.5")
    for words in ("64 x h100_80g_sxm in 30 days", "Hoffmann", "Besiroglu", "the laws disagree"):
        assert words in out
    assert f"Nearest of the catalog: {found.nearest.model.name}" in out
    for words in ("failures  one in", "costs     ", " USD, ", "Assumed", "reliability.restart"):
        assert words in out
    assert "memory_lost" not in out
    figures = found.nearest.figures  # processors are paid: also spares, which stand by
    paid = figures["processor_hours"] / (figures["days"] * 24 * found.num_procs)
    assert found.cost("usd") == pytest.approx(64 * 24 * 30 * 2.5 * paid, rel=1e-9)


def test_json_has_all_of_it(output_of, found):
    told, own = json.loads(output_of(*ASKED, "--price", "2.5", "-f", "json")), found.to_dict()
    assert told.keys() == own.keys()
    assert told["optima"] == own["optima"]


def test_it_refuses_what_it_does_not_use(refuses):
    rows = [
        ("64 h100", "deadline: expected the days that there are"),
        ("llama3-8B_h100x64 h100 --deadline 30d", "a number of processors, since the model is any"),
        ("64 h100 --deadline 0", "error: --deadline: expected a time above 0"),
        ("64 h100 --deadline 9d --tokens 1T", "error: --tokens: expected a run of one model"),
        ("64 h100 --deadline 9d --budget-usd 1M", "error: --budget-usd: expected a run of one"),
        ("64 h100 --deadline 9d --set campaign.steps=9", "--set: steps: expected a run of one"),
    ]
    refuses(("campaign", "any"), rows)
    words = "calculon: infeasible: in 1e-06 days 64 x h100_80g_sxm train"
    refuses(ASKED[:4], [("--deadline 1e-6", words)], code=1)
