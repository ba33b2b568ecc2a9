"""Documents in and out: JSON or YAML, plain or gzip, a path or ``-``; written beside, then renamed."""

import contextlib
import errno
import gzip
import io
import json
import os
import re
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from calculon.errors import Problem, SpecError
from calculon.spec.parse import parse

STDIN = "-"
SUFFIXES = (".json", ".yaml", ".yml")
_GZIP = b"\x1f\x8b"
_DESCRIPTOR = re.compile(r"/dev/(?:(stdout)|(stderr)|fd/(\d+))")
_UNFINISHED = ".part"


def document_suffix(path: str) -> str:
    """Return the suffix that tells the format of a file name, without ``.gz``; may be empty."""
    return Path(path.removesuffix(".gz")).suffix.lower()


def document_stem(path: str) -> str:
    """Return the name of a document without folder and without the suffixes of its format."""
    name = Path(path).name.removesuffix(".gz")
    return name.rpartition(".")[0] if document_suffix(name) in SUFFIXES else name


def read_document(path: str) -> object:
    """Read one JSON or YAML document from a path, or from standard input for ``-``.

    A name that ends otherwise (``/dev/stdin``, ``<(...)`` of a shell) is read too, and its text tells the format.

    Raises
    ------
    SpecError
        When the file cannot be read or is not a document of its format; the message says where.
    """
    suffix, file = document_suffix(path), "<stdin>" if path == STDIN else path
    named = suffix in SUFFIXES
    if not named and path != STDIN and not Path(path).exists():
        wanted = "a file name that ends in " + ", ".join(SUFFIXES) + " (also with .gz)"
        raise SpecError(path, Problem("", wanted, f"'{suffix}'" if suffix else "no suffix"))
    try:
        data = _read_stdin() if path == STDIN else Path(path).read_bytes()
        if path.endswith(".gz") or (not named and data.startswith(_GZIP)):
            data = gzip.decompress(data)
    except gzip.BadGzipFile:
        hint = "name it without .gz"
        raise SpecError(file, Problem("", "a gzip file", "something else", hint)) from None
    except (OSError, EOFError, zlib.error) as error:
        raise SpecError(file, Problem("", "a readable file", reason(error))) from None
    return parse(data, file, suffix)


def _read_stdin() -> bytes:
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    return sys.stdin.buffer.read() if hasattr(sys.stdin, "buffer") else sys.stdin.read().encode()


def reason(error: BaseException) -> str:
    """Say in a few words why a file could not be read or written."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


def check_output(path: str, suffixes: tuple[str, ...]) -> None:
    """Check before any work that a file of this name could be written.

    What is no file (``/dev/stdout``, a pipe) needs no suffix where there is only one format.

    Raises
    ------
    SpecError
        For a suffix that names no known format, a missing folder, or a place without write permission.
    """
    target = Path(path)
    device = bool(_DESCRIPTOR.fullmatch(path)) or (target.exists() and not target.is_file())
    suffix = document_suffix(path)
    if target.is_dir():
        raise SpecError(path, Problem("", "a file name", "a directory"))
    if suffix not in suffixes and not (device and len(suffixes) == 1):
        wanted = "an output name that ends in " + ", ".join(suffixes) + " (also with .gz)"
        raise SpecError(path, Problem("", wanted, f"'{suffix}'" if suffix else "no suffix"))
    if suffix == ".parquet" and path.endswith(".gz"):
        hint = "Parquet is compressed by itself"
        raise SpecError(path, Problem("", "a name that ends in .parquet", "'.parquet.gz'", hint))
    check_writable(path)


def check_writable(path: str) -> None:
    """Check that a file of this name could be written, whatever its suffix; errors as in :func:`check_output`."""
    target = Path(path)
    if not target.parent.is_dir():
        hint = f"create the folder first: mkdir -p '{target.parent}'"
        raise SpecError(path, Problem("", "a folder that exists", "no such folder", hint))
    fixed = (
        target.exists() and not target.is_file()
    )  # a device or a pipe: nothing is made beside it
    if not (fixed or os.access(target.parent, os.W_OK)) or (
        target.exists() and not os.access(path, os.W_OK)
    ):
        raise SpecError(path, Problem("", "a writable place", "permission denied"))


@contextlib.contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """Open a file beside `path` for writing and rename it into place when all went well.

    Compresses when the name ends in ``.gz``. After an error nothing is left behind and an older file of that
    name stays as it was; a new one takes over its permissions. A place that is no regular file (``/dev/stdout``, a
    pipe) is written directly. What a killed process left of the same file is removed.
    """
    target = Path(path)
    if (descriptor := _DESCRIPTOR.fullmatch(path)) or (target.exists() and not target.is_file()):
        with _descriptor(descriptor) if descriptor else target.open("wb") as stream:
            yield stream
        return
    target = target.resolve()
    mark = f".{target.name[:100]}.{os.uname().nodename[:50]}-"
    _remove_abandoned(target.parent, mark)
    handle, beside = tempfile.mkstemp(
        prefix=f"{mark}{os.getpid()}.", suffix=_UNFINISHED, dir=target.parent
    )
    try:
        with os.fdopen(handle, "wb") as raw:
            if path.endswith(".gz"):
                with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as stream:
                    yield stream  # type: ignore[misc]
            else:
                yield raw
        Path(beside).chmod(_permissions(target))
        Path(beside).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(beside).unlink()
        raise


def _descriptor(found: re.Match[str]) -> IO[bytes]:
    """Open what a shell has opened: ``/dev/stdout`` may be a file that is appended to."""
    number = 1 if found[1] else 2 if found[2] else int(found[3])
    return os.fdopen(os.dup(number), "wb")


def _permissions(target: Path) -> int:
    """Return the permissions of the file that is replaced, or those of a new one."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _remove_abandoned(folder: Path, mark: str) -> None:
    """Remove unfinished files of processes of this machine that are gone."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.name.startswith(mark) and path.name.endswith(_UNFINISHED):
                owner = path.name.removeprefix(mark).partition(".")[0]
                if owner.isdecimal() and not _runs(int(owner)):
                    path.unlink()


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def indented(document: object) -> str:
    """Return a JSON document for people: indented, with lists of plain values on one line.

    >>> print(indented({"curve": [[10, 0.9], [0, 0.5]]}))
    {
      "curve": [
        [10, 0.9],
        [0, 0.5]
      ]
    }
    """
    return _PLAIN_LIST.sub(
        lambda found: f"[{re.sub(_BREAK, ', ', found[1])}]", json.dumps(document, indent=2)
    )


_BREAK = r",\n\s*"
_PLAIN_LIST = re.compile(r'\[\s+((?:"(?:[^"\\]|\\.)*"|[^"\[\]{}])*?)\s+\]')


def write_json(path: str, document: object, *, for_people: bool = False) -> None:
    """Write a JSON document as the published tool does: indented, or compact when compressed.

    Raises
    ------
    SpecError
        When the file cannot be written.
    """
    indent = None if path.endswith(".gz") else 2
    try:
        with replacing(path) as stream, io.TextIOWrapper(stream, encoding="utf-8") as text:
            if for_people and indent:
                text.write(indented(document) + "\n")
            else:
                json.dump(document, text, indent=indent)
    except OSError as error:
        raise SpecError(path, Problem("", "a writable file", reason(error))) from None
