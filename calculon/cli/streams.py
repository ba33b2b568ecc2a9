"""Standard output and standard error, also when they are closed, full, or a pipe that nobody reads; and log files."""

import contextlib
import errno
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

from calculon.base.errors import Problem, SpecError, printable
from calculon.cli.progress import hide
from calculon.declarations.files import check_writable, reason

STDOUT_NAME = "<stdout>"
_KEPT = r"([\n\t\xa0])"
"""Characters that are not printable by Python's rule, but that a terminal may get."""


class Nowhere(io.TextIOBase):
    """Stands for a standard stream that the caller closed; remembers whether something was lost."""

    def __init__(self) -> None:
        self.lost = False

    def write(self, text: str) -> int:
        """Drop a text."""
        self.lost |= bool(text)
        return len(text)

    def check(self) -> None:
        """Raise OSError when something was lost."""
        if self.lost:
            raise OSError(errno.EBADF, "it is closed", STDOUT_NAME)


class LogFile(io.TextIOBase):
    """A log that empties its file at the first text, when the inputs have been read.

    Raises:
        SpecError: At once when the file cannot be written; while writing, with the name of the file.
    """

    def __init__(self, path: str):
        self._path = path
        self._stream: io.TextIOWrapper | None = None
        try:
            if Path(path).is_dir():
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
            check_writable(path)
        except SpecError as error:
            problem = error.problems[0]
            raise self._error(problem.found, problem.hint) from None
        except OSError as error:
            raise self._error(reason(error)) from None

    def write(self, text: str) -> int:
        """Write a text, at once."""
        try:
            stream = self._opened()
            stream.write(text)
            stream.flush()
        except OSError as error:
            raise self._error(reason(error)) from None
        return len(text)

    def finish(self) -> None:
        """Close the file; it is there, though nothing was written."""
        try:
            self._opened().close()
        except OSError as error:
            raise self._error(reason(error)) from None

    def close(self) -> None:
        """Close the file after an error, where it was begun."""
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.close()
        super().close()

    def _opened(self) -> io.TextIOWrapper:
        if self._stream is None:
            self._stream = Path(self._path).open("w", encoding="utf-8")  # noqa: SIM115
        return self._stream

    def _error(self, found: str, hint: str = "") -> SpecError:
        return SpecError(self._path, Problem("", "a writable log file", found, hint))


def keep_standard_streams() -> None:
    """Give what the caller closed a place: no file that is opened later takes its number."""
    with contextlib.suppress(OSError):
        while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
            os.set_inheritable(number, True)
        os.close(number)
    if sys.stdout is None:
        sys.stdout = Nowhere()
    if sys.stderr is None:
        sys.stderr = Nowhere()


def escaped(text: str) -> str:
    """Return a text with an escape in place of what a terminal would act on, but for tabs, ends of lines and NBSP."""
    if text.isprintable():
        return text
    parts = re.split(_KEPT, text)
    return "".join(part if re.fullmatch(_KEPT, part) else printable(part) for part in parts)


def tell(text: str) -> None:
    """Print lines on standard error; when that is full or closed there is nobody to tell."""
    hide()
    try:
        print(escaped(text), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        give_up(2)


def flush_stdout() -> None:
    """Write out what was printed; OSError when it is lost."""
    sys.stdout.flush()
    if isinstance(sys.stdout, Nowhere):
        sys.stdout.check()


def give_up(number: int) -> None:
    """Let a stream that cannot be written go nowhere, so that nothing fails again at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)


# Ctrl-C, the polite SIGTERM of batch systems, and SIGHUP of a closed terminal: all undo what is unfinished.

ENDINGS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: someone else's Ctrl-C."""

    def __init__(self, number: int = signal.SIGTERM):
        super().__init__()
        self.number = number


def exit_code(error: KeyboardInterrupt) -> int:
    """Return the exit code of a program that was stopped by a signal: 128 and its number."""
    return 128 + (error.number if isinstance(error, Terminated) else signal.SIGINT)


def word(error: KeyboardInterrupt) -> str:
    """Say how it was stopped."""
    return "terminated" if isinstance(error, Terminated) else "interrupted"


def leave(code: int) -> NoReturn:
    """End the process at once, now that all is cleared up.

    Threads of native libraries may be busy and abort when Python ends in its own way, which takes as long as a tenth of
    an estimate besides.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def caught() -> list[signal.Signals]:
    """Return the signals that end the program: those of :data:`ENDINGS` that its caller does not ignore."""
    return [number for number in ENDINGS if signal.getsignal(number) is not signal.SIG_IGN]


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Raise :class:`Terminated` at the first SIGTERM or SIGHUP; later ones do not disturb the clearing up.

    A signal that the caller ignores (SIGHUP under nohup) stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = caught()
    before = {number: signal.getsignal(number) for number in numbers}

    def stop(number: int, _: FrameType | None) -> NoReturn:
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)
        raise Terminated(number)

    for number in numbers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, before[number])
