"""Progress: for people at a terminal who have to wait, and for nobody else."""

import io
import re
import time

import pytest

from calculon.base.activity import announce
from calculon.cli import progress as module

LAST = "\r\x1b[K"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


class OldTerminal(Terminal):
    encoding = "ascii"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    monkeypatch.setattr(module, "TICK", 0.01)
    monkeypatch.setenv("TERM", "xterm")


def shown(monkeypatch, stream, *, seconds=0.0, quiet=False):
    monkeypatch.setattr("sys.stderr", stream)
    with module.waiting("study"), module.progress(20, done=4, quiet=quiet) as advance:
        announce("64 x h100")
        for _ in range(5):
            time.sleep(seconds / 5)
            advance(1)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("stream", "options"),
    [
        (io.StringIO(), {"seconds": 0.2}),
        (Terminal(), {"seconds": 0.2, "quiet": True}),
        (Terminal(), {"seconds": 0.0}),
    ],
    ids=["no terminal", "quiet", "over in no time"],
)
def test_says_nothing(monkeypatch, stream, options):
    assert shown(monkeypatch, stream, **options) == ""


def test_says_nothing_in_a_terminal_that_cannot_erase(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert shown(monkeypatch, Terminal(), seconds=0.2) == ""


@pytest.mark.parametrize("stream", [Terminal(), OldTerminal()], ids=["blocks", "ASCII"])
def test_says_what_is_computed_how_far_and_how_long_and_disappears(monkeypatch, stream):
    text = shown(monkeypatch, stream, seconds=0.3)
    for words in ("study", "64 x h100", "8/20 searches", "/s", "left"):
        assert words in text
    assert text.endswith(LAST)
    assert "\x1b[" not in text.replace("\x1b[K", "")  # no color to turn off
    text.encode(stream.encoding)


def test_makes_room_for_output(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with module.waiting("validate"):
        time.sleep(0.2)
        module.hide()
        stream.write("a result\n")
        time.sleep(0.2)
    before, after = stream.getvalue().split("a result\n")
    assert before.endswith(LAST)
    assert re.search("validate", after)


def test_is_silent_for_good_once_it_ends(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with module.waiting("explore"):
        module.end()
        time.sleep(0.2)
    assert stream.getvalue() == ""
