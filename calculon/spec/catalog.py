"""The catalog: spec files that travel with the package, found by name."""

from functools import cache
from pathlib import Path

from calculon.errors import Problem, SpecError, nearest
from calculon.spec.files import STDIN, SUFFIXES, document_suffix, read_document

KINDS = {"model": "models", "system": "systems", "execution": "examples"}
"""Folder of the catalog for each kind of spec."""


@cache
def root() -> Path:
    """Return the folder that holds ``models``, ``systems``, ``examples`` and ``validation``.

    In an installed package it is inside the package, in a checkout beside it.
    """
    package = Path(__file__).resolve().parent.parent
    inside = package / "catalog"
    return inside if inside.is_dir() else package.parent


def names(kind: str) -> dict[str, Path]:
    """Map the names of one kind of spec to their files, sorted by name."""
    folder = root() / KINDS[kind]
    files = (path for path in folder.iterdir() if document_suffix(path.name) in SUFFIXES)
    return {path.name.removesuffix(".gz").rpartition(".")[0]: path for path in sorted(files)}


def load(kind: str, source: str) -> tuple[str, object]:
    """Read a spec by catalog name, by path, or from standard input (``-``).

    Parameters
    ----------
    kind : str
        ``model``, ``system`` or ``execution``.
    source : str
        A catalog name has no suffix and no folder; anything else is a path.

    Returns
    -------
    tuple of str and object
        The short name of the spec, and the document.

    Raises
    ------
    SpecError
        When there is no such name or file, or when it cannot be read.
    """
    if source == STDIN:
        return "stdin", read_document(source)
    if document_suffix(source) in SUFFIXES and (Path(source).exists() or "/" in source):
        stem = Path(source).name.removesuffix(".gz").rpartition(".")[0]
        return stem, read_document(source)
    known = names(kind)
    if source in known:
        return source, read_document(str(known[source]))
    stem = Path(source).name.removesuffix(".gz")
    for suffix in SUFFIXES:
        stem = stem.removesuffix(suffix)
    listing = ", ".join(known) if len(known) <= 20 else "see: calculon catalog"
    if stem in known:
        hint = f"the catalog has it by name: {stem}"
    else:
        hint = nearest(stem, list(known)) or f"the catalog has {listing}"
    wanted = f"a {kind} file (.json, .yaml, also .gz) or a name of the catalog"
    raise SpecError(source, Problem("", wanted, "no such file or name", hint))
