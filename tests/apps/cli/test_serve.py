"""``calculon serve``: pages, files and exit codes."""

import json
from pathlib import Path

import pytest

import calculon
from calculon.spec.catalog import root

ASKED = ("llama-3.1-70b", "8", "h100")
LENGTHS = ("--prompt", "2000", "--output", "500")


def test_the_first_question_in_one_line(run):
    code, out, err = run("serve", *ASKED, *LENGTHS, "--ttft", "1", "--tpot", "0.05")
    assert (code, err) == (0, "")
    for words in (
        "llama3-70B served by 8 x h100_80g_sxm",
        "1 replica of TP 8",
        "as many as keep the limit of TPOT",
        "Keeps TTFT: ",
        "What limits",
        "Memory: GiB of a rank, of",
        "Decode pass",
        "Prefill of one prompt",
    ):
        assert words in out


def test_the_file_has_what_the_call_returns(run, tmp_path):
    path = tmp_path / "served.json"
    options = ("--users", "16", "--set", "token_budget=0", "--set", "workload.prompt_cv=1")
    code, out, err = run("serve", *ASKED, *LENGTHS, *options, "-o", str(path))
    assert (code, err) == (0, "")
    assert "Output:" in out
    same = calculon.serve(
        *("llama3-70B", 8, "h100_80g_sxm"),
        {"prompt": 2000, "output": 500, "users": 16, "prompt_cv": 1},
        changes={"token_budget": 0},
    )
    assert json.loads(path.read_text()) == json.loads(json.dumps(same.to_dict()))


def test_a_deployment_and_a_workload_of_the_catalog(run):
    asked = ("llama3-70B", "llama3.1-70B_h100x8_fp8", "h100_80g_sxm", "--workload", "chat")
    code, out, _ = run("serve", *asked, "--format", "json", "--output", "100")
    found = json.loads(out)
    assert code == 0
    assert found["deployment"]["replicas"] == 2
    assert found["workload"]["output"] == 100
    assert found["workload"]["tpot_limit"] == 0.05


def test_a_missed_limit_is_told_with_exit_code_1(run):
    code, out, err = run("serve", *ASKED, *LENGTHS, "--tpot", "1ms")
    assert code == 1
    assert "Misses TPOT: 0.0" in out
    assert err.startswith("calculon: infeasible: it misses TPOT: 0.0")


def test_a_rate_that_is_too_high(run):
    code, out, _ = run("serve", *ASKED, *LENGTHS, "--rate", "500")
    assert code == 1
    assert "without end" in out


def test_what_does_not_fit(run):
    code, out, err = run("serve", "llama3-70B", "1", "h100", *LENGTHS)
    assert (code, out) == (1, "")
    assert "does not fit: a rank needs" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*ASKED,), "prompt"),
        ((*ASKED, "--prompt", "x", "--output", "5"), "prompt: "),
        ((*ASKED, *LENGTHS, "--set", "max_bach=3"), "did you mean 'max_batch'?"),
        ((*ASKED, *LENGTHS, "--set", "kv_dtype=int3"), "kv_dtype: expected one of"),
        (("llama3-70B", "nothing", "h100", *LENGTHS), "nothing: expected a deployment"),
        (("llama3-70B", "0", "h100", *LENGTHS), "0"),
        ((*ASKED, *LENGTHS, "--rate", "1", "--users", "1"), "one of rate and users"),
        ((*ASKED, *LENGTHS, "--workload", "llama3-8B_h100x64"), "workload"),
    ],
)
def test_bad_input(run, arguments, message):
    code, out, err = run("serve", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


@pytest.fixture
def served_file(run):
    asked = ("llama3-8B", "1", "h100", "--prompt", "900", "--output", "300", "--tpot", "20ms")
    assert run("serve", *asked, "-o", "served.json").code == 0
    return "served.json"


@pytest.mark.parametrize(
    "arguments",
    [
        ("llama3-8B", "served.json", "h100"),
        ("llama3-8B", "1", "h100", "--workload", "served.json"),
        ("llama3-8B", "served.json", "h100", "--workload", "served.json"),
    ],
)
def test_a_result_says_its_workload(run, served_file, arguments):
    code, out, _ = run("serve", *arguments, "--format", "json", "--users", "4")
    assert code == 0
    found = json.loads(out)["workload"]
    assert found == json.loads(Path(served_file).read_text())["workload"] | {"users": 4}


def test_a_prompt_and_an_output_are_a_workload_of_their_own(run, served_file):
    asked = ("llama3-8B", served_file, "h100", "--prompt", "800", "--output", "100")
    found = json.loads(run("serve", *asked, "--format", "json").out)["workload"]
    assert (found["prompt"], found["output"]) == (800, 100)
    assert "tpot_limit" not in found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("llama3-8B", "table.csv", "h100", *LENGTHS), "table.csv: expected a deployment, found a"),
        (("llama3-8B", "1", "h100", "--workload", "table.csv"), "expected a workload, found a"),
        (("llama3-8B", "1", "h100", "--workload", "d.yaml"), "a workload, found a deployment"),
        (("d.yaml", "1", "h100", *LENGTHS), "d.yaml: expected a model, found a deployment"),
        (("llama3-8B", "train.sh", "h100", *LENGTHS), "served, found a launcher of training"),
    ],
)
def test_files_of_another_kind_are_named(run, arguments, message):
    Path("table.csv").write_text("num_procs,tpot\n8,0.1\n")
    Path("d.yaml").write_text("num_procs: 8\ntensor_par: 4\n")
    Path("train.sh").write_bytes((root() / "examples/launch/llama3-8b.sh").read_bytes())
    code, out, err = run("serve", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
