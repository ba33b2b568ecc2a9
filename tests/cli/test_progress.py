"""Progress: for people at a terminal who have to wait, and for nobody else."""

import io
import time

import pytest

from calculon.cli import progress as module


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, stream, *, seconds=0.0, quiet=False):
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    with module.progress(20, done=4, quiet=quiet) as advance:
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


def test_says_how_many_how_fast_and_how_long(monkeypatch):
    text = shown(monkeypatch, Terminal(), seconds=0.3)
    assert "searches" in text
    assert "9/20" in text
    assert "/s" in text
    assert "left" in text
