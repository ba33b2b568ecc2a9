"""``plan`` under limits: fleets side by side, from the command line."""

import json

import pytest

TOKENS = ("--tokens", "1T", "--batch", "512")
ASKED = ("plan", "llama-3-8b", "32,64", "h100", *TOKENS)


def test_limits_compare_fleets(run):
    code, out, err = run(*ASKED, "--deadline", "60d")
    assert code == 0, err
    title, *lines = out.splitlines()
    assert title.startswith("Fleets for llama3-8B: h100_80g_sxm")
    assert any(line.startswith("Cheapest in expectation: ") for line in lines)
    assert "deadline 60 d" in out
    assert "mtbf_processor" in out  # no default is silent
    assert "USD/h" in out


def test_the_document_has_all_points(run):
    code, out, _ = run(*ASKED, "--objective", "days", "--price", "2", "-o", "-")
    document = json.loads(out)
    assert code == 0
    points = document["points"]
    assert [one["num_procs"] for one in points] == [32, 64]
    assert document["ranked_by"] == "days"
    for one in points:
        assert one["usd"] == pytest.approx(2 * one["processor_hours"], rel=1e-9)
    assert document["question"]["campaign"] == {"tokens": "1T", "fleet": {"price": 2}}


def test_plans_of_the_document_are_executions(run, tmp_path):
    path = tmp_path / "fleet.json"
    code, out, _ = run(*ASKED, "--objective", "usd", "-o", str(path))
    assert (code, out) == (0, f"Output: {path}\n")
    best = json.loads(path.read_text())["plans"]["0"]
    code, out, _ = run("llm", "llama3-8B", f"{path}#0", "h100_80g_sxm", "-")
    assert code == 0
    assert f"{best['execution']['num_procs']} x h100_80g_sxm" in out


def test_where_nothing_meets_the_limits_the_page_comes_with_code_1(run):
    code, out, err = run(*ASKED, "--deadline", "9d", "--budget-usd", "1k")
    assert code == 1
    assert "Nothing meets the limits; the nearest" in out
    assert "would be in time" in out
    assert err.startswith("calculon: infeasible: nothing meets the limits")
    assert "its budget of 1.00 k USD by" in err


def test_several_systems_stand_side_by_side(run):
    code, out, _ = run("plan", "llama-3-8b", "64", "h100,gaudi3", *TOKENS)
    assert code == 0
    assert "No price is known of gaudi3: told by days" in out.replace("\n  ", " ")


def test_a_launch_file_is_that_of_the_best_fleet(run):
    code, out, err = run(*ASKED, "--deadline", "60d", "--emit", "megatron-lm")
    assert code == 0, err
    assert "--tensor-model-parallel-size" in out


def test_what_cannot_be_asked_is_one_message(run):
    rows = [
        (("any", "h100"), "expected a deadline with any"),
        (("64", "h100", "--deadline", "2 moons"), "--deadline: expected a time such as 60d"),
        (("64", "h100", "--objective", "euro"), "expected one of usd, days"),
        (("64", "h100", "--deadline", "60d", "--mine", "tp=8"), "no plan of one's own"),
        (("64", "h100", "--deadline", "60d", "--campaign", "llama3-405B"), "batch_ramp"),
    ]
    for words, said in rows:
        code, out, err = run("plan", "llama-3-8b", *words, *TOKENS)
        assert code == 2
        assert out == ""
        assert said in err
        assert "Traceback" not in err


def test_days_of_a_plan_are_those_of_the_run_with_failures(run):
    asked = ("plan", "gpt2-124M", "8", "h100", *TOKENS, "--mtbf", "1000h")
    code, out, _ = run(*asked)
    assert code == 0
    (line,) = (line for line in out.splitlines() if line.strip().startswith("goodput"))
    assert "d of steps" in line
    assert "with failures" in line
    assert "mtbf_processor" not in out  # it is stated
    assert "restart 300 s (assumption)" in out.replace("\n", " ")
    training = json.loads(run(*asked, "-o", "-").out)["plans"]["0"]["training"]
    whole = training["campaign"]
    steps = whole["useful_days"]
    assert whole["days"] * whole["goodput"] == pytest.approx(steps, rel=1e-12)
    assert steps == pytest.approx(training["days"], rel=2 / training["steps"])  # whole steps
    assert whole["days_low"] < whole["days"] < whole["days_high"]
