"""Overlays: system and execution files that contain only the differences from another file, their ``base``.

They are merged by RFC 7396. In addition, a member name can be a path (``networks[0].size``); otherwise changing one
value would require repeating the list.
"""

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from calculon.base.errors import Problem, SpecError, nearest
from calculon.declarations.fields import shown
from calculon.declarations.files import SUFFIXES, document_stem, document_suffix, read_document
from calculon.declarations.paths import Step, absent, joined, steps_of

BASE = "base"
HELP = {
    "system": "system that this file changes: a catalog name, or a path relative to this file; the other "
    "members are merged over it (RFC 7396), and networks[0].size changes one value of a list",
    "execution": "a preset that fills in fields left out here, by name or file; or an execution that this "
    "file changes: a catalog name, or a path relative to this file; the other members are merged over it (RFC 7396)",
}
"""Help text of ``base`` by kind of spec."""

PRESET = "preset"
"""Execution field with the name of the preset."""


def merged(target: object, patch: object) -> Any:
    """Return a document with a patch merged over it: objects member by member, other values replaced; null removes.

    Source: RFC 7396, *JSON Merge Patch*, section 2. A top-level member of the patch whose name is a path, and not a
    member of the document, changes the value at that path (:mod:`calculon.declarations.paths`), after all others.

    >>> merged({"a": 1, "b": {"c": 2, "d": [3]}}, {"a": None, "b": {"d": [4]}})
    {'b': {'c': 2, 'd': [4]}}
    >>> merged({"networks": [{"size": 8, "latency": 1e-6}]}, {"networks[0].size": 72})
    {'networks': [{'size': 72, 'latency': 1e-06}]}

    Raises:
        SpecError: For a path that does not exist.
    """
    problems: list[Problem] = []
    result = _merged(target, patch, "", problems)
    if problems:
        raise SpecError("overlay", problems)
    return result


def _merged(target: object, patch: object, place: str, problems: list[Problem]) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    # Paths apply after plain members, so that a patch can replace a list and then change one of its values.
    paths = {} if place else {key: steps for key in patch if (steps := _path(key, result))}
    for key, value in patch.items():
        if key in paths:
            continue
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value, joined(place, str(key)), problems)
    for key, steps in paths.items():
        result = _at(result, steps, patch[key], place, problems)
    return result


def _path(key: object, target: Mapping[str, Any]) -> list[Step]:
    """Return the steps of a key that is a path into a document; empty if it is a member or not a path."""
    if not isinstance(key, str) or key in target:
        return []
    steps = steps_of(key)
    return steps if len(steps) > 1 and (steps[0] in target or "[" in key) else []


