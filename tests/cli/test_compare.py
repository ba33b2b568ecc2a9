"""``calculon compare``: differences, their sources, and every format."""

import csv
import io
import json

import pytest

import calculon
from tests.cli.conftest import ARGUMENTS
from tests.helpers import NAMES

A = ",".join(ARGUMENTS)
B = A.replace("a100_80g", "a100_80e")


@pytest.fixture
def statistics():
    return [calculon.estimate(*text.split(",")).stats for text in (A, B)]


def test_text_ranks_what_makes_the_difference(run):
    code, out, err = run("compare", A, B)
    assert (code, err) == (0, "")
    assert out.startswith("A  a100_80g\nB  a100_80e\n\nAsked differently\n")
    assert "\nsystem  a100_80g  a100_80e\n" in out
    assert "\nTime: A 131.9 s, B 126.8 s (-3.8 %)\n" in out
    parts = out.partition("\nTime:")[2].partition("\n\n")[0].splitlines()[2:]
    assert [line.split("  ")[0] for line in parts][:3] == [
        "pipeline bubble",
        "backward computation",
        "forward computation",
    ]
    assert parts[-1].split() == ["total", "131.901", "s", "126.836", "s", "-5.064", "s"]
    assert "total_time" in out


def test_equal_statistics_are_counted_unless_asked_for(run):
    brief, whole = run("compare", A, B).out, run("compare", A, B, "--all").out
    assert "are equal" in brief
    assert "weight_space " not in brief
    assert all(f"\n{name} " in whole for name in NAMES)


def test_a_result_equals_itself(run):
    out = run("compare", A, A).out
    assert "Statistics: 0 differ, 96 are equal" in out
    assert "Asked differently" not in out


def test_json_holds_every_value_difference_and_ratio(run, statistics):
    found = json.loads(run("compare", A, B, "--format", "json").out)
    assert [one["label"] for one in found["results"]] == ["a100_80g", "a100_80e"]
    assert len(found["results"][0]["documents"][0]["sha256"]) == 64
    assert found["inputs"] == [{"field": "system", "values": ["a100_80g", "a100_80e"]}]
    assert [one["name"] for one in found["statistics"]] == list(NAMES)
    first, second = statistics
    for one in found["statistics"]:
        a, b = first[one["name"]], second[one["name"]]
        assert one["values"] == [a, b]
        assert one["differences"] == [b - a]
        assert one["ratios"] == [b / a if a else None]
    assert sum(one["differences"][0] for one in found["time"]) == pytest.approx(
        second["total_time"] - first["total_time"]
    )
    sizes = [abs(one["differences"][0]) for one in found["time"]]
    assert sizes == sorted(sizes, reverse=True)


def test_csv_has_a_line_per_value(run, statistics):
    rows = list(csv.DictReader(io.StringIO(run("compare", A, B, "-f", "csv").out)))
    (row,) = [row for row in rows if row["table"] == "statistics" and row["name"] == "total_time"]
    assert float(row["difference"]) == statistics[1]["total_time"] - statistics[0]["total_time"]
    assert (row["unit"], row["result"]) == ("s", "a100_80e")


def test_markdown_has_tables(run):
    out = run("compare", A, B, "-f", "markdown").out
    assert "- A  a100_80g" in out
    assert "\n| total | 131.901 s | 126.836 s | -5.064 s |\n" in out


def test_several_results_are_compared_with_the_first(run):
    found = json.loads(run("compare", A, B, A, "-f", "json").out)
    (total,) = [one for one in found["statistics"] if one["name"] == "total_time"]
    assert len(total["values"]) == 3
    assert total["differences"][1] == 0


def test_results_without_inputs(run):
    run("llm", *ARGUMENTS, "one.json")
    run("llm", *B.split(","), "two.json")
    out = run("compare", "one.json", "two.json").out
    assert "Asked differently" not in out
    assert "Memory, tier 1: A 79.55 GiB, B 79.55 GiB (+0.0 %)" in out


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ([A], 2, "expected 2 to 26 results to compare, found 1"),
        ([A, "x.json"], 2, "x.json: expected a readable file"),
        ([], 2, "the following arguments are required: RESULT"),
    ],
)
def test_says_what_is_wrong(run, arguments, code, expected):
    found = run("compare", *arguments)
    assert found.code == code
    assert expected in found.err


def test_an_execution_that_cannot_run(run, execution):
    found = run("compare", A, f"megatron-1T,{execution(activation_recompute='none')},a100_80g")
    assert found.code == 1
    assert "calculon: infeasible:" in found.err
