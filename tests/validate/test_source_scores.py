"""Errors by class and source: every source, study and row at its weight, and the side on which intervals miss."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon import SpecError
from calculon.estimate.run_table import Runs, runs
from calculon.validate import error_summary as summary
from calculon.validate import source_scores as source_scores_module
from calculon.validate.published_fields import Names
from calculon.validate.run_classes import CLASSES, class_of
from calculon.validate.run_rows import run_rows
from calculon.validate.score import Rank
from calculon.validate.source_scores import class_scores, scored_steps, weighted_median
from tests.shipped_studies import compared

STUDIES = (
    *("bigscience", "dgxc/float8", "dgxc/nemotron4_15b", "megatron_2020", "megatron_tests"),
    *("megatron_tests/experts", "mt_nlg", "nemo/bridge", "pythia", "sc21/table1", "sc21/table2"),
    *("seqsel/layer", "seqsel/steps", "seqsel/tab5", "simumax/deepseek_v2"),
)


@pytest.fixture(scope="module")
def results():
    return [compared(name, "corrected") for name in STUDIES]


@pytest.fixture(scope="module")
def steps(results):
    return scored_steps(results)


@pytest.fixture(scope="module")
def scores(results):
    """Scores by name of the class and of the source."""
    return {(one.run_class.name, one.name): one for one in class_scores(results)}


def test_each_step_counts_once_in_its_class_and_in_its_source(results, scores):
    found = run_rows(results)  # no layers, no tuned rows
    for one in CLASSES:
        own = [run for run in found if class_of(run) is one]
        total = scores[one.name, ""] if own else None
        parts = [score for (name, source), score in scores.items() if name == one.name and source]
        assert sum(score.rows for score in parts) == len(own)
        if total:
            assert (total.rows, total.sources) == (len(own), len({run.source for run in own}))


def test_a_known_mechanism_divides_a_source(scores):
    assert scores["Dense, FSDP and ZeRO-3", "sc21/table2: ZeRO-3 of 2021"].rows == 6
    assert scores["Dense, other", "sc21/table2: Megatron"].rows == 6
    small, large = scores["Dense, below 1 B", "pythia"], scores["Dense, Hopper, Ampere", "pythia"]
    assert small.parameters[1] < 1e9 <= large.parameters[0]
    assert small.rows + large.rows == 8


def test_a_source_with_several_studies_in_a_class_has_its_own_name(scores):
    names = {source for name, source in scores if name == "Functional tests"}
    assert names == {"", "megatron_tests"}
    assert ("MoE", "simumax/deepseek_v2") in scores


def of_class(steps, name, source=""):
    return [one for one in steps if one.run_class.name == name and source in ("", one.run.source)]


def weight(steps, one):
    """Return the weight of a step: each source alike, in it each study, in it each step."""
    own = [step.run for step in steps if step.run.source == one.run.source]
    alike = sum(run.study == one.run.study for run in own)
    return 1 / (len({run.study for run in own}) * alike)


def test_each_source_and_study_has_the_same_weight(steps, scores):
    for (name, source), score in scores.items():
        if source:
            continue
        own = of_class(steps, name)
        weights = np.array([weight(own, one) for one in own])
        sides = np.array([one.side for one in own])
        for side, share in ((-1, score.below), (0, score.coverage), (1, score.above)):
            assert share == pytest.approx(100 * weights[sides == side].sum() / weights.sum())
        for errors, median in (
            (np.array([one.run.error for one in own]), score.median),
            (np.abs([one.run.error for one in own]), score.absolute),
        ):
            half = weights.sum() / 2 + 1e-9
            assert weights[errors < median - 1e-9].sum() <= half
            assert weights[errors > median + 1e-9].sum() <= half


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=9))
def test_the_median_of_equal_weights_is_the_usual_one(values):
    found = weighted_median(np.array(values), np.ones(len(values)))
    assert found == pytest.approx(np.median(values), abs=1e-12)


@pytest.fixture
def alone(monkeypatch):
    """Take the runs of the catalog away."""
    monkeypatch.setattr(source_scores_module, "runs", lambda: Runs.of([]))


@pytest.mark.usefixtures("alone")
def test_a_side_is_that_of_the_interval_of_the_other_sources(results):
    own = Runs.of(run_rows(results))
    assert [one.side for one in scored_steps(results)] == own.by_source.sides.tolist()


def test_other_sources_are_those_of_the_catalog_too(results):
    own = scored_steps([one for one in results if one.study.origin == "mt_nlg"])
    shipped = zip(runs().columns["source"], runs().by_source.sides.tolist(), strict=True)
    assert [one.side for one in own] == [side for source, side in shipped if source == "mt_nlg"]


@pytest.mark.usefixtures("alone")
def test_coverage_is_unknown_for_few_sources(results):
    few = results[:3]
    assert {one.side for one in scored_steps(few)} == {None}
    assert {(one.below, one.coverage, one.above) for one in class_scores(few)} == {(None,) * 3}


def test_a_sweep_may_span_the_studies_of_a_source(results, scores):
    some = [one for one in results if one.study.origin == "dgxc"]
    pairs = [
        (row, run)
        for one in some
        for row, run in zip(one.steps.rows, run_rows([one]), strict=True)
        if class_of(run).name == "Dense, other"
    ]
    groups = [(row.cells["model"], row.cells["num_gpus"], row.cells["gbs"]) for row, _ in pairs]
    measured, predicted = (
        np.array([getattr(run, name) for _, run in pairs]) for name in ("measured", "predicted")
    )
    rank = Rank.of(groups, measured, predicted)
    found = scores["Dense, other", "dgxc/float8"]
    assert (found.sweeps, found.tau, found.regret) == (rank.sweeps, rank.tau, rank.regret)
    no_sweep = scores["Dense, Hopper, Ampere", "mt_nlg"]
    assert (no_sweep.sweeps, no_sweep.tau) == (0, None)


def test_the_published_edition_has_none(result, content):
    assert class_scores([result(content)]) == []


def test_a_study_may_say_that_it_is_no_evidence(result, content):
    total, one = class_scores([result(content, edition="corrected")])
    assert (total.name, one.name, one.rows) == ("", "small", 2)
    assert class_scores([result(content | {"whole_steps": False}, edition="corrected")]) == []


def test_a_study_may_be_a_functional_test(result, content):
    found = result(content | {"functional_test": True}, edition="corrected")
    assert {one.run_class for one in class_scores([found])} == {CLASSES[0]}


def test_a_part_of_a_step_is_no_step(result, content):
    content["quantities"][0]["estimate"] = "fw_time"
    assert class_scores([result(content, edition="corrected")]) == []


@pytest.mark.parametrize(
    ("parts", "found"),
    [({"all": "batch > 0", "large": "batch > 4"}, "all, large"), ({"small": "batch < 8"}, "none")],
)
def test_a_row_belongs_to_one_part(result, content, parts, found):
    with pytest.raises(SpecError, match=f"line 3 .b., parts: expected one part .*{found}"):
        scored_steps([result(content | {"parts": parts}, edition="corrected")])


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


def test_rows_that_a_fit_saw_are_marked(results):
    rows = summary.classes(seen(results, "sc21/table1"))
    marked = {(row["class"], row["name"]) for row in rows if "launch_mode" in row["fitted"]}
    name = "Dense, Hopper, Ampere"
    assert marked == {(name, ""), (name, "sc21/table1")}


def test_sentences_are_those_of_the_classes_that_have_steps(results):
    named = dict.fromkeys(row["class"] for row in summary.classes(results))
    sentences = {row["class"]: row["about"] for row in summary.class_sentences(results)}
    assert sentences == {one.name: one.about for one in CLASSES if one.name in named}
