"""Comparisons and reports from Python are those of the commands."""

import json
import re

import pytest

import calculon
from calculon.base.errors import Infeasible, SpecError
from tests.cases import for_each
from tests.cli.conftest import run, unvalidated
from tests.documents import results
from tests.documents.results import ONE, OTHER

__all__ = ["run", "unvalidated"]

LLAMA = ("llama3-8B", "h100_80g_sxm")


@pytest.fixture(scope="module")
def both():
    return [results.estimate_of(name) for name in (ONE, OTHER)]


@pytest.fixture(scope="module")
def compared(both):
    return calculon.compare(*both)


def test_a_comparison_is_that_of_the_command(run, compared):
    texts = [f"{LLAMA[0]},{name},{LLAMA[1]}" for name in (ONE, OTHER)]
    told = json.loads(run("compare", *texts, "--format", "json").out)
    mine = json.loads(json.dumps(compared.to_dict()))
    for one in (*told["results"], *mine["results"]):
        one.pop("documents")  # files there, contents here
    assert mine == told


def test_a_frame_has_the_differences_of_every_value(both, compared):
    frame = compared.to_frame()
    rows = frame[frame["table"] == "statistics"].set_index("name")
    for name in ("total_time", "sample_rate", "weight_space"):
        one, other = (estimate.stats[name] for estimate in both)
        assert rows.loc[name, "difference"] == other - one
        assert rows.loc[name, "ratio"] == other / one


def test_results_have_the_names_that_they_are_given(both):
    named = calculon.compare(mine=both[0], best=results.found())
    assert [one.label for one in named.results] == ["mine", "best"]


def test_documents_are_named_with_their_hashes(both, compared):
    documents = compared.to_dict()["results"][0]["documents"]
    assert [one["role"] for one in documents] == ["model", "execution", "system"]
    assert [one["name"] for one in documents] == [LLAMA[0], ONE, LLAMA[1]]
    assert documents[0]["sha256"] == both[0].model.origin.digest


@pytest.mark.usefixtures("unvalidated")
def test_a_report_has_every_section(tmp_path, both):
    path = tmp_path / "report.html"
    calculon.report({"mine": both[0], "search": results.found()}, path)
    text = path.read_text()
    first, second, *others = re.findall(r"<h2>(.*?)</h2>", text)
    assert (first, second) == ("mine", "search")
    assert others == ["Side by side", "Validation", "Assumptions", "Inputs and versions"]
    assert "best executions of the search" in text
    assert "layers</strong></summary>" in text  # with every layer, though nobody asked for them


@for_each(
    ("call", "said"),
    [
        (calculon.compare, "expected 2 to 26 results"),
        (
            lambda one: calculon.compare(one, 5),
            "expected an Estimate, a SearchResult or an Answer, found an int",
        ),
        (lambda one: calculon.compare([one, one]), "pass several as separate arguments"),
        (lambda one: calculon.report([], "x.html"), "results to report"),
        (lambda one: calculon.report(one, "x.pdf"), "ends in .html"),
        (lambda one: calculon.report(one, "missing/x.html"), "a folder that exists"),
    ],
)
def test_what_is_no_result_says_why(both, call, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match=re.escape(said)):
        call(both[0])


def test_nothing_found_is_nothing_to_compare(both):
    with pytest.raises(Infeasible):
        calculon.compare(both[0], results.found_nothing())
    with pytest.raises(Infeasible, match="no plan fits"):
        calculon.compare(both[0], results.no_answer())
