"""Outputs when a disk is full, or when a signal comes: the older file stays, and the message names the file."""

import contextlib
import json
import resource
import sys
from pathlib import Path

import pytest

import calculon
from tests.cli.conftest import ARGUMENTS
from tests.helpers import document

TRIPLE = ",".join(ARGUMENTS)
SCHEDULE = ("plot", "schedule", "llama3-8B", "llama3-8B_h100x64_p4", "h100_80g_sxm", "-o")
CALLS = {
    "picture.png": SCHEDULE,
    "page.html": ("report", TRIPLE, "-o"),
    "sizes.csv": ("collective", "all_reduce", "1KiB", 64, "h100_80g_sxm", "--to", "8GiB", "-o"),
}


SMALL = ("gpt2-124M", "gpt2-124M_a100x2_ddp", "a100_80g_sxm")
SERVED = ("llama3-70B", 8, "h100_80g_sxm")
LOAD = {"prompt": 2000, "output": 500, "users": 16, "prompt_cv": 1}
ANSWERS = {
    f"campaign {' '.join(SMALL)} --tokens 1T --price 2.0": lambda: calculon.campaign(
        *SMALL, tokens="1T", fleet__price=2.0
    ),
    "campaign any 64 h100_80g_sxm --deadline 30d --price 2.5": lambda: calculon.largest_model(
        "h100_80g_sxm", 64, "30d", fleet__price=2.5
    ),
    "serve llama3-70B 8 h100_80g_sxm --prompt 2000 --output 500 --users 16 --set workload.prompt_cv=1": (
        lambda: calculon.serve(*SERVED, LOAD)
    ),
    f"why {' '.join(ARGUMENTS)} --set tensor_par_overlap=ring": lambda: calculon.why(
        ARGUMENTS[0],
        document("examples", ARGUMENTS[1]) | {"tensor_par_overlap": "ring"},
        ARGUMENTS[2],
    ),
}
"""Commands whose JSON is what a function returns."""


@pytest.mark.usefixtures("without_help")
@pytest.mark.parametrize("words", ANSWERS, ids=lambda words: " ".join(words.split()[:2]))
def test_json_is_what_the_function_returns(run, words):
    expected = json.loads(json.dumps(ANSWERS[words]().to_dict()))
    done = run(*words.split(), "-o", "answer.json")
    assert (done.code, done.out) == (0, "Output: answer.json\n")
    found = json.loads(Path("answer.json").read_text())
    assert {name for name in expected if found[name] != expected[name]} <= {"question"}


@contextlib.contextmanager
def full_disk(room=1024):
    """Let no file grow beyond some bytes; Python would keep the bytecode of an import, cut short."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "dont_write_bytecode", True)
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("unvalidated")
@pytest.mark.parametrize("name", CALLS)
def test_a_full_disk_leaves_the_older_file_and_is_named(run, tmp_path, name):
    if name.startswith("picture"):
        pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    Path(name).write_bytes(b"older")
    with full_disk():
        found = run(*CALLS[name], name)
    assert found.code == 2
    assert found.err == f"calculon: error: {name}: file too large\n"
    assert Path(name).read_bytes() == b"older"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_signal_while_drawing_leaves_the_older_picture(run, tmp_path, monkeypatch):
    figure = pytest.importorskip("matplotlib.figure", reason="pictures need the extra plot")

    def interrupted(_, target, **__):
        with Path(target).open("wb") if isinstance(target, str) else target as stream:
            stream.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(figure.Figure, "savefig", interrupted)
    output = Path("x.png")
    output.write_bytes(b"older")
    found = run(*SCHEDULE, output)
    assert (found.code, found.err) == (130, "calculon: interrupted; nothing was written\n")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"older"]


ASKED = ("serve", "gpt2-124M", 1, "h100_80g_sxm", "--prompt", 64, "--output", 16)
PLANNED = ("plan", "gpt2-124M", 2, "h100_80g_sxm", "--batch", 8, "--fix", "tensor_par=1")


@pytest.mark.parametrize("asked", [ASKED, PLANNED, ("block", *ARGUMENTS)], ids=lambda one: one[0])
def test_an_answer_is_printed_and_written_in_every_format(output_of, asked):
    assert json.loads(output_of(*asked, "-f", "json")) == json.loads(output_of(*asked, "-o", "-"))
    for form, file in (("markdown", "a.md"), ("html", "a.html"), ("csv", "a.csv")):
        printed = output_of(*asked, "-f", form)
        assert output_of(*asked, "-o", file).endswith(f"Output: {file}\n")
        assert Path(file).read_text() == printed
    assert Path("a.html").read_text().startswith("<!DOCTYPE html>")
    assert "," in Path("a.csv").read_text().partition("\n")[0]


def test_a_file_of_text_has_no_colors(output_of, monkeypatch):
    plain = output_of(*ASKED, "-f", "text")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in output_of(*ASKED, "-f", "text")
    assert output_of(*ASKED, "-f", "text", "-o", "a.txt") == "Output: a.txt\n"
    assert Path("a.txt").read_text() == plain


def test_a_stated_format_counts_more_than_the_name_of_the_file(output_of, refuses):
    for form, file in (("csv", "a.html"), ("json", "a.md"), ("text", "a.csv"), ("markdown", "a")):
        printed = output_of(*ASKED, "-f", form)
        assert output_of(*ASKED, "-f", form, "-o", file) == f"Output: {file}\n"
        assert Path(file).read_text().rstrip() == printed.rstrip()
        assert output_of(*ASKED, "-f", form, "-o", "-") == printed
    refuses(
        ASKED, [("-o a.txt", "an output name that ends in .json"), ("-f csv -o .", "a directory")]
    )
