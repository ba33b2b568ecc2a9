"""Paths into a document: ``mem1.GiB``, ``networks[1].bandwidth``; used by overlays, studies and the command line."""

import re
from collections.abc import Mapping, Sequence

from calculon.base.errors import Problem, nearest
from calculon.declarations.fields import shown

Step = str | int
"""Name of a field, or position in a list, counted from 0."""

EXAMPLE = "networks[1].bandwidth"

_PATH = re.compile(r"[^.\[\]]+(?:\[\d+\])*(?:\.[^.\[\]]+(?:\[\d+\])*)*")
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def steps_of(path: str) -> list[Step]:
    """Return the steps of a path, outermost first; empty for a text that is not a path.

    >>> steps_of("networks[1].ops.p2p[0]")
    ['networks', 1, 'ops', 'p2p', 0]
    """
    if not _PATH.fullmatch(path):
        return []
    return [int(index) if index else name for index, name in _STEP.findall(path)]


def joined(place: str, step: Step) -> str:
    """Return a path extended by one step.

    >>> joined(joined("networks", 1), "size")
    'networks[1].size'
    """
    if isinstance(step, int):
        return f"{place}[{step}]"
    return f"{place}.{step}" if place else step


def no_path(path: str) -> Problem:
    """Return the problem with a text that is not a path."""
    return Problem(path, f"a path such as {EXAMPLE}", "another notation")


def absent(parent: object, step: Step, place: str) -> Problem | None:
    """Return the problem with a step that does not exist at a place, or None."""
    inside, here = f"in {place}" if place else "at the top", joined(place, step)
    if isinstance(step, int):
        if not isinstance(parent, Sequence) or isinstance(parent, str):
            return Problem(here, f"a list {inside}", shown(parent))
        if step >= len(parent):
            found = f"a list of {len(parent)}"
            return Problem(here, f"a position {inside} that exists", found, "counted from 0")
        return None
    if not isinstance(parent, Mapping):
        counted = isinstance(parent, list) and step.isdecimal()
        hint = f"write {joined(place, int(step))}" if counted else ""
        return Problem(here, f"an object {inside}", shown(parent), hint)
    if step not in parent:
        known = [str(key) for key in parent]
        hint = nearest(step, known) or "known are " + ", ".join(known)
        return Problem(here, f"a field that exists {inside}", "no such field", hint)
    return None
