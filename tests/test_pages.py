"""Every page does what it shows: commands run as printed, Python runs as printed, links lead somewhere.

A command of calculon runs in this process, so that the suite does not pay for a start of Python each time; what needs
a shell gets one.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from calculon.cli.main import COMMANDS, main
from tests.helpers import ROOT
from tests.store import cache
from tests.test_architecture import PACKAGES

PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for folder in (".", "examples", "models", "systems", "validation")
    for path in sorted((ROOT / folder).glob("*.md" if folder == "." else "**/*.md"))
}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SLOW: dict[str, tuple[str, ...]] = {
    "examples/campaign.md": (
        "cat examples/campaigns/bloom_366B.yaml",
        "cat examples/campaigns/llama3-405B-long.yaml",
    ),
    "examples/launch_flags.md": ("plan llama-3-8b 64 h100", "serve llama3-70B", "launch = "),
    "examples/pictures.md": ("",),
    "examples/planning.md": (
        *("plan llama-3.1-70b any", "plan llama-3.1-70b 1k h100 --mine", "plan llama-3.1-8b"),
        *("plan llama-3-8b", "fleets = ", "answer = "),
    ),
    "examples/python.md": ("result = ", "answer = "),
    "examples/searching.md": ("search llama3", "loe llama3", "loe megatron-22B", "llm megatron-1T"),
    "examples/serving.md": (
        *("serve deepseek-v3", "serve llama", "serve-optimal"),
        *("plot", "study serving", "served = "),
    ),
    "examples/why.md": ("why llama3", "sensitivity", "found = "),
    "systems/calibration.md": ("calibrate",),
    "validation/gpt2_ladder/README.md": ("lv --study gpt2_ladder",),
}
"""How the blocks of each page begin that take more than a second; ``scripts/test --large`` runs them."""
LINKED = ("bin", "examples", "models", "systems", "validation", "calculon", "scripts")


def is_slow(page: str, block: str) -> bool:
    """Return whether only ``scripts/test --large`` runs a block."""
    start = re.sub(r"^(\$ (\./bin/calculon )?|>>> import calculon\n>>> )", "", block)
    return start.startswith(SLOW.get(page, ()))


def blocks(language: str) -> list:
    """Return the code blocks of all pages in a language, with ids."""
    return [
        pytest.param(
            block,
            id=f"{page}:{block.splitlines()[0][:60]}",
            marks=[pytest.mark.large] if is_slow(page, block) else [],
        )
        for page, text in PAGES.items()
        for block in re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ]


def commands(block: str) -> list[tuple[str, str]]:
    """Split a console block into commands and what they print."""
    pairs = re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    assert pairs
    return pairs


def run(command: str) -> tuple[int, str]:
    """Run a command line, and return its exit code with all that it printed."""
    words = shlex.split(command)
    if words[0] == "./bin/calculon" and not set(words) & {"|", ">", "<", "&&"}:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = main(words[1:])
        return code, printed.getvalue()
    done = subprocess.run(
        command,
        shell=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    for name in (*LINKED, "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize("block", blocks("console"))
def test_console_block(block):
    for command, expected in commands(block):
        code, printed = run(command)
        assert code in ((0, 1, 2) if "calculon: " in expected else (0,)), printed
        matches = doctest.OutputChecker().check_output(expected, printed, FLAGS)
        assert matches, f"$ {command}\n{printed}"


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize("block", blocks("python"))
def test_python_block(block):
    test = doctest.DocTestParser().get_doctest(block, {}, "page", "page", 0)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(test)
    assert runner.tries > 0
    assert runner.failures == 0


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere():
    broken = []
    for page, text in PAGES.items():
        prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        links = set(re.findall(r"\]\(([^)\s]+)\)", prose))
        for link in sorted(link for link in links if "://" not in link):
            path, _, anchor = link.partition("#")
            target = (ROOT / page).parent / path if path else ROOT / page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page}: {link}")
    assert not broken


def test_the_files_that_contributors_are_sent_to_are_there():
    names = re.findall(r"`([\w/]+(?:\.py|\.md|\.json|/))`", PAGES["CONTRIBUTING.md"])
    assert len(names) > 20
    folders = [ROOT / folder for folder in ("calculon", "tests", "scripts")]
    there = [path.as_posix() for folder in folders for path in folder.rglob("*")]
    for name in names:
        inside = any(path.endswith("/" + name.rstrip("/")) for path in there)
        assert (ROOT / name).exists() or inside or "NAME" in name, name


def test_the_guide_for_contributors_is_short_and_its_diagram_has_the_order_of_imports():
    text = PAGES["CONTRIBUTING.md"]
    assert len(text.splitlines()) <= 150
    _, diagram = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    chains = re.findall(r"\w+(?:\s+<\s+\w+)+", diagram)
    named = [name for chain in chains for name in re.split(r"\s*<\s*", chain)]
    assert named == [name for name in PACKAGES if name != "version"]


def test_every_command_is_listed():
    for command in COMMANDS:
        assert f"`{command.name}`" in PAGES["examples/commands.md"]


def test_the_readme_is_short():
    assert len(PAGES["README.md"].splitlines()) <= 120


def test_the_pages_of_the_validation_are_short():
    pages = PAGES.keys() - {"validation/CHANGES.md"}
    lines = {page: len(PAGES[page].splitlines()) for page in pages if "validation/" in page}
    assert len(lines) > 5
    assert not {page for page, count in lines.items() if count > 400}
