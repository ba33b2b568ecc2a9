"""The program around the commands: help, usage, errors, pipes and interrupts."""

import os
import shlex
import subprocess
import sys

import pytest

import calculon
from calculon.cli import main as program
from calculon.cli.main import COMMANDS
from tests.cli.conftest import ARGUMENTS
from tests.helpers import ROOT

NAMES = [command.name for command in COMMANDS]


def test_help_lists_the_commands_in_their_order(run):
    code, out, _ = run("--help")
    assert code == 0
    places = [out.index(f"  {command.title} ") for command in COMMANDS]
    assert places == sorted(places)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_teaches_with_examples(run, name):
    code, out, _ = run(name, "--help")
    assert code == 0
    assert "example" in out
    assert f"calculon {name}" in out


def examples(name: str, run) -> list[str]:
    epilog = run(name, "--help").out.partition("example")[2]
    lines = [line.strip() for line in epilog.splitlines()[1:]]
    return [line.partition(">")[0] for line in lines if line.startswith("calculon ")]


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_run(run, name, monkeypatch, tmp_path):
    found = examples(name, run)
    assert found
    for folder in ("examples", "models", "systems", "validation"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    for line in found:
        only_check = ["--debug"] if name == "study" else []  # studies take minutes
        result = run(*shlex.split(line)[1:], *only_check)
        assert (result.code, result.err) == (0, ""), line
        assert result.out or list(tmp_path.iterdir()), line


@pytest.mark.parametrize("arguments", [["version"], ["v"], ["--version"]])
def test_version(run, arguments):
    assert run(*arguments) == (0, f"{calculon.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "which command?"),
        (["lmm"], "there is no command 'lmm'; did you mean 'llm'?"),
        (["zzz"], "there is no command 'zzz'; known are llm, "),
        (["llm"], "the following arguments are required: APP, EXE, SYS, STATS"),
        (["version", "--wrong"], "unrecognized arguments: --wrong"),
        (["-v", "LOUD", "version"], "invalid choice: 'LOUD'"),
        (["describe", "everything"], "invalid choice: 'everything'"),
    ],
    ids=["no command", "a typo", "nonsense", "too few", "option", "verbosity", "choice"],
)
def test_a_wrong_call_gets_usage_and_one_message(run, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("usage: calculon")
    assert "calculon: error: " in err
    assert message in err


@pytest.mark.parametrize("level", ["debug", "INFO", "Warning"])
def test_verbosity_takes_the_name_of_a_level(run, level):
    assert run("-v", level, "version").code == 0


def test_a_log_file_is_emptied_first(run, tmp_path):
    (tmp_path / "log.txt").write_text("old\n")
    assert run("--log", "log.txt", "version") == (0, "", "")
    assert (tmp_path / "log.txt").read_text() == f"{calculon.__version__}\n"


def test_a_log_that_cannot_be_written_is_an_error(run):
    code, _, err = run("-l", "no/log.txt", "version")
    assert code == 2
    assert "calculon: error: no/log.txt: expected a writable log file" in err


def test_an_interrupt_ends_quietly(run, monkeypatch):
    def interrupted(arguments, log):
        raise KeyboardInterrupt

    monkeypatch.setattr("calculon.cli.version.run", interrupted)
    assert run("version") == (program.INTERRUPTED, "", "")


def test_a_closed_pipe_ends_quietly():
    command = [sys.executable, "-m", "calculon", "describe", "stats"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as child:
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == program.PIPE_CLOSED


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_full_disk_is_one_message(process):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        result = process(
            "describe", "stats", stdout=full, stderr=subprocess.PIPE, capture_output=False
        )
    assert result.returncode == 2
    assert result.stderr == "calculon: error: <stdout>: no space left on device\n"


def test_the_program_runs_anywhere(process):
    result = process("llm", *ARGUMENTS, "-")
    assert result.returncode == 0
    assert "131.9 s" in result.stdout
