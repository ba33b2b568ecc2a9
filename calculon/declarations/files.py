"""Documents in and out: JSON or YAML, plain or gzip, a path or ``-``; written beside, then renamed."""

import contextlib
import errno
import io
import json
import math
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from calculon.base.errors import Problem, SpecError
from calculon.declarations.parse import parse

STDIN = "-"
SUFFIXES = (".json", ".yaml", ".yml")
_GZIP = b"\x1f\x8b"
LARGEST_FILE = 64 * 2**20
"""Bytes of a document, also unpacked."""

_OPEN_INPUT = r"/dev/(?:stdin|fd/\d+)|/proc/self/fd/\d+"
_DESCRIPTOR = r"/dev/(?:(stdout)|(stderr)|fd/(\d+))"
_UNFINISHED = ".part"


@lru_cache(maxsize=1024)  # folders of the catalog are listed again and again
def document_suffix(path: str) -> str:
    """Return the suffix that tells the format of a file name, without ``.gz``; may be empty."""
    return Path(path.removesuffix(".gz")).suffix.lower()


@lru_cache(maxsize=1024)
def document_stem(path: str) -> str:
    """Return the name of a document without folder and without the suffixes of its format."""
    name = Path(path).name.removesuffix(".gz")
    return name.rpartition(".")[0] if document_suffix(name) in SUFFIXES else name


def read_document(path: str) -> object:
    """Read one JSON or YAML document from a path, or from standard input for ``-``.

    A name that ends otherwise (``/dev/stdin``, ``<(...)`` of a shell) is read too, and its text tells the format.

    Raises:
        SpecError: When the file cannot be read or is not a document of its format; the message says where.
    """
    suffix, file = document_suffix(path), "<stdin>" if path == STDIN else path
    named = suffix in SUFFIXES
    if not named and path != STDIN and not Path(path).exists():
        wanted = "a file name that ends in " + ", ".join(SUFFIXES) + " (also with .gz)"
        raise SpecError(path, Problem("", wanted, f"'{suffix}'" if suffix else "no suffix"))
    data = read_bytes(path)
    if path.endswith(".gz") or (not named and data.startswith(_GZIP)):
        data = _unpacked(data, file)
    return parse(data, file, suffix)


def read_bytes(path: str) -> bytes:
    """Read a whole file, a pipe, or standard input for ``-``, if it is not larger than :data:`LARGEST_FILE`.

    A named pipe is read as ``cat`` reads it: after waiting for somebody who writes.

    Raises:
        SpecError: When it cannot be read, is too large, or is a device.
    """
    file = "<stdin>" if path == STDIN else path
    try:
        if path == STDIN:
            return _bounded(_stdin(), file)
        mode = Path(path).stat().st_mode
        piped = stat.S_ISFIFO(mode) or re.fullmatch(_OPEN_INPUT, path)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not (stat.S_ISREG(mode) or piped):
            raise SpecError(file, Problem("", "a regular file or a pipe", "a device"))
        # some files of /proc keep a reader waiting for ever, unless it declines to wait
        flags = os.O_RDONLY | (0 if piped else os.O_NONBLOCK)
        with os.fdopen(os.open(path, flags), "rb") as stream:
            return _bounded(stream, file)
    except OSError as error:
        raise SpecError(file, Problem("", "a readable file", reason(error))) from None


def _stdin() -> IO[bytes]:
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    if hasattr(sys.stdin, "buffer"):
        return sys.stdin.buffer
    return io.BytesIO(sys.stdin.read().encode())


def _unpacked(data: bytes, file: str) -> bytes:
    """Return what a gzip file holds."""
    import gzip  # what most commands never need is imported where it is used

    try:
        return _bounded(gzip.GzipFile(fileobj=io.BytesIO(data)), file)
    except gzip.BadGzipFile:
        hint = "name it without .gz"
        raise SpecError(file, Problem("", "a gzip file", "something else", hint)) from None
    except (OSError, EOFError, zlib.error) as error:
        raise SpecError(file, Problem("", "a readable file", reason(error))) from None


def _bounded(stream: Any, file: str) -> bytes:
    """Read a binary stream to its end, if that comes soon enough."""
    data: bytes = stream.read(LARGEST_FILE + 1) or b""
    if len(data) > LARGEST_FILE:
        size = f"{LARGEST_FILE // 2**20} MiB"
        hint = "larger tables are read as CSV or Parquet"
        raise SpecError(file, Problem("", f"at most {size}, unpacked", "more", hint))
    return data


def reason(error: BaseException) -> str:
    """Say in a few words why a file could not be read or written."""
    if isinstance(error, OSError) and (
        cause := error.strerror or "".join(map(str, error.args[:1]))
    ):
        return cause.lower()  # libraries raise it with a text alone
    return str(error) or type(error).__name__


def check_output(path: str, suffixes: tuple[str, ...]) -> None:
    """Check before any work that a file of this name could be written.

    What is no file (``/dev/stdout``, a pipe) needs no suffix where there is only one format.

    Raises:
        SpecError: For a suffix that names no known format, a missing folder, or a place without write permission.
    """
    target = Path(path)
    suffix = document_suffix(path)
    if target.is_dir():
        raise SpecError(path, Problem("", "a file name", "a directory"))
    if suffix not in suffixes and not (len(suffixes) == 1 and is_device(path)):
        wanted = "an output name that ends in " + ", ".join(suffixes) + " (also with .gz)"
        raise SpecError(path, Problem("", wanted, f"'{suffix}'" if suffix else "no suffix"))
    if suffix == ".parquet" and path.endswith(".gz"):
        hint = "Parquet is compressed by itself"
        raise SpecError(path, Problem("", "a name that ends in .parquet", "'.parquet.gz'", hint))
    check_writable(path)


