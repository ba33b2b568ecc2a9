"""The README's commands do what it shows."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSOLE = re.findall(r"^```console\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
PYTHON = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def commands(block: str) -> list[tuple[str, str]]:
    """Split a console block into commands and what they print."""
    pairs = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    assert pairs
    return pairs


@pytest.fixture
def checkout(tmp_path):
    for name in ("bin", "examples", "models", "systems", "validation", "calculon", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    return tmp_path


@pytest.mark.parametrize("block", CONSOLE, ids=[block.split("\n")[0][2:70] for block in CONSOLE])
def test_console_block(block, checkout):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": "80", "NO_COLOR": "1"}
    for command, expected in commands(block):
        done = subprocess.run(
            command,
            shell=True,
            cwd=checkout,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode in ((0, 1, 2) if "calculon: " in expected else (0,)), done.stdout
        matches = doctest.OutputChecker().check_output(expected, done.stdout, FLAGS)
        assert matches, f"$ {command}\n{done.stdout}"


@pytest.mark.parametrize("block", PYTHON)
def test_python_block(block):
    test = doctest.DocTestParser().get_doctest(block, {}, "README", "README.md", 0)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(test)
    assert runner.tries > 0
    assert runner.failures == 0


def test_every_command_is_listed():
    from calculon.apps.cli.main import COMMANDS

    for command in COMMANDS:
        assert f"`{command.name}`" in README
