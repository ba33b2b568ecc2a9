"""What each algorithm of a collective does on each network: steps that wait for each other, and bytes per port.

Sizes are those of nccl-tests, of the full array: the input of an all-reduce or reduce-scatter, the output of an
all-gather, all that a rank sends in an all-to-all. Where several ranks of a node reach a network, each has a port and
a share of the traffic, as in libraries with one channel per port.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log2

from calculon.hardware.collectives.placement import Placement
from calculon.hardware.system import System

OPERATIONS = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "broadcast",
    "reduce",
    "p2p",
)

TREE_BANDWIDTH = 0.92
"""Share of a network's rate that a double tree reaches. Source: NCCL's own tuning constant for its trees."""

IN_FLIGHT = 8
"""Messages of an all-to-all that pay their latency one after the other; further ones are hidden behind transfers."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One collective by one algorithm, on the tiers of a placement in their order.

    Attributes
    ----------
    steps : tuple of float
        Steps on the critical path that pay the step latency of the tier.
    shares : tuple of float
        Bytes through each port of the tier per byte of the message.
    together : bool
        The networks are busy at the same time, and the slowest decides; else one after the other.
    rate : float
        Share of the achieved bandwidth that the algorithm can use.
    """

    steps: tuple[float, ...]
    shares: tuple[float, ...]
    together: bool = True
    rate: float = 1.0


def _passes(operation: str) -> int:
    """Return how often data goes around: an all-reduce is a reduce and a broadcast, or scattered forms of them."""
    return 2 if operation == "all_reduce" else 1


def ring(system: System, placement: Placement, operation: str) -> Schedule:
    r"""One ring through all ranks, node after node.

    Each of the `n` edges carries :math:`(n - 1) / n` of the array in a pass, all of it in a broadcast or reduce. A
    chunk takes all edges but one; those between nodes pay the step latency there. A port sees :math:`1 / g` of the
    traffic where `g` ranks leave a node.

    Source: Patarasuk and Yuan, JPDC 69(2), 2009, doi:10.1016/j.jpdc.2008.09.002, section 3; broadcast and reduce as
    pipelined chains.
    """
    ranks, tiers, passes = placement.ranks, placement.tiers, _passes(operation)
    steps = []
    for tier in tiers:
        edges = ranks // tier.below - ranks // (tier.below * tier.members)
        steps.append(passes * (edges + (tier is tiers[-1]) - (tier is tiers[0])))
    whole = operation in ("broadcast", "reduce")
    share = 1.0 if whole else passes * (ranks - 1) / ranks
    return Schedule(tuple(steps), tuple(share / tier.below for tier in tiers))


def tree(system: System, placement: Placement, operation: str) -> Schedule:
    r"""Two complementary binary trees over the nodes, a chain inside each, half of the data on each tree.

    A pass takes :math:`(g - 1) \alpha_{intra} + \log_2 N \alpha_{inter}`; an all-reduce makes two.

    Source: Sanders, Speck and Traff, *Two-tree algorithms for full bandwidth broadcast, reduction and scan*, Parallel
    Computing 35(12), 2009, doi:10.1016/j.parco.2009.09.001; NCCL's tuning of its double trees.
    """
    passes = _passes(operation)
    return Schedule(
        tuple(passes * (t.members - 1 if t.node else log2(t.members)) for t in placement.tiers),
        tuple(passes / tier.below for tier in placement.tiers),
        rate=TREE_BANDWIDTH,
    )


def nvls(system: System, placement: Placement, operation: str) -> Schedule:
    r"""Reduction in the switches of the one network that the group uses: :math:`S (1 + 1 / n)` through each port.

    A rank gives the switch all of its array and gets its share of the sum; then it gives that share, and gets the
    array. In each direction that is the array and one share.

    Source: Klenk et al., *An in-network architecture for accelerating shared-memory multiprocessor collectives*, ISCA
    2020, doi:10.1109/ISCA45697.2020.00085.
    """
    tiers = placement.tiers
    return Schedule((0.0,) * len(tiers), tuple(1 + 1 / tier.members for tier in tiers))


def hierarchical(system: System, placement: Placement, operation: str) -> Schedule:
    r"""Network after network: reduce-scatter inside, all-reduce of what is left across, all-gather inside.

    Of `g` ranks in each of `N` nodes, each does :math:`RS_g(S) + AR_N(S / g) + AG_g(S)` with rings, a reduce-scatter or
    all-gather half of it. An all-to-all first exchanges inside the node what goes to the same place in other nodes,
    then across. The networks fill once, not once a phase.

    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, doi:10.1177/1094342005051521, sections 4.1 to 4.5, for
    the phases; an all-reduce of parts: Rabenseifner, ICCS 2004, doi:10.1007/978-3-540-24685-5_1.
    """
    tiers = placement.tiers
    if operation == "all_to_all":
        steps = tuple(float(min(tier.members - 1, IN_FLIGHT)) for tier in tiers)
        return Schedule(steps, tuple((t.members - 1) / t.members for t in tiers), together=False)
    passes = _passes(operation)
    return Schedule(
        tuple(float(passes * (tier.members - 1)) for tier in tiers),
        tuple(passes * (tier.members - 1) / tier.members / tier.below for tier in tiers),
        together=False,
    )


def pipelined(system: System, placement: Placement, operation: str) -> Schedule:
    """Run :func:`hierarchical` in chunks, so that all networks are busy at the same time: the slowest decides."""
    phases = hierarchical(system, placement, operation)
    return Schedule(phases.steps, phases.shares)


def collnet(system: System, placement: Placement, operation: str) -> Schedule:
    r"""Run :func:`pipelined` with the part across in the switches of the outermost network.

    Its ports see :math:`S / g (1 + 1 / N)` instead of :math:`2 S / g (N - 1) / N`.

    Source: Graham et al., *Scalable hierarchical aggregation protocol (SHArP)*, COMHPC 2016,
    doi:10.1109/COMHPC.2016.006.
    """
    phases, outer = pipelined(system, placement, operation), placement.tiers[-1]
    share = (1 + 1 / outer.members) / outer.below
    return Schedule((*phases.steps[:-1], 0.0), (*phases.shares[:-1], share))


def pairwise(system: System, placement: Placement, operation: str) -> Schedule:
    r"""Every rank sends each other rank its part; what stays in a node does not meet what leaves it.

    Of `n` ranks with `g` in each node, :math:`(g - 1) / n` of the array stays, :math:`(n - g) / n` leaves; the slower
    decides.

    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 4.3, pairwise exchange.
    """
    ranks, tiers = placement.ranks, placement.tiers
    steps = tuple(min(ranks - 1, IN_FLIGHT) * float(tier is tiers[-1]) for tier in tiers)
    return Schedule(steps, tuple(t.below * (t.members - 1) / ranks for t in tiers))


def direct(system: System, placement: Placement, operation: str) -> Schedule:
    """Every rank sends its neighbour the message; the network says under ``ops`` how often that crosses its links."""
    scalars = system.fabric.scalars["p2p"]
    tiers = placement.tiers
    return Schedule((0.0,) * len(tiers), tuple(float(scalars[tier.network]) for tier in tiers))


Algorithm = Callable[[System, Placement, str], Schedule]

ALGORITHMS: dict[str, tuple[Algorithm, str]] = {
    "ring": (ring, "one ring through all ranks"),
    "tree": (tree, "two binary trees over the nodes, chains inside"),
    "nvls": (nvls, "the switches reduce, in one network"),
    "hierarchical": (hierarchical, "phases inside the nodes and across them, one after the other"),
    "pipelined": (pipelined, "phases inside and across in chunks, all networks busy together"),
    "collnet": (collnet, "pipelined, and the switches across reduce"),
    "pairwise": (pairwise, "each rank to each other rank"),
    "direct": (direct, "one transfer"),
}
"""Each algorithm, and what it does in a few words. Of two that are equally fast the first is taken."""

_SCATTERED = ("ring", "hierarchical", "pipelined")

CAN = {
    "all_reduce": ("ring", "tree", "nvls", "hierarchical", "pipelined", "collnet"),
    "reduce_scatter": _SCATTERED,
    "all_gather": _SCATTERED,
    "all_to_all": ("pairwise", "hierarchical", "pipelined"),
    "broadcast": ("ring", "tree"),
    "reduce": ("ring", "tree"),
    "p2p": ("direct",),
}
"""Algorithms that can do each operation."""

SPANNING = ("hierarchical", "pipelined")
"""Algorithms that differ from the flat form only in a group that spans several networks."""


def obstacle(system: System, placement: Placement, name: str) -> str:
    """Say why a group cannot use an algorithm, or nothing where it can."""
    tiers = placement.tiers
    if name not in ("nvls", "collnet") or not tiers:
        return ""
    if name == "nvls" and len(tiers) > 1:
        return (
            f"nvls needs a group in one network; these {placement.ranks:,} ranks use {len(tiers)}"
        )
    if name == "collnet" and len(tiers) == 1:
        return f"collnet needs a group in several networks; these {placement.ranks:,} ranks use one"
    outer = tiers[-1].network
    if not system.reduces_in_network(outer):
        field = f"ext.networks[{outer}].in_network_reduction"
        return f"{name} needs switches that reduce, and those of networks[{outer}] of {system.name} do not ({field})"
    return ""
