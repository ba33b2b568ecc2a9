"""Command lines as people type them, also as for other tools: they work, or say what to type."""

import shlex
from pathlib import Path

import pytest

from calculon.cli.options import Parser
from calculon.cli.respelling import OPTIONS, PLACES, SWITCHES, respelled
from tests.draws import some

WORK = """
plan llama-3.1-8b 64 a100
plan --gpus 64 --gpu h100 llama-3.1-8b
plan llama-3.1-8b --num-gpus=64 --gpu=h100
plan --model meta-llama/Llama-3.1-8B --gpus 64 --gpu h100
plan llama-3.1-8b 8xh100
plan llama-3.1-8b h100 64
plan meta-llama/Llama-3.1-8B 64 h100
plan llama-3.1-8b 64 h100 --tp 4
plan llama-3.1-8b 64 h100 --tp 4 --pp=2
plan llama-3.1-8b 64 h100 --fix tp=4
plan llama-3.1-8b 64 h100 tp=4 pp=2
plan llama-3.1-8b 64 h100 --fp8
plan llama-3.1-8b 64 h100 --precision fp8
plan llama-3.1-8b 64 h100 --dtype bf16
plan llama-3.1-8b 64 h100 --seq-len 4096
plan llama-3.1-8b 64 h100 --seq 4k
plan llama-3.1-8b 64 h100 --global-batch-size 1024
plan llama-3.1-8b 64 h100 --batch-size=1024
plan llama-3.1-8b 64 h100 --gbs 1024
plan llama-3.1-8b 64 h100 --framework torchtitan
plan llama-3.1-8b 8 h100 --preset fsdp
plan llama-3.1-8b 8 h100
plan llama-3.1-8b 64 h100 --tokens 1T
plan llama-3.1-8b 64 h100 --json
plan llama-3.1-8b 64 h100 -o plan.json
estimate llama-3.1-8b "tp=4 pp=2" h100
estimate llama-3.1-8b tp=4,dp=16 h100
estimate llama-3.1-8b "tp=4 procs=64 batch=4M seq=4k dtype=fp8" h100
estimate llama-3.1-8b "TP=4 DP=16 mbs=2 zero=1" h100 --json
estimate llama3-8B llama3-8B_h100x64 h100_80g_sxm
estimate llama-3.1-8b "tp=4 dp=16" h100 -o estimate.json
search llama-3.1-8b 64 h100
search llama-3.1-8b 8,16,32 h100
search llama-3.1-8b 64 h100 --tp 2 -t 5
search llama-3.1-8b --gpus 64 --gpu h100 --gbs 512
estimate llama-3.1-8b --tp 4 --pp 2 h100
estimate llama-3.1-8b "tp=4" h100 --gpus 64 --seq-len 4096 --gbs 256 --fp8
estimate llama-3.1-8b "tp=4 dp=16" h100 --set system.mem1.GiB=120
estimate mistralai/Mixtral-8x7B-Instruct-v0.1 "tp=8" h200
serve llama-3.1-8b 2 h100 --isl 1k --output 200 --qps 3
explain llama-3.1-8b "tp=4 dp=16" h100
why llama-3.1-8b "tp=4 dp=16" h100
compare llama-3.1-8b "tp=4 dp=16" "tp=2 dp=32" h100
sensitivity llama-3.1-8b "tp=4 dp=16" h100
block llama-3.1-8b "tp=4 dp=16" h100
report llama-3.1-8b "tp=4 dp=16" h100 -o page.html
campaign llama-3.1-8b 64 h100 --tokens 1T
serve llama-3.1-8b 1 h100 --prompt 1k --output 200
serve llama-3.1-8b 8xh100 --prompt 1k --output 200
serve llama-3.1-8b --gpus 8 --gpu h100 --prompt 1k --output 200
serve llama-3.1-8b 2 h100 --prompt 1k --output 200 --concurrency 64
serve llama-3.1-8b "tp=2 dp=4" h100 --prompt 1k --output 200
serve llama-3.1-8b 8 h100 --tp 2 --prompt 1k --output 200
campaign llama-3.1-70b "tp=4 pp=4 dp=64" h100 --tokens 1T
plan llama-3.1-8b 64 h100 --mine "tp=2 batch=2M dtype=fp8 procs=32 seq=4k"
estimate llama-3.1-8b "tp=4 dp=16 recompute=norms" h100
export megatron-lm "tp=4 dp=16" llama-3.1-8b h100
export megatron-lm llama-3.1-8b "tp=4 dp=16" h100
export vllm llama-3.1-8b "tp=2 dp=4" h100
search llama-3.1-8b 8 h100 --json
search llama-3.1-8b 8 h100 -f csv
collective all-reduce 1GB 8 h100
collective AllReduce 1GB 8 h100
catalog models
catalog systems
catalog show h100
describe tensor_par
describe mfu
help plan
help
version
lpc llama-3.1-8b
""".strip().splitlines()

