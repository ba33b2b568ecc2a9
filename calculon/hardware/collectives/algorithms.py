"""Algorithms of collectives: steps in sequence and bytes per port, on each network.

Sizes are those of nccl-tests, of the full array: the input of an all-reduce or reduce-scatter, the output of an
all-gather, all that a rank sends in an all-to-all, what the root of a scatter sends or that of a gather gets, its own
part included. Where several ranks of a node reach a network, each has a port and a share of the traffic, as in
libraries with one channel per port. All is counted for columns of groups at once.
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
"""Messages of a rank to all others that pay their latency one after the other; further ones hide behind transfers."""


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A collective by one algorithm, on the networks of the system in their order; zeros where one is not used.

    Attributes:
        steps: Steps on the critical path that pay the step latency of the network.
        shares: Bytes through each port of the network per byte of the message.
        together: The networks are busy at the same time, and the slowest decides; else one after the other.
    """

    steps: tuple[Count, ...]
    shares: tuple[Array, ...]
    together: bool = True


def _passes(operation: str) -> int:
    """Return how often data goes around: an all-reduce is a reduce and a broadcast, or scattered forms of them."""
    return 2 if operation == "all_reduce" else 1


def ring(system: System, group: Group, operation: str) -> Schedule:
    r"""One ring through all ranks, node after node.

    Each of the `n` edges carries :math:`(n - 1) / n` of the array in a pass, all of it in a broadcast or reduce. A
    chunk takes all edges but one; those between nodes pay the step latency there. A port sees :math:`1 / g` of the
    traffic where `g` ranks leave a node.

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
    r"""Two complementary binary trees over the nodes, a chain inside each, half of the data on each tree.

    A pass takes :math:`(g - 1) \alpha_{intra} + \log_2 N \alpha_{inter}`; an all-reduce makes two.

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
    r"""Reduction in the switches of the one network that the group uses: :math:`S (1 + 1 / n)` through each port.

    A rank gives the switch all of its array and gets its share of the sum; then it gives that share, and gets the
    array. In each direction that is the array and one share. A reduce-scatter or all-gather is one half of that, and
    moves the array in one direction.

    Source: Klenk et al., *An in-network architecture for accelerating shared-memory multiprocessor collectives*, ISCA
    2020, doi:10.1109/ISCA45697.2020.00085.
    """
    share = 1 / group.ranks if operation == "all_reduce" else 0.0
    shares = tuple(np.where(used, 1 + share, 0) for used in group.used)
    return Schedule((np.array(0),) * len(shares), shares)


def nvls_tree(system: System, group: Group, operation: str) -> Schedule:
    r"""Run :func:`nvls` in the switches of each node, and a double :func:`tree` across: :math:`2 \log_2 N` steps.

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
    r"""Network after network: reduce-scatter inside, all-reduce of what is left across, all-gather inside.

    Of `g` ranks in each of `N` nodes, each does :math:`RS_g(S) + AR_N(S / g) + AG_g(S)` with rings, a reduce-scatter or
    all-gather half of it. An all-to-all first exchanges inside the node what goes to the same place in other nodes,
    then across. The networks fill once, not once a phase. NCCL does not do it by itself; frameworks call one phase
    after the other.

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
    """Run :func:`hierarchical` in chunks, so that all networks are busy at the same time: the slowest decides.

    That is the best a framework can do that cuts a message into chunks and overlaps their phases perfectly.
    """
    phases = hierarchical(system, group, operation)
    return Schedule(phases.steps, phases.shares)


def collnet(system: System, group: Group, operation: str) -> Schedule:
    r"""Run :func:`pipelined` with the part across in the switches of the outermost network.

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
    r"""Rings along all axes of a torus at once, each with its part of the data; other networks one after the other.

    The bytes of a processor are those of one ring, by the links that its group has
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
            steps[i] = _passes(operation) * one.hops(members, group.neighbours(i))
    return Schedule(tuple(steps), tuple(shares), together=False)


def pairwise(system: System, group: Group, operation: str) -> Schedule:
    r"""Every rank sends each other rank its part; what stays in a node does not meet what leaves it.

    Of `n` ranks with `g` in each node, :math:`(g - 1) / n` of the array stays, :math:`(n - g) / n` leaves; the slower
    decides. What goes further than a network between nodes connects leaves through the same port. The root of a scatter
    or gather does that alone.

    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 4.3, pairwise exchange; NCCL's scatter and
    gather, which are sends and receives of the root.
    """
    ranks, waiting = group.ranks, np.minimum(group.ranks - 1, IN_FLIGHT)
    steps = tuple(np.where(group.network == i, waiting, 0) for i in range(len(group.members)))
    shares: list[Array] = []
    further: Array = np.array(
        0.0
    )  # through the ports of networks between nodes, the outermost first
    for i, (members, below, _) in reversed(list(enumerate(_tiers(group)))):
        here = below * (members - 1) / ranks
        between = system.link(i).kind == "net"
        shares.append(here + further if between else here)
        further = shares[-1] if between else further
    return Schedule(steps, tuple(reversed(shares)))


