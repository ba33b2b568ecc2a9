"""The time of a collective by an algorithm, as NCCL's tuner estimates it.

Each algorithm is written as its steps and bytes on each network: a group has `members` on a network
that each hold `below` ranks, and every rank has a port.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf, log2, prod
from typing import Any

from calculon.base.frozen import dataclass

from .system import HOPS, Network, System

LIBRARY = {
    "all_reduce": ("ring", "tree", "nvls", "nvls_tree", "collnet", "torus"),
    "reduce_scatter": ("ring", "nvls", "torus"),
    "all_gather": ("ring", "nvls", "torus"),
    "all_to_all": ("pairwise", "torus"),
    "broadcast": ("ring", "torus"),
    "reduce": ("ring", "torus"),
    "p2p": (),
}
"""What a library chooses from."""

FRAMEWORK = {
    "all_reduce": ("hierarchical", "pipelined"),
    "reduce_scatter": ("hierarchical", "pipelined"),
    "all_gather": ("hierarchical", "pipelined"),
    "all_to_all": ("hierarchical", "pipelined"),
    "broadcast": ("tree",),
    "reduce": ("tree",),
    "p2p": (),
}
"""What can be asked for besides."""

START = {"Simple": 8.4e-6, "LL": 6.6e-6, "LL128": 14e-6}
RING = {
    "Simple": HOPS,
    "LL": {"nvlink": 0.6e-6, "pcie": 1.0e-6, "net": 2.7e-6},
    "LL128": {"nvlink": 1.9e-6, "pcie": 2.5e-6, "net": 4.0e-6},
}
TREE = {
    "Simple": {"nvlink": 4.0e-6, "pcie": 5.7e-6, "net": 14e-6},
    "LL": {"nvlink": 0.6e-6, "pcie": 1.0e-6, "net": 5.0e-6},
    "LL128": {"nvlink": 1.25e-6, "pcie": 2.5e-6, "net": 8.5e-6},
}
SWITCH = {"nvlink": 25e-6, "pcie": 25e-6, "net": 18e-6}
"""Seconds to start and of a hop (NCCL, src/graph/tuning.cc)."""

HOPS_OF = {"tree": TREE, "nvls": {"Simple": SWITCH}, "nvls_tree": {"Simple": SWITCH}}
RATES = {
    "tree": {"Simple": 0.92, "LL": 1 / 3.8, "LL128": 0.92},
    "nvls": {"Simple": 1.0},
    "nvls_tree": {"Simple": 0.92},
    "collnet": {"Simple": 1.0},
    "torus": {"Simple": 1.0},
    "pairwise": {"Simple": 1.0},
}
RING_RATES = {"Simple": 1.0, "LL": 0.5, "LL128": 0.92}
"""Shares of the rate of the links (same source); rings also serve the phases of a hierarchy."""

FLAGGED = (((141 / 450), 39e9), ((45 / 450), 39e9), ((35 / 450), 20.4e9))
"""Most bus bandwidth of LL on one node, two and more: of the ports inside, and at least (same source)."""


@dataclass(frozen=True)
class Group:
    """Ranks, and what each network of the system joins of them."""

    ranks: int
    members: tuple[int, ...]
    alone: bool = False  # every rank is an endpoint of the one network that they use
    apart: tuple[int, ...] = ()  # steps between members on each network

    def strided(self, number: int) -> bool:
        """Whether others sit between its members on a network."""
        return bool(self.apart) and self.apart[number] > 1

    def below(self, number: int) -> int:
        """Ranks inside each member on a network."""
        return 1 if self.alone else prod(self.members[:number])

    @property
    def used(self) -> list[int]:
        return [number for number, joined in enumerate(self.members) if joined > 1]

    @property
    def outermost(self) -> int:
        return max(self.used, default=0)


def stated_group(system: System, ranks: int, network: int) -> Group:
    """Return ranks that are endpoints of one network."""
    members = [1] * len(system.networks)
    if network < len(members):
        members[network] = ranks
    return Group(ranks, tuple(members), alone=True)


def rooms(system: System) -> list[tuple[int, int]]:
    """Return the networks that are larger than those before, and how many of those each holds."""
    found, inside = [], 1
    for number, network in enumerate(system.networks):
        if network.size // inside > 1:
            found.append((number, network.size // inside))
            inside = network.size
    return found


@dataclass(frozen=True)
class Moves:
    """What a port of one network does in a collective: steps, and bytes per byte of the message."""

    steps: float
    share: float


@dataclass(frozen=True)
class Axes:
    """What a group has of a torus: links of a processor, and hops to the furthest one."""

    links: int
    hops: int


def _blocks(sides: Sequence[int], ranks: int) -> list[tuple[int, ...]]:
    """Return the blocks of a torus that have so many processors, by their sides."""
    blocks: list[tuple[int, ...]] = [()]
    for side in sides:
        blocks = [(*block, m) for block in blocks for m in range(1, min(side, ranks) + 1)]
    return [block for block in blocks if prod(block) == ranks]


def _rows(torus: Mapping[str, Any], ranks: int, *, strided: bool) -> list[tuple[int, bool]]:
    """Return the rows of processors of the block with the least sum of sides, and whether each row is a ring.

    Empty if no block has as many processors as the group has ranks. Switches close no ring for a group between whose
    processors others sit.
    """
    sides, cube = torus["sides"], None if strided else torus.get("cube")
    found = []
    for block in _blocks(sides, ranks):
        switched = cube is not None and all(m % cube == 0 for m in block)
        whole = [m == side for m, side in zip(block, sides, strict=True)]
        rows = [
            (m, switched or (all_of_it and m > 2))
            for m, all_of_it in zip(block, whole, strict=True)
        ]
        found.append(((sum(block), -sum(whole)), rows))
    return min(found, key=lambda one: one[0])[1] if found else []


def torus_axes(torus: Mapping[str, Any], ranks: int, *, strided: bool) -> Axes:
    """Lay a group out as a block, or a line if there is none.

    A row of processors has a link of each in a direction, and both where it is a ring.
    """
    rows = [(m, ring) for m, ring in _rows(torus, ranks, strided=strided) if m > 1]
    if not rows and ranks > 1:
        return Axes(1, ranks - 1)
    links = sum(2 if ring else 1 for _, ring in rows)
    return Axes(links, sum(m // 2 if ring else m - 1 for m, ring in rows))


MAX_WAITING = 8
"""Messages to others whose latency is paid one after the other."""


def _exchange(system: System, group: Group, name: str) -> Mapping[int, Moves]:
    """Return what an exchange of all with all does on each network."""
    found = {}
    if name != "pairwise":  # network after network; what goes on is sent again
        for i in group.used:
            n, one = group.members[i], system.networks[i].torus
            steps = min(n - 1, MAX_WAITING)
            if name == "torus" and one is not None:
                steps = torus_axes(one, n, strided=group.strided(i)).hops
            found[i] = Moves(steps, (n - 1) / n)
        return found
    # What goes beyond a network between nodes leaves through its port, too.
    beyond = 0.0
    for i in reversed(group.used):
        share = group.below(i) * (group.members[i] - 1) / group.ranks
        between = system.networks[i].kind == "net"
        steps = min(group.ranks - 1, MAX_WAITING) if i == group.outermost else 0
        found[i] = Moves(steps, share + beyond if between else share)
        beyond = found[i].share if between else beyond
    return found


def _moves(system: System, group: Group, op: str, name: str) -> Mapping[int, Moves]:
    """Return what an algorithm does on each network that the group uses."""
    if op == "all_to_all":
        return _exchange(system, group, name)
    rounds = 2 if op == "all_reduce" else 1
    whole = op in ("broadcast", "reduce")
    found = {}
    for i in group.used:
        n, below, inner = group.members[i], group.below(i), i == group.used[0]
        across = (n - 1) / n
        phase = Moves(rounds * (n - 1), rounds * across / below)
        node = next((number for number, _ in rooms(system)), 0)
        chain = i == node and system.networks[i].kind != "net"
        tree = Moves(rounds * (n - 1 if chain else log2(n)), rounds / below)
        if name == "ring":
            # A chunk goes over all edges but one; of those one leaves the innermost network.
            edges = group.ranks // below - group.ranks // (below * n)
            edges += (i == group.outermost) - inner
            share = 1.0 if whole else rounds * (group.ranks - 1) / group.ranks
            found[i] = Moves(rounds * edges, share / below)
        elif name == "tree":
            found[i] = tree
        elif name == "nvls":
            found[i] = Moves(0, 1 + (1 / group.ranks if op == "all_reduce" else 0))
        elif name == "nvls_tree":
            found[i] = Moves(0, 1 + 1 / n) if inner else Moves(2 * log2(n), tree.share)
        elif name == "collnet" and i == group.outermost:
            found[i] = Moves(0, (1 + 1 / n) / below)
        elif name == "torus":
            one = system.networks[i].torus
            steps = n - 1 if one is None else torus_axes(one, n, strided=group.strided(i)).hops
            found[i] = Moves(rounds * steps, 1 / below if whole else phase.share)
        else:
            found[i] = phase
    return found


def _torus_exchange(torus: Mapping[str, Any], ranks: int, *, strided: bool) -> float:
    """Share of all links of a processor that an exchange has: the middle of the slowest row decides."""
    if ranks == 1:
        return 1
    rows = _rows(torus, ranks, strided=strided) or [(ranks, False)]  # a line if there is none
    slowest = max(m * m // 4 / m / (2 if ring else 1) for m, ring in rows)
    return (ranks - 1) / ranks / (2 * len(torus["sides"]) * slowest)


def _able(system: System, group: Group, name: str) -> bool:
    """Whether switches reduce where an algorithm needs them to."""
    if group.ranks == 1:
        return True
    tori = [number for number in group.used if system.networks[number].torus is not None]
    if tori or name == "torus":
        return bool(tori) and name == "torus"
    if name in ("hierarchical", "pipelined"):
        return len(group.used) > 1
    if name not in ("nvls", "nvls_tree", "collnet"):
        return True
    if (len(group.used) > 1) != (name != "nvls"):
        return False
    network = group.outermost if name == "collnet" else group.used[0]
    return system.networks[network].reduces


def _protocols(system: System, name: str) -> Iterator[tuple[str, float]]:
    """Yield the protocols that may run an algorithm, and their share of the rate."""
    kinds = {network.kind for network in system.networks if not network.own_latency}
    for protocol, rate in RATES.get(name, RING_RATES).items():
        if protocol == "Simple" or (kinds and protocol == "LL") or "nvlink" in kinds:
            yield protocol, rate


def _latency(network: Network, name: str, protocol: str) -> tuple[float, float]:
    """Seconds to start, and of a step."""
    kind = network.kind
    if kind is None or network.own_latency or name in ("collnet", "torus", "pairwise"):
        return (network.latency if protocol == "Simple" else inf), network.step_latency
    step = HOPS_OF.get(name, RING)[protocol][kind]
    return (step if name in ("nvls", "nvls_tree") else START[protocol]), step


def _bus(op: str, ranks: int) -> float:
    """Bytes on the busiest link per byte, as nccl-tests counts."""
    if op in ("broadcast", "reduce", "p2p"):
        return 1
    return (2 if op == "all_reduce" else 1) * (ranks - 1) / ranks


def _flagged(system: System, group: Group) -> float:
    """Most bytes per second of LL."""
    node = next((number for number, _ in rooms(system)), 0)
    inside = system.networks[node]
    if inside.own_latency or inside.kind == "net":
        return inf
    nodes = group.ranks // group.members[node]
    share, least = FLAGGED[min(nodes, 3) - 1]
    return max(share * inside.bandwidth * 1e9, least)


def _reached(  # noqa: PLR0911 (one return an algorithm)
    system: System, group: Group, op: str, name: str, number: int
) -> float:
    """Share of a port that an algorithm uses, from what was shown there or else of the network."""
    network, n = system.networks[number], group.members[number]
    shown = network.shown
    if name == "torus" and network.torus is not None:
        strided = group.strided(number)
        if op == "all_to_all":
            return network.efficiency * _torus_exchange(network.torus, n, strided=strided)
        axes = torus_axes(network.torus, n, strided=strided)
        return network.efficiency * axes.links / (2 * len(network.torus["sides"]))
    like = {"reduce": "reduce_scatter", "broadcast": "all_gather"}.get(op, op)
    if op == "all_reduce" and network.reduces:
        node = next((i for i, _ in rooms(system)), 0)
        if name == "nvls" or (name == "nvls_tree" and number == node):
            if op not in shown:
                return network.efficiency
            largest, share, _ = shown[op].rates[-1]  # of the bus; the switches pass 1 + 1 / n
            return share * (largest + 1) / (2 * (largest - 1))
        halves = [o for o in ("reduce_scatter", "all_gather") if o in shown]
        if not halves:
            return network.efficiency
        return len(halves) / sum(1 / shown[half].between(n)[0] for half in halves)
    return shown[like].between(n)[0] if like in shown else network.efficiency


def _shown_time(system: System, group: Group, op: str, size: float) -> float | None:
    """Seconds as measured, where the group is on one network for which that is known."""
    if len(group.used) > 1 or op not in system.networks[group.outermost].shown:
        return None
    network = system.networks[group.outermost]
    shown, ranks = network.shown[op], 2 if op == "p2p" else group.ranks
    if ranks > shown.rates[-1][0]:
        return None
    wire = _bus(op, ranks) * size / (network.bandwidth * 1e9)
    return max(shown.time(wire, ranks), system.launch)


def _algorithm_time(system: System, group: Group, op: str, name: str, size: float) -> float:
    """Seconds with the fastest protocol."""
    moves = _moves(system, group, op, name)
    best = inf
    for protocol, rate in _protocols(system, name):
        start = steps = 0.0
        wires = []
        for i, move in moves.items():
            network = system.networks[i]
            base, step = _latency(network, name, protocol)
            start = max(start, base)
            steps += move.steps * step
            share = move.share * network.efficiency / _reached(system, group, op, name, i)
            wires.append(network.moving(size / rate * share))
        wire = sum(wires) if name in ("hierarchical", "torus") else max(wires)
        if protocol == "LL":
            wire = max(wire, _bus(op, group.ranks) * size / _flagged(system, group))
        best = min(best, start + steps + wire)
    return max(best, system.launch)


def group_time(system: System, group: Group, op: str, size: float, algorithm: str) -> float:
    """Seconds by an algorithm where it can run, else by the fastest that the library has; uplinks may take longer."""
    if group.ranks == 1:
        return 0
    return max(_own_time(system, group, op, size, algorithm), _uplink_time(system, group, op, size))


def _uplink_time(system: System, group: Group, op: str, size: float) -> float:
    """Seconds of links between switches, while every processor takes part in a group like this one."""
    longest, inside = 0.0, 1
    for number, room in rooms(system):
        uplink = system.networks[number].uplink
        if uplink is not None:
            switch = uplink["processors"]
            step = group.apart[number] if group.apart else 1
            near = min(group.members[number], max(1, max(1, switch // inside) // step))
            members = near * group.below(number)
            if group.members[number] > near:
                groups = switch / members
                leaves = _bus(op, group.ranks) * size  # over the one edge of a ring
                if op == "all_to_all":
                    leaves = members * size * (1 - members / group.ranks)
                longest = max(longest, groups * leaves / (uplink["bandwidth"] * 1e9))
        inside *= room
    return longest


def _own_time(system: System, group: Group, op: str, size: float, algorithm: str) -> float:
    """Seconds by an algorithm without other groups."""
    names = _asked(system, group, op, algorithm)
    shown = _shown_time(system, group, op, size)
    if shown is not None and (not names or _is_shown(system, group, op, algorithm)):
        return shown
    if not names:
        if op == "p2p":
            return system.networks[group.outermost].time(op, size, 2)
        names = [name for name in LIBRARY[op] if _able(system, group, name)]
    best = min(_algorithm_time(system, group, op, name, size) for name in names)
    return best if shown is None else max(best, shown)


def _is_shown(system: System, group: Group, op: str, name: str) -> bool:
    """Whether it was this algorithm that was measured; no other one of the library is faster."""
    switches = op == "all_reduce" and group.ranks > 2 and _able(system, group, "nvls")
    return name in ("ring", "pairwise") and not switches


def _asked(system: System, group: Group, op: str, algorithm: str) -> list[str]:
    """Return the algorithm where it can run."""
    known = (*LIBRARY[op], *FRAMEWORK[op])
    return [algorithm] if algorithm in known and _able(system, group, algorithm) else []


def group_bytes(
    system: System, group: Group, op: str, size: float, algorithm: str
) -> dict[int, float]:
    """Bytes through a port of each network, by the algorithm that :func:`group_time` takes."""
    if group.ranks == 1:
        return {}
    names = _asked(system, group, op, algorithm)
    if not names:
        if _shown_time(system, group, op, size) is not None:
            flat = "pairwise" if op == "all_to_all" else "ring"
            return {i: move.share * size for i, move in _moves(system, group, op, flat).items()}
        names = [name for name in LIBRARY[op] if _able(system, group, name)]
    best = min(names, key=lambda name: _algorithm_time(system, group, op, name, size))
    return {i: move.share * size for i, move in _moves(system, group, op, best).items()}