SERVED = ("llama-3.1-8b", "h100 --workload chat")
"""Model, machine and workload."""

HINTS = {
    "plan llama3 64 h100": "did you mean llama3-8B",
    "plan llama-3.1-8b --nodes 8 --gpu h100": "8 nodes of 8 are 64",
    "plan llama-3.1-8b 64 h100 --lr 3e-4": "training is not simulated",
    "plan llama-3.1-8b 64 h100 --micro-batch-size 2": "--fix mbs=N",
    "plan llama-3.1-8b 64 h100 h200": "join systems by commas: h100,h200",
    "plan llama-3.1-8b 64 h100,h200": "calculon search compares single steps",
    "plan llama-3.1-8b 64 h100 --mine nosuch.sh": "the current folder has no file of this name",
    "estimate llama-3.1-8b 'tp=2' h100 --set bandwidth=3": "did you mean 'networks[0].bandwidth'?",
    "serve llama-3.1-8b 2 h100 --osl 200": "tokens as --output",
    "serve llama-3.1-8b 2 h100 --dtype fp8": "--set weights_dtype=float8",
    "serve llama-3.1-8b 2 h100 --emit vllm:run.sh": "calculon export vllm",
    "serve llama-3.1-8b 2 h100 --draft llama-3.2-1b": "--set draft=model:NAME",
    "serve llama-3.1-8b h100": "the processors are missing: calculon serve llama-3.1-8b 8 h100",
    "serve 'a b' h100": "the processors are missing: calculon serve 'a b' 8 h100",
    "plan llama-3.1-8b 8 h100 --emit run.sh": "Hint: --emit megatron-lm:run.sh",
    "plan llama-3.1-8b 8 h100 --emit run.toml": "expected a launcher before the file",
    "estimate llama-3.1-8b 'fsdp=true dp=8' h100": "Hint: zero=fsdp",
    "plan llama-3.1-8b 1 rtx4090 --lora 16": "LoRA is not modeled",
    "estimate llama-3.1-8b 64 h100": "calculon plan finds a plan",
    "estimate llama-3.1-8b 'tp=4 foo=3' h100": "one of tp, pp, dp, ",
    "estimate llama-3.1-8b 'tp=4 procs=8-32' h100": "one number of processors",
    "plan llama-3.1-8b 64 h100 --dtype fp8 --preset torchtitan": "dtype fp8-tensorwise",
    "estimate llama-3.1-8b 'tpp=4' h100": "did you mean 'tp'?",
    "estimate llama-3.1-8b 'tp=4 recompute=nrms' h100": "did you mean 'norms'?",
    "serve llama-3.1-8b 8 h100 --worklod chat": "did you mean '--workload'?",
    "serve llama-3.1-8b 'tp=2 mxa_batch=8' h100": "did you mean 'max_batch'",
    "serve llama-3.1-8b 'tp=2 dp=2 procs=8' h100": "tp * pp * dp = 4",
    "export megatron-lm 'tp=4 dp=16'": "calculon export FORMAT MODEL PLAN",
    "list models": "calculon catalog",
    "models": "calculon catalog",
    "cost llama-3.1-8b 64 h100": "try: calculon plan",
    "memory llama-3.1-8b 64 h100": "try: calculon estimate",
    "params llama-3.1-8b": "try: calculon lpc",
}


@pytest.mark.parametrize("line", some(WORK, 16))
def test_it_works(run, line):
    result = run(*shlex.split(line))
    assert (result.code, result.err) == (0, "")
    assert result.out


@pytest.mark.parametrize("line", HINTS)
def test_it_says_what_to_type(run, line):
    result = run(*shlex.split(line))
    assert result.code == 2
    assert HINTS[line] in result.err


def test_limits_without_a_unit_that_are_long_are_noted_as_seconds(run):
    words = ("serve", "llama-3.1-8b", "1", "h100", "--prompt", "1k", "--output", "200", "--tpot")
    assert "--tpot 50 is in seconds; write 50ms" in run(*words, "50").err
    assert run(*words, "50ms").err == run(*words, "4").err == ""