def measured(system: System, group: Group, operation: str) -> Schedule:
    """Run an operation as it was measured on the one network of the group: its law says the time.

    Bytes are those of the switches where they reduce and more than two ranks take part, else of rings and pairs.
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
    """Return where a measured operation is that of an algorithm, whatever the size of its messages.

    A measured all-reduce where switches reduce is a ring for small messages and :func:`nvls` for large ones.
    """
    switches = able(system, group, "nvls") & (np.asarray(group.ranks) > 2)
    flat = name in ("ring", "pairwise", "direct")
    return flat & ~(switches & (operation == "all_reduce"))


def direct(system: System, group: Group, operation: str) -> Schedule:
    """Every rank sends its neighbour the message; those on the outermost network decide.

    The network says under ``ops`` how often that crosses its links.
    """
    scalars = system.fabric.scalars["p2p"]
    shares = tuple(
        np.where(used & (group.network == i), scalars[i], 0) for i, used in enumerate(group.used)
    )
    return Schedule((np.array(0),) * len(shares), shares)


def _tiers(group: Group) -> "zip[tuple[Count, Count, Array]]":
    """Return members, ranks below and use of each network."""
    return zip(group.members, group.below, group.used, strict=True)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm: its schedule, a description, and the form whose latencies and rate it has."""

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
    "pairwise": Algorithm(pairwise, "each rank to each other rank", "own"),
    "rooted": Algorithm(pairwise, "the root to or from each other rank", "own"),
    "torus": Algorithm(torus, "rings along all axes of a torus together", "own"),
    "direct": Algorithm(direct, "one transfer", "own"),
    "measured": Algorithm(measured, "as measured on machines of this kind", "own"),
}
"""Each algorithm. Of two that are equally fast the first is taken."""

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
"""Algorithms that NCCL chooses from for each operation. Source: its documentation of NCCL_ALGO, and its release notes.
On a torus there is only its own.
"""

MEASURED = "measured"
"""What a library does on a network whose system file states the operation by measurement, in groups of those sizes."""

SPANNING = ("hierarchical", "pipelined")
"""Algorithms that frameworks build for a group that spans several networks; in one network they call the library."""

CAN = {
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
"""Algorithms that can do each operation."""

_IN_SWITCHES = {"nvls", "nvls_tree", "collnet"}
_SEVERAL = {"nvls_tree", "collnet", *SPANNING}
_ANYWHERE = {"direct", "rooted"}


def able(system: System, group: Group, name: str, operation: str = "") -> Array:
    """Return where groups can use an algorithm that can do the operation: on their networks, with their switches.

    The operation counts only for what was measured.
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
    """Return which groups use a network that is a torus."""
    found: Array = np.zeros(np.shape(group.ranks), dtype=bool)
    for i, used in enumerate(group.used):
        if system.link(i).torus is not None:
            found = found | used
    return found


def _was_measured(system: System, group: Group, operation: str) -> Array:
    """Return which groups are on one network that states the operation, and no larger than those measured."""
    ranks = np.asarray(group.ranks)
    found: Array = np.zeros(np.broadcast_shapes(ranks.shape, np.shape(group.network)), dtype=bool)
    for i in range(len(system.networks)):
        if law := system.law(i, operation):  # a transfer is between two, however many wait
            small = (ranks <= law.largest) | (operation == "p2p")
            found = found | ((group.network == i) & small)
    return found & ~group.several if found.any() else found


def _switches(group: Group, name: str) -> Count:
    """Return the number of the network whose switches have to reduce."""
    return group.network if name == "collnet" else group.innermost


def obstacle(system: System, group: Group, name: str, operation: str = "") -> str:
    """Return the reason why one group cannot use an algorithm; empty where it can."""
    if able(system, group, name, operation):
        return ""
    if name == MEASURED:
        field = f"ext.networks[{int(group.network)}].operations.{operation}"
        return f"{system.name} states no measured {operation} for these {int(group.ranks):,} ranks ({field})"
    if name == "torus":
        ranks = f"these {int(group.ranks):,} ranks of {system.name}"
        return f"torus needs a network that is one, and {ranks} use none (ext.networks[].torus)"
    if _on_torus(system, group):
        links = f"those of {system.name} are a torus (ext.networks[].torus)"
        return f"{name} needs links from each rank to each other, and {links}"
    several = int(sum(group.used))
    if (name in _SEVERAL) != (several > 1):
        where = "several networks" if name in _SEVERAL else "one network"
        use = "one" if several == 1 else f"{several}"
        return f"{name} needs a group in {where}; these {group.ranks:,} ranks use {use}"
    number = int(_switches(group, name))
    field = f"ext.networks[{number}].in_network_reduction"
    return f"{name} needs switches that reduce, and those of networks[{number}] of {system.name} do not ({field})"
