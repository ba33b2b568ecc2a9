"""Collective algorithms (all-reduce, reduce-scatter, all-gather, all-to-all): steps and bytes per port on each network.

Sizes follow nccl-tests and count the full array: the input of an all-reduce or reduce-scatter, the output of an
all-gather, everything a rank sends in an all-to-all, and everything the root of a scatter sends or the root of a gather
receives, its own part included. If several ranks of a node reach a network, each has a port and a share of the traffic,
as in libraries with one channel per port. All functions take columns of groups.
"""

from collections.abc import Callable

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count
from calculon.hardware.collectives.placement import Group
from calculon.hardware.system import System

OPERATIONS = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "p2p",
)

IN_FLIGHT = 8
"""Messages from a rank to all others that pay their latency in sequence; further ones overlap with transfers."""


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A collective by one algorithm, on the networks of the system in their order; zeros for unused networks.

    Attributes:
        steps: Steps on the critical path that pay the network's step latency.
        shares: Bytes through each port of the network per byte of the message.
        together: True if the networks work at the same time, so that the slowest decides; otherwise one after the
            other.
    """

    steps: tuple[Count, ...]
    shares: tuple[Array, ...]
    together: bool = True


def _passes(operation: str) -> int:
    """Return the number of passes over the data; an all-reduce is a reduce and a broadcast, or scattered forms."""
    return 2 if operation == "all_reduce" else 1


def ring(system: System, group: Group, operation: str) -> Schedule:
    r"""Return the schedule of one ring through all ranks, node after node.

    Each of the `n` edges carries :math:`(n - 1) / n` of the array per pass, or all of it in a broadcast or reduce. A
    chunk travels over all edges but one, and edges between nodes pay the step latency. A port sees :math:`1 / g` of the
    traffic if `g` ranks leave a node.

    Source: Patarasuk and Yuan, JPDC 69(2), 2009, doi:10.1016/j.jpdc.2008.09.002, section 3; broadcast and reduce as
    pipelined chains.
    """
    ranks, passes, inner = group.ranks, _passes(operation), group.innermost
    steps: list[Count] = []
    shares: list[Array] = []
    share = 1.0 if operation in ("broadcast", "reduce") else passes * (ranks - 1) / ranks
    for i, (members, below, used) in enumerate(_tiers(group)):
        edges = ranks // below - ranks // (below * members)
        ends = (group.network == i) * 1 - (inner == i)
        steps.append(passes * np.where(used, edges + ends, 0))
        shares.append(np.where(used, share / below, 0))
    return Schedule(tuple(steps), tuple(shares))


def tree(system: System, group: Group, operation: str) -> Schedule:
    r"""Return the schedule of two complementary binary trees over the nodes, each with half the data.

    Inside each node the ranks form a chain. A pass takes :math:`(g - 1) \alpha_{intra} + \log_2 N \alpha_{inter}`; an
    all-reduce makes two.

    Source: Sanders, Speck and Traff, *Two-tree algorithms for full bandwidth broadcast, reduction and scan*, Parallel
    Computing 35(12), 2009, doi:10.1016/j.parco.2009.09.001; NCCL's tuning of its double trees.
    """
    passes = _passes(operation)
    steps: list[Count] = []
    shares: list[Array] = []
    for i, (members, below, used) in enumerate(_tiers(group)):
        chain = i == group.node and system.link(i).kind != "net"
        steps.append(passes * (members - 1 if chain else np.log2(members)))
        shares.append(np.where(used, passes / below, 0))
    return Schedule(tuple(steps), tuple(shares))


def nvls(system: System, group: Group, operation: str) -> Schedule:
    r"""Return the schedule of a reduction in the switches of a group's only network: :math:`S (1 + 1 / n)` per port.

    A rank sends its whole array to the switch and receives its share of the sum; then it sends that share and receives
    the array. Each direction carries the array and one share. A reduce-scatter or all-gather is one half of this, and
    moves the array in one direction.

    Source: Klenk et al., *An in-network architecture for accelerating shared-memory multiprocessor collectives*, ISCA
    2020, doi:10.1109/ISCA45697.2020.00085.
    """
    share = 1 / group.ranks if operation == "all_reduce" else 0.0
    shares = tuple(np.where(used, 1 + share, 0) for used in group.used)
    return Schedule((np.array(0),) * len(shares), shares)


def nvls_tree(system: System, group: Group, operation: str) -> Schedule:
    r"""Return the schedule of :func:`nvls` in each node and a double :func:`tree` across: :math:`2 \log_2 N` steps.

    Source: NCCL's algorithm NVLSTree, and its tuning.
    """
    across, inner = tree(system, group, operation), group.innermost
    steps: list[Count] = []
    shares: list[Array] = []
    for i, (members, _, used) in enumerate(_tiers(group)):
        here = inner == i
        steps.append(np.where(here, 0, 2 * np.log2(members)))
        shares.append(np.where(used & here, 1 + 1 / members, across.shares[i]))
    return Schedule(tuple(steps), tuple(shares))


def hierarchical(system: System, group: Group, operation: str) -> Schedule:
    r"""Return the schedule by network: reduce-scatter inside, all-reduce of the shards across, all-gather inside.

    With `g` ranks in each of `N` nodes, each rank does :math:`RS_g(S) + AR_N(S / g) + AG_g(S)` with rings; a
    reduce-scatter or all-gather is half of that. An all-to-all first exchanges, inside the node, everything bound for
    the same place in other nodes, then exchanges across nodes. The networks fill once, not once per phase. NCCL does
    not do this by itself; frameworks call one phase after the other.

    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, doi:10.1177/1094342005051521, sections 4.1 to 4.5, for
    the phases; an all-reduce of parts: Rabenseifner, ICCS 2004, doi:10.1007/978-3-540-24685-5_1.
    """
    tiers = list(_tiers(group))
    if operation == "all_to_all":
        steps = tuple(np.minimum(members - 1, IN_FLIGHT) for members, _, _ in tiers)
        return Schedule(steps, tuple((m - 1) / m for m, _, _ in tiers), together=False)
    passes = _passes(operation)
    return Schedule(
        tuple(passes * (members - 1) for members, _, _ in tiers),
        tuple(passes * (members - 1) / members / below for members, below, _ in tiers),
        together=False,
    )


def pipelined(system: System, group: Group, operation: str) -> Schedule:
    """Return the schedule of :func:`hierarchical` in chunks that keep all networks busy: the slowest network decides.

    This is the best a framework can do if it cuts a message into chunks and overlaps their phases perfectly.
    """
    phases = hierarchical(system, group, operation)
    return Schedule(phases.steps, phases.shares)


def collnet(system: System, group: Group, operation: str) -> Schedule:
    r"""Return the schedule of :func:`pipelined` with the outer part in the switches of the outermost network.

    Its ports see :math:`S / g (1 + 1 / N)` instead of :math:`2 S / g (N - 1) / N`.

    Source: Graham et al., *Scalable hierarchical aggregation protocol (SHArP)*, COMHPC 2016,
    doi:10.1109/COMHPC.2016.006.
    """
    phases = pipelined(system, group, operation)
    steps: list[Count] = []
    shares: list[Array] = []
    for i, (members, below, used) in enumerate(_tiers(group)):
        outer = used & (group.network == i)
        steps.append(np.where(outer, 0, phases.steps[i]))
        shares.append(np.where(outer, (1 + 1 / members) / below, phases.shares[i]))
    return Schedule(tuple(steps), tuple(shares))


def torus(system: System, group: Group, operation: str) -> Schedule:
    r"""Return the schedule of simultaneous rings along all axes of a torus; other networks follow one after the other.

    Each ring carries its part of the data. A processor moves the bytes of one ring over the links that its group has
    (:class:`~calculon.hardware.stated_networks.Torus`), and the steps are the hops across. Between tori an all-reduce
    is :func:`hierarchical`.

    Source: Jouppi et al., *TPU v4*, ISCA 2023, arXiv:2304.01433, section 2; Austin et al., *How to Scale Your Model*,
    2025, part 3.
    """
    phases = hierarchical(system, group, operation)
    steps, shares = list(phases.steps), list(phases.shares)
    for i, (members, below, used) in enumerate(_tiers(group)):
        if operation in ("broadcast", "reduce"):
            shares[i] = np.where(used, 1 / below, 0)
        if one := system.link(i).torus:
            steps[i] = _passes(operation) * one.hops(members, group.neighbors(i))
    return Schedule(tuple(steps), tuple(shares), together=False)


def pairwise(system: System, group: Group, operation: str) -> Schedule:
    r"""Return the schedule in which every rank sends each other rank its part, inside and across nodes in parallel.

    With `n` ranks, `g` of them in each node, :math:`(g - 1) / n` of the array stays in the node and :math:`(n - g) / n`
    leaves it; the slower part decides. Traffic that a network between nodes does not connect leaves through the same
    port. The root of a scatter or gather does this alone.

    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 4.3, pairwise exchange; NCCL's scatter and
    gather, which are sends and receives of the root.
    """
    ranks, waiting = group.ranks, np.minimum(group.ranks - 1, IN_FLIGHT)
    steps = tuple(np.where(group.network == i, waiting, 0) for i in range(len(group.members)))
    shares: list[Array] = []
    # Traffic of outer networks through shared ports, from the outermost inwards.
    further: Array = np.array(0.0)
    for i, (members, below, _) in reversed(list(enumerate(_tiers(group)))):
        here = below * (members - 1) / ranks
        between = system.link(i).kind == "net"
        shares.append(here + further if between else here)
        further = shares[-1] if between else further
    return Schedule(steps, tuple(reversed(shares)))


def measured(system: System, group: Group, operation: str) -> Schedule:
    """Return the schedule of an operation that was measured on the group's only network: its law gives the time.

    Bytes follow the switches if they reduce and more than two ranks take part, else rings and pairs.
    """
    if operation == "p2p":
        return direct(system, group, operation)
    if operation == "all_to_all":
        shares = pairwise(system, group, operation).shares
    else:
        rings, switched = (one(system, group, operation).shares for one in (ring, nvls))
        flat = is_measured(system, group, "ring", operation)
        pairs = zip(rings, switched, strict=True)
        shares = tuple(np.where(flat, one, other) for one, other in pairs)
    steps = tuple(np.where(used, group.ranks - 1, 0) for used in group.used)
    return Schedule(steps, shares)


def is_measured(system: System, group: Group, name: str, operation: str) -> Array:
    """Return a mask of groups in which the measured operation used an algorithm, whatever the message size.

    A measured all-reduce on switches that reduce is a ring for small messages and :func:`nvls` for large ones.
    """
    switches = is_supported(system, group, "nvls") & (np.asarray(group.ranks) > 2)
    flat = name in ("ring", "pairwise", "direct")
    return flat & ~(switches & (operation == "all_reduce"))


def direct(system: System, group: Group, operation: str) -> Schedule:
    """Return the schedule in which every rank sends its neighbor the message; the outermost network decides.

    The network's ``ops`` state how often the message crosses its links.
    """
    scalars = system.fabric.scalars["p2p"]
    shares = tuple(
        np.where(used & (group.network == i), scalars[i], 0) for i, used in enumerate(group.used)
    )
    return Schedule((np.array(0),) * len(shares), shares)


def _tiers(group: Group) -> "zip[tuple[Count, Count, Array]]":
    """Return the members, ranks below and use of each network."""
    return zip(group.members, group.below, group.used, strict=True)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A collective algorithm: its schedule, a description, and the form that determines its latencies and rate."""

    schedule: Callable[[System, Group, str], Schedule]
    words: str
    form: str


