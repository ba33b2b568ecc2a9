"""``calculon campaign any``: the largest model for a fleet, its page, its file and what it needs."""

import json

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
