"""Journal of the finished searches of a study, next to its output: an interrupted study goes on where it was.

A journal is text. Its first line names its study; every other line is one finished search. Each line begins with the
checksum of its rest and is written at once, so that a process that is killed at any moment loses nothing but the
searches that were under way; a last line that was cut off, and any damaged line, is left out.
"""

import contextlib
import json
import os
import warnings
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Generic, Protocol, Self, TypeVar

from calculon.base.errors import Problem, SpecError
from calculon.declarations.decode import SpecWarning
from calculon.declarations.files import reason
from calculon.search.task import program

FORMAT = "calculon study journal 1"
SUFFIX = ".journal"

_RESTART = "begin again with --restart, or choose another output name"


class Finished(Protocol):
    """What is kept of a finished search, or of another question of a study: its number, and what a line has of it."""

    @property
    def search(self) -> int:
        """Its number."""

    def to_record(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        """Return that of a record; KeyError, TypeError or ValueError for one that is damaged."""


F = TypeVar("F", bound=Finished)


class Journal(Generic[F]):
    """Finished searches, in a file that only this process writes to.

    Attributes:
        path: The file.
        outcomes: Finished searches by number.
    """

    def __init__(self, path: str, stream: IO[bytes], outcomes: dict[int, F]):
        self.path = path
        self.outcomes = outcomes
        self._stream = stream

    @classmethod
    def open(
        cls,
        output: str,
        study: str,
        fingerprint: str,
        total: int,
        kind: type[F],
        *,
        restart: bool = False,
    ) -> "Journal[F]":
        """Open the journal of an output, or start one.

        Args:
            output: The result of the study; the journal's name is this and ``.journal``.
            study, fingerprint, total: File of the study, fingerprint of its contents, and number of its searches.
            kind: What is kept of each.
            restart: Forget the searches of an older journal.

        Raises:
            SpecError: When the journal belongs to another study or is none, when another process writes to it, and when
                there is a result without a journal.
        """
        path = output + SUFFIX
        head: dict[str, Any] = {"journal": FORMAT, "version": program(), "study": study}
        head |= {"fingerprint": fingerprint, "searches": total}
        if not restart and not Path(path).exists() and Path(output).is_file():
            found = "a file without its journal"
            hint = "delete or rename it, or replace it with --restart"
            raise SpecError(
                output, Problem("", "no file, or the result of this study", found, hint)
            )
        try:
            stream = Path(path).open("a+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise SpecError(path, Problem("", "a writable file", reason(error))) from None
        try:
            _lock(stream, path)
            stream.seek(0)
            data = b"" if restart else stream.read()
            whole = data[: data.rfind(b"\n") + 1]
            if not whole and not _line(head).startswith(data):
                raise _foreign(path)
            outcomes = _read(whole, path, head, kind) if whole else {}
            stream.truncate(len(whole))
            journal = cls(path, stream, outcomes)
            if not whole:
                journal._write(head)
        except BaseException:
            stream.close()
            raise
        return journal

    def add(self, outcome: F) -> None:
        """Keep a finished search.

        Raises:
            OSError: When the file cannot take it; the searches before it stay.
        """
        self._write(outcome.to_record())
        self.outcomes[outcome.search] = outcome

    def _write(self, record: Mapping[str, Any]) -> None:
        """Append a record, all of it or nothing: a full disk may take a part and say nothing."""
        end = self._stream.seek(0, os.SEEK_END)
        rest = memoryview(_line(record))
        with _named(self.path):
            try:
                while rest:
                    rest = rest[self._stream.write(rest) :]
            except BaseException:
                self._stream.truncate(end)
                raise

    def close(self) -> None:
        """Make sure that the file is on its disk, and let others have it."""
        with _named(self.path), self._stream:
            os.fsync(self._stream.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Give errors of the system the name of the file."""
    try:
        yield
    except OSError as error:
        error.filename = path
        raise


def _lock(stream: IO[bytes], path: str) -> None:
    """Keep other processes from writing to a file, where the system can."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        found = "another process that is at work on it"
        hint = "wait for it, or choose another output name"
        raise SpecError(path, Problem("", "a journal of one's own", found, hint)) from None
    except OSError:  # a file system without locks
        return


def _line(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line."""
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _read(data: bytes, path: str, head: Mapping[str, Any], kind: type[F]) -> dict[int, F]:
    """Return the finished searches of whole lines; damaged lines are left out with a warning."""
    first, *lines = data.split(b"\n")[:-1]
    _check_head(_record(first), path, head)
    outcomes: dict[int, F] = {}
    damaged = []
    for number, line in enumerate(lines, 2):
        try:
            outcome = kind.of_record(_record(line))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            damaged.append(number)
            continue
        if 0 <= outcome.search < head["searches"]:
            outcomes[outcome.search] = outcome
        else:
            damaged.append(number)
    if damaged:
        text = f"{path}: {len(damaged):,} damaged lines, the first in line {damaged[0]}"
        warnings.warn(f"{text}; their searches are run again", SpecWarning, stacklevel=3)
    return outcomes


def _record(line: bytes) -> dict[str, Any]:
    """Return the record of a line; empty where the line is damaged."""
    checksum, _, text = line.partition(b" ")
    with contextlib.suppress(ValueError, RecursionError):
        if checksum == b"%08x" % zlib.crc32(text) and isinstance(record := json.loads(text), dict):
            return record
    return {}


def _check_head(found: Mapping[str, Any], path: str, head: Mapping[str, Any]) -> None:
    """Check that a journal is that of the same searches by the same program."""
    if found.get("journal") != head["journal"]:
        raise _foreign(path)
    if found.get("version") != head["version"]:
        wanted = f"a journal written by calculon {head['version']}"
        raise SpecError(path, Problem("", wanted, f"one by {found.get('version')}", _RESTART))
    if any(found.get(key) != head[key] for key in ("fingerprint", "searches")):
        what = f"one of {found.get('study')} with {found.get('searches')} searches"
        what += ", other than they are now: the study, a model or a system has changed"
        raise SpecError(path, Problem("", "the journal of this study", what, _RESTART))


def _foreign(path: str) -> SpecError:
    hint = f"delete it, or {_RESTART}"
    return SpecError(path, Problem("", "a sound journal of a study", "another file", hint))
