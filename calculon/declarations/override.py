"""Change single values of a spec before it is decoded: ``mem1.GiB: 40``, ``networks[1].bandwidth: 12.5``."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast, get_args, get_origin

from calculon.base.errors import Problem, SpecError, nearest
from calculon.declarations.fields import spec_fields
from calculon.declarations.paths import Step, absent, joined, no_path, steps_of


def override(
    raw: object, changes: Mapping[str, object], file: str, record: type | None = None
) -> Any:
    """Return a copy of a document with some of its values replaced.

    Only existing values can be replaced, so that a misspelled path is an error rather than a new field; the decoder
    checks the new value like any other.

    Args:
        raw: The parsed document; not modified.
        changes: New value by path: field names joined by dots, positions in a list as ``[i]``, counted from 0.
        file: Source of the document, for messages.
        record: The record class that the document decodes into; its declared fields may be missing in the document.

    Raises:
        SpecError: With every path that does not exist in the document.

    Examples:
        >>> override({"mem1": {"GiB": 80}, "networks": [{"size": 8}]}, {"networks[0].size": 4}, "x.json")
        {'mem1': {'GiB': 80}, 'networks': [{'size': 4}]}
    """
    changed = copy.deepcopy(raw)
    found = (_replace(changed, path, value, record) for path, value in changes.items())
    problems = [problem for problem in found if problem is not None]
    if problems:
        raise SpecError(file, problems)
    return changed


def _replace(document: Any, path: str, value: object, record: type | None) -> Problem | None:
    """Replace one value in place; return a problem if the path does not exist."""
    steps = steps_of(path)
    if not steps:
        return no_path(path)
    parent, place, kind = document, "", cast("Any", record)
    for step in steps:
        holder, last = parent, len(joined(place, step)) == len(path)
        known = _declared(kind)
        if problem := absent(parent, step, place):
            if not (last and step in known and isinstance(parent, Mapping)):
                return _with_hint(problem, step, parent, known)
            break
        parent, place = parent[step], joined(place, step)
        kind = _inside(kind, step, parent)
    holder[steps[-1]] = copy.deepcopy(value)
    return None


def _with_hint(problem: Problem, step: Step, parent: Any, known: Mapping[str, Any]) -> Problem:
    """Return the problem with a missing member, with the fields that the record class declares there as a hint."""
    if not isinstance(parent, Mapping) or not known:
        return problem
    if step in known:  # the field may be added as a whole, but it has no parts to change yet
        listed = get_origin(known[str(step)]) is tuple
        hint = "write the whole list into a file" if listed else "state it as a whole"
        return replace(
            problem, expected="a value of which to change a part", found="none", hint=hint
        )
    hint = nearest(str(step), [*known])
    return replace(problem, hint=hint or f"known are {', '.join(known)}")


def _declared(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a record class by key; empty for any other type."""
    fields = spec_fields(kind) if hasattr(kind, "__dataclass_fields__") else ()
    return {field.key: field.annotation for field in fields}


def paths_to(record: type, name: str) -> list[str]:
    """Return the declared paths of a record class to fields of a name; in a list, of its first member.

    >>> from calculon.hardware.system import System
    >>> paths_to(System, "bandwidth")
    ['networks[0].bandwidth', 'ext.networks[0].uplink.bandwidth']
    """
    found = []
    for key, kind in _declared(record).items():
        listed = get_origin(kind) is tuple
        inner = get_args(kind)[0] if listed else kind
        if key == name:
            found.append(key)
        found += [f"{key}{'[0]' * listed}.{one}" for one in paths_to(inner, name)]
    return found


def _inside(kind: Any, step: Step, member: object) -> Any:
    """Return the type of a member; None if unknown. Types with their own decoder may define ``inside``."""
    if says := getattr(kind, "inside", None):
        return says(step, member)
    if get_origin(kind) in (dict, tuple):
        return get_args(kind)[get_origin(kind) is dict]
    return _declared(kind).get(str(step))
