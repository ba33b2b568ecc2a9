"""``calculon serve``: pages, files and exit codes."""

import json
from pathlib import Path

import pytest

import calculon
from calculon.spec.catalog import root

ASKED = ("llama-3.1-70b", "8", "h100")
LENGTHS = ("--prompt", "2000", "--output", "500")


@pytest.fixture
def with_help():
    """Compute what would help, in a test that is about it."""


@pytest.fixture(autouse=True)
def _plain(request):
    if "with_help" not in request.fixturenames:
        request.getfixturevalue("without_help")


@pytest.mark.usefixtures("with_help")
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


WAITS = "more: hand-overs between stages, and waits for the slowest."


def test_the_page_tells_what_passes_leave_out(run):
    staged = (*ASKED, *LENGTHS, "--set", "pipeline_par=2", "--users", "64")
    found = json.loads(run("serve", *staged, "--format", "json").out)
    assert found["figures"]["decode_time"] > found["passes"]["decode"]["time"]
    out = run("serve", *staged).out
    assert WAITS in " ".join(out.split())
    assert "prefill alone, in one pass" not in out  # of 2,000 tokens with a budget of 8,192
    long = ("--prompt", "20k", "--output", "500", "--users", "1")
    out = run("serve", *ASKED, *long).out
    assert "prefill alone, in one pass" in out
    assert WAITS not in " ".join(out.split())


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


def test_what_does_not_fit(run):
    code, out, err = run("serve", "llama3-70B", "1", "h100", *LENGTHS)
    assert (code, out) == (1, "")
    assert "does not fit: a rank needs" in err
    assert (
        "Hint: narrower weights (--set weights_dtype=float8), more processors, or calculon" in err
    )


def test_what_does_not_fit_because_of_a_share_or_of_what_drivers_take(run):
    asked = ("serve", "llama3-8B", "1", "h100", *LENGTHS, "--set")
    code, _, err = run(*asked, "memory_fraction=1e-9")
    assert code == 1
    assert "does not fit: memory_fraction=1e-09 leaves" in err
    assert "Hint" not in err
    code, _, err = run(*asked, "system.mem1.GiB=1")
    assert code == 1
    assert "GiB that a process gets of 1.0" in err


def test_an_empty_rank(run, tmp_path):
    (tmp_path / "best.json").write_text("{}")
    code, _, err = run("serve", "llama3-8B", "best.json#", "h100", *LENGTHS)
    assert code == 2
    assert "expected a rank or a row after #, such as best.json#0, found nothing" in err


def test_shares_and_times_in_other_words(run):
    rows = [
        ("--prefix-hit", "50%", "write 0.5"),
        ("--prefix-hit", "50", "write 0.5 for 50 %"),
        ("--percentile", "99", "write 0.99 for 99 %"),
        ("--tpot", "1us", "say the unit: ms, s, min, h, d or w"),
    ]
    for option, value, hint in rows:
        code, _, err = run("serve", "llama3-8B", "1", "h100", *LENGTHS, option, value)
        assert code == 2
        assert err.endswith(f"Hint: {hint}\n")


def test_a_machine_without_a_price_says_so(run):
    asked = ("serve", "llama3-8B", "1", "mi355x", *LENGTHS)
    code, out, _ = run(*asked)
    assert (code, "no price is known: --set price=2.5" in out) == (0, True)
    code, out, _ = run(*asked, "--set", "price=2.5")
    assert (code, "no price is known" in out) == (0, False)


def test_a_quoted_command_of_an_engine_is_a_deployment(run, tmp_path):
    command = "vllm serve some/model -tp 2 --max-num-seqs 32"
    (tmp_path / "serve.sh").write_text(command)
    figures = []
    for source in (command, "serve.sh"):
        code, out, _ = run("serve", "llama3-8B", source, "h100", *LENGTHS, "-f", "json")
        assert code == 0
        figures.append(json.loads(out)["figures"])
    assert figures[0] == figures[1]
    assert run("serve", "llama3-8B", "some text", "h100", *LENGTHS).code == 2


def test_of_several_the_one_that_does_not_fit_is_named(run):
    code, _, err = run("compare", "llama3-8B,1,h100", "llama3-70B,1,h100", *LENGTHS)
    assert code == 1
    assert "infeasible: llama3-70B,1,h100: a sequence of 2,500 tokens does not fit" in err


@pytest.mark.parametrize(("option", "limit"), [("--tpot", "0.1ms"), ("--ttft", "1ms")])
def test_not_even_one_sequence_keeps_a_limit(run, option, limit):
    code, out, _ = run("serve", "llama3-8B", "1", "h100", *LENGTHS, option, limit)
    assert code == 1
    assert f"1 sequence in each replica: even one misses the limit of {option[2:].upper()}" in out
    assert "as many as keep the limit" not in out


def test_longer_requests_than_the_model_was_trained_with(run):
    asked = ("serve", "llama3-8B", "1", "h100", "--output", "192", "--prompt")
    for prompt, told in (("8000", False), ("8001", True)):
        code, out, _ = run(*asked, prompt)
        assert (code, "(seq_size)" in out) == (0, told)


@pytest.mark.parametrize("command", ["serve", "serve-optimal"])
def test_learned_positions_end(run, command):
    order = ("gpt2-124M", "1", "h100")
    fixed = ("--fix", "token_budget=2048") if command == "serve-optimal" else ()
    assert run(command, *order, *fixed, "--prompt", "1000", "--output", "24").code == 0
    code, _, err = run(command, *order, *fixed, "--prompt", "1000", "--output", "25")
    assert code == 2
    assert "gpt2-124M: positions: expected at least 1,025, as positions are learned" in err


