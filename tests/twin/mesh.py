"""Where processors of a mesh sit: networks nest, and are filled one after the other."""

from __future__ import annotations

import math

from .collectives import Group, rooms
from .system import System


def outermost(system: System, span: int) -> int:
    """Return the first network that holds so many consecutive processors, or the largest."""
    sizes = [network.size for network in system.networks]
    for number in range(sizes.index(max(sizes))):
        if sizes[number] >= span:
            return number
    return sizes.index(max(sizes))


def mesh_group(system: System, ranks: int, apart: int) -> Group:
    """Return the group of processors 0, `apart`, 2 `apart`, ... : how many of them share what."""
    members, left, inside = [1] * len(system.networks), ranks, 1
    steps = members.copy()
    for number, room in rooms(system):
        step = max(1, apart // inside)  # in instances of the networks inside
        members[number] = min(left, max(1, -(-room // step)))
        steps[number] = step
        left = math.ceil(left / members[number])
        inside *= room
    return Group(ranks, tuple(members), apart=tuple(steps))


def sits_evenly(system: System, ranks: int, apart: int, processors: int) -> bool:
    """Whether no instance of a network holds another part of a group than its neighbours."""
    sizes = [network.size for network in system.networks]
    if processors <= min(sizes):
        return True
    for size in sizes:
        cut = size % (ranks * apart) and (ranks * apart) % max(1, size)
        cut = cut and not (size > min(sizes) and ranks * apart > size)  # shares the last pod
        if size < max(sizes) and cut and ranks > 1 and processors > size:
            return False
    left, inside, levels = ranks, 1, rooms(system)
    for number, room in levels:
        step = max(1, apart // inside)
        even = apart % inside == 0 or inside % apart == 0
        even = even and (number == levels[-1][0] or room % step == 0 or step % room == 0)
        joined = min(left, max(1, -(-room // step)))
        pod = number not in (levels[0][0], levels[-1][0])  # the last one may hold fewer
        if (left > 1 and not even) or (left % joined and not pod):
            return False
        left = math.ceil(left / joined)
        inside *= room
    return left == 1
