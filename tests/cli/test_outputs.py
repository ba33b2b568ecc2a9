"""Outputs when a disk is full, or when a signal comes: the older file stays, and the message names the file."""

import contextlib
import json
import resource
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ARGUMENTS

TRIPLE = ",".join(ARGUMENTS)
SCHEDULE = ("plot", "schedule", "llama3-8B", "llama3-8B_h100x64_p4", "h100_80g_sxm", "-o")
CALLS = {
    "picture.png": SCHEDULE,
    "page.html": ("report", TRIPLE, "-o"),
    "sizes.csv": ("collective", "all_reduce", "1KiB", 64, "h100_80g_sxm", "--to", "8GiB", "-o"),
}


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


SERVED = ("serve", "gpt2-124M", 1, "h100_80g_sxm", "--prompt", 64, "--output", 16)
PLANNED = ("plan", "gpt2-124M", 2, "h100_80g_sxm", "--batch", 8, "--fix", "tensor_par=1")


@pytest.mark.parametrize("asked", [SERVED, PLANNED, ("block", *ARGUMENTS)], ids=lambda one: one[0])
def test_an_answer_is_printed_and_written_in_every_format(output_of, asked):
    assert json.loads(output_of(*asked, "-f", "json")) == json.loads(output_of(*asked, "-o", "-"))
    for form, file in (("markdown", "a.md"), ("html", "a.html"), ("csv", "a.csv")):
        printed = output_of(*asked, "-f", form)
        assert output_of(*asked, "-o", file) == f"Output: {file}\n"
        assert Path(file).read_text() == printed
    assert Path("a.html").read_text().startswith("<!DOCTYPE html>")
    assert "," in Path("a.csv").read_text().partition("\n")[0]
