"""Read and write documents: JSON or YAML, plain or gzip, a path or ``-``. Files are written atomically by renaming."""

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
"""Largest document in bytes, also after decompression, so that a small gzip file cannot fill the memory."""

_OPEN_INPUT = r"/dev/(?:stdin|fd/\d+)|/proc/self/fd/\d+"
_DESCRIPTOR = r"/dev/(?:(stdout)|(stderr)|fd/(\d+))"
_UNFINISHED = ".part"


@lru_cache(maxsize=1024)  # commands list the folders of the catalog repeatedly
def document_suffix(path: str) -> str:
    """Return the suffix that determines the format of a file name, without ``.gz``; may be empty."""
    return Path(path.removesuffix(".gz")).suffix.lower()


@lru_cache(maxsize=1024)
def document_stem(path: str) -> str:
    """Return the file name without folder and without format suffixes."""
    name = Path(path).name.removesuffix(".gz")
    return name.rpartition(".")[0] if document_suffix(name) in SUFFIXES else name


def read_document(path: str) -> object:
    """Read one JSON or YAML document from a path, or from standard input for ``-``.

    A name with another suffix (``/dev/stdin``, ``<(...)`` of a shell) is read too; its content determines the format.

    Raises:
        SpecError: If the file cannot be read or is not a document of its format; the message gives the position.
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
    """Read a file, a pipe, or standard input for ``-``, if it is not larger than :data:`LARGEST_FILE`.

    A named pipe is read as by ``cat``: the call waits for a writer.

    Raises:
        SpecError: If it cannot be read, is too large, or is a device.
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
        # Some files of /proc block a reader forever unless it opens them without blocking.
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
    """Return the decompressed content of a gzip file."""
    import gzip  # deferred: most commands read no compressed file

    try:
        return _bounded(gzip.GzipFile(fileobj=io.BytesIO(data)), file)
    except gzip.BadGzipFile:
        hint = "name it without .gz"
        raise SpecError(file, Problem("", "a gzip file", "something else", hint)) from None
    except (OSError, EOFError, zlib.error) as error:
        raise SpecError(file, Problem("", "a readable file", reason(error))) from None


def _bounded(stream: Any, file: str) -> bytes:
    """Read a binary stream to its end, if it is not larger than :data:`LARGEST_FILE`."""
    data: bytes = stream.read(LARGEST_FILE + 1) or b""
    if len(data) > LARGEST_FILE:
        size = f"{LARGEST_FILE // 2**20} MiB"
        hint = "larger tables are read as CSV or Parquet"
        raise SpecError(file, Problem("", f"at most {size}, unpacked", "more", hint))
    return data


def reason(error: BaseException) -> str:
    """Return a short reason why a file could not be read or written."""
    if isinstance(error, OSError) and (
        cause := error.strerror or "".join(map(str, error.args[:1]))
    ):
        return cause.lower()  # libraries may raise OSError with a text only, without errno
    return str(error) or type(error).__name__


def check_output(path: str, suffixes: tuple[str, ...]) -> None:
    """Check before any work that a file with this name could be written.

    A device or a pipe (``/dev/stdout``) needs no suffix if there is only one format.

    Raises:
        SpecError: For a suffix of an unknown format, a missing folder, or missing write permission.
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
    """Return True if a path is not a regular file, such as ``/dev/stdout`` or a pipe."""
    return bool(re.fullmatch(_DESCRIPTOR, path)) or _is_special(Path(path))


def check_writable(path: str) -> None:
    """Check that a file with this name could be written, for any suffix; errors as in :func:`check_output`."""
    target = Path(path)
    if not target.parent.is_dir():
        hint = f"create the folder first: mkdir -p '{target.parent}'"
        raise SpecError(path, Problem("", "a folder that exists", "no such folder", hint))
    # Devices and pipes are written directly, so they need no temporary file in their folder.
    if not (_is_special(target) or os.access(target.parent, os.W_OK)) or (
        target.exists() and not os.access(path, os.W_OK)
    ):
        raise SpecError(path, Problem("", "a writable place", "permission denied"))


def _is_special(target: Path) -> bool:
    """Return True if the path exists and is not a regular file: a device, a pipe or a folder."""
    return target.exists() and not target.is_file()


@contextlib.contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """Open a temporary file in the folder of `path` for writing, and rename it to `path` on success.

    The file is compressed if the name ends in ``.gz``. On an error the temporary file is removed and an existing file
    keeps its content; a new version takes over its permissions. Devices and pipes (``/dev/stdout``) are written
    directly. Temporary files of the same name that a killed process left are removed. An OSError names the file.
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
    temporary = target.with_name(f"{mark}{os.getpid()}.{os.urandom(4).hex()}{_UNFINISHED}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as raw:
            if path.endswith(".gz"):
                import gzip

                # Without a time stamp, equal documents give equal files.
                with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as stream:
                    yield stream  # type: ignore[misc]
            else:
                yield raw
        temporary.chmod(_permissions(target))
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _descriptor(matched: re.Match[str]) -> IO[bytes]:
    """Open a duplicate of a descriptor that a shell opened: ``/dev/stdout`` may be a file that is appended to."""
    number = 1 if matched[1] else 2 if matched[2] else int(matched[3])
    return os.fdopen(os.dup(number), "wb")


def _permissions(target: Path) -> int:
    """Return the permissions of the file to be replaced, or the default ones of a new file."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    umask = os.umask(0)  # the only way to read it is to set it
    os.umask(umask)
    return 0o666 & ~umask


def _remove_abandoned(folder: Path, mark: str) -> None:
    """Remove temporary files of processes of this machine that have ended."""
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
    """Return indented JSON for people, with short lists of plain values on one line.

    >>> print(indented({"curve": [[10, 0.9], [0, 0.5]]}))
    {
      "curve": [
        [10, 0.9],
        [0, 0.5]
      ]
    }
    """
    return re.sub(_PLAIN_LIST, _on_one_line, json_text(document))


def _on_one_line(match: re.Match[str]) -> str:
    line = f"[{re.sub(_BREAK, ', ', match[1])}]"
    return match[0] if '"' in line and len(line) > _LONGEST_LINE else line


_LONGEST_LINE = 120
_BREAK = r",\n\s*"
_PLAIN_LIST = r'\[\s+((?:"(?:[^"\\]|\\.)*"|[^"\[\]{}])*?)\s+\]'


def json_text(document: object, indent: int | None = 2) -> str:
    """Return a document as standard JSON; null replaces numbers that are not finite, which JSON cannot express.

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
    """Return the text of a CSV cell, with a leading ``'`` if a spreadsheet would read it as a formula.

    Such cells hold names of files, which may come from untrusted sources
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
