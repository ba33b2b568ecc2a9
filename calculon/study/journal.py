"""Journal of the finished searches of a study, stored with its output: an interrupted study can be resumed.

A journal is a text file. Its first line identifies the study; each other line is one finished search. Every line begins
with the checksum of its rest and is written immediately, so a process that is killed loses only its unfinished
searches. Incomplete and damaged lines are skipped.
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
    """Stored result of a finished search, or of another question of a study."""

    @property
    def search(self) -> int:
        """Number of the search."""

    def to_record(self) -> dict[str, Any]:
        """Return the result as a JSON object."""

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        """Return the result of a record; raise KeyError, TypeError or ValueError for a damaged one."""


F = TypeVar("F", bound=Finished)


class Journal(Generic[F]):
    """Finished searches, in a file that only this process writes.

    Attributes:
        path: Path of the file.
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
            output: File of the study's result; the suffix ``.journal`` gives the name of the journal.
            study, fingerprint, total: File of the study, fingerprint of its contents, and number of its searches.
            kind: Class of the stored results.
            restart: Discard the searches of an older journal.

        Raises:
            SpecError: When the journal belongs to another study or is not a journal, when another process writes to it,
                and when there is a result without a journal.
        """
        path = output + SUFFIX
        head: dict[str, Any] = {"journal": FORMAT, "version": program(), "study": study}
        head |= {"fingerprint": fingerprint, "searches": total}
        # A result without its journal may be something else that must not be overwritten.
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
            # A killed process may leave an incomplete last line
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
        """Append a finished search.

        Raises:
            OSError: When the file cannot be written; earlier searches are kept.
        """
        self._write(outcome.to_record())
        self.outcomes[outcome.search] = outcome

    def _write(self, record: Mapping[str, Any]) -> None:
        """Append a complete record or nothing: a full disk may accept a part without an error."""
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
        """Flush the file to disk and release the lock."""
        with _named(self.path), self._stream:
            os.fsync(self._stream.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Add the file name to errors of the operating system."""
    try:
        yield
    except OSError as error:
        error.filename = path
        raise


def _lock(stream: IO[bytes], path: str) -> None:
    """Lock a file against other processes, if the operating system can."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        found = "another process that writes to it"
        hint = "wait for it, or choose another output name"
        raise SpecError(path, Problem("", "a journal without other writers", found, hint)) from None
    except OSError:  # a file system without locks
        return


def _line(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line with its checksum."""
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _read(data: bytes, path: str, head: Mapping[str, Any], kind: type[F]) -> dict[int, F]:
    """Return the finished searches of complete lines; skip damaged lines with a warning."""
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
    """Return the record of a line; empty if the line is damaged."""
    checksum, _, text = line.partition(b" ")
    with contextlib.suppress(ValueError, RecursionError):
        if checksum == b"%08x" % zlib.crc32(text) and isinstance(record := json.loads(text), dict):
            return record
    return {}


def _check_head(found: Mapping[str, Any], path: str, head: Mapping[str, Any]) -> None:
    """Check that a journal is from the same searches and the same program."""
    if found.get("journal") != head["journal"]:
        raise _foreign(path)
    if found.get("version") != head["version"]:
        wanted = f"a journal written by calculon {head['version']}"
        raise SpecError(path, Problem("", wanted, f"one by {found.get('version')}", _RESTART))
    if any(found.get(key) != head[key] for key in ("fingerprint", "searches")):
        what = f"one of {found.get('study')} with {found.get('searches')} searches"
        what += ", which have changed since: the study, a model or a system is different"
        raise SpecError(path, Problem("", "the journal of this study", what, _RESTART))


def _foreign(path: str) -> SpecError:
    hint = f"delete it, or {_RESTART}"
    return SpecError(path, Problem("", "an intact journal of a study", "another file", hint))