def is_device(path: str) -> bool:
    """Return whether a path is no file, such as ``/dev/stdout`` or a pipe."""
    return bool(re.fullmatch(_DESCRIPTOR, path)) or _is_special(Path(path))


def check_writable(path: str) -> None:
    """Check that a file of this name could be written, whatever its suffix; errors as in :func:`check_output`."""
    target = Path(path)
    if not target.parent.is_dir():
        hint = f"create the folder first: mkdir -p '{target.parent}'"
        raise SpecError(path, Problem("", "a folder that exists", "no such folder", hint))
    # nothing is made beside a device or a pipe
    if not (_is_special(target) or os.access(target.parent, os.W_OK)) or (
        target.exists() and not os.access(path, os.W_OK)
    ):
        raise SpecError(path, Problem("", "a writable place", "permission denied"))


def _is_special(target: Path) -> bool:
    """Tell whether something is there that is no regular file: a device, a pipe or a folder."""
    return target.exists() and not target.is_file()


@contextlib.contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """Open a file beside `path` for writing and rename it into place when all went well.

    Compresses when the name ends in ``.gz``. After an error nothing is left behind and an older file of that
    name stays as it was; a new one takes over its permissions. A place that is no regular file (``/dev/stdout``, a
    pipe) is written directly. What a killed process left of the same file is removed. An error of the system says
    which file it is about.
    """
    try:
        with _replacing(path) as stream:
            yield stream
    except OSError as error:
        if error.filename is None and not isinstance(error, BrokenPipeError):
            error.filename = path
        raise


@contextlib.contextmanager
def _replacing(path: str) -> Iterator[IO[bytes]]:
    target = Path(path)
    if (descriptor := re.fullmatch(_DESCRIPTOR, path)) or _is_special(target):
        with _descriptor(descriptor) if descriptor else target.open("wb") as stream:
            yield stream
        return
    target = target.resolve()
    mark = f".{target.name[:100]}.{os.uname().nodename[:50]}-"
    _remove_abandoned(target.parent, mark)
    beside = target.with_name(f"{mark}{os.getpid()}.{os.urandom(4).hex()}{_UNFINISHED}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as raw:
            if path.endswith(".gz"):
                import gzip

                with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as stream:
                    yield stream  # type: ignore[misc]
            else:
                yield raw
        beside.chmod(_permissions(target))
        beside.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
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
    """Return a JSON document for people: indented, with lists of plain values on one line, but for long texts.

    >>> print(indented({"curve": [[10, 0.9], [0, 0.5]]}))
    {
      "curve": [
        [10, 0.9],
        [0, 0.5]
      ]
    }
    """
    return re.sub(_PLAIN_LIST, _on_one_line, json_text(document))


def _on_one_line(found: re.Match[str]) -> str:
    line = f"[{re.sub(_BREAK, ', ', found[1])}]"
    return found[0] if '"' in line and len(line) > _LONGEST_LINE else line


_LONGEST_LINE = 120
_BREAK = r",\n\s*"
_PLAIN_LIST = r'\[\s+((?:"(?:[^"\\]|\\.)*"|[^"\[\]{}])*?)\s+\]'


def json_text(document: object, indent: int | None = 2) -> str:
    """Return a document as JSON that every reader takes: null stands for numbers that are not finite.

    >>> json_text({"a": [1.5, float("inf")]}, indent=None)
    '{"a": [1.5, null]}'
    """
    try:
        return json.dumps(document, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(document), indent=indent, allow_nan=False)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, (list, tuple)) else value


def csv_text(text: str) -> str:
    """Return a text for a cell of CSV: ``'`` before what a spreadsheet would take for a formula; numbers stay.

    Names of files stand in such cells, and may come from anywhere
    (OWASP, `CSV injection <https://owasp.org/www-community/attacks/CSV_Injection>`_).

    >>> csv_text("=1+1"), csv_text("-1.5e3"), csv_text("-"), csv_text("gpt3-175B")
    ("'=1+1", '-1.5e3', '-', 'gpt3-175B')
    """
    formula = len(text) > 1 and text[0] in _FORMULA and not re.fullmatch(_NUMBER, text)
    return f"'{text}" if formula else text


_FORMULA = "=+-@\t\r"
_NUMBER = r"(?i)[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(inf|nan)"


def write_json(path: str, document: object, *, for_people: bool = False) -> None:
    """Write a JSON document as the published tool does: indented, or compact when compressed.

    Raises:
        SpecError: When the file cannot be written.
    """
    indent = None if path.endswith(".gz") else 2
    try:
        with replacing(path) as stream, io.TextIOWrapper(stream, encoding="utf-8") as text:
            if for_people and indent:
                text.write(indented(document) + "\n")
            else:
                text.write(json_text(document, indent))
    except OSError as error:
        raise SpecError(path, Problem("", "a writable file", reason(error))) from None
