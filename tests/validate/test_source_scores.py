"""Errors by source: every source, study and row at its weight, and what a fit saw apart from what was only judged."""

import dataclasses

import numpy as np
import pytest

from calculon.estimate.run_table import Runs, runs
from calculon.validate import error_summary as summary
from calculon.validate import source_scores as source_scores_module
from calculon.validate.published_fields import Names
from calculon.validate.run_rows import run_rows
from calculon.validate.score import Rank
from calculon.validate.source_scores import inside, source_scores, together
from tests.shipped_studies import compared

STUDIES = (
    *("bigscience", "dgxc/float8", "dgxc/nemotron4_15b", "megatron_2020", "mt_nlg", "nemo/bridge"),
    *("sc21/table1", "sc21/table2", "seqsel/layer", "seqsel/steps", "seqsel/tab5"),
)
SOURCES = ("bigscience", "dgxc", "megatron_2020", "mt_nlg", "nemo", "sc21", "seqsel")


@pytest.fixture(scope="module")
def results():
    return [compared(name, "corrected") for name in STUDIES]


@pytest.fixture(scope="module")
def scores(results):
    return {one.name: one for one in source_scores(results)}


def errors_of(results, name):
    (one,) = (one for one in results if one.study.name == name)
    return one.steps.errors


def test_sources_have_the_steps_of_their_studies(results, scores):
    assert tuple(scores) == SOURCES
    assert scores["seqsel"].rows == len(
        errors_of(results, "seqsel/steps")
    )  # no layers, no tuned rows
    assert scores["sc21"].rows == 22
    assert sum(one.rows for one in scores.values()) == len(run_rows(results))


def test_studies_of_a_source_have_the_same_weight(results, scores):
    both = [errors_of(results, f"sc21/table{number}") for number in (1, 2)]
    assert scores["sc21"].mean == pytest.approx(np.mean([np.abs(one).mean() for one in both]))
    assert scores["sc21"].bias == pytest.approx(np.mean([one.mean() for one in both]))
    assert (scores["sc21"].worst, scores["sc21"].largest) == ("sc21/table2", np.abs(both[1]).mean())


def test_all_sources_have_the_same_weight(scores):
    every = [*scores.values()]
    found = together("all", every)
    for name in ("mean", "bias", "coverage"):
        assert getattr(found, name) == pytest.approx(np.mean([getattr(one, name) for one in every]))
    assert (found.sources, found.rows) == (len(SOURCES), sum(one.rows for one in every))
    assert found.worst == max(every, key=lambda one: one.mean).name
    sizes = np.concatenate([one.errors for one in every])
    weights = np.concatenate([one.weights for one in every]) / len(SOURCES)
    assert weights[sizes <= found.median].sum() >= 0.5 - 1e-9
    assert weights[sizes < found.median].sum() < 0.5


@pytest.fixture
def alone(monkeypatch):
    """Take the runs of the catalog away."""
    monkeypatch.setattr(source_scores_module, "runs", lambda: Runs.of([]))


@pytest.mark.usefixtures("alone")
def test_coverage_is_that_of_intervals_of_the_other_sources(results):
    own = Runs.of(run_rows(results))
    held = own.by_source.sides == 0
    for one in source_scores(results):
        rows = own.where("source", one.name)
        share = np.average(held[rows], weights=own.by_source.weight[rows])
        assert one.coverage == pytest.approx(100 * share)
    assert [*inside(results)] == held.tolist()


def test_other_sources_are_those_of_the_catalog_too(results, scores):
    (one,) = source_scores([one for one in results if one.study.origin == "mt_nlg"])
    assert one.coverage == scores["mt_nlg"].coverage
    rows = runs().where("source", "mt_nlg")
    assert one.coverage == pytest.approx(100 * (runs().by_source.sides[rows] == 0).mean())


@pytest.mark.usefixtures("alone")
def test_coverage_is_unknown_for_few_sources(results):
    few = results[:3]
    assert [one.coverage for one in source_scores(few)] == [None, None]
    assert set(inside(few)) == {None}
    assert together("all", source_scores(few)).coverage is None


def test_a_sweep_may_span_the_studies_of_a_source(results, scores):
    some = [one for one in results if one.study.origin == "dgxc"]
    rows = [row for one in some for row in one.steps.rows]
    groups = [(row.cells["model"], row.cells["num_gpus"], row.cells["gbs"]) for row in rows]
    measured, estimated = (
        np.concatenate([getattr(one.steps, name) for one in some])
        for name in ("measured", "estimated")
    )
    rank = Rank.of(groups, measured, estimated)
    found = scores["dgxc"]
    assert (found.sweeps, found.tau, found.regret) == (rank.sweeps, rank.tau, rank.regret)
    assert scores["mt_nlg"].tau is None
    assert scores["mt_nlg"].sweeps == 0


def test_the_published_edition_has_none(result, content):
    assert source_scores([result(content)]) == []


def test_a_study_may_say_that_it_is_no_evidence(result, content):
    (one,) = source_scores([result(content, edition="corrected")])
    assert (one.name, one.rows) == ("small", 2)
    assert source_scores([result(content | {"whole_steps": False}, edition="corrected")]) == []


def test_a_part_of_a_step_is_no_step(result, content):
    content["quantities"][0]["estimate"] = "fw_time"
    assert source_scores([result(content, edition="corrected")]) == []


def test_a_sweep_may_be_by_a_derived_column(result, content):
    content |= {"derive": {"half": "gpus / 2"}, "sweep": ["half"]}
    assert [row.cells["half"] for row in result(content).steps.rows] == [4, 4]


def test_memory_stands_beside_the_time_of_its_row(result, content):
    memory = {"name": "memory", "measured": "gigabytes", "unit": "GB", "bound": 90}
    content["quantities"].append(memory | {"estimate": "proc_mem_tier1_cap_req"})
    first, second = run_rows([result(content, edition="corrected")])
    assert first.measured_memory == 50e9
    assert first.memory_error is not None
    assert second.measured_memory is None


# -- rows of tables ---------------------------------------------------------------------------------------------------


def seen(results, name):
    """Return results of which one study was seen by a fit."""
    return [
        dataclasses.replace(
            one, study=dataclasses.replace(one.study, fitted=Names(("launch_mode", "mbs")))
        )
        if one.study.name == name
        else one
        for one in results
    ]


def test_what_a_fit_saw_stands_apart(results):
    found = seen(results, "sc21/table1")
    fitted = {row["name"]: row["fitted"] for row in summary.sources(found, fitted=True)}
    assert fitted["sc21"] == "launch_mode mbs"
    judged = summary.sources(found, fitted=False)
    assert [row["name"] for row in judged] == [name for name in SOURCES if name not in fitted]
    every, rest = summary.all_sources(found)
    assert (every["name"], every["sources"]) == ("all", len(SOURCES))
    assert "sc21" in every["fitted"]
    assert (rest["name"], rest["sources"]) == ("only judged", len(SOURCES) - len(fitted))
    assert rest["fitted"] == ""
