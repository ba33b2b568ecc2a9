"""Catalog of spec files that ship with the package, looked up by name."""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest
from calculon.declarations import result_selection
from calculon.declarations.files import (
    STDIN,
    SUFFIXES,
    document_stem,
    document_suffix,
    read_document,
)
from calculon.declarations.overlay import BASE, resolved

KINDS = {"model": "models", "system": "systems", "execution": "examples"}
"""Folder of the catalog for each kind of spec."""

FOLDERS = KINDS | {
    "preset": "examples/presets",
    "engine": "examples/engines",
    "study": "examples/studies",
    "campaign": "examples/campaigns",
    "deployment": "examples/deployments",
    "workload": "examples/workloads",
}
"""Folder of the catalog for each kind of document with a catalog name."""

_TELLING = {
    "model": ("hidden", "feedforward", "attn_heads", "num_blocks"),
    "system": ("matrix", "vector", "mem1", "networks"),
    "execution": ("tensor_par", "pipeline_par", "data_par", "microbatch_size"),
    "preset": ("title", "framework", "fields", "limits"),
    "engine": ("title", "framework", "fields", "changes"),
    "study": ("models", "systems", "vary", "summary"),
    "campaign": ("reliability", "checkpoints", "phases", "fleet", "batch_ramp"),
    "deployment": (
        *("engine", "weights_dtype", "kv_dtype", "max_batch", "token_budget", "admission"),
    ),
    "workload": ("prompt", "output", "ttft_limit", "tpot_limit", "users"),
    "validation study": ("evidence", "measured", "calibration", "choices"),
}
"""Fields that identify a kind of spec, for messages about a document of the wrong kind."""

_OF_SERVED = {
    "deployment": result_selection.deployment_in,
    "workload": result_selection.workload_in,
}
"""Functions that extract a spec from a serving result or from a search for deployments."""

_TABLES = (".csv", ".parquet")
_CONFIGURATION = "config.json"
_NUMBER = re.compile(r"-?\d*\.?\d+([eE][+-]?\d+)?")
"""A number in place of a name, but not a valid processor count."""

_FILE = re.compile(r"\.(sh|slurm|sbatch|py|toml|json|ya?ml|csv)$")
_COUNTED = re.compile(r"\d+ ?[x*]? ?(?P<after>[A-Za-z].*)|(?P<before>.+?)( [x*] ?|[*])\d+")
"""A system together with a number of processors: ``8xH100``, ``8 h100``, ``h100 x 8``."""


@cache
def root() -> Path:
    """Return the folder that holds ``models``, ``systems``, ``examples`` and ``validation``.

    In an installed package the folder is inside the package, in a checkout next to it.
    """
    package = Path(__file__).resolve().parent.parent
    inside = package / "catalog"
    return inside if inside.is_dir() else package.parent


def names(kind: str) -> dict[str, Path]:
    """Map the names of one kind of spec to their files, sorted by name."""
    folder = root() / FOLDERS[kind]
    # Building a Path for every file before filtering would take ten times as long; every start of the program pays it.
    files = sorted(os.listdir(folder))  # noqa: PTH208 (see above)
    return {
        document_stem(file): folder / file for file in files if document_suffix(file) in SUFFIXES
    }