def test_an_exchange_of_a_model_without_experts(run):
    rows = [
        ("overlap=two_batches", "none"),
        ("routing=power_law:1.2", "balanced"),
        ("dispatch_dtype=float8", "same"),
    ]
    for change, plain in rows:
        code, _, err = run("serve", "llama3-8B", "1", "h100", *LENGTHS, "--set", change)
        name, _, found = change.partition("=")
        assert code == 2
        assert f"{name}: expected {plain}, found {found}. Hint: llama3-8B has no experts" in err


def test_bad_input(run):
    rows = [
        ((*ASKED,), "prompt"),
        ((*ASKED, "--prompt", "x", "--output", "5"), "prompt: "),
        ((*ASKED, *LENGTHS, "--set", "max_bach=3"), "did you mean 'max_batch'?"),
        ((*ASKED, *LENGTHS, "--set", "kv_dtype=int3"), "kv_dtype: expected one of"),
        (("llama3-70B", "nothing", "h100", *LENGTHS), "nothing: expected a deployment"),
        (("llama3-70B", "0", "h100", *LENGTHS), "0"),
        *(
            (
                ("llama3-70B", number, "h100", *LENGTHS),
                f"num_procs: expected a whole number of processors, such as 8 or 1k, found '{number}'",
            )
            for number in ("-1", "1.5", "1e3", "+4", "1,000", ".5")
        ),
        ((*ASKED, *LENGTHS, "--rate", "1", "--users", "1"), "one of rate and users"),
        ((*ASKED, *LENGTHS, "--workload", "llama3-8B_h100x64"), "workload"),
    ]
    for arguments, message in rows:
        code, out, err = run("serve", *arguments)
        assert (code, out) == (2, ""), arguments
        assert message in err
        assert "Traceback" not in err


def test_a_change_of_a_number_of_processors_that_is_none(run):
    rows = [
        ("tensor_par=abc", "tensor_par: expected a whole number of at least 1, found 'abc'"),
        ("tensor_par=0", "tensor_par: expected a whole number of at least 1, found 0"),
        ("pipeline_par=0", "pipeline_par: expected a whole number of at least 1, found 0"),
        ("pipeline_par=true", "pipeline_par: expected a whole number"),
        ("prefill=4", "prefill: expected an object with named fields, found 4. Hint: prefill.num"),
        ("deployment.prefill=4", "prefill: expected an object with named fields, found 4"),
        ("prefill.num_procs=abc", "prefill.num_procs: expected a whole number of at least 1"),
        ("prefill.num_procs=8", "prefill.num_procs: expected the processors of 8 that only"),
        ("prefill.num_proc=4", "found the unknown field 'num_proc'. Hint: did you mean 'num_procs"),
        ("prefill.tensor_par=0", "prefill.tensor_par: expected a whole number of at least 1"),
        ("prefill.tensor_par=2", "only prefill: 1 to 7, found none"),
        ("draft=model:", "draft: expected one of none, mtp, ngram, model:NAME, found 'model:'"),
    ]
    for change, message in rows:
        code, out, err = run("serve", "llama3-8B", "8", "h100", *LENGTHS, "--set", change)
        assert (code, out) == (2, ""), change
        assert message in err


def test_a_missing_workload_says_how_it_is_stated(run):
    code, _, err = run("serve", *ASKED)
    assert code == 2
    for name in ("prompt", "output"):
        assert f"workload: {name}: expected a number of tokens, found none" in err
    assert "--prompt 2k --output 500, or name a workload that has them: --workload chat" in err
    code, _, err = run("serve", *ASKED, "--prompt", "2k")
    assert (code, "prompt: " in err, "output: " in err) == (2, False, True)


@pytest.fixture
def served_file(made):
    asked = ("llama3-8B", "1", "h100", "--prompt", "900", "--output", "300", "--tpot", "20ms")
    made(("serve", *asked, "-o", "served.json"))
    return "served.json"


@pytest.mark.parametrize(
    "arguments",
    [
        ("llama3-8B", "served.json", "h100"),
        ("llama3-8B", "1", "h100", "--workload", "served.json"),
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


def test_files_of_another_kind_are_named(run):
    rows = [
        (("llama3-8B", "table.csv", "h100", *LENGTHS), "table.csv: expected a deployment, found a"),
        (("llama3-8B", "1", "h100", "--workload", "table.csv"), "expected a workload, found a"),
        (("llama3-8B", "1", "h100", "--workload", "d.yaml"), "a workload, found a deployment"),
        (("d.yaml", "1", "h100", *LENGTHS), "d.yaml: expected a model, found a deployment"),
        (("llama3-8B", "train.sh", "h100", *LENGTHS), "served, found a launcher of training"),
    ]
    for arguments, message in rows:
        Path("table.csv").write_text("num_procs,tpot\n8,0.1\n")
        Path("d.yaml").write_text("num_procs: 8\ntensor_par: 4\n")
        Path("train.sh").write_bytes((root() / "examples/launch/llama3-8b.sh").read_bytes())
        code, out, err = run("serve", *arguments)
        assert (code, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(("load", "told"), [("--rate", 1), ("--users", 0)])
def test_replicas_with_one_queue(load, told, run):
    """Requests at a rate find the replica that is free; users wait in each."""
    options = ("--prompt", "100", "--output", "20", load, "1", "--set", "tensor_par=1")
    _, out, _ = run("serve", "llama3-8B", "2", "h100_80g_sxm", *options)
    assert out.count("One queue for all 2 replicas") == told
