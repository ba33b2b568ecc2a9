"""Where processors of a mesh sit: networks nest, and are filled one after the other."""

import math

from .collectives import Group, rooms
from .system import System

Levels = list[tuple[int, int]]
"""Networks that nest, and how many instances of those inside one instance of each has that are used."""


def used_levels(system: System, degrees: list[int], *spread: int, near: int = 0) -> Levels:
    """Return what groups of these degrees, fastest first, use: the most with which all of them sit evenly.

    So do the first `spread` processors, and each as many after them. The first `near`, by default those of the first
    degree, share no pod with others.
    """
    spans = [math.prod(degrees[:count]) for count in range(1, len(degrees) + 1)]
    spans = sorted([*spans, *spread])
    near = near or degrees[0]
    found: Levels = []
    inside, levels = 1, rooms(system)
    for number, room in levels:
        used = room
        if number != levels[-1][0] and spans[-1] > inside * room:
            pod = number != levels[0][0]
            while not _even(inside * used, spans, may_share=pod and spans[-1] > near):
                used -= 1
        found.append((number, used))
        inside *= used
    return found


def _even(size: int, spans: list[int], *, may_share: bool) -> bool:
    """Whether instances of so many processors hold whole groups, or equal parts of them."""
    for span in spans:
        cut = size % span > 0 and span % size > 0
        shared = may_share and span == spans[-1] > size  # the last instance holds fewer
        if cut and not shared:
            return False
    return True


def places(levels: Levels) -> int:
    """Return how many processors all instances have."""
    return math.prod(used for _, used in levels)


def outermost(levels: Levels, span: int) -> int:
    """Return the first network that holds so many consecutive processors, or the last."""
    inside = 1
    for number, used in levels:
        inside *= used
        if inside >= span:
            return number
    return levels[-1][0] if levels else 0


def mesh_group(system: System, levels: Levels, ranks: int, apart: int) -> Group:
    """Return the group of processors 0, `apart`, 2 `apart`, ... : how many of them share what."""
    members, left, inside = [1] * len(system.networks), ranks, 1
    steps = members.copy()
    for number, room in levels:
        step = max(1, apart // inside)  # in instances of the networks inside
        members[number] = min(left, max(1, -(-room // step)))
        steps[number] = step
        left = math.ceil(left / members[number])
        inside *= room
    return Group(ranks, tuple(members), apart=tuple(steps))


def clustered(near: Group, far: Group) -> Group:
    """Return the group of all ranks of one group at each place of another."""
    members = [one * two for one, two in zip(near.members, far.members, strict=True)]
    steps = [near.apart[i] if joined > 1 else far.apart[i] for i, joined in enumerate(near.members)]
    return Group(near.ranks * far.ranks, tuple(members), apart=tuple(steps))
