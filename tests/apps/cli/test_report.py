"""``calculon report``: whole runs of results, the limits that they miss, and documents of campaigns."""

import html
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("unvalidated")

TODAY = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")


def _page(path):
    """Return the words of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", Path(path).read_text())).split())


def test_the_runs_of_a_search_are_those_that_it_was_asked_about(run):
    space = ("megatron-126M", 8, 16, "float16", "a100_80g_sxm")
    few = ("--fix", "tensor_par=1", "--fix", "pipeline_par=1")
    asked = ("--tokens", "1G", "--price", 2.0, "--deadline", "100d")
    assert run("loe", *space, "best.json", *few, *asked).code == 0
    assert run("report", "best.json", "-o", "run.html").code == 0
    words = _page("run.html")
    assert "deadline" in words
    assert "2.00 USD" in words
    assert run("loe", *space, "steps.json", *few).code == 0
    assert run("report", "steps.json", "-o", "steps.html").code == 0
    assert "USD" not in _page("steps.html")


def test_the_runs_of_fleets_are_on_the_page_of_their_plans(run):
    asked = ("--tokens", "1G", "--price", 2.0, "--deadline", "100d", "--batch", 16)
    fleets = run("plan", "megatron-126M", "4,8", "a100_80g_sxm", *asked, "-o", "any.json")
    assert fleets.code == 0
    assert run("report", "any.json", "-o", "run.html").code == 0
    assert "2.00 USD" in _page("run.html")


def test_a_missed_limit_is_told_as_by_campaign(run):
    asked = ("--tokens", "15T", "--deadline", "10d")
    report = run("report", ",".join(TODAY), *asked, "-o", "run.html")
    campaign = run("campaign", *TODAY, *asked)
    assert (report.code, campaign.code) == (1, 1)
    assert report.err == campaign.err
    assert "misses its deadline of 10 d" in report.err
    assert "deadline" in _page("run.html")


def test_the_document_of_a_campaign_says_how_it_is_reported(run):
    assert run("campaign", *TODAY, "--tokens", "1T", "-o", "run.json").code == 0
    report = run("report", "run.json", "-o", "run.html")
    assert report.code == 2
    assert f"calculon report {','.join(TODAY)} --campaign" in " ".join(report.err.split())