ALGORITHMS = {
    "ring": Algorithm(ring, "one ring through all ranks", "ring"),
    "tree": Algorithm(tree, "two binary trees over the nodes, chains inside", "tree"),
    "nvls": Algorithm(nvls, "the switches reduce, in one network", "nvls"),
    "nvls_tree": Algorithm(
        nvls_tree, "the switches reduce in the nodes, two binary trees across", "nvls_tree"
    ),
    "hierarchical": Algorithm(
        hierarchical, "phases inside the nodes and across them, one after the other", "ring"
    ),
    "pipelined": Algorithm(
        pipelined, "phases inside and across in chunks, all networks busy together", "ring"
    ),
    "collnet": Algorithm(collnet, "pipelined, and the switches across reduce", "own"),
    "pairwise": Algorithm(pairwise, "every rank to every other rank", "own"),
    "rooted": Algorithm(pairwise, "the root to or from every other rank", "own"),
    "torus": Algorithm(torus, "rings along all axes of a torus together", "own"),
    "direct": Algorithm(direct, "one transfer", "own"),
    "measured": Algorithm(measured, "as measured on machines of this kind", "own"),
}
"""All algorithms. The first of equally fast ones is taken."""

BY_LIBRARY = {
    "all_reduce": ("ring", "tree", "nvls", "nvls_tree", "collnet", "torus"),
    "reduce_scatter": ("ring", "nvls", "torus"),
    "all_gather": ("ring", "nvls", "torus"),
    "all_to_all": ("pairwise", "torus"),
    "broadcast": ("ring", "torus"),
    "reduce": ("ring", "torus"),
    "scatter": ("rooted",),
    "gather": ("rooted",),
    "p2p": ("direct",),
}
"""Algorithms that NCCL chooses from, by operation. Source: its documentation of NCCL_ALGO, and its release notes.
A torus only has its own.
"""

