"""A way to call the program inside the test, and one to call it as a process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from calculon.apps.cli.main import main
from tests.helpers import ROOT, document

ARGUMENTS = ("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
"""The example: Megatron-1T on 3,072 A100s."""


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
def process(tmp_path):
    """Call the program as a process in an empty folder."""

    def call(*arguments: str, **keywords: object) -> subprocess.CompletedProcess:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
        command = [sys.executable, "-m", "calculon", *arguments]
        keywords = {
            "cwd": tmp_path,
            "env": environment,
            "capture_output": True,
            "text": True,
        } | keywords
        return subprocess.run(command, check=False, **keywords)

    return call


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
