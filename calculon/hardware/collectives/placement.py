"""Placement of process groups on nested networks: ranks per node, nodes, and groups of nodes."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from math import prod

import numpy as np

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count
from calculon.hardware.system import System

Fanouts = tuple[Count, ...]
"""Fan-outs of nested networks: inner instances that an instance of each network joins, as whole numbers or arrays."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A process group, or a column of them: whole numbers, or arrays that broadcast.

    Attributes:
        ranks: Members of the group.
        members: Members that one instance of each network joins (ranks in a node, nodes, or groups of nodes); 1 if the
            group does not use the network.
        below: Ranks of the group inside each of these members; each has its own port to the network.
        network: Number of the outermost network in use; 0 for a placed group of one.
        node: Number of the innermost network of the system.
        apart: Distance between members on each network, in instances of the inner networks; None for neighbors.
    """

    ranks: Count
    members: tuple[Count, ...]
    below: tuple[Count, ...]
    network: Count
    node: int
    apart: tuple[Count, ...] | None = None

    @classmethod
    def of(
        cls,
        system: System,
        ranks: Count,
        members: Sequence[Count],
        apart: tuple[Count, ...] | None = None,
    ) -> "Group":
        """Return the group with the given members, and their distance, on each network."""
        below: list[Count] = [np.array(1)]
        network: Count = np.array(0)
        for number, joined in enumerate(members):
            network = np.where(np.asarray(joined) > 1, number, network)
            below.append(below[-1] * joined)
        return cls(ranks, tuple(members), tuple(below[:-1]), network, _node(system), apart)

    @classmethod
    def on_network(cls, system: System, network: Count, ranks: Count) -> "Group":
        """Return groups whose ranks are single endpoints of the network with this number."""
        network, ranks = np.asarray(network), np.asarray(ranks)
        members = tuple(np.where(network == i, ranks, 1) for i in range(len(system.networks)))
        alone = (np.array(1),) * len(members)
        return cls(ranks, members, alone, network, _node(system))

    @classmethod
    def in_mesh(
        cls, system: System, ranks: Count, stride: Count, fanouts: Fanouts | None = None
    ) -> "Group":
        """Return the groups of processors 0, `stride`, 2 `stride`, ...; valid only if :func:`fits_mesh`.

        Processors are numbered so that they fill an instance of the innermost network first, then the next.

        Args:
            system: The system, whose networks nest in order; a network no larger than the ones before it is unused.
            stride: Distance between member numbers; at least 1.
            fanouts: Fan-out of each nested network (:func:`fanouts_used`); by default as many as fit.
        """
        ranks = np.asarray(ranks)
        members: list[Count] = [np.array(1)] * len(system.networks)
        distances = members.copy()
        for number, _, joined, apart in _levels(system, ranks, np.asarray(stride), fanouts):
            members[number], distances[number] = joined, apart
        return cls.of(system, ranks, members, tuple(distances))

    def of_clusters(self, system: System, near: "Group") -> "Group":
        """Return groups that consist of this group's members, with one `near` group at each."""
        members = [inner * outer for inner, outer in zip(near.members, self.members, strict=True)]
        if near.apart is None or self.apart is None:
            return Group.of(system, near.ranks * self.ranks, members)
        distances = zip(near.members, near.apart, self.apart, strict=True)
        apart = tuple(np.where(joined > 1, inner, outer) for joined, inner, outer in distances)
        return Group.of(system, near.ranks * self.ranks, members, apart)

    def neighbors(self, number: int) -> Array:
        """Return a mask of groups whose members are adjacent on a network."""
        return np.array(True) if self.apart is None else np.asarray(self.apart[number]) == 1

    @property
    def used(self) -> tuple[Array, ...]:
        """Masks of groups that use each network, in the order of networks."""
        return tuple(np.asarray(joined) > 1 for joined in self.members)

    @property
    def several(self) -> Array:
        """Mask of groups that use several networks."""
        return np.sum(np.broadcast_arrays(*self.used), axis=0) > 1

    @property
    def innermost(self) -> Count:
        """Number of the innermost network in use; 0 for a group of one."""
        first: Count = np.array(0)
        for number, used in reversed(list(enumerate(self.used))):
            first = np.where(used, number, first)
        return first


