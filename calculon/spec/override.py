"""Change single values of a spec before it is decoded: ``mem1.GiB: 40``, ``networks[1].bandwidth: 12.5``."""

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

from calculon.errors import Problem, SpecError, nearest
from calculon.spec.fields import shown

_PATH = r"[^.\[\]]+(?:\[\d+\])*(?:\.[^.\[\]]+(?:\[\d+\])*)*"
_STEP = r"\[(\d+)\]|([^.\[\]]+)"


def override(raw: object, changes: Mapping[str, object], file: str) -> Any:
    """Return a copy of a document with some of its values replaced.

    Only what is there can be replaced, so that a misspelled path is an error rather than a new field; the decoder
    then checks the new value like any other.

    Parameters
    ----------
    raw : object
        The document as the parser gave it; left as it is.
    changes : mapping of str to object
        New value by path: field names joined by dots, positions in a list as ``[i]``, counted from 0.
    file : str
        Where the document came from, for messages.

    Raises
    ------
    SpecError
        With every path that does not exist in the document.

    Examples
    --------
    >>> override({"mem1": {"GiB": 80}, "networks": [{"size": 8}]}, {"networks[0].size": 4}, "x.json")
    {'mem1': {'GiB': 80}, 'networks': [{'size': 4}]}
    """
    changed = copy.deepcopy(raw)
    problems = [
        problem for path, value in changes.items() if (problem := _replace(changed, path, value))
    ]
    if problems:
        raise SpecError(file, problems)
    return changed


def _replace(document: Any, path: str, value: object) -> Problem | None:
    """Replace one value in place, or return why there is nothing to replace."""
    if not re.fullmatch(_PATH, path):
        return Problem(path, "a path such as networks[1].bandwidth", "another notation")
    steps = [int(index) if index else name for index, name in re.findall(_STEP, path)]
    parent, place = document, ""
    for step in steps:
        here, place = place, _join(place, step)
        if problem := _absent(parent, step, here, place):
            return problem
        holder, parent = parent, parent[step]
    holder[steps[-1]] = copy.deepcopy(value)
    return None


def _absent(parent: object, step: str | int, parent_place: str, place: str) -> Problem | None:
    """Return why a value has no such member, or nothing."""
    inside = f"in {parent_place}" if parent_place else "at the top"
    if isinstance(step, int):
        if not isinstance(parent, Sequence) or isinstance(parent, str):
            return Problem(place, f"a list {inside}", shown(parent))
        if step >= len(parent):
            found = f"a list of {len(parent)}"
            return Problem(place, f"a position {inside} that exists", found, "counted from 0")
        return None
    if not isinstance(parent, Mapping):
        return Problem(place, f"an object {inside}", shown(parent))
    if step not in parent:
        known = [str(key) for key in parent]
        hint = nearest(step, known) or "known are " + ", ".join(known)
        return Problem(place, f"a field that exists {inside}", "no such field", hint)
    return None


def _join(place: str, step: str | int) -> str:
    if isinstance(step, int):
        return f"{place}[{step}]"
    return f"{place}.{step}" if place else step
