"""Standard output and standard error, also when they are closed, full, or a pipe that nobody reads; and log files."""

import contextlib
import errno
import io
import os
import re
import sys
from pathlib import Path

from calculon.base.errors import Problem, SpecError, printable
from calculon.declarations.files import check_writable, reason

STDOUT_NAME = "<stdout>"
_BREAKS = r"([\n\t])"


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
    """Return a text with an escape in place of what a terminal would act on, but for tabs and ends of lines."""
    if text.isprintable():
        return text
    parts = re.split(_BREAKS, text)
    return "".join(part if part in ("\n", "\t") else printable(part) for part in parts)


def tell(text: str) -> None:
    """Print lines on standard error; when that is full or closed there is nobody to tell."""
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
