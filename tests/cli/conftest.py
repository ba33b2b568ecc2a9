"""A way to call the program inside the test, and one to call it as a process."""

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from calculon.cli.main import main
from calculon.documents import catalog_tables, report_file
from calculon.documents.validation_tables import STUDIES
from calculon.render.text_tables import Table
from tests.helpers import ROOT, document, take_signals
from tests.store import cache, stored

ARGUMENTS = ("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
"""The example: Megatron-1T on 3,072 A100s."""

PROGRAM = (sys.executable, "-m", "calculon")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
"""The program as a process, and its environment, in which it finds the package from any folder."""


class Result(NamedTuple):
    """What a call left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Call the program in an empty folder; return exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*arguments: object) -> Result:
        code = main([str(argument) for argument in arguments])
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture
def output_of(run):
    """Call the program, which must succeed without a message; return its output."""

    def call(*arguments: object) -> str:
        code, out, err = run(*arguments)
        assert (code, err) == (0, "")
        return out

    return call


@pytest.fixture
def refuses(run):
    """Check that each call, a command with some words, prints nothing and ends with one message of one line."""

    def check(command: tuple[object, ...], rows: Iterable[tuple], code: int = 2) -> None:
        wrong = []
        for words, message in rows:
            done = run(*command, *(words.split() if isinstance(words, str) else words))
            if done[:2] != (code, "") or done.err.count("\n") != 1 or message not in done.err:
                wrong.append((words, message, done))
        assert wrong == []

    return check


@pytest.fixture
def standard_input(monkeypatch):
    """Let the program read some bytes from standard input."""

    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))

    return give


@stored
def files_of(*calls: tuple[object, ...], **inputs: str) -> dict[str, bytes]:
    """Return the files of a folder with some inputs in which the program is called, by name."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder), redirect_stdout(io.StringIO()):
        for name, text in inputs.items():
            Path(name).write_text(text)
        for arguments in calls:
            assert main([str(argument) for argument in arguments]) == 0
        return {path.name: path.read_bytes() for path in Path().iterdir()}


@pytest.fixture
def made(run):
    """Write the files of calls that are made once in a run of the suite, and their inputs."""

    def write(*calls: tuple[object, ...], **inputs: str) -> None:
        for name, data in files_of(*calls, **inputs).items():
            Path(name).write_bytes(data)

    return write


@cache
def page(*arguments: object) -> str:
    """Return the output of a successful call of the program, made once for all tests of a process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.delenv("COLUMNS", raising=False)
        assert main([str(argument) for argument in arguments]) == 0
    assert err.getvalue() == ""
    return out.getvalue()


CATALOG = {kind: cache(table) for kind, table in catalog_tables.TABLES.items()}
"""The tables of the catalog, each made once in a process."""


@pytest.fixture
def catalog_once(monkeypatch):
    """Make the tables of the catalog once."""
    for kind, table in CATALOG.items():
        monkeypatch.setitem(catalog_tables.TABLES, kind, table)


@pytest.fixture
def unvalidated(monkeypatch):
    """Leave the studies of validation, which take most of its time, out of a report."""
    empty = Table(STUDIES[1], [])
    monkeypatch.setattr(report_file, "validation_of", lambda system, edition, group="": empty)


@pytest.fixture
def without_help(monkeypatch):
    """Leave out what would help a deployment, which takes most of the time of an answer."""
    monkeypatch.setattr("calculon.serving.serve.hardware_gains", lambda system, figure: ())


@pytest.fixture
def without_fixes(monkeypatch):
    """Leave out what would make something fit: searches for it take most of the time where nothing does."""
    monkeypatch.setattr("calculon.advise.infeasibility.space_fixes", lambda *_, **__: ())


@pytest.fixture
def unrendered(monkeypatch):
    """Build pictures and write blank ones: drawing takes most of their time, and tests of each picture draw it."""
    figure = pytest.importorskip("matplotlib.figure", reason="pictures need the extra plot")
    savefig = figure.Figure.savefig

    def blank(_, target, **options):
        savefig(figure.Figure((0.1, 0.1)), target, **options)

    monkeypatch.setattr(figure.Figure, "savefig", blank)


@pytest.fixture
def process(tmp_path):
    """Call the program as a process in an empty folder."""

    def call(*arguments: str, **keywords: object) -> subprocess.CompletedProcess:
        keywords = {"cwd": tmp_path, "env": ENVIRONMENT, "capture_output": True} | keywords
        return subprocess.run([*PROGRAM, *arguments], check=False, text=True, **keywords)

    return call


def started(folder: Path, *arguments: str, **keywords: object) -> subprocess.Popen:
    """Start the program as a process in a folder; it takes signals, and its output can be read."""
    keywords = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | keywords
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        preexec_fn=take_signals,  # noqa: PLW1509, which has threads in mind
        **keywords,
    )


@pytest.fixture
def spec(tmp_path):
    """Write a changed copy of a shipped spec; return its path."""

    def write(folder: str, name: str, file: str = "changed.json", **changes: object) -> Path:
        path = tmp_path / file
        path.write_text(json.dumps(document(folder, name) | changes))
        return path

    return write


@pytest.fixture
def execution(spec):
    """Write a changed copy of the example's execution; return its path."""
    return lambda **changes: spec("examples", ARGUMENTS[1], "execution.json", **changes)
