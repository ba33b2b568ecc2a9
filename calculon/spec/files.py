"""Documents in and out: JSON or YAML, plain or gzip, a path or ``-``; written beside, then renamed."""

import contextlib
import gzip
import io
import json
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from calculon.errors import Problem, SpecError

STDIN = "-"
SUFFIXES = (".json", ".yaml", ".yml")


def document_suffix(path: str) -> str:
    """Return the suffix that tells the format of a file name, without ``.gz``; may be empty."""
    return Path(path.removesuffix(".gz")).suffix.lower()


def read_document(path: str) -> object:
    """Read one JSON or YAML document from a path, or from standard input for ``-``.

    Raises
    ------
    SpecError
        When the file cannot be read or is not a document of its format; the message says where.
    """
    if path == STDIN:
        return _parse(_read_stdin(), "<stdin>", ".yaml")
    suffix = document_suffix(path)
    if suffix not in SUFFIXES:
        wanted = "a file name that ends in " + ", ".join(SUFFIXES) + " (also with .gz)"
        raise SpecError(path, Problem("", wanted, f"'{suffix}'" if suffix else "no suffix"))
    try:
        data = Path(path).read_bytes()
        if path.endswith(".gz"):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise SpecError(path, Problem("", "a readable file", reason(error))) from None
    return _parse(data, path, suffix)


def _read_stdin() -> bytes:
    data = sys.stdin.buffer.read() if hasattr(sys.stdin, "buffer") else sys.stdin.read().encode()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def _parse(data: bytes, file: str, suffix: str) -> object:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise SpecError(file, Problem("", "text in UTF-8", found)) from None
    try:
        if suffix == ".json" or text.lstrip().startswith("{"):
            return json.loads(text, object_pairs_hook=_no_duplicates)
        return _parse_yaml(text)
    except _DuplicateKeyError as error:
        wanted = "each field once"
        raise SpecError(file, Problem(str(error), wanted, "the field twice")) from None
    except json.JSONDecodeError as error:
        place = f"{error.msg} at line {error.lineno}, column {error.colno}"
        found = "an empty file" if not text.strip() else place
        raise SpecError(file, Problem("", "a JSON document", found)) from None
    except (RecursionError, ValueError) as error:
        found = "too deep a nesting" if isinstance(error, RecursionError) else str(error)
        raise SpecError(file, Problem("", "a JSON or YAML document", found)) from None


class _DuplicateKeyError(Exception):
    pass


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        raise _DuplicateKeyError(next(name for name in names if names.count(name) > 1))
    return result


_YAML_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)\Z")
_YAML_NUMBER = re.compile(
    r"(?:[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan)\Z"
)


def _parse_yaml(text: str) -> object:
    import yaml  # only when a spec is YAML

    class Loader(yaml.SafeLoader):
        """YAML with the numbers of YAML 1.2: 1e-5 is one, 8:32:8 is none; and no repeated keys."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [getattr(key, "value", None) for key, _ in node.value]
            for key in keys:
                if isinstance(key, str) and keys.count(key) > 1:
                    raise _DuplicateKeyError(key)
            return super().construct_mapping(node, deep)

    numbers = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
    Loader.yaml_implicit_resolvers = {
        first: [(tag, rule) for tag, rule in rules if tag not in numbers]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for tag, rule in zip(numbers, (_YAML_INTEGER, _YAML_NUMBER), strict=True):
        Loader.add_implicit_resolver(tag, rule, list("-+.0123456789"))
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ValueError(f"{what}{place}") from None


def reason(error: BaseException) -> str:
    """Say in a few words why a file could not be read or written."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


def check_output(path: str, suffixes: tuple[str, ...]) -> None:
    """Check before any work that a file of this name could be written.

    Raises
    ------
    SpecError
        For a suffix that names no known format, a missing folder, or a place without write permission.
    """
    if document_suffix(path) not in suffixes:
        wanted = "an output name that ends in " + ", ".join(suffixes) + " (also with .gz)"
        suffix = document_suffix(path)
        raise SpecError(path, Problem("", wanted, f"'{suffix}'" if suffix else "no suffix"))
    target = Path(path)
    if target.is_dir():
        raise SpecError(path, Problem("", "a file name", "a directory"))
    if not target.parent.is_dir():
        hint = f"create the folder first: mkdir -p '{target.parent}'"
        raise SpecError(path, Problem("", "a folder that exists", "no such folder", hint))
    if not os.access(target.parent, os.W_OK) or (target.exists() and not os.access(path, os.W_OK)):
        raise SpecError(path, Problem("", "a writable place", "permission denied"))


@contextlib.contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """Open a file beside `path` for writing and rename it into place when all went well.

    Compresses when the name ends in ``.gz``. After an error nothing is left behind and an older file of that
    name stays as it was. A place that is no regular file (``/dev/stdout``, a pipe) is written directly.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        with target.open("wb") as stream:
            yield stream
        return
    target = target.resolve()
    handle, beside = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as raw:
            if path.endswith(".gz"):
                with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as stream:
                    yield stream  # type: ignore[misc]
            else:
                yield raw
        umask = os.umask(0)
        os.umask(umask)
        Path(beside).chmod(0o666 & ~umask)
        Path(beside).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(beside).unlink()
        raise


def write_json(path: str, document: object) -> None:
    """Write a JSON document as the published tool does: indented, or compact when compressed.

    Raises
    ------
    SpecError
        When the file cannot be written.
    """
    indent = None if path.endswith(".gz") else 2
    try:
        with replacing(path) as stream, io.TextIOWrapper(stream, encoding="utf-8") as text:
            json.dump(document, text, indent=indent)
    except OSError as error:
        raise SpecError(path, Problem("", "a writable file", reason(error))) from None
