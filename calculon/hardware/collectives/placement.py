"""Where the ranks of a group sit: so many in each node, so many nodes, tier by tier."""

from dataclasses import dataclass
from itertools import pairwise
from math import prod

from calculon.errors import Infeasible, Problem, SpecError
from calculon.hardware.system import System


@dataclass(frozen=True, slots=True)
class Tier:
    """One network that a group uses.

    Attributes
    ----------
    network : int
        Its number.
    members : int
        What one instance of it connects: ranks in a node, nodes, or groups of nodes; 2 or more.
    below : int
        Ranks in each member, each with its own port to this network.
    node : bool
        It is the innermost network of the system.
    """

    network: int
    members: int
    below: int
    node: bool


@dataclass(frozen=True, slots=True)
class Placement:
    """A group of ranks and the networks between them, innermost first; a group of one uses none."""

    ranks: int
    tiers: tuple[Tier, ...]


def place(system: System, ranks: int, per_node: int | None = None) -> Placement:
    """Place a group: consecutive ranks fill the first network up to its size, then the next.

    Parameters
    ----------
    system : System
        Its networks nest in their order; one that is no larger than those before it is not used.
    ranks : int
        Members of the group.
    per_node : int, optional
        How many of them sit in each instance of the first network; as many as fit by default.

    Raises
    ------
    SpecError
        When the ranks do not divide into equal nodes.
    Infeasible
        For more ranks than the networks connect, or more of them in a node than it has.
    """
    rooms = _rooms(system)
    if ranks > 1:
        _check_room(system, rooms, ranks, per_node)
    tiers, left, below = [], ranks, 1
    for level, (number, room) in enumerate(rooms):
        members = min(left, room) if level or per_node is None else per_node
        if left % members:
            raise _uneven(ranks, number, ranks // left * members, stated=per_node is not None)
        if members > 1:
            tiers.append(Tier(number, members, below, node=not level))
        left, below = left // members, below * members
    return Placement(ranks, tuple(tiers))


def _rooms(system: System) -> list[tuple[int, int]]:
    """Return each network that is larger than those before it, and how many of those before fit in it."""
    nested = [(-1, 1)]
    for number, network in enumerate(system.networks):
        if network.size // nested[-1][1] > 1:
            nested.append((number, network.size))
    return [(number, size // inner) for (_, inner), (number, size) in pairwise(nested)]


def _check_room(
    system: System, rooms: list[tuple[int, int]], ranks: int, per_node: int | None
) -> None:
    """Raise Infeasible where a node, or all networks together, have too few places."""
    if not rooms:
        raise Infeasible("network_size", f"{system.name} has no network that connects two ranks")
    number, node = rooms[0]
    if per_node is not None and per_node > node:
        text = f"{per_node:,} ranks per node are more than the {node:,} of networks[{number}] of {system.name}"
        raise Infeasible("network_size", text)
    filled = [node if per_node is None else per_node, *(room for _, room in rooms[1:])]
    if ranks > (places := prod(filled)):
        spread = "" if per_node is None else f" with {per_node:,} in each node"
        text = (
            f"{ranks:,} ranks are more than the largest network of {system.name} connects{spread}"
        )
        limit = f"networks[{rooms[-1][0]}], {places:,}"
        raise Infeasible("network_size", f"{text}: {limit}")


def _uneven(ranks: int, number: int, unit: int, *, stated: bool) -> SpecError:
    """Return the error for members of a network that would hold different numbers of ranks."""
    fit = max(n for n in range(1, unit + 1) if ranks % n == 0)
    hint = "" if number else f"say how many are in each node, such as --per-node {fit}"
    filled = (
        "are in each node" if stated and not number else f"fill one instance of networks[{number}]"
    )
    wanted = f"a multiple of {unit:,}, which {filled}"
    return SpecError("collective", Problem("ranks", wanted, f"{ranks:,}", hint))