MEASURED = "measured"
"""The library's choice on a network whose system file states measurements of the operation for these group sizes."""

SPANNING = ("hierarchical", "pipelined")
"""Algorithms that frameworks build for groups that span several networks; within one network they call the library."""

SUPPORTED = {
    "all_reduce": (*BY_LIBRARY["all_reduce"], *SPANNING, MEASURED),
    "reduce_scatter": (*BY_LIBRARY["reduce_scatter"], *SPANNING, MEASURED),
    "all_gather": (*BY_LIBRARY["all_gather"], *SPANNING, MEASURED),
    "all_to_all": (*BY_LIBRARY["all_to_all"], *SPANNING, MEASURED),
    "broadcast": ("ring", "tree", "torus"),
    "reduce": ("ring", "tree", "torus"),
    "scatter": ("rooted",),
    "gather": ("rooted",),
    "p2p": ("direct", MEASURED),
}
"""Algorithms by operation."""

_IN_SWITCHES = {"nvls", "nvls_tree", "collnet"}
_SEVERAL = {"nvls_tree", "collnet", *SPANNING}
_ANYWHERE = {"direct", "rooted"}


def is_supported(system: System, group: Group, name: str, operation: str = "") -> Array:
    """Return a mask of groups that can use an algorithm for the operation, given their networks and switches.

    The operation only matters for measured ones.
    """
    alone = np.asarray(group.ranks) == 1
    if name == MEASURED:
        return _was_measured(system, group, operation)
    on_torus = _on_torus(system, group)
    if name == "torus":
        return alone | on_torus
    networks = range(len(system.networks))
    fits: Array = np.ones_like(alone)
    if name in _IN_SWITCHES | _SEVERAL:
        fits = group.several == (name in _SEVERAL)
    if name in _IN_SWITCHES:
        reduces = np.array([system.reduces_in_network(i) for i in networks], dtype=bool)
        fits = fits & reduces[_switches(group, name)]
    if name not in _ANYWHERE and on_torus.any():
        fits = fits & ~on_torus
    return alone | fits