def find(kind: str, source: str) -> str:
    """Return the path of a document given by catalog name, by path, or as ``-``.

    Args:
        kind: ``model``, ``system``, ``execution``, ``preset`` or ``study``.
        source: A catalog name; a path (for a model also the folder with its ``config.json``); or an alias
            (:mod:`calculon.declarations.spellings.catalog_words`). The first match in this order counts.

    Raises:
        SpecError: If no such name or file exists, or if an alias is ambiguous.
    """
    known = names(kind)
    if source in known:
        return str(known[source])  # before files, so that a file of this name changes no command
    named = document_suffix(source) in SUFFIXES
    there = bool(source) and os.path.exists(source)  # noqa: PTH110 (Path raises for a null character)
    folder = there and not named and Path(source).is_dir()
    if source == STDIN or (named and "/" in source) or (there and not folder):
        return source
    if folder and kind == "model" and (file := configuration_of(source)) != source:
        return file
    from calculon.declarations.spellings.catalog_words import meaning  # rarely needed

    meant = meaning(kind, source, known)
    if len(meant.names) == 1:
        return str(known[meant.names[0]])
    if meant.names:
        found = f"{len(meant.names)} matches"
        raise SpecError(source, Problem("", f"one {kind} of the catalog", found, meant.hint))
    if folder:
        wanted = f"{_a(kind)} file or a name of the catalog"
        raise SpecError(source, Problem("", wanted, "a directory"))
    stem = document_stem(source)
    few = len(known) <= 20
    listing = f"the catalog has {', '.join(known)}" if few else "see: calculon catalog"
    others = [other for other in FOLDERS if other != kind and stem in names(other)]
    found = "no such file or name"
    if stem in known:
        hint = f"use its catalog name: {stem}"
    elif others:
        found = f"{_a(others[0])} of the catalog"
        hint = _swapped(kind, others[0])
    elif kind == "deployment" and _NUMBER.fullmatch(source):
        found, hint = "a number", "a processor count is a whole number of at least 1, such as 8"
    elif kind == "execution" and _NUMBER.fullmatch(source):
        found = "a number"
        hint = "calculon plan finds a plan for a number of processors; or write one: tp=4 dp=16"
    elif kind == "system" and (one := _COUNTED.fullmatch(source.strip())):
        inside = meaning(kind, one["before"] or one["after"], known)
        word = f"system: {inside.names[0]}; " if len(inside.names) == 1 else ""
        hint = f"{word}state the number of processors separately"
    else:
        # Similar models and systems are compared word by word: one letter more or less is another processor.
        near = "" if kind in ("model", "system") else nearest(stem, list(known))
        hint = meant.hint or near or _near_file(source) or listing
    wanted = f"{_a(kind)} file (.json, .yaml, also .gz) or a name of the catalog"
    raise SpecError(source, Problem("", wanted, found, hint))


def _near_file(source: str) -> str:
    """Return a hint for a file that does not exist: a similar one in its folder, or that there is none."""
    if not _FILE.search(source):
        return ""
    folder, name = os.path.split(source)
    there = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []  # noqa: PTH112, PTH208
    place = folder if folder and there else "the current folder"
    return nearest(name, there) or f"{place} has no file of this name"


def exact(kind: str, source: str) -> str:
    """Return the exact catalog name that a text refers to; return a path unchanged. Errors as in :func:`find`."""
    known = names(kind)
    if source in known:
        return source
    path = find(kind, source)
    return next((name for name, file in known.items() if str(file) == path), source)


def note(kind: str, source: str) -> str:
    """Return a line that states which system an ambiguous alias was resolved to; empty for other sources."""
    name = exact(kind, source) if kind == "system" else source
    if name == source:
        return ""
    from calculon.declarations.spellings.catalog_words import usual_note  # rarely needed

    return usual_note(source, name, names(kind))


def load(kind: str, source: str) -> tuple[str, object]:
    """Read a spec by catalog name, by path, or from standard input (``-``).

    Args:
        kind, source: As in :func:`find`.

    Returns:
        The short name and the document.

    Raises:
        SpecError: If no such name or file exists, if it cannot be read, or if it is a spec of another kind.
    """
    name, raw, _ = read(kind, source)
    return name, raw


def read(kind: str, source: str) -> tuple[str, object, Mapping[str, Any]]:
    """Read a spec, and the question if the spec is taken from a result.

    An execution, a deployment or a workload can be taken from a result file (``best.json#2``, see
    :mod:`calculon.declarations.result_selection`). Arguments and errors as in :func:`load`.
    """
    chosen = kind in ("execution", *_OF_SERVED)
    place, selector = result_selection.split(source) if chosen else (source, "")
    if kind == "execution" and result_selection.is_table(place):
        found = result_selection.row_of_table(place, selector)
        return f"{Path(place).stem}#{selector or 0}", *found
    path = find(kind, place)
    if kind in _OF_SERVED and document_suffix(path) in _TABLES:
        hint = "the deployments of a search are read from its .json"
        raise SpecError(source, Problem("", _a(kind), "a table", hint))
    document = read_document(path)
    if kind == "execution" and result_selection.is_result(document):
        found = result_selection.execution_in(document, selector, place)
        return f"{document_stem(place)}#{selector}".rstrip("#"), *found
    if (
        kind in _OF_SERVED
        and isinstance(document, Mapping)
        and result_selection.is_served(document)
    ):
        own = _OF_SERVED[kind](document, selector, place)
        return f"{document_stem(place)}#{selector}".rstrip("#"), own, {}
    if selector:
        wanted = "a search result, from which # selects an entry"
        raise SpecError(source, Problem("", wanted, f"another document with #{selector}"))
    raw = resolved_document(kind, document, path)
    check_kind(kind, raw, source)
    if source == STDIN:
        return "stdin", raw, {}
    name = document_stem(path)
    if raw is not document and name == document_stem(_CONFIGURATION) and kind == "model":
        # Hugging Face snapshots are folders with a config.json each, so the folder has the name of the model.
        name = Path(path).resolve().parent.name or name
    return name, raw, {}


