"""Whole runs beside what their sources print: hours, failures, checks of laws."""

import dataclasses

import numpy as np
import pytest

from calculon.validate import error_summary as summary
from calculon.validate import published_runs
from calculon.validate.measured_and_predicted import pooled
from calculon.validate.published_runs import WIDEST, Check, every_check
from calculon.validate.published_study import Library
from calculon.validate.run_rows import run_rows
from calculon.validate.study_rows import read_rows
from tests.shipped_studies import NAMES, compared

CHECK = Check(name="a", unit="h", published=2.0, ours=2.0, tolerance=0.01, source="a paper")


@pytest.fixture(scope="module")
def results():
    return [compared(name, "corrected") for name in NAMES if name.startswith("campaign/")]


@pytest.fixture(scope="module")
def trainings(results):
    return {row["run"]: row for row in published_runs.trainings(results)}


def test_a_check_passes_within_its_tolerance():
    for change, passes in (
        ({"ours": 2.02}, True),
        ({"ours": 2.021}, False),
        ({"ours": 1.979}, False),
        ({"ours": 1.95, "rounded": 0.05}, True),
        ({"ours": 9.0, "at_least": True}, True),
        ({"ours": 1.999, "at_least": True}, False),
    ):
        assert dataclasses.replace(CHECK, **change).passes is passes, change


def test_laws_agree_with_what_is_published():
    assert [check.name for check in every_check() if not (check.passes and check.source)] == []


def test_a_law_that_is_wrong_fails_its_check(monkeypatch):
    monkeypatch.setattr(published_runs, "card_energy", lambda hours, watts, pue: hours * watts)
    wrong = {check.name for check in every_check() if not check.passes}
    assert "BLOOM 176B: energy" in wrong
    assert "RSC-1 on 16,384: between failures" not in wrong


def test_checks_with_executions_pass():
    both = [compared(name, "corrected") for name in ("campaign/llama3", "mlperf/gpt3_scaling")]
    found = list(published_runs._of_studies(both))
    assert len(found) == 3
    assert all(check.passes for check in found)


def test_where_a_configuration_is_known_hours_are_as_they_must_be(trainings):
    known = [row for row in trainings.values() if row["configuration"] == "known"]
    assert {"BLOOM 176B", "Llama 3.1 405B", "PaLM 540B"} <= {row["run"] for row in known}
    for row in known:
        assert row["passes"]
        if row["hours_of"] == "run":
            assert 1 < row["ratio"] <= WIDEST
        else:
            assert row["low"] <= row["published"] <= row["high"]


def test_every_row_has_its_interval_and_what_failures_add(trainings, results):
    assert len(trainings) == sum(len(one.own.comparisons[0].rows) for one in results)
    for row in trainings.values():
        assert row["low"] < row["steps"] < row["high"]
        assert row["ratio"] == pytest.approx(row["published"] / row["steps"])
        parts = [row[name] or 1 for name in ("by_rate", "by_law", "rest")]
        assert row["ratio"] == pytest.approx(np.prod(parts))
        assert (row["by_law"] is None) == (row["hours_of"] == "steps")
        assert row["by_law"] is None or 1 < row["by_law"] < 1.2
        assert row["passes"] is None or row["configuration"] == "known"


def test_hours_at_a_printed_rate_follow_from_it(results):
    """Tokens over 380 a second and processor, 400 TFLOP/s with the formula of the table, 180 K h for 1 T tokens."""
    cells = {row.cells["run"]: row.cells for one in results for row in read_rows(one.study)}
    assert cells["LLaMA 65B"]["rate_hours"] == pytest.approx(1.4e12 / 380 / 3600)
    flops = 6 * 405853388800 + 12 * 126 * 16384 * 8192
    hours = 15.6e12 * flops / 400e12 / 3600
    assert cells["Llama 3.1 405B"]["rate_hours"] == pytest.approx(hours, rel=1e-4)
    assert cells["DeepSeek-V3"]["rate_hours"] == 14.8 * 180e3
    step = 96 * 2048 * 2048 * 70 * 14336**2 / (150e12 * 384)
    step *= 1 + 2048 / (6 * 14336) + 250880 / (16 * 70 * 14336)
    hours = 366e9 / 2048**2 * step * 384 / 3600
    assert cells["BLOOM 176B"]["rate_hours"] == pytest.approx(hours, rel=1e-4)


def test_whole_runs_are_no_steps_and_enter_no_error_of_steps(results):
    """Nothing of them is evidence of an interval, or in the errors of all rows."""
    assert run_rows(results) == []
    assert pooled(results) == {}
    assert summary.classes(results) == []


def test_failures_and_checks_are_shown_with_several_studies(results):
    assert published_runs.failures(results)[0]["published"] == pytest.approx(54 * 24 / 419)
    for one in results:
        assert published_runs.failures([one]) == []
        assert published_runs.checks([one]) == []


def test_a_name_that_is_whole_goes_before_the_last_part_of_another():
    library = Library.at()
    assert [study.name for study in library.studies("bloom")] == ["bloom"]
    assert [study.name for study in library.studies("palm")] == ["campaign/palm"]