def _on_torus(system: System, group: Group) -> Array:
    """Return a mask of groups that use a torus network."""
    result: Array = np.zeros(np.shape(group.ranks), dtype=bool)
    for i, used in enumerate(group.used):
        if system.link(i).torus is not None:
            result = result | used
    return result


def _was_measured(system: System, group: Group, operation: str) -> Array:
    """Return a mask of groups on one network with a law for the operation, no larger than the measured groups."""
    ranks = np.asarray(group.ranks)
    found: Array = np.zeros(np.broadcast_shapes(ranks.shape, np.shape(group.network)), dtype=bool)
    for i in range(len(system.networks)):
        # A transfer involves two ranks, whatever the group size.
        if law := system.law(i, operation):
            small = (ranks <= law.largest) | (operation == "p2p")
            found = found | ((group.network == i) & small)
    return found & ~group.several if found.any() else found


def _switches(group: Group, name: str) -> Count:
    """Return the number of the network whose switches must reduce."""
    return group.network if name == "collnet" else group.innermost


def obstacle(system: System, group: Group, name: str, operation: str = "") -> str:
    """Return the reason why a group cannot use an algorithm; empty if it can."""
    if is_supported(system, group, name, operation):
        return ""
    if name == MEASURED:
        field = f"ext.networks[{int(group.network)}].operations.{operation}"
        return f"{system.name} states no measured {operation} for these {int(group.ranks):,} ranks ({field})"
    if name == "torus":
        ranks = f"these {int(group.ranks):,} ranks of {system.name}"
        return f"torus needs a torus network, and {ranks} use none (ext.networks[].torus)"
    if _on_torus(system, group):
        links = f"the network of {system.name} is a torus (ext.networks[].torus)"
        return f"{name} needs links between all ranks, and {links}"
    several = int(sum(group.used))
    if (name in _SEVERAL) != (several > 1):
        where = "several networks" if name in _SEVERAL else "one network"
        use = "one" if several == 1 else f"{several}"
        return f"{name} needs a group in {where}; these {group.ranks:,} ranks use {use}"
    number = int(_switches(group, name))
    field = f"ext.networks[{number}].in_network_reduction"
    return f"{name} needs switches that reduce, unlike the switches of networks[{number}] of {system.name} ({field})"