def parser(*options, places=("model", "num_procs", "system")):
    """Return a parser of arguments and options with values."""
    made = Parser()
    for name in (*places, *options):
        made.add_argument(name)
    return made


@pytest.mark.parametrize("theirs", [*OPTIONS, *SWITCHES, *PLACES])
def test_what_a_command_knows_is_never_touched(theirs):
    """A command that has the option itself gets it, and its value, whatever it looks like."""
    words = ["m", theirs, "tp=8", "4xh100"]
    assert respelled(parser(theirs), words)[:3] == words[:3]


def test_commands_with_other_arguments_get_theirs():
    words = ["m", "8xh100", "tp=8", "--gpus", "4"]
    assert respelled(parser("--fix", places=("application", "num_procs")), words) == words


def test_the_value_of_an_option_is_not_looked_at():
    words = ["m", "--fix", "tp=8", "--fi", "pp=2", "--set=tp=4", "8", "s"]
    assert respelled(parser("--fix", "--set"), words) == words


@pytest.mark.parametrize("words", ["tp=0", "tp=-1", "dp=-2", "cp=0", "pp=x"])
def test_a_degree_below_1_is_refused(run, words):
    result = run("estimate", "llama-3.1-8b", words, "h100")
    assert result.code == 2
    assert "_par: expected a whole number of at least 1, found" in result.err


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            f'serve {SERVED[0]} "tp=2 dp=4" {SERVED[1]}',
            f"serve {SERVED[0]} 8 {SERVED[1]} --tp 2 --pp 1 --set token_budget=8192",
        ),
        (
            f'serve {SERVED[0]} "tp=1 weights_dtype=fp8" {SERVED[1]}',
            f'serve {SERVED[0]} "tp=1" {SERVED[1]} --set weights_dtype=float8',
        ),
        (
            f"serve {SERVED[0]} 2 {SERVED[1]} --set weights_dtype=fp8 --set kv_dtype=fp8",
            f"serve {SERVED[0]} 2 {SERVED[1]} --set weights_dtype=float8 --set kv_dtype=float8",
        ),
        (
            "matmul 4096 4096 4096 h100 --dtype fp8",
            "matmul 4096 4096 4096 h100 --datatype float8",
        ),
        (f'serve {SERVED[0]} "procs=8" {SERVED[1]}', f"serve {SERVED[0]} 8 {SERVED[1]}"),
        (
            f'serve {SERVED[0]} "procs=8 tp=4" {SERVED[1]}',
            f"serve {SERVED[0]} 8 {SERVED[1]} --tp 4",
        ),
        (
            'export megatron-lm "tp=4 dp=16" llama-3.1-8b',
            'export megatron-lm llama-3.1-8b "tp=4 dp=16" h100',
        ),
    ],
)
def test_two_lines_mean_the_same(run, one, other):
    first, second = (run(*shlex.split(line)) for line in (one, other))
    assert first.code == second.code == 0
    lines = second.out.splitlines()
    assert first.out.splitlines() == lines[: len(first.out.splitlines())]


def test_a_search_prints_what_it_writes(run):
    words = ("search", "llama-3.1-8b", "8,16", "h100", "-t", 2)
    for suffix in ("json", "csv"):
        assert run(*words, "-o", f"best.{suffix}").code == 0
        printed = run(*words, "--format", suffix).out
        assert printed.rstrip() == Path(f"best.{suffix}").read_text().rstrip()


@pytest.mark.parametrize(("texts", "noted"), [(("1M", "2M"), True), (("2M", "2M"), False)])
def test_the_last_of_several_values_of_an_option_counts_with_a_note(run, texts, noted):
    options = [word for text in texts for word in ("--batch", text)]
    result = run("search", "llama-3.1-8b", 8, "h100", "-q", *options)
    assert ("--batch is given as 1M and as 2M; the last one is used" in result.err) == noted
    assert result.out == run("search", "llama-3.1-8b", 8, "h100", "-q", "--batch", texts[-1]).out


def test_a_pair_that_stands_twice_is_refused(run):
    result = run("estimate", "llama-3.1-8b", "tp=4 tp=8", "h100")
    assert (result.code, result.err) == (
        2,
        "calculon: error: plan: tp: expected one value, found 4 and 8\n",
    )
