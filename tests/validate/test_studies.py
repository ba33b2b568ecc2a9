"""Every study that is shipped: runs, stays within its bound, and says what the published tool says."""

import csv
import json
import subprocess
import sys
import time

import pytest

from calculon.validate import summary
from calculon.validate.compare import compare, pooled
from calculon.validate.library import Library
from calculon.validate.score import Score
from tests.helpers import ROOT

NAMES = Library.at().names()
MEASURED = {
    "bigscience": 30, "megatron_2020": 8, "mt_nlg": 3, "sc21/table1": 10, "seqsel/layer": 5,
    "seqsel/tab5": 8, "vtrain/multi": 62, "vtrain/single": 720,
}  # fmt: skip
"""Rows that the sources have."""

EXPECTED = {
    "seqsel/tab5": (3, 5), "sc21/table1": (9, 11), "vtrain/multi": (13, 15),
    "mt_nlg": (28, 32), "bigscience": (38, 50), "vtrain/single": (40, 52),
}  # fmt: skip
"""Mean error of the times under the published model, in percent."""


@pytest.fixture(scope="module")
def results():
    library = Library.at()
    return {study.name: compare(study, library) for study in library.studies()}


@pytest.mark.parametrize("name", NAMES)
def test_stays_within_its_bound(results, name):
    assert results[name].passes


@pytest.mark.parametrize("name", NAMES)
def test_says_where_every_row_comes_from(name):
    with (ROOT / "validation" / name / "measured.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert all(row["source"] for row in rows)
    assert not any("/work" in str(row) for row in rows)


@pytest.mark.parametrize(("name", "rows"), MEASURED.items())
def test_compares_every_measured_row(results, name, rows):
    assert results[name].total == rows
    assert all(one.score.n == rows for one in results[name].own.comparisons)


@pytest.mark.parametrize(("name", "limits"), EXPECTED.items())
def test_starts_where_the_published_model_starts(results, name, limits):
    low, high = limits
    assert low <= results[name].own.comparisons[0].score.mean <= high


def test_all_of_them_take_a_few_seconds():
    begin = time.perf_counter()
    library = Library.at()
    for study in library.studies():
        compare(study, library)
    assert time.perf_counter() - begin < 10


def test_totals_pool_the_rows_of_measured_times_and_of_memory(results):
    rows = list(results.values())
    found = pooled(rows)
    times = [
        error
        for result in rows
        for one in result.own.comparisons
        if one.quantity.unit == "s"
        for error in one.errors
    ]
    assert found["time"].n == len(times)
    assert found["time"].mean == pytest.approx(sum(map(abs, times)) / len(times))
    assert found["memory"] == Score.of(results["bigscience"].own.comparisons[1].errors)


def test_heads_that_tensor_parallelism_does_not_divide_are_not_represented(results):
    (reading,) = [one for one in results["bigscience"].alternatives if "120" in one.name]
    assert reading.unrepresented == {"attn_heads_split": 4}


def test_summaries_are_plain_data(results):
    rows = list(results.values())
    found = json.loads(json.dumps(summary.document(rows)))
    assert [study["name"] for study in found["studies"]] == NAMES
    assert len(summary.values(rows)) == sum(c.score.n for r in rows for c in r.own.comparisons)


def test_the_tables_in_the_documentation_are_current():
    command = [sys.executable, str(ROOT / "scripts" / "rendering.py"), "--check"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
