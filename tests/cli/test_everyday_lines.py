"""Command lines as people type them, also as for other tools: they work, or say what to type."""

import shlex

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

HINTS = {
    "plan llama3 64 h100": "did you mean llama3-8B",
    "plan llama-3.1-8b --nodes 8 --gpu h100": "8 nodes of 8 are 64",
    "plan llama-3.1-8b 64 h100 --lr 3e-4": "training is not simulated",
    "plan llama-3.1-8b 64 h100 --micro-batch-size 2": "--fix mbs=N",
    "estimate llama-3.1-8b 'tp=4 foo=3' h100": "one of tp, pp, dp, ",
    "estimate llama-3.1-8b 'tp=4 procs=8-32' h100": "one number of processors",
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


def test_a_pair_that_stands_twice_is_refused(run):
    result = run("estimate", "llama-3.1-8b", "tp=4 tp=8", "h100")
    assert (result.code, result.err) == (
        2,
        "calculon: error: plan: tp: expected one value, found 4 and 8\n",
    )
