"""Standard output and standard error, even if closed, full, or a pipe without a reader; and log files."""

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
"""Characters that Python considers unprintable but that may be sent to a terminal."""


class NullStream(io.TextIOBase):
    """Replacement of a standard stream that the caller closed; records if output was lost."""

    def __init__(self) -> None:
        self.lost = False

    def write(self, text: str) -> int:
        """Discard a text."""
        self.lost |= bool(text)
        return len(text)

    def check(self) -> None:
        """Raise OSError if output was lost."""
        if self.lost:
            raise OSError(errno.EBADF, "it is closed", STDOUT_NAME)


class LogFile(io.TextIOBase):
    """Log file that is truncated at the first text, after the inputs have been read.

    Raises:
        SpecError: Immediately if the file cannot be written; on write errors, with the name of the file.
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
        """Write a text immediately."""
        try:
            # Opening late means that a log may replace a file that the command has read.
            stream = self._opened()
            stream.write(text)
            stream.flush()
        except OSError as error:
            raise self._error(reason(error)) from None
        return len(text)

    def finish(self) -> None:
        """Close the file; it exists even if nothing was written."""
        try:
            self._opened().close()
        except OSError as error:
            raise self._error(reason(error)) from None

    def close(self) -> None:
        """Close the file after an error, if it was opened."""
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
    """Reopen closed standard streams, so that no file opened later receives their descriptors."""
    with contextlib.suppress(OSError):
        while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
            os.set_inheritable(number, True)
        os.close(number)
    if sys.stdout is None:
        sys.stdout = NullStream()
    if sys.stderr is None:
        sys.stderr = NullStream()


def escaped(text: str) -> str:
    """Return a text with escapes for characters that a terminal would interpret, except tab, newline and NBSP."""
    if text.isprintable():
        return text
    parts = re.split(_KEPT, text)
    return "".join(part if re.fullmatch(_KEPT, part) else printable(part) for part in parts)


def print_stderr(text: str) -> None:
    """Print lines on standard error; ignore a stream that is full or closed."""
    hide()
    try:
        print(escaped(text), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        redirect_to_null(2)


def flush_stdout() -> None:
    """Flush standard output; raise OSError if output was lost."""
    sys.stdout.flush()
    if isinstance(sys.stdout, NullStream):
        sys.stdout.check()


def redirect_to_null(number: int) -> None:
    """Redirect an unwritable stream to the null device, so that nothing fails again at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)


# Ctrl-C, SIGTERM (batch systems) and SIGHUP (closed terminal) all undo unfinished work.

ENDINGS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """Interruption by SIGTERM or SIGHUP instead of Ctrl-C."""

    def __init__(self, number: int = signal.SIGTERM):
        super().__init__()
        self.number = number


def exit_code(error: KeyboardInterrupt) -> int:
    """Return the exit code of a program stopped by a signal: 128 plus its number."""
    return 128 + (error.number if isinstance(error, Terminated) else signal.SIGINT)


def interruption_word(error: KeyboardInterrupt) -> str:
    """Return the word for the kind of interruption."""
    return "terminated" if isinstance(error, Terminated) else "interrupted"


def exit_process(code: int) -> NoReturn:
    """End the process immediately; all cleanup is done.

    Threads of native libraries may still be busy and abort during Python's regular exit, which would also take up to
    a tenth of an estimate.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def handled_signals() -> list[signal.Signals]:
    """Return the signals that end the program: :data:`ENDINGS` except those that the caller ignores."""
    return [number for number in ENDINGS if signal.getsignal(number) is not signal.SIG_IGN]


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Raise :class:`Terminated` at the first SIGTERM or SIGHUP; later signals do not disturb the cleanup.

    A signal that the caller ignores (SIGHUP under nohup) stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = handled_signals()
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