def _at(
    parent: Any, steps: Sequence[Step], value: object, place: str, problems: list[Problem]
) -> Any:
    """Return a copy of a document with a value merged over the member at a path."""
    step, rest = steps[0], steps[1:]
    # A field may be new; a position in a list must exist.
    if not rest and isinstance(step, str) and isinstance(parent, Mapping):
        return _merged(parent, {step: value}, place, problems)
    here, problem = joined(place, step), absent(parent, step, place)
    if problem is None and not rest and value is None:
        hint = "repeat the list without it"
        problem = Problem(here, "a value: a list keeps its length", "null", hint)
    if problem is not None:
        problems.append(problem)
        return parent
    result, member = copy.copy(parent), parent[step]
    result[step] = (
        _at(member, rest, value, here, problems) if rest else _merged(member, value, here, problems)
    )
    return result


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the smallest patch that turns the old document into the new one.

    >>> difference({"a": 1, "b": {"c": 2, "d": [3]}}, {"b": {"c": 2, "d": [4]}})
    {'a': None, 'b': {'d': [4]}}
    """
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            if inside := difference(before, value):
                patch[key] = inside
        elif key not in old or before != value:
            patch[key] = value
    return patch


def resolved(
    raw: object,
    file: str,
    known: Mapping[str, Path],
    chain: Sequence[Path] = (),
    *,
    presets: Collection[str] = (),
) -> Any:
    """Return a document with its bases merged in; return a document without base unchanged.

    Args:
        raw, file: The document and its source; paths are relative to its folder.
        known: Catalog specs of the same kind.
        chain: Files that were followed to this one.
        presets: Names of presets; as a base they become the field ``preset`` of the document.

    Raises:
        SpecError: For an invalid base, a base that cannot be found or read, or a cycle of bases.
    """
    if not isinstance(raw, Mapping) or BASE not in raw:
        return raw
    patch = {key: value for key, value in raw.items() if key != BASE}
    if isinstance(raw[BASE], str) and raw[BASE].partition("@")[0] in presets:
        return _under(raw[BASE], raw[BASE], patch, file)
    path = _found(raw[BASE], file, known, presets)
    own = Path(file).resolve()
    if path in (*chain, own):
        wanted = "a base that does not lead back to this file"
        names = " -> ".join(one.name for one in (*chain, own, path))
        raise SpecError(file, Problem(BASE, wanted, names))
    document = read_document(str(path))
    if presets and _is_preset(document):
        return _under(str(path), str(raw[BASE]), patch, file)
    below = resolved(document, str(path), known, (*chain, own), presets=presets)
    if not isinstance(below, Mapping):
        kind = "an execution" if presets else "a system"
        raise SpecError(str(path), Problem("", f"{kind}: an object", shown(below)))
    if problems := [*_partial_lists(below, patch, str(raw[BASE]))]:
        raise SpecError(file, problems)
    try:
        return merged(below, patch)
    except SpecError as error:
        raise SpecError(file, error.problems) from None


def _is_preset(document: object) -> bool:
    """Return True if a document is a preset file."""
    return isinstance(document, Mapping) and {"title", "fields"} <= document.keys()


def _under(preset: str, base: str, patch: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Return an execution whose base is a preset."""
    if patch.get(PRESET, base) != base:
        wanted = f"{base}, the base of this file, or leave out one of the two"
        raise SpecError(file, Problem(PRESET, wanted, shown(patch[PRESET])))
    return {**patch, PRESET: preset}


def _partial_lists(
    below: Mapping[str, Any], patch: Mapping[str, Any], base: str
) -> Iterator[Problem]:
    """Yield the lists of an overlay with objects that lack fields common to all objects in the base."""
    for key, new in patch.items():
        old = below.get(key)
        if not (_is_objects(old) and _is_objects(new)):
            continue
        usual = [name for name in old[0] if all(name in one for one in old)]
        for position, one in enumerate(new):
            if missing := [name for name in usual if name not in one]:
                wanted = (
                    "a complete object, since an overlay replaces lists instead of merging them"
                )
                one_figure = f"{key}[{position}].{next(iter(one), usual[0])}"
                hint = f'"{one_figure}" changes one value; or repeat the list of {base}'
                found = "an object without " + ", ".join(missing)
                yield Problem(f"{key}[{position}]", wanted, found, hint)


def _is_objects(value: object) -> TypeGuard[list[Mapping[str, Any]]]:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _found(
    base: object, file: str, known: Mapping[str, Path], presets: Collection[str] = ()
) -> Path:
    """Return the file of a base."""
    kind = "a preset, or an execution" if presets else "a system"
    wanted = f"{kind} of the catalog, or a path relative to this file's folder"
    if not isinstance(base, str) or not base:
        raise SpecError(file, Problem(BASE, wanted, shown(base)))
    if base in known:
        return known[base].resolve()
    path = Path(file).parent / base
    if document_suffix(base) in SUFFIXES and path.is_file():
        return path.resolve()
    from calculon.declarations.spellings.catalog_words import meaning  # rarely needed

    meant = meaning("execution" if presets else "system", base, known)
    if len(meant.names) == 1:
        return known[meant.names[0]].resolve()
    there = [*presets, *known]
    hint = nearest(document_stem(base), meant.near) or meant.hint or nearest(base, there)
    hint = hint or "the catalog has " + ", ".join(there)
    raise SpecError(file, Problem(BASE, wanted, shown(base), hint))
