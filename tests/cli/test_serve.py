"""``calculon serve``: pages, files and exit codes."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.cases import for_each
from tests.documents.drawing import flat
from tests.helpers import ROOT

pytestmark = pytest.mark.usefixtures("without_help")
ASKED = ("llama-3.1-70b", "8", "h100")
SMALL = ("serve", "llama3-8B", "1", "h100")
LENGTHS = ("--prompt", "2000", "--output", "500")


def test_a_missed_limit_is_told_with_exit_code_1(run):
    code, out, err = run("serve", *ASKED, *LENGTHS, "--tpot", "1ms")
    assert code == 1
    assert "Misses TPOT: 0.0" in out
    assert err.startswith("calculon: infeasible: it misses TPOT: 0.0")


def test_what_does_not_fit(refuses):
    rows = [
        ("1", "does not fit: a rank needs"),
        ("1", "Hint: it fits with --set weights_dtype=float8, or on 2 processors"),
        ("tp=1", "Hint: it fits with --set weights_dtype=float8, or on 2 processors"),
        ("tp=1 dp=2", "or with another split of its 2 processors (calculon serve-optimal)"),
    ]
    for deployment, message in rows:
        refuses(("serve", "llama3-70B", deployment, "h100"), [(LENGTHS, message)], code=1)
    refuses(("sop", "llama3-70B", "1", "h100"), [(LENGTHS, "fits with --fix weights_")], code=1)
    rows = [
        ("memory_fraction=1e-9", "does not fit: memory_fraction=1e-09 leaves"),
        ("system.mem1.GiB=1", "GiB that a process can use, 1.0 in total\n"),
    ]
    refuses((*SMALL, *LENGTHS, "--set"), rows, code=1)
    message = "deployments fits in memory; the nearest, 1 replica of TP 1: a sequence of 2,500 tokens does not fit"
    asked = ("compare", *LENGTHS, "llama3-8B,1,h100")
    refuses(asked, [("llama3-70B,1,h100", f"llama3-70B,1,h100: none of 7 {message}")], code=1)


def test_shares_and_times_in_other_words(refuses):
    rows = [
        ("--prefix-hit 50%", "Hint: write 0.5\n"),
        ("--prefix-hit 50", "Hint: write 0.5 for 50 %\n"),
        ("--percentile 99", "Hint: write 0.99 for 99 %\n"),
        ("--tpot 1us", "Hint: add a unit: ms, s, min, h, d or w\n"),
    ]
    refuses((*SMALL, *LENGTHS), rows)


WAITS = "for stage-to-stage transfers and the slowest rank."
ALONE = "prefill alone, in one pass"
LENGTHS_TEXT = " ".join(LENGTHS)
SINGLE = "All 2 replicas share a queue"
UNLIMITED = "no latency limit (--ttft, --tpot)"
EVEN_ONE = "1 sequence per replica: even one misses the"


@for_each(
    ("words", "said", "unsaid"),
    [
        (f"llama-3.1-70b tp=4,pp=2 h100 {LENGTHS_TEXT} --users 64", WAITS, ALONE),
        ("llama-3.1-70b tp=8 h100 --prompt 20k --output 500 --users 1", ALONE, WAITS),
        (f"llama3-8B 1 h100 {LENGTHS_TEXT}", UNLIMITED, ""),
        (f"llama3-8B 1 h100 {LENGTHS_TEXT} --ttft 1ms", "Misses TTFT", UNLIMITED),
        ("llama3-8B 1 h100", "Meets TPOT", UNLIMITED),
        (f"llama3-8B 1 mi355x {LENGTHS_TEXT}", "no price is known: --set price=2.5", ""),
        (f"llama3-8B 1 mi355x {LENGTHS_TEXT} --set price=2.5", "USD", "no price is known"),
        (f"llama3-8B 1 h100 {LENGTHS_TEXT} --tpot 0.1ms", f"{EVEN_ONE} TPOT", "as many as keep"),
        (f"llama3-8B 1 h100 {LENGTHS_TEXT} --ttft 1ms", f"{EVEN_ONE} TTFT", "as many as keep"),
        # requests at a rate find the replica that is free; users wait in each
        ("llama3-8B 2 h100 --prompt 100 --output 20 --rate 1 --set tensor_par=1", SINGLE, ""),
        (
            "llama3-8B 2 h100 --prompt 100 --output 20 --users 1 --set tensor_par=1",
            "served by",
            SINGLE,
        ),
    ],
)
def test_the_page_says_what_counts_for_its_question(run, words, said, unsaid):
    text = flat(run("serve", *words.split(), "-v").out)
    assert said in text
    assert not unsaid or unsaid not in text


def test_a_limit_that_measured_values_may_miss_has_a_caveat(output_of):
    asked = ("serve", "llama3-70B", "tp=8", "h100", *LENGTHS, "--tpot", "50ms", "--ttft", "1")
    out = output_of(*asked)
    assert re.search(r"Meets TPOT: 50 ms, limit 50 ms, but its range goes to \d+ ms\.", out)
    assert len(out.splitlines()) <= 24


def test_a_limit_without_published_rows_is_not_validated(output_of):
    asked = ("serve", "deepseek-v3", "tp=8 ep=8", "b200", *LENGTHS, "--ttft", "1")
    assert re.search(r"Meets TTFT: \d+ ms, limit 1 s, not validated\.", output_of(*asked))


def test_a_quoted_command_of_an_engine_is_a_deployment(output_of, tmp_path):
    command = "vllm serve some/model -tp 2 --max-num-seqs 32"
    (tmp_path / "serve.sh").write_text(command)
    figures = []
    for source in (command, "serve.sh"):
        out = output_of("serve", "llama3-8B", source, "h100", *LENGTHS, "-f", "json")
        figures.append(json.loads(out)["figures"])
    assert figures[0] == figures[1]


def test_a_number_of_processors_means_their_best_deployment(output_of):
    asked = ("llama3-8B", "2", "h100", *LENGTHS, "--format", "json", "--users", "64")
    best = json.loads(output_of("serve-optimal", *asked))
    (winner,) = best["winners"]
    found = json.loads(output_of("serve", *asked))
    assert found["tried"] == best["counts"]["total"]
    assert (found["batch"], found["figures"]) == (winner["batch"], winner["figures"])
    split = json.loads(output_of("serve", "llama3-8B", "procs=2 tp=2", *asked[2:]))
    assert (split["deployment"]["tensor_par"], split["deployment"]["pipeline_par"]) == (2, 1)


def test_learned_positions_end(run, refuses):
    message = "gpt2-124M: positions: expected at least 1,025, because positions are learned"
    for command in ("serve", "serve-optimal --fix token_budget=2048"):
        asked = (*command.split(), "gpt2-124M", "1", "h100", "--prompt", "1000", "--output")
        assert run(*asked, "24").code == 0
        refuses(asked, [("25", message)])


def test_bad_input(refuses):
    number = "num_procs: expected a whole number of processors, such as 8 or 1k, found"
    deployments = [
        ("nothing", "nothing: expected a deployment"),
        ("0", "0"),
        ("best.json#", "expected a rank or a row after #, such as best.json#0, found nothing"),
        *((text, f"{number} '{text}'") for text in ("-1", "1.5", "1e3", "+4", "1,000", ".5")),
    ]
    Path("best.json").write_text("{}")
    for text, message in deployments:
        refuses(("serve", "llama3-70B", text, "h100"), [(LENGTHS, message)])
    refuses(("serve",), [(("llama3-8B", "some text", "h100", *LENGTHS), "some text")])
    rows = [
        ("--set max_bach=3", "did you mean 'max_batch'?"),
        ("--workload llama3-8B_h100x64", "workload"),
    ]
    refuses((*SMALL, *LENGTHS), rows)
    refuses((*SMALL, "--output", 500), [("--prompt x", "prompt: ")])


def test_changes_of_a_deployment_that_cannot_be(refuses):
    whole = "expected a whole number of at least 1"
    rows = [
        ("tensor_par=abc", f"tensor_par: {whole}, found 'abc'"),
        ("tensor_par=0", f"tensor_par: {whole}, found 0"),
        ("pipeline_par=true", "pipeline_par: expected a whole number"),
        ("prefill=4", "prefill: expected an object with named fields, found 4. Hint: prefill.num"),
        ("deployment.prefill=4", "prefill: expected an object with named fields, found 4"),
        ("prefill.num_procs=abc", f"prefill.num_procs: {whole}"),
        (
            "prefill.num_procs=8",
            "prefill.num_procs: expected 1 to 7 of 8 processors that only prefill",
        ),
        ("prefill.num_proc=4", "found the unknown field 'num_proc'. Hint: did you mean 'num_procs"),
        ("prefill.tensor_par=0", f"prefill.tensor_par: {whole}"),
        ("prefill.tensor_par=2", "processors that only prefill, found none"),
        ("draft=model:", "draft: expected one of none, mtp, ngram, model:NAME, found 'model:'"),
        *(
            (f"{name}={found}", f"{name}: expected {plain}, found {found}. Hint: llama3-8B has no")
            for name, found, plain in (
                ("overlap", "two_batches", "none"),
                ("routing", "power_law:1.2", "power_law:1.01"),
                ("dispatch_dtype", "float8", "same"),
            )
        ),
    ]
    refuses(("serve", "llama3-8B", "8", "h100", *LENGTHS, "--set"), rows)


def test_without_a_workload_it_is_a_chat(run):
    assumed, stated = run("serve", *ASKED), run("serve", *ASKED, "--workload", "chat")
    assert (assumed.code, assumed.out) == (0, stated.out)
    assert "assumed: --workload chat; --prompt and --output set other" in assumed.err


def test_half_a_workload_says_how_the_rest_is_stated(run):
    code, _, err = run("serve", *ASKED, "--prompt", "2k")
    assert (code, "prompt: expected" in err) == (2, False)
    assert (
        "workload: output: expected a number of tokens, found none. Hint: add --prompt 2000" in err
    )


def test_a_result_says_its_deployment_and_its_workload(output_of, made):
    asked = (*SMALL, "--prompt", "900", "--output", "300", "--tpot", "20ms")
    made((*asked, "-o", "served.json"))
    known = json.loads(Path("served.json").read_text())["workload"]
    for words in ("served.json h100", "1 h100 --workload served.json"):
        out = output_of("serve", "llama3-8B", *words.split(), "-f", "json", "--users", "4")
        assert json.loads(out)["workload"] == known | {"users": 4}
    own = ("served.json", "h100", "--prompt", "800", "--output", "100")
    found = json.loads(output_of("serve", "llama3-8B", *own, "-f", "json"))["workload"]
    assert (found["prompt"], found["output"]) == (800, 100)
    assert "tpot_limit" not in found


def test_files_of_another_kind_are_named(refuses):
    Path("table.csv").write_text("num_procs,tpot\n8,0.1\n")
    Path("d.yaml").write_text("num_procs: 8\ntensor_par: 4\n")
    shutil.copy(ROOT / "examples/launch/llama3-8b.sh", "train.sh")
    rows = [
        ("llama3-8B table.csv h100", "table.csv: expected a deployment, found a"),
        ("llama3-8B 1 h100 --workload table.csv", "expected a workload, found a"),
        ("llama3-8B 1 h100 --workload d.yaml", "a workload, found a deployment"),
        ("d.yaml 1 h100", "d.yaml: expected a model, found a deployment"),
        ("llama3-8B train.sh h100", "served, found a script that launches training"),
    ]
    refuses(("serve", *LENGTHS), rows)


def test_a_replay_is_on_the_page_and_in_files(run, tmp_path):
    asked = (*SMALL, *LENGTHS, "--users", "3", "--ttft", "2", "--requests", "12")
    code, out, err = run(*asked, "--replay", "--seed", "7")
    assert (code, err) == (0, "")
    assert "Replay of the scheduler: 12 requests, 3 users per replica" in flat(out)
    assert "What limits" not in out
    code, text, _ = run(*asked, "--seed", "7", "--format", "json")
    found = json.loads(text)["replay"]
    assert (code, found["requests"], found["seed"]) == (0, 12, 7)
    assert found["highest_rate"] > found["request_rate"]
    assert "replay" not in json.loads(run(*asked, "--format", "json")[1])


def test_a_trace_states_the_workload(run, refuses, tmp_path):
    path = tmp_path / "trace.jsonl"
    row = '{{"arrival": {}, "prompt": {}, "output": 30}}\n'
    path.write_text("".join(row.format(n, 100 * n + 100) for n in range(5)))
    asked = (*SMALL, "--trace", str(path))
    code, text, err = run(*asked, "--format", "json")
    assert (code, err) == (0, "")
    found = json.loads(text)
    assert (found["workload"]["prompt"], found["workload"]["rate"]) == (300, 1.0)
    assert found["replay"]["load"] == "arrivals as recorded"
    assert json.loads(run(*asked, "--users", "2", "--format", "json")[1])["workload"]["users"] == 2
    path.write_text(row.format(1, 0))
    refuses(SMALL, [(f"--trace {path}", "line 1, prompt: expected a number of tokens from 1")])
    refuses(SMALL, [(f"--trace {tmp_path / 'none'}", "no such file")])


@pytest.mark.parametrize("command", ["serve", "sop"])
def test_processors_and_machine_in_either_order(output_of, command):
    load = ("--prompt", "1000", "--output", "200", "--users", "8")
    swapped = output_of(command, "llama3-8B", "h100", "2", *load)
    assert swapped == output_of(command, "llama3-8B", "2", "h100", *load)
