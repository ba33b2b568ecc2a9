"""The helpers in ``scripts/``: results as CSV, shapes of models for a budget."""

import csv
import io
import json
import subprocess
import sys

import pytest

from calculon.apps.cli.main import main
from calculon.architecture.parameters import parameter_count
from calculon.inputs import model
from tests.helpers import NAMES, ROOT


def script(name, *arguments, cwd=ROOT):
    command = [sys.executable, str(ROOT / "scripts" / name), *map(str, arguments)]
    environment = {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def test_results_become_a_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example = ("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
    assert main(["llm", *example, "stats.json"]) == 0
    assert main(["loe", "megatron-22B", "8,16", "16", "float16", "a100_80g", "b.json", "-t2"]) == 0
    done = script("result_tables.py", "stats.json", "b.json", "all.csv", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "all.csv").read_text())))
    assert [row["result"] for row in rows] == ["stats", "b#8/0", "b#8/1", "b#16/0", "b#16/1"]
    assert rows[0]["num_procs"] == ""
    assert rows[1]["num_procs"] == "8"
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert [float(rows[0][name]) for name in NAMES] == [stats[name] for name in NAMES]


def test_results_of_the_corrected_edition_keep_their_fields_and_figures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")
    assert main(["llm", *example, "today.json"]) == 0
    search = ("loe", "llama3-8B", "16", "64", "bfloat16", "h100_80g_sxm", "b.json")
    assert main([*search, "--edition", "corrected", "--fix", "attn_impl=flash"]) == 0
    done = script("result_tables.py", "today.json", "b.json", "-", cwd=tmp_path)
    alone, found = csv.DictReader(io.StringIO(done.stdout))
    assert (alone["edition"], alone["attn_impl"]) == ("corrected", "flash")
    assert (found["edition"], found["attn_impl"]) == ("corrected", "flash")
    assert float(alone["mfu"]) == json.loads((tmp_path / "today.json").read_text())["mfu"]


def test_a_result_that_is_none_is_an_error(tmp_path):
    done = script("result_tables.py", "none.json", "-", cwd=tmp_path)
    assert done.returncode == 2
    assert "none.json: expected a readable file" in done.stderr


def test_shapes_are_near_the_budget_and_are_models():
    rows = json.loads(script("shapes.py", "175e9", "--format", "json").stdout)
    assert 5 < len(rows) <= 20
    assert all(abs(row["parameters"] / 175e9 - 1) < 0.02 for row in rows)
    assert all(row["hidden"] == row["attn_heads"] * row["attn_size"] for row in rows)
    text = script("shapes.py", "175e9", "--write", "96").stdout
    assert parameter_count(model(json.loads(text))) == pytest.approx(175e9, rel=0.02)


@pytest.mark.parametrize("arguments", [("10",), ("175e9", "--write", "3")])
def test_what_there_is_no_shape_for(arguments):
    assert script("shapes.py", *arguments).returncode == 2
