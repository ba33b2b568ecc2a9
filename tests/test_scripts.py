"""The helpers in ``scripts/``: results as CSV, shapes of models for a budget."""

import csv
import json
import sys
from dataclasses import replace

import pytest

from calculon.architecture.parameters import parameter_count
from calculon.cli.main import main
from calculon.estimate.run_table import runs
from calculon.inputs import model
from scripts import peers, result_tables, shapes, wording
from tests.helpers import NAMES


@pytest.fixture
def script(tmp_path, monkeypatch, capsys):
    """Run a script with some arguments in a folder of its own; return its exit code and what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(module, *arguments):
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["script", *arguments])
        try:
            code = module.main()
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return run


def test_results_become_a_table(script, tmp_path):
    example = ("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
    assert main(["llm", *example, "stats.json"]) == 0
    assert main(["loe", "megatron-22B", "8,16", "16", "float16", "a100_80g", "b.json", "-t2"]) == 0
    assert script(result_tables, "stats.json", "b.json", "all.csv")[::2] == (0, "")
    rows = list(csv.DictReader((tmp_path / "all.csv").read_text().splitlines()))
    assert [row["result"] for row in rows] == ["stats", "b#8/0", "b#8/1", "b#16/0", "b#16/1"]
    assert [row["num_procs"] for row in rows[:2]] == ["", "8"]
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert [float(rows[0][name]) for name in NAMES] == [stats[name] for name in NAMES]


def test_results_of_the_corrected_edition_keep_their_fields_and_figures(script, tmp_path):
    example = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")
    assert main(["llm", *example, "today.json"]) == 0
    search = ("loe", "llama3-8B", "16", "64", "bfloat16", "h100_80g_sxm", "b.json")
    assert main([*search, "--edition", "corrected", "--fix", "attn_impl=flash"]) == 0
    rows = list(csv.DictReader(script(result_tables, "today.json", "b.json", "-")[1].splitlines()))
    assert [(one["edition"], one["attn_impl"]) for one in rows] == [("corrected", "flash")] * 2
    assert float(rows[0]["mfu"]) == json.loads((tmp_path / "today.json").read_text())["mfu"]


def test_a_result_that_is_none_is_an_error(script):
    code, _, message = script(result_tables, "none.json", "-")
    assert code == 2
    assert "none.json: expected a readable file" in message


def test_shapes_are_near_the_budget_and_are_models(script):
    rows = json.loads(script(shapes, "175e9", "--format", "json")[1])
    assert 5 < len(rows) <= 20
    assert all(abs(row["parameters"] / 175e9 - 1) < 0.02 for row in rows)
    assert all(row["hidden"] == row["attn_heads"] * row["attn_size"] for row in rows)
    text = script(shapes, "175e9", "--write", "96")[1]
    assert parameter_count(model(json.loads(text))) == pytest.approx(175e9, rel=0.02)


@pytest.mark.parametrize("arguments", [("10",), ("175e9", "--write", "3")])
def test_what_there_is_no_shape_for(script, arguments):
    assert script(shapes, *arguments)[0] == 2


def test_phrases_in_added_lines_are_warned_of_with_their_places():
    diff = '+++ b/x.py\n@@ -3,0 +4,2 @@\n+# those of a rank\n+#  fine\n@@ -9 +11 @@\n-# beside\n+"""What.\n'
    places = [one.partition(": ")[0] for one in wording.warnings(diff)]
    assert places == ["x.py:4", "x.py:11"]


# -- rules of thumb, which other predictions are compared with --------------------------------------------------------

RUN = runs()[0]


@pytest.mark.parametrize(
    ("zero_stage", "bytes_of_parameter"),
    [("0", 16.0), ("1", 4 + 12 / 8), ("2", 2 + 14 / 8), ("3", 16 / 8), ("fsdp", 16 / 8)],
)
def test_the_rule_of_thumb_for_memory_counts_what_replicas_shard(zero_stage, bytes_of_parameter):
    """Source: ZeRO, arXiv:1910.02054, section 3.1: 16 bytes, 12 of them of the optimizer."""
    held = 7e9 / (2 * 4) * bytes_of_parameter
    degrees = {"tensor_par": 2, "pipeline_par": 4, "data_par": 8, "zero_stage": zero_stage}
    run = replace(RUN, parameters=7e9, measured_memory=held / 0.75, **degrees)
    assert peers.rule_memory_error(run) == pytest.approx(-25)


def test_the_rule_of_thumb_for_time_is_6_n_d_at_40_percent():
    run = replace(RUN, parameters=7e9, batch_size=64, seq_size=4096, num_procs=16, peak=1e15)
    seconds = 6 * 7e9 * 64 * 4096 / (16 * 0.4e15)
    assert peers.rule_time_error(replace(run, measured=2 * seconds)) == pytest.approx(-50)
