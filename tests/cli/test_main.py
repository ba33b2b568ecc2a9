"""The program around the commands: help, usage, errors, pipes and interrupts."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from importlib import import_module

import pytest

import calculon
from calculon.cli import main as program
from calculon.cli.commands.plot import KINDS
from calculon.cli.help_page import HELP
from calculon.cli.main import COMMANDS, FIRST, GROUPS, complete_parser
from calculon.cli.options import EXAMPLES, Parser
from tests.cli.conftest import ARGUMENTS, started
from tests.declarations.configurations import llama
from tests.helpers import ROOT, take_signals

NAMES = [command.name for command in COMMANDS]
COUNTED = ("llm-all-executions", "llm-optimal-execution", "study")
"""Commands that can count what they would do."""


def test_help_lists_the_commands_in_their_order(output_of):
    first = [one.name for some in list(GROUPS.values())[:FIRST] for one in some]
    for option, names in (("--help", first), ("--help-all", [one.title for one in COMMANDS])):
        out = output_of(option)
        places = [out.index(f"\n  {name} ") for name in names]
        assert places == sorted(places)
        assert len(re.findall(r"^  [a-z][a-z-]+", out.partition("options:")[0], re.M)) == len(names)


def test_help_is_short(monkeypatch, output_of):
    monkeypatch.setenv("COLUMNS", "80")
    assert len(output_of("--help").splitlines()) <= 40
    for name in (*NAMES, *(f"plot {kind.name}" for kind in KINDS)):
        lines = output_of(*name.split(), "--help").splitlines()
        assert sum(-(-len(line) // 80) for line in lines if line) + lines.count("") <= 60, name
        options = [line for line in lines if line.startswith("  -")]
        assert len(options) <= 12 + len(HELP), name


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_the_whole_help_lists_every_option_and_example(command, output_of):
    parser = Parser()
    import_module(command.module).configure(parser)
    whole = output_of(command.name, "--help-all")
    assert all(name in whole for name in parser._option_string_actions)
    examples = re.findall(r"^  calculon .*", output_of(command.name, "--help"), re.M)
    assert 1 <= len(examples) <= EXAMPLES
    assert all(example in whole for example in examples)


@pytest.mark.parametrize("name", ["plan", "why", "lv"])
def test_help_is_a_command_too(output_of, name):
    assert output_of("help", name) == output_of(name, "--help")
    assert output_of("help") == output_of("--help")


def examples(name: str, run) -> list[str]:
    """Return the commands under "examples" in the help of a command, without redirections."""
    epilog = run(name, "--help-all").out.partition("example")[2]
    lines = [line.strip() for line in epilog.splitlines()[1:]]
    return [line.partition(" > ")[0] for line in lines if line.startswith("calculon ")]


def test_every_command_teaches_with_examples_that_parse(run):
    parser = complete_parser()
    for name in NAMES:
        found = examples(name, run)
        assert any(f"calculon {word}" in line for line in found for word in words(name)), name
        for line in found:
            assert parser.parse_args(shlex.split(line)[1:]), line


def words(name: str) -> tuple[str, ...]:
    """Return the name of a command and its short names."""
    (found,) = (command for command in COMMANDS if command.name == name)
    return (name, *found.aliases)


SLOW = (
    *("plan", "explain", "llm-optimal-execution", "llm-all-executions", "campaign", "serve"),
    *("serve-optimal", "sensitivity", "compare", "report", "export", "calibrate", "catalog"),
    *("collective", "study", "llm", "block", "search", "estimate"),
)
"""Commands whose examples take long; pages and the tests of each command run similar ones."""
ELSEWHERE = ("explore", "plot", "validate")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.large] if name in SLOW else [])
        for name in NAMES
        if name not in ELSEWHERE
    ],
)
def test_the_examples_run(run, name, tmp_path):
    for folder in ("examples", "models", "systems", "validation"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / "config.json").write_text(json.dumps(llama()))
    script = ("llama3-8B_h100x64", "llama3-8B", "-o", "run.sh")
    assert run("export-flags", "megatron-lm", *script).code == 0
    only_count = ["--debug"] if name in COUNTED else []
    for line in examples(name, run):
        result = run(*shlex.split(line)[1:], *only_count)
        if name == "explain" and result.code:  # the answer is why not
            assert result.err.startswith("calculon: infeasible: it cannot run: "), line
        else:
            assert (result.code, result.err) == (0, ""), line
        assert result.out or list(tmp_path.iterdir()), line


def test_version(run):
    for arguments in (["version"], ["v"], ["--version"]):
        assert run(*arguments) == (0, f"{calculon.__version__}\n", ""), arguments


def test_a_wrong_call_gets_one_message(refuses):
    rows = [
        ("", "calculon: error: which command?"),
        ("lmm", "there is no command 'lmm'; did you mean 'llm'?"),
        ("zzz", "there is no command 'zzz'; the first are plan, explore, estimate, "),
        ("models", "there is no command 'models'; calculon catalog lists them"),
        ("llm", "the following arguments are required: APP, EXE, SYS, STATS"),
        ("version --wrong", "unrecognized arguments: --wrong (see: calculon version --help)"),
        ("plan llama3-8B 64 h100 --prest x", "--prest x; did you mean '--preset'? (see: calculon"),
        ("-v LOUD version", "invalid choice: 'LOUD'"),
        ("plot everything", "argument KIND: invalid choice: 'everything'"),
        ("loe gpt3-175B 8 8 fp61 a100_80g -", "did you mean 'float16'?"),
        ("lae gpt3-175B 8 8 BF61 a100_80g x.csv", "mean 'bfloat16'?"),
        ("-l no/log.txt version", "calculon: error: no/log.txt: expected a writable log file"),
    ]
    refuses((), rows)


@pytest.fixture
def failing(run, monkeypatch):
    """Call a command that raises an error, with notes."""

    def call(error: BaseException, *notes: str):
        def broken(arguments, log):
            raise error

        for note in notes:
            error.add_note(note)
        monkeypatch.setattr("calculon.cli.commands.version.run", broken)
        return run("version")

    return call


def test_interrupts_and_too_little_memory_are_one_line_and_another_error_is_a_defect(failing):
    lost = (130, "", "calculon: interrupted; nothing was written\n")
    assert failing(KeyboardInterrupt()) == lost
    told = (130, "", "calculon: interrupted: 3 of 4 done\n")
    assert failing(KeyboardInterrupt(), "3 of 4 done") == told
    for error in (MemoryError(), RuntimeError("can't start new thread")):
        code, out, err = failing(error)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("calculon: error: not enough memory; nothing was written. Hint: ")
    with pytest.raises(RuntimeError, match="unforeseen"):
        failing(RuntimeError("unforeseen"))


def test_a_closed_pipe_ends_quietly(tmp_path):
    with started(tmp_path, "describe", "stats") as child:
        child.stdout.close()
        assert child.stderr.read() == ""
    assert child.returncode == program.PIPE_CLOSED


# -- logs, closed and full streams -----------------------------------------------------------------------------------


def test_a_log_is_emptied_first_but_is_no_input_and_no_output(run, refuses, tmp_path):
    log = tmp_path / "log.json"
    log.write_text("{}")
    own = "./log.json: expected a separate log file"
    rows = [
        (("log.json", *ARGUMENTS[1:], "-"), own),
        ((*ARGUMENTS, "log.json"), own),
        (("nothing", *ARGUMENTS[1:], "-"), "nothing: expected a model"),
    ]
    refuses(("-l", "./log.json", "llm"), rows)
    assert log.read_text() == "{}"
    assert run("--log", "log.json", "version") == (0, "", "")
    assert log.read_text() == f"{calculon.__version__}\n"


NO_SPACE = "no space left on device\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
@pytest.mark.parametrize(
    ("line", "code", "err"),
    [
        ("version >&-", 2, "calculon: error: <stdout>: it is closed\n"),
        ("llm 2>&-", 2, ""),
        ("version >/dev/full", 2, f"calculon: error: <stdout>: {NO_SPACE}"),
        pytest.param(f"llm {' '.join(ARGUMENTS)} s.json >&-", 0, "", marks=pytest.mark.large),
        pytest.param("llm 2>/dev/full", 2, "", marks=pytest.mark.large),
    ],
)
def test_closed_and_full_streams_change_no_exit_code(tmp_path, line, code, err):
    result = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m calculon {line}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (code, err)


@pytest.mark.parametrize(
    ("file", "text", "told", "cures"),
    [
        (
            "rich.py",
            "raise ModuleNotFoundError(name='rich')",
            "lacks the package rich; start ./bin/calculon",
            ("pip install .",),
        ),
        (
            "numpy/__init__.py",
            "import numpy._core.gone",
            f"the package numpy of {sys.executable} is damaged; ",
            (f"delete {sys.prefix}", "--force-reinstall numpy"),
        ),
    ],
    ids=["missing", "damaged"],
)
def test_a_missing_or_damaged_package_is_named_with_the_cure(
    process, tmp_path, file, text, told, cures
):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    result = process("llm", *ARGUMENTS, "-")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
    assert told in result.stderr
    assert any(cure in result.stderr for cure in cures)


@pytest.mark.parametrize(
    ("number", "code", "name"),
    [
        (signal.SIGINT, 130, "x.parquet"),
        pytest.param(signal.SIGTERM, 143, "x.csv", marks=pytest.mark.large),
    ],
)
def test_a_signal_leaves_no_file_and_one_line(tmp_path, number, code, name):
    space = ("megatron-126M", "64", "512", "float16", "h100_80g_nvl8")
    with started(tmp_path, "lae", *space, name, stdout=subprocess.DEVNULL) as child:
        while not any(path.stat().st_size for path in tmp_path.iterdir()):
            assert child.poll() is None, child.stderr.read()
            time.sleep(0.01)
        child.send_signal(number)
        err = child.stderr.read()
    assert child.returncode == code
    assert err.count("\n") == 1, err
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_amid_imports_of_a_checkout_is_one_line(tmp_path):
    late = tmp_path / "numpy.py"
    late.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise ImportError\n")
    result = subprocess.run(
        [sys.executable, ROOT / "bin" / "calculon", "lpc", "megatron-1T"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=take_signals,
    )
    assert (result.returncode, result.stderr) == (
        130,
        "calculon: interrupted; nothing was written\n",
    )


# -- too little memory, damaged packages, closed terminals, names that act on a terminal ----------------------------


def test_control_characters_of_a_name_are_escaped(output_of, refuses, spec):
    message = r"calculon: error: \x1b[31mred.json: expected"
    refuses(("llm", "\x1b[31mred.json", *ARGUMENTS[1:]), [("-", message)])
    path = spec("models", "megatron-1T", "\x1b[31mred\nname.json")
    out = output_of("llm", path, *ARGUMENTS[1:], "-")
    assert r"\x1b[31mred\nname" in out.splitlines()[0]
    assert output_of("lpc", path).startswith(r"\x1b[31mred\nname ")