def fits_mesh(system: System, ranks: Count, stride: Count, fanouts: Fanouts | None = None) -> Array:
    """Return a mask of groups of :meth:`Group.in_mesh` from processor 0 that fit in equal parts on each network.

    On each network but the outermost, the stride divides the capacity or the capacity divides the stride, and the
    members of one instance divide the ranks. If another network joins networks between nodes, such as pods, the last
    instance may hold fewer members.
    """
    ranks, stride = np.asarray(ranks), np.asarray(stride)
    fits: Array = np.ones(np.broadcast_shapes(ranks.shape, stride.shape), dtype=bool)
    left, inside, nested = ranks, np.array(1), nested_networks(system)
    for number, fanout, joined, apart in _levels(system, ranks, stride, fanouts):
        even = (stride % inside == 0) | (inside % stride == 0)
        last = number == nested[-1][0]
        even = even & (last | (fanout % apart == 0) | (apart % fanout == 0)) | (left == 1)
        fits = fits & even & (_inside_others(system, number) | (left % joined == 0))
        left, inside = -(-left // joined), inside * fanout
    return fits & (left == 1)


def fanouts_used(system: System, degrees: Sequence[Count], between_layers: int) -> Fanouts:
    """Return the inner instances that one instance of each nested network joins if all groups of a mesh are even.

    An instance takes as many processors as fit such that every group has either all of its ranks inside or as many as
    each other instance: a multiple of the degrees that fit inside, times a divisor of the next degree. For example,
    tensor groups of 16 with power-of-two replicas use 64 of the 72 processors of a domain and leave 8 idle. Everything
    is inside one instance if it fits.

    Groups that span instances of a network between nodes, such as pods, may share the last instance with other groups.

    Args:
        system: The system, whose networks nest in order; a network no larger than the ones before it is unused.
        degrees: Group sizes of each axis of the mesh, fastest-varying first.
        between_layers: Number of leading axes with collectives between layers; their groups share no pod with others.

    Source: Slurm gives a job segments of equally many nodes of each domain (``--segment``, plugin topology/block); for
    large jobs on GB200 NVL72 NVIDIA recommends 16 of the 18 trays of four processors (developer blog on topology-aware
    scheduling of GB200 NVL72).
    """
    if len(degrees) == 1 and np.ndim(degrees[0]):
        return _of_one_axis(system, degrees[0], between_layers)
    return _fanouts_used(system, degrees, between_layers)


def _of_one_axis(system: System, degrees: Count, between_layers: int) -> Fanouts:
    """Return the capacities in use for a single axis; computes each degree once, as searches have few degrees."""
    # A count of occurrences finds the distinct degrees faster than a sort: degrees are small whole numbers.
    different = np.flatnonzero(np.bincount(degrees.ravel()))
    places = np.zeros(1 + different.max(initial=0), np.int64)
    places[different] = np.arange(len(different))
    found = _fanouts_used(system, [different], between_layers)
    return tuple(fanout[places[degrees]] if fanout.ndim else fanout for fanout in found)


def _fanouts_used(system: System, degrees: Sequence[Count], between_layers: int) -> Fanouts:
    spans: list[Count] = [np.array(1)]
    for degree in degrees:
        spans.append(spans[-1] * np.asarray(degree, np.int64))
    inside: Count = np.array(1)
    found: list[Count] = []
    nested = nested_networks(system)
    for number, fanout in nested:
        if number == nested[-1][0] or np.all(spans[-1] <= inside * fanout):
            found.append(np.array(fanout))
        else:
            may_share = _inside_others(system, number)
            used = _used(spans, inside, fanout, spans[between_layers] if may_share else None)
            found.append(np.array(fanout) if np.all(used == fanout) else used)
        inside = inside * found[-1]
    return tuple(found)


def _used(spans: Sequence[Count], inside: Count, fanout: int, alone: Count | None) -> Count:
    """Return the number of inner instances that one instance of the next network joins.

    Args:
        spans: Processors that the groups of each axis span, together with all faster axes; the last is all processors.
        inside: Processors of an instance of the inner networks.
        fanout: Number of inner instances that fit.
        alone: Span up to which groups share the last instance with no others; none by default.
    """
    limit = inside * fanout
    held, further = inside, spans[-1]
    for span in spans[::-1]:
        further = np.where(span > limit, span, further)
    for span in spans:
        held = np.where(span <= limit, np.maximum(held, span), held)
    most = limit // held
    parts = largest_divisor(np.maximum(further // held, 1), most)
    if alone is not None:
        parts = np.where((further == spans[-1]) & (further > alone), most, parts)
    return np.where(spans[-1] <= limit, fanout, held // inside * parts)


def largest_divisor(number: Count, most: Count) -> Count:
    """Return the largest divisor of whole numbers that does not exceed a bound; both at least 1.

    >>> largest_divisor(np.array([24, 64]), np.array([9, 9])).tolist()
    [8, 8]
    """
    number, most = np.broadcast_arrays(number, most)
    result = np.where(number % most == 0, most, 0)
    odd = result == 0
    # Few pairs are distinct, and the search for a divisor is a Python loop: pack each pair into one number, sort, and
    # compute each distinct pair once.
    if not odd.any():
        return result
    shift = int(most.max()) + 1
    pairs = number[odd] * shift + most[odd]
    ordered = np.sort(pairs)
    distinct = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
    divisors = np.array([_divisor(*divmod(pair, shift)) for pair in distinct.tolist()])
    result[odd] = divisors[np.searchsorted(distinct, pairs)]
    return result


@cache
def _divisor(number: int, most: int) -> int:
    return next(divisor for divisor in range(min(number, most), 0, -1) if number % divisor == 0)


def _levels(
    system: System, ranks: Count, stride: Count, fanouts: Fanouts | None
) -> Iterator[tuple[int, Count, Count, Count]]:
    """Yield for each nested network: number, fan-out in use, members of the group, and their distance."""
    left, inside, nested = ranks, np.array(1), nested_networks(system)
    used = tuple(np.array(fanout) for _, fanout in nested) if fanouts is None else fanouts
    for (number, _), fanout in zip(nested, used, strict=True):
        apart = np.maximum(stride // inside, 1)  # in instances of the networks inside
        joined = np.minimum(left, np.maximum(-(-fanout // apart), 1))
        yield number, fanout, joined, apart
        left, inside = -(-left // joined), inside * fanout


def _inside_others(system: System, number: int) -> bool:
    """Return true if a network joins nodes and is itself joined by another network."""
    numbers = [one for one, _ in nested_networks(system)]
    return number in numbers[1:-1]


def place(system: System, ranks: int, per_node: int | None = None) -> Group:
    """Place a group: consecutive ranks fill the first network up to its size, then the next.

    Args:
        system: The system, whose networks nest in order; a network no larger than the ones before it is unused.
        per_node: Ranks in each instance of the first network; as many as fit by default.

    Raises:
        SpecError: If the ranks do not divide into equal nodes.
        Infeasible: If there are more ranks than the networks connect, or more per node than fit.
    """
    fanouts = nested_networks(system)
    if ranks > 1:
        _check_capacity(system, fanouts, ranks, per_node)
    members, left = [1] * len(system.networks), ranks
    for level, (number, fanout) in enumerate(fanouts):
        joined = min(left, fanout) if level or per_node is None else per_node
        if left % joined and not _inside_others(system, number):
            raise _uneven(ranks, number, ranks // left * joined, stated=per_node is not None)
        members[number] = joined
        left = -(-left // joined)
    return Group.of(system, np.array(ranks), [np.array(joined) for joined in members])


def nested_networks(system: System) -> list[tuple[int, int]]:
    """Return each network that is larger than the ones before it, and its fan-out: the inner instances that fit."""
    return _nested(tuple(network.size for network in system.networks))


@cache
def _nested(sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    nested = [(-1, 1)]
    for number, size in enumerate(sizes):
        if size // nested[-1][1] > 1:
            nested.append((number, size))
    return [(number, size // inner) for (_, inner), (number, size) in pairwise(nested)]


def _node(system: System) -> int:
    """Return the number of the innermost network."""
    fanouts = nested_networks(system)
    return fanouts[0][0] if fanouts else 0


def _check_capacity(
    system: System, fanouts: list[tuple[int, int]], ranks: int, per_node: int | None
) -> None:
    """Raise Infeasible if a node, or all networks together, have too few places."""
    if not fanouts:
        raise Infeasible("network_size", f"{system.name} has no network that connects two ranks")
    number, node = fanouts[0]
    if per_node is not None and per_node > node:
        text = f"{per_node:,} ranks per node exceed the {node:,} of networks[{number}] of {system.name}"
        raise Infeasible("network_size", text)
    filled = [node if per_node is None else per_node, *(fanout for _, fanout in fanouts[1:])]
    if ranks > (places := prod(filled)):
        spread = "" if per_node is None else f" with {per_node:,} in each node"
        text = f"{ranks:,} ranks exceed the largest network of {system.name}{spread}"
        limit = f"networks[{fanouts[-1][0]}], {places:,}"
        raise Infeasible("network_size", f"{text}: {limit}")


def _uneven(ranks: int, number: int, unit: int, *, stated: bool) -> SpecError:
    """Return the error for network members that would hold different numbers of ranks."""
    fit = max(n for n in range(1, unit + 1) if ranks % n == 0)
    hint = "" if number else f"state the ranks per node, for example --per-node {fit}"
    filled = (
        "are in each node" if stated and not number else f"fill one instance of networks[{number}]"
    )
    wanted = f"a multiple of {unit:,}, which {filled}"
    return SpecError("collective", Problem("ranks", wanted, f"{ranks:,}", hint))
