"""Progress of a command on standard error: one line, only in terminals, after one second of computing."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

from calculon.base.activity import listening

PATIENCE = 1.0
"""Seconds without output after which the line appears."""

TICK = 0.1
"""Seconds between redraws of the line."""

BAR = 20
"""Width of the bar in columns."""

_SPINNER, _FULL, _EMPTY = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "━", "─"
_ASCII = str.maketrans({_FULL: "#", _EMPTY: ".", **dict(zip(_SPINNER, "|/-\\" * 3, strict=False))})


class ProgressLine:
    """Progress line with a spinner, the current activity, its progress and the elapsed time.

    Attributes:
        activity: Description of the current computation.
        tasks: Progress over several tasks.
    """

    def __init__(self, command: str):
        self.activity, self.tasks = "", ""
        self._command = command
        self._begin = self._quiet_since = time.monotonic()
        self._shown = False
        self._lock, self._over = threading.Lock(), threading.Event()
        # A daemon thread, so that an exception in the main thread never waits for the line.
        self._thread = threading.Thread(target=self._draw_often, daemon=True)
        self._thread.start()

    def hide(self) -> None:
        """Erase the line to make way for output; it returns after a while without output."""
        with self._lock:
            self._quiet_since = time.monotonic()
            self._erase()

    def stop(self) -> None:
        """Erase the line permanently."""
        self._over.set()
        self._thread.join()
        with self._lock:
            self._erase()

    def listen(self, words: str) -> None:
        """Set the description of the current computation."""
        self.activity = words

    def _draw_often(self) -> None:
        while not self._over.wait(TICK):
            with self._lock:
                if time.monotonic() - self._quiet_since >= PATIENCE:
                    self._draw()

    def _draw(self) -> None:
        seconds = time.monotonic() - self._begin
        spinner = _SPINNER[int(seconds / TICK) % len(_SPINNER)]
        parts = (f"{spinner} {self._command}", self.tasks, self.activity, _clock(seconds))
        text = "  ".join(filter(None, parts))
        if not _has_blocks():
            text = text.translate(_ASCII)
        width = _columns() - 1
        self._shown = True
        self._write(f"\r{text[:width]}\x1b[K")

    def _erase(self) -> None:
        if self._shown:
            self._shown = False
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal was closed
            sys.stderr.write(text)
            sys.stderr.flush()


_line: ProgressLine | None = None


@contextlib.contextmanager
def waiting(command: str) -> Iterator[None]:
    """Show the progress line of a command while it computes, if the terminal can erase it."""
    global _line  # noqa: PLW0603
    if _line is not None or not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield
        return
    _line = line = ProgressLine(command)
    try:
        with listening(line.listen):
            yield
    finally:
        end()


def hide() -> None:
    """Erase the line, if shown, before something is printed."""
    if _line is not None:
        _line.hide()


def end() -> None:
    """Show no line for the rest of this command, which waits for people or was asked to be quiet."""
    global _line  # noqa: PLW0603
    if _line is not None:
        _line.stop()
        _line = None


@contextlib.contextmanager
def progress(
    total: int, *, done: int = 0, what: str = "searches", quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show the progress of several tasks; yield a function that takes the number of newly finished tasks.

    Args:
        total, done: Number of all tasks, and of tasks finished earlier, which are excluded from the rate.
        what: Plural noun for the tasks.
        quiet: Show nothing.
    """
    if quiet:
        end()
    begin, before = time.monotonic(), done

    def advance(count: int) -> None:
        nonlocal done
        done += count
        # Tasks finished before a resumed study must not inflate the rate.
        rate = (done - before) / max(time.monotonic() - begin, 1e-9)
        if _line is not None and total > 1:
            left = f"  {_rate(rate)}  {_clock((total - done) / rate)} left" if rate else ""
            full = BAR * min(done, total) // total
            bar = _FULL * full + _EMPTY * (BAR - full)
            _line.tasks = f"{bar} {done:,}/{total:,} {what}{left}"

    advance(0)
    try:
        yield advance
    finally:
        if _line is not None:
            _line.tasks = _line.activity = ""


def _columns() -> int:
    """Return the width of the terminal."""
    try:
        return os.get_terminal_size(2).columns or 80
    except OSError:
        return 80


def _has_blocks() -> bool:
    """Return True if standard error can encode the spinner."""
    try:
        _SPINNER.encode(sys.stderr.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _rate(rate: float) -> str:
    """Return the tasks finished per second, or per minute if that is below one."""
    return f"{rate:,.1f}/s" if rate >= 1 else f"{60 * rate:,.1f}/min"


def _clock(seconds: float) -> str:
    """Return a duration as text: seconds, minutes and seconds, or hours and minutes.

    >>> _clock(12), _clock(75), _clock(7_400)
    ('12 s', '1:15', '2 h 03 min')
    """
    if seconds < 59.5:
        return f"{round(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes}:{rest:02}"