def configuration_of(path: str) -> str:
    """Return the ``config.json`` in a folder of Hugging Face; other paths as they are."""
    file = str(Path(path) / _CONFIGURATION)
    # Path.is_file raises for names that are too long.
    return file if path != STDIN and os.path.isfile(file) else path  # noqa: PTH113


def resolved_document(kind: str, raw: object, file: str) -> object:
    """Return a document merged over its base, if it has one (:mod:`calculon.declarations.overlay`).

    If the base of an execution is a preset, it becomes the field ``preset``. A ``config.json`` of Hugging Face
    Transformers is converted to the model that it describes (:mod:`calculon.declarations.huggingface`), with a note on
    the sequence length.
    """
    if kind == "model" and isinstance(raw, Mapping) and _is_configuration(raw):
        from calculon.declarations.huggingface import document_of  # rarely needed

        return document_of(raw, "<stdin>" if file == STDIN else file)
    if kind not in ("system", "execution") or not isinstance(raw, Mapping) or BASE not in raw:
        return raw
    presets = names("preset") if kind == "execution" else {}
    return resolved(raw, "<stdin>" if file == STDIN else file, names(kind), presets=presets)


def _is_configuration(raw: Mapping[Any, object]) -> bool:
    """Return True if a document is a configuration of Hugging Face Transformers rather than a model."""
    return bool({"model_type", "architectures"} & raw.keys()) and "num_blocks" not in raw


def has_fields_of(kind: str, raw: Mapping[Any, object]) -> bool:
    """Return True if a document has fields that identify a kind of spec."""
    return any(name in raw for name in _TELLING[kind])


def check_kind(kind: str, raw: object, source: str) -> None:
    """Raise SpecError if a document is recognized as another kind of spec or as a result."""
    problem = _other_kind(kind, raw) if isinstance(raw, Mapping) else None
    if isinstance(raw, list) and raw and isinstance(raw[0], Mapping) and "total_time" in raw[0]:
        problem = Problem("", _a(kind), "the results of a study")
    if problem:
        raise SpecError("<stdin>" if source == STDIN else source, problem)


def _other_kind(kind: str, raw: Mapping[object, object]) -> Problem | None:
    """Return the problem with a document that is another kind of spec or a result; None if it may be of this kind."""
    counts = {one: sum(name in raw for name in fields) for one, fields in _TELLING.items()}
    # One common field does not identify a kind (hence above 1): names such as `limits` occur in several.
    if counts.get(kind):
        return None
    likely = max(counts, key=counts.__getitem__)
    if kind not in ("deployment", "execution") and _is_split(raw):
        return Problem("", _a(kind), "a deployment", _swapped(kind, "deployment"))
    if counts[likely] > 1:
        return Problem("", _a(kind), _a(likely), _swapped(kind, likely))
    if "total_time" in raw:
        hint = "" if kind == "study" else "give the inputs of the estimate instead"
        return Problem("", _a(kind), "the result of an estimate", hint)
    if result_selection.is_winner(raw) or result_selection.is_result(raw):
        hint = "" if kind == "study" else "use it as an execution"
        return Problem("", _a(kind), "the results of a search", hint)
    return None


def _is_split(raw: Mapping[object, object]) -> bool:
    """Return True for a short deployment: it has processors, but no field of data-parallel training."""
    return "num_procs" in raw and not {"data_par", "microbatch_size"} & set(raw)


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _swapped(kind: str, other: str) -> str:
    if kind == "study":
        runs = "calculon lv --study NAME runs the studies of the folder validation"
        named = f"name {_a(other)} under {other}s" if other in ("model", "system") else ""
        return runs if other == "validation study" else named
    return "" if other.endswith("study") else f"are {kind} and {other} swapped?"
