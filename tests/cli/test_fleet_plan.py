"""``plan`` under limits: fleets side by side, from the command line."""

import json

import pytest

TOKENS = ("--tokens", "1T", "--batch", "64")
FLAT = ("--fix", "tensor_par=1", "--fix", "pipeline_par=1")
ASKED = ("plan", "gpt2-124M", "2,4", "h100", *TOKENS, *FLAT)


def test_the_document_has_all_points_and_its_plans_are_executions(output_of, tmp_path):
    path = tmp_path / "fleet.json"
    out = output_of(*ASKED, "--objective", "days", "--price", "2", "-o", path)
    assert "Fastest in expectation: " in out
    assert out.endswith(f"Output: {path}\n")
    document = json.loads(path.read_text())
    points = document["points"]
    assert [one["num_procs"] for one in points] == [2, 4]
    assert document["ranked_by"] == "days"
    for one in points:
        assert one["usd"] == pytest.approx(2 * one["processor_hours"], rel=1e-9)
    assert document["question"]["campaign"] == {"tokens": "1T", "fleet": {"price": 2}}
    best = document["plans"]["0"]
    out = output_of("llm", "gpt2-124M", f"{path}#0", "h100_80g_sxm", "-")
    assert f"{best['execution']['num_procs']} x h100_80g_sxm" in out


def test_where_nothing_meets_the_limits_the_page_comes_with_code_1(run):
    code, out, err = run(*ASKED, "--deadline", "3d", "--budget-usd", "100")
    assert code == 1
    assert "Nothing meets the limits; the nearest" in out
    assert "would meet the deadline" in out
    assert err.startswith("calculon: infeasible: nothing meets the limits")
    assert "its budget of 100 USD by" in err


@pytest.mark.large
def test_a_launch_file_is_that_of_the_best_fleet(output_of):
    out = output_of(*ASKED, "--deadline", "60d", "--emit", "megatron-lm")
    assert "--tensor-model-parallel-size" in out


def test_what_cannot_be_asked_is_one_message(refuses):
    rows = [
        ("any h100", "expected a deadline with any"),
        ("64 h100 --deadline 60d --campaign llama3-405B", "batch_ramp"),
    ]
    refuses(("plan", "llama-3-8b", *TOKENS), rows)


def test_days_of_a_plan_are_those_of_the_run_with_failures(output_of):
    asked = ("plan", "gpt2-124M", "4", "h100", *ASKED[4:], "--mtbf", "1000h")
    out = output_of(*asked, "-v")
    (line,) = (line for line in out.splitlines() if line.strip().startswith("goodput"))
    assert "d without" in line
    assert "with failures" in line
    assert "mtbf_processor" not in out  # it is stated
    assert "restart 300 s (assumption)" in out.replace("\n", " ")
    training = json.loads(output_of(*asked, "-o", "-"))["plans"]["0"]["training"]
    whole = training["campaign"]
    steps = whole["useful_days"]
    assert whole["days"] * whole["goodput"] == pytest.approx(steps, rel=1e-12)
    assert steps == pytest.approx(training["days"], rel=2 / training["steps"])  # whole steps
    assert whole["days_low"] < whole["days"] < whole["days_high"]
