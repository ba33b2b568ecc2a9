"""What a study has finished, kept beside its output: an interrupted study goes on where it was.

A journal is text. Its first line says whose it is; every other line is one finished search. Each line begins with the
checksum of its rest and is written at once, so that a process that is killed at any moment loses nothing but the
searches that were under way; a last line that was cut off is dropped.
"""

import json
import os
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from calculon.apps.sweep.task import Outcome
from calculon.errors import Problem, SpecError
from calculon.search.select import Counts
from calculon.spec.files import reason
from calculon.version import __version__

FORMAT = "calculon study journal 1"
SUFFIX = ".journal"

_RESTART = "begin again with --restart, or choose another output name"


class Journal:
    """Finished searches, in a file that only this process writes to.

    Attributes
    ----------
    path : str
        The file.
    outcomes : dict of int to Outcome
        Finished searches by number.
    """

    def __init__(self, path: str, stream: IO[bytes], outcomes: dict[int, Outcome]):
        self.path = path
        self.outcomes = outcomes
        self._stream = stream

    @classmethod
    def open(
        cls, output: str, study: str, fingerprint: str, total: int, *, restart: bool = False
    ) -> "Journal":
        """Open the journal of an output, or start one.

        Parameters
        ----------
        output : str
            The result of the study; the journal's name is this and ``.journal``.
        study, fingerprint, total
            File of the study, what stands for its contents, and how many searches it has.
        restart : bool
            Forget what is there.

        Raises
        ------
        SpecError
            When the journal belongs to another study or is damaged, when another process writes to it, and when there
            is a result without a journal.
        """
        path = output + SUFFIX
        head: dict[str, Any] = {"journal": FORMAT, "version": __version__, "study": study}
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
            outcomes: dict[int, Outcome] = {}
            stream.seek(0)
            data = b"" if restart else stream.read()
            whole = data[: data.rfind(b"\n") + 1]
            if whole:
                outcomes = _read(whole, path, head)
            elif not _line(head).startswith(data):
                raise _damaged(path, "another file")
            stream.truncate(len(whole))
            if not whole:
                stream.write(_line(head))
        except BaseException:
            stream.close()
            raise
        return cls(path, stream, outcomes)

    def add(self, outcome: Outcome) -> None:
        """Keep a finished search."""
        counts = outcome.counts
        record = {
            "search": outcome.search,
            "total": counts.total,
            "good": counts.good,
            "reasons": dict(counts.reasons),
            "nearest_miss": counts.nearest_miss,
            "numbers": outcome.numbers,
            "scores": outcome.scores,
        }
        self._stream.write(_line(record))
        self.outcomes[outcome.search] = outcome

    def close(self) -> None:
        """Make sure that the file is on its disk, and let others have it."""
        os.fsync(self._stream.fileno())
        self._stream.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


def _read(data: bytes, path: str, head: Mapping[str, Any]) -> dict[int, Outcome]:
    """Return the finished searches of whole lines."""
    first, *lines = data.splitlines()
    _check_head(_record(first, path, 1), path, head)
    outcomes: dict[int, Outcome] = {}
    for number, line in enumerate(lines, 2):
        record = _record(line, path, number)
        try:
            outcome = _outcome(record)
        except (KeyError, TypeError, ValueError):
            raise _damaged(path, f"line {number}, which is no search") from None
        if not 0 <= outcome.search < head["searches"]:
            raise _damaged(path, f"search {outcome.search} in line {number}")
        outcomes[outcome.search] = outcome
    return outcomes


def _record(line: bytes, path: str, number: int) -> dict[str, Any]:
    """Return what a line says, its checksum checked."""
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        what = "another file" if number == 1 else f"line {number}, whose checksum is wrong"
        raise _damaged(path, what)
    try:
        record = json.loads(text)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise _damaged(path, f"line {number}, which is no record")
    return record


def _check_head(found: Mapping[str, Any], path: str, head: Mapping[str, Any]) -> None:
    """Check that a journal is that of the same searches by the same program."""
    if found.get("journal") != head["journal"]:
        raise _damaged(path, "another file")
    if found.get("version") != head["version"]:
        wanted = f"a journal of version {head['version']}"
        raise SpecError(path, Problem("", wanted, f"one of {found.get('version')}", _RESTART))
    if any(found.get(key) != head[key] for key in ("fingerprint", "searches")):
        what = f"one of {found.get('study')} with {found.get('searches')} searches"
        what += ", other than they are now: the study, a model or a system has changed"
        raise SpecError(path, Problem("", "the journal of this study", what, _RESTART))


def _damaged(path: str, found: str) -> SpecError:
    hint = f"delete it, or {_RESTART}"
    return SpecError(path, Problem("", "a sound journal of a study", found, hint))


def _outcome(record: Mapping[str, Any]) -> Outcome:
    """Return a finished search."""
    counts = Counts(
        int(record["total"]),
        int(record["good"]),
        Counter(record["reasons"]),
        {name: float(miss) for name, miss in record["nearest_miss"].items()},
    )
    numbers = tuple(int(number) for number in record["numbers"])
    scores = tuple(tuple(float(score) for score in row) for row in record["scores"])
    if any(len(row) != len(numbers) for row in scores):
        raise ValueError
    return Outcome(int(record["search"]), counts, numbers, scores)
