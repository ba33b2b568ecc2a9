"""``calculon report``: whole runs of results, the limits that they miss, and documents of campaigns."""

import html
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("unvalidated", "unrendered")

TODAY = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")


def _page(path):
    """Return the words of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", Path(path).read_text())).split())


RUN = ("--tokens", "1G", "--price", 2.0, "--deadline", "100d")
FEW = ("--fix", "tensor_par=1", "--fix", "pipeline_par=1", "--fix", "microbatch_size=1")


def test_the_runs_of_a_search_are_those_that_it_was_asked_about(run):
    space = ("megatron-126M", 8, 16, "float16", "a100_80g_sxm")
    assert run("loe", *space, "best.json", *FEW, *RUN, "-t", 1).code == 0
    assert run("report", "best.json", "-o", "run.html").code == 0
    words = _page("run.html")
    assert "deadline" in words
    assert "2.00 USD" in words


def test_the_runs_of_fleets_are_on_the_page_of_their_plans(run):
    asked = ("plan", "megatron-126M", "2,4", "a100_80g_sxm", *RUN, "--batch", 16, *FEW)
    assert run(*asked, "-o", "any.json").code == 0
    assert run("report", "any.json", "-o", "run.html").code == 0
    assert "2.00 USD" in _page("run.html")


def test_a_plan_without_a_run_has_a_page_without_one(run):
    asked = ("plan", "megatron-126M", 2, "a100_80g_sxm", "--batch", 16, *FEW)
    assert run(*asked, "-o", "plan.json").code == 0
    assert run("report", "plan.json", "-o", "plan.html").code == 0
    assert "Training of megatron-126M" in _page("plan.html")


def test_a_page_is_printed(run):
    text = run("report", ",".join(TODAY), "-o", "-").out
    assert run("report", ",".join(TODAY), "-o", "run.html").code == 0
    assert text.startswith("<!DOCTYPE html>")
    assert text.rstrip("\n") == Path("run.html").read_text().rstrip("\n")


def test_a_missed_limit_is_told_as_by_campaign(run):
    small = ("gpt2-124M", "gpt2-124M_a100x2_ddp", "a100_80g_sxm")
    asked = ("--tokens", "1T", "--deadline", "10d")
    report = run("report", ",".join(small), *asked, "-o", "run.html")
    campaign = run("campaign", *small, *asked)
    assert (report.code, campaign.code) == (1, 1)
    assert report.err == campaign.err
    assert "misses its deadline of 10 d" in report.err
    assert "deadline" in _page("run.html")


def test_the_document_of_a_campaign_says_how_it_is_reported(run, refuses):
    assert run("campaign", *TODAY, "--tokens", "1T", "-o", "run.json").code == 0
    message = f"calculon report {','.join(TODAY)} --campaign"
    refuses(("report", "run.json"), [("-o run.html", message)])
