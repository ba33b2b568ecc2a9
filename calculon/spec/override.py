"""Change single values of a spec before it is decoded: ``mem1.GiB: 40``, ``networks[1].bandwidth: 12.5``."""

import copy
from collections.abc import Mapping
from typing import Any

from calculon.errors import Problem, SpecError
from calculon.spec.paths import absent, joined, no_path, steps_of


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
    steps = steps_of(path)
    if not steps:
        return no_path(path)
    parent, place = document, ""
    for step in steps:
        if problem := absent(parent, step, place):
            return problem
        holder, parent, place = parent, parent[step], joined(place, step)
    holder[steps[-1]] = copy.deepcopy(value)
    return None
