"""``calculon serve``: pages, files and exit codes."""

import json

import pytest

import calculon

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


def test_the_page_tells_what_passes_leave_out(run):
    staged = run(
        "serve", *ASKED, *LENGTHS, "--set", "pipeline_par=2", "--users", "64", "--format", "json"
    )
    found = json.loads(staged.out)
    assert found["figures"]["decode_time"] > found["passes"]["decode"]["time"]
    said = "more: hand-overs between stages, and waits for the slowest."
    for stages, tells in ((1, False), (2, True)):
        out = run("serve", *ASKED, *LENGTHS, "--set", f"pipeline_par={stages}", "--users", "64").out
        assert (said in " ".join(out.split())) is tells
        assert "prefill alone, in one pass" not in out  # of 2,000 tokens with a budget of 8,192
    long = ("--prompt", "20k", "--output", "500", "--users", "1")
    assert "prefill alone, in one pass" in run("serve", *ASKED, *long).out


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
