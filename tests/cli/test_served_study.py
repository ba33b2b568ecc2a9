"""``calculon study`` of deployments: tables, the summary, and what is finished is kept."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.study.served_questions import answer
from tests.helpers import csv_rows

SMALL = {
    "models": "llama3-8B",
    "systems": ["h100_80g_sxm"],
    "deployments": [1, {"num_procs": 2, "tensor_par": [1, 2, 4], "max_batch": 16}],
    "workloads": [{"prompt": 900, "output": 300, "tpot_limit": ["1ms", "20ms"]}],
    "quantities": {"hours": 24},
    "summary": {
        "rows": ["deployment.tensor_par"],
        "columns": "workload.tpot_limit",
        "best": {"a day": "output_rate * hours / 24", "TTFT": "ttft:min"},
    },
}


@pytest.fixture
def finished(made):
    """Write the study, with its finished table and journal x.csv."""
    call = ("study", "s.json", "-o", "x.csv", "-q", "--engine", "serial")
    made(call, **{"s.json": json.dumps(SMALL)})
    return "s.json"


def test_the_table_has_a_row_for_each(output_of, finished):
    shutil.copy("x.csv.journal", "x.parquet.journal")
    out = output_of("study", finished, "-o", "x.parquet", "-q", "--engine", "serial")
    assert "Output: x.parquet (8 rows)" in out
    assert "Cannot run: 2 (column reason)" in out
    assert "Miss a limit: 3 (column missed)" in out
    table = pd.read_parquet("x.parquet")
    assert (len(table), {*SERVING_FIGURES} <= {*table.columns}) == (8, True)
    rows = csv_rows(Path("x.csv").read_text())
    assert [*rows[0]] == [*table.columns]
    done = [row for row in rows if row["reason"] == row["missed"] == ""]
    best = max(float(row["output_rate"]) for row in done if int(row["tensor_par"]) == 1)
    line = next(x for x in out.split("20ms")[1].splitlines() if x.split()[:1] == ["1"])
    assert float(line.split()[1].rstrip("*").replace(",", "")) == pytest.approx(best, rel=1e-3)


def test_what_is_finished_is_not_run_again(output_of, finished, monkeypatch):
    first = Path("x.csv").read_text()
    lines = Path("x.csv.journal").read_bytes().splitlines(keepends=True)
    Path("x.csv.journal").write_bytes(b"".join(lines[:5]))
    asked = []

    def watched(one):
        asked.append(one.number)
        return answer(one)

    monkeypatch.setattr("calculon.study.served_questions.answer", watched)
    out = output_of("study", finished, "-o", "x.csv", "-q", "--engine", "serial")
    assert "Finished before: 4" in out
    assert len(asked) == 4
    assert Path("x.csv").read_text() == first


def test_serving_is_of_one_edition(run):
    Path("s.json").write_text(json.dumps(SMALL))
    for edition, code in (("sc23", 2), ("corrected", 0)):
        asked = ("study", "s.json", "-o", "x.csv", "--debug", "--edition", edition)
        assert run(*asked).code == code


PLAIN = {
    "models": ["llama3-8B"],
    "systems": ["h100_80g_sxm"],
    "deployments": [1, 2],
    "workloads": [{"prompt": 900, "output": 300}],
}


def test_a_summary_that_is_not_asked_for_says_processors_once(run):
    Path("plain.json").write_text(json.dumps(PLAIN))
    out = run("study", "plain.json", "-o", "x.csv", "-q", "--engine", "serial").out
    assert "(2 rows)" in out
    (heading,) = (line.split() for line in out.splitlines() if "output_rate_per_proc" in line)
    assert "at" not in heading
    assert heading.count("processors") == 1
    rows = [line.split() for line in out.splitlines() if line.split()[:1] in (["1"], ["2"])]
    assert [row[:2] for row in rows] == [["1", "1"], ["2", "2"]]
    assert "'at' is" not in out


def test_a_summary_of_nothing_is_not_printed(output_of):
    Path("none.json").write_text(json.dumps(PLAIN | {"models": ["llama3-70B"], "deployments": [1]}))
    out = output_of("study", "none.json", "-o", "x.csv", "-q", "--engine", "serial")
    assert "Cannot run: 1 (column reason)" in out
    assert "(1 row)" in out
    assert "output_rate" not in out
