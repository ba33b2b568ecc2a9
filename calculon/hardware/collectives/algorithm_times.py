"""Times of collectives by message size, the fastest algorithm, and bandwidths as nccl-tests defines them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from calculon.base.arrays import is_nonzero
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, BytesPerSecond, Count, Fraction, Seconds
from calculon.hardware.collectives.algorithms import (
    ALGORITHMS,
    BY_LIBRARY,
    MEASURED,
    SUPPORTED,
    Schedule,
    is_measured,
    is_supported,
    obstacle,
)
from calculon.hardware.collectives.placement import Group
from calculon.hardware.collectives.uplinks import uplink_time
from calculon.hardware.extension import STEP_LATENCY
from calculon.hardware.system import System

# Latencies and rates by protocol, as in NCCL's tuner.
#
# NCCL runs rings and trees with three protocols: Simple fills the links; LL interleaves flags with data, at half the
# rate; LL128 has a flag per 128 bytes and needs NVLink. Each has a base latency and a latency per hop by kind of link.
# A network of unknown kind, or one that states latencies (``step_latency`` or ``ramp``, such as a fitted network), has
# a single protocol with its latencies.
#
# Source: NCCL, src/graph/tuning.cc.

SIMPLE, LL, LL128 = "Simple", "LL", "LL128"

TREE_BANDWIDTH = 0.92
"""Share of a network's rate that a double tree reaches. Source: NCCL, src/graph/tuning.cc."""

BASE = {SIMPLE: 8.4e-6, LL: 6.6e-6, LL128: 14e-6}
"""Seconds to start a ring or a tree. Source: NCCL, src/graph/tuning.cc."""

HOPS = {
    "ring": {
        "nvlink": {SIMPLE: STEP_LATENCY["nvlink"], LL: 0.6e-6, LL128: 1.9e-6},
        "pcie": {SIMPLE: STEP_LATENCY["pcie"], LL: 1.0e-6, LL128: 2.5e-6},
        "net": {SIMPLE: STEP_LATENCY["net"], LL: 2.7e-6, LL128: 4.0e-6},
    },
    "tree": {
        "nvlink": {SIMPLE: 4.0e-6, LL: 0.6e-6, LL128: 1.25e-6},
        "pcie": {SIMPLE: STEP_LATENCY["pcie"], LL: 1.0e-6, LL128: 2.5e-6},
        "net": {SIMPLE: 14e-6, LL: 5.0e-6, LL128: 8.5e-6},
    },
}
"""Seconds per step by form, link kind and protocol. Source: NCCL, src/graph/tuning.cc; PCIe trees as PCIe rings."""

IN_SWITCH = {"nvlink": 25e-6, "pcie": 25e-6, "net": 18e-6}
"""Seconds to start a reduction in the switches, and per step of the tree across. Source: as :data:`HOPS`."""

RATES = {
    "ring": {SIMPLE: 1.0, LL: 0.5, LL128: 0.92},
    "tree": {SIMPLE: TREE_BANDWIDTH, LL: 1 / 3.8, LL128: TREE_BANDWIDTH},
    "nvls": {SIMPLE: 1.0},
    "nvls_tree": {SIMPLE: TREE_BANDWIDTH},
    "own": {SIMPLE: 1.0},
}
"""Share of a network's rate by form and protocol. Source: as :data:`HOPS`."""

LL_LIMITS = (141 / 450, 45 / 450, 35 / 450)
"""Largest bus bandwidth of LL in one node, two nodes and more, relative to each processor's port in its node.

Source: NCCL, src/graph/tuning.cc, ``llMaxBws``: on Hopper 141, 45 and 35 GB/s with 450 GB/s of NVLink; the same on
Ampere (87.7 GB/s of 300) and Blackwell.
"""

LL_LEAST_LIMITS = (39e9, 39e9, 20.4e9)
"""Lower bounds of these limits in bytes/s, for slow links. Source: as :data:`LL_LIMITS`, the row of Volta."""


@dataclass(frozen=True, slots=True)
class ProtocolRate:
    """One protocol on the networks of a system, in their order.

    Attributes:
        protocol: Its name; empty if no network is of a known kind.
        base, step: Seconds to start (largest of the networks used) and per step; infinite bases if it cannot run.
        rate: Share of the achieved bandwidth that it can use.
    """

    protocol: str
    base: tuple[float | Array, ...]
    step: tuple[float | Array, ...]
    rate: float


def protocol_rates(system: System, form: str) -> list[ProtocolRate]:
    """Return the protocols for a form of collective on a system: one of :data:`RATES`."""
    kinds = [link_kind(system, i) for i in range(len(system.networks))]
    known = form != "own" and any(kinds)
    result = []
    for protocol, rate in RATES[form].items():
        if protocol != SIMPLE and not known:
            continue
        if protocol == LL128 and "nvlink" not in kinds:
            continue
        pairs = [_latencies(system, i, form, kind, protocol) for i, kind in enumerate(kinds)]
        base, step = zip(*pairs, strict=True) if pairs else ((), ())
        result.append(ProtocolRate(protocol if known else "", base, step, rate))
    return result


def flagged_limit(system: System, group: Group, pace: ProtocolRate) -> Array | None:
    """Return the largest bus bandwidth of groups under a protocol, in bytes/s; None if only the links limit it.

    LL is limited by the processors, which handle its flags; NCCL states the limit for nodes with links of a known kind.

    Source: as :data:`LL_LIMITS`.
    """
    if pace.protocol != LL or link_kind(system, group.node) in (None, "net"):
        return None
    nodes = np.asarray(group.ranks) // group.members[group.node]
    row = np.clip(nodes, 1, len(LL_LIMITS)) - 1
    shares = np.array(LL_LIMITS)[row] * system.networks[group.node].bandwidth
    limit: Array = np.maximum(shares, np.array(LL_LEAST_LIMITS)[row])
    return limit


def link_kind(system: System, network: int) -> str | None:
    """Return the kind of a network whose latencies follow its kind; None if it states its own."""
    link = system.link(network)
    return None if link.step_latency is not None or is_nonzero(link.ramp) else link.kind


def _latencies(
    system: System, network: int, form: str, kind: str | None, protocol: str
) -> tuple[float | Array, float | Array]:
    """Return the start and step latencies on one network."""
    if kind is None or form == "own":
        fabric = system.fabric
        base = fabric.latency[network] if protocol == SIMPLE else float("inf")
        return base, fabric.step_latency[network]
    if form in ("nvls", "nvls_tree"):
        return IN_SWITCH[kind], IN_SWITCH[kind]
    return BASE[protocol], HOPS[form][kind][protocol]


_BUS_PASSES = {
    "all_reduce": 2,
    "reduce_scatter": 1,
    "all_gather": 1,
    "all_to_all": 1,
    "scatter": 1,
    "gather": 1,
}


def bus_factor(operation: str, ranks: int) -> float:
    """Return the bytes on the busiest link per byte of the full array.

    Source: nccl-tests, doc/PERFORMANCE.md, section "Bus bandwidth"; scatter and gather: src/scatter.cu, src/gather.cu.
    """
    return _BUS_PASSES[operation] * (ranks - 1) / ranks if operation in _BUS_PASSES else 1.0


def algorithm_bandwidth(size: Bytes, seconds: Seconds) -> BytesPerSecond:
    """Return size over time; infinite for a group of one, which takes no time. Source: as :func:`bus_factor`."""
    with np.errstate(divide="ignore"):
        rate: Array = np.divide(size, seconds)
    return rate


def bus_bandwidth(operation: str, size: Bytes, seconds: Seconds, ranks: int) -> BytesPerSecond:
    """Return the rate of the busiest link, which is comparable with the hardware's bandwidth; 0 for a group of one.

    Source: as :func:`bus_factor`.
    """
    if ranks == 1:
        return np.zeros_like(seconds)
    return bus_factor(operation, ranks) * algorithm_bandwidth(size, seconds)


def candidates(system: System, operation: str, group: Group) -> list[str]:
    """Return all algorithms that can run the operation in a group."""
    return [name for name in SUPPORTED[operation] if not obstacle(system, group, name, operation)]


def schedule_of(system: System, operation: str, group: Group, name: str) -> Schedule:
    """Return the schedule of an algorithm in groups that can use it (:func:`is_supported`)."""
    return ALGORITHMS[name].schedule(system, group, operation)


def paced(
    system: System, operation: str, group: Group, name: str, size: Bytes
) -> list[tuple[ProtocolRate, Seconds]]:
    r"""Return the time of a collective by one algorithm with each of its protocols.

    .. math:: t = \alpha_b + \sum_i k_i \alpha_i + \max_i \, m_i(s \, c_i / r)

    where :math:`\alpha_b` is the largest base latency of the networks used, :math:`k_i` the number of steps with step
    latency :math:`\alpha_i`, :math:`m_i` the time to move the bytes on network `i` (:meth:`Fabric.moving`), :math:`c_i`
    the schedule's shares and `r` the usable part of the rate. Phases that do not overlap add up instead. No collective
    takes less than its launch, and a group of one takes no time. If the system states a measured rate of the operation
    on a network (:class:`~calculon.hardware.stated_networks.CollectiveLaw`), bytes move there at that rate.

    Args:
        size: Bytes of the full array, as in nccl-tests.

    Source: Hockney's model, as in Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 3; NCCL,
    src/graph/tuning.cc, for latencies and shares by protocol.
    """
    size = np.asarray(size, dtype=float)
    if name == MEASURED:
        return [_as_measured(system, operation, group, size)]
    schedule = schedule_of(system, operation, group, name)
    schedule = _at_stated_rates(system, operation, group, name, schedule)
    form = ALGORITHMS[name].form
    networks = [(i, used) for i, used in enumerate(group.used) if used.any()]
    alone = np.asarray(group.ranks) == 1
    # Without a ramp, time is inversely proportional to the rate.
    straight = system.fabric.ramp is None
    moved = _moved(system, schedule, networks, size) if straight else np.array(0.0)
    result = []
    for pace in protocol_rates(system, form):
        fixed: Seconds = np.array(0.0)
        steps: Seconds = np.array(0.0)
        for i, used in networks:
            fixed = np.maximum(fixed, np.where(used, pace.base[i], 0.0))
            steps = steps + schedule.steps[i] * pace.step[i]
        moving = (
            moved / pace.rate if straight else _moved(system, schedule, networks, size / pace.rate)
        )
        limit = flagged_limit(system, group, pace)
        if limit is not None:
            moving = np.maximum(moving, _bus_factors(operation, group) * size / limit)
        time = fixed + steps + moving
        result.append((pace, np.where(alone, 0.0, np.maximum(time, system.fabric.launch))))
    return result


def _moved(
    system: System, schedule: Schedule, networks: Sequence[tuple[int, Array]], size: Bytes
) -> Seconds:
    """Return the time to move the messages' bytes, with all networks in parallel or one after the other."""
    moved: Seconds = np.zeros_like(size)
    for i, _ in networks:
        here = system.fabric.moving(np.array(i), size * schedule.shares[i])
        moved = np.maximum(moved, here) if schedule.together else moved + here
    return moved


def _bus_factors(operation: str, group: Group) -> Array:
    """Return :func:`bus_factor` of a column of groups."""
    ranks = np.asarray(group.ranks)
    if operation not in _BUS_PASSES:
        return np.ones(ranks.shape)
    factor: Array = _BUS_PASSES[operation] * (ranks - 1) / ranks
    return factor


def _as_measured(
    system: System, operation: str, group: Group, size: Bytes
) -> tuple[ProtocolRate, Seconds]:
    """Return the measured time of an operation in groups that use a single network each."""
    ranks = np.asarray(group.ranks)
    latencies, factor = [(0.0, 0.0)] * len(system.networks), _bus_factors(operation, group)
    time: Seconds = np.zeros(np.broadcast_shapes(size.shape, ranks.shape))
    for i, network in enumerate(system.networks):
        if law := system.law(i, operation):
            latencies[i] = law.latency, law.rank_latency
            members = np.array(2) if operation == "p2p" else ranks
            here = law.time(factor * size / network.bandwidth, members)
            time = np.where(group.network == i, here, time)
    base, step = zip(*latencies, strict=True)
    time = np.where(ranks == 1, 0.0, np.maximum(time, system.fabric.launch))
    return ProtocolRate("", base, step, 1.0), time


def _at_stated_rates(
    system: System, operation: str, group: Group, name: str, schedule: Schedule
) -> Schedule:
    """Return the schedule with its bytes scaled so that they take the measured time at each network's efficiency."""
    if not any(link.operations or link.torus for link in system.ext.networks):
        return schedule
    shares = list(schedule.shares)
    for i, network in enumerate(system.networks):
        reached = port_share(system, i, operation, name, group)
        if reached is not None:
            shares[i] = shares[i] * (network.efficiency / reached)
    return replace(schedule, shares=tuple(shares))


_LIKE = {"reduce": "reduce_scatter", "broadcast": "all_gather", "scatter": "p2p", "gather": "p2p"}
"""The measurable operation whose rate another operation shares."""


def port_share(
    system: System, network: int, operation: str, name: str, group: Group
) -> Fraction | None:
    r"""Return the share of a port's bandwidth that an algorithm reaches with large messages, as the system states it.

    The ring of an all-reduce runs at the rate of a reduce-scatter and an all-gather, unless the network cannot reduce
    and its all-reduce is a ring. For switches that reduce, ports carry :math:`1 + 1 / n` of the bytes while the bus
    bandwidth counts :math:`2 (n - 1) / n`; their rate is the rate of the largest measured group. On a torus the share
    is the efficiency of the links that the group has. Return None if nothing is stated, so that the network's
    efficiency holds.

    Source: nccl-tests, doc/PERFORMANCE.md, and :func:`~calculon.hardware.collectives.algorithms.nvls`.
    """
    members: Count = np.maximum(group.members[network], 2)  # a single member moves nothing
    operation = _LIKE.get(operation, operation)
    law = system.law(network, operation)
    link_torus = system.link(network).torus
    if link_torus is not None and name == "torus":
        links = link_torus.exchange_share if operation == "all_to_all" else link_torus.share
        return system.networks[network].efficiency * links(members, group.neighbors(network))
    if operation != "all_reduce" or not system.reduces_in_network(network):
        return law.rates.share(members) if law else None
    if name == MEASURED and law:
        share = law.rates.share(members)
        return np.where(members > 2, share * (members + 1) / (2 * (members - 1)), share)
    if name == "nvls" or (name == "nvls_tree" and network == group.node):
        if law is None:
            return None
        ranks = law.largest
        return law.rates.share(np.array(ranks)) * (ranks + 1) / (2 * (ranks - 1))
    laws = [system.law(network, half) for half in ("reduce_scatter", "all_gather")]
    times = [1 / law.rates.share(members) for law in laws if law]
    return 1 / np.mean(times, axis=0) if times else None


def time_of(system: System, operation: str, group: Group, name: str, size: Bytes) -> Seconds:
    """Return the time of a collective by one algorithm and its fastest protocol; arguments as in :func:`paced`.

    For a measured operation the library chose the fastest of its algorithms: the chosen algorithm takes the measured
    time, and no other algorithm takes less.

    Source: NCCL, src/graph/tuning.cc and src/enqueue.cc: the tuner takes the least of its estimates.
    """
    result = np.minimum.reduce([time for _, time in paced(system, operation, group, name, size)])
    shared = uplink_time(system, operation, group, size, _bus_factors(operation, group))
    if shared is not None:
        result = np.maximum(result, shared)
    was_measured = is_supported(system, group, MEASURED, operation)
    if name == MEASURED or not was_measured.any():
        return result
    measured = time_of(system, operation, group, MEASURED, size)
    chosen = is_measured(system, group, name, operation)
    # No algorithm beats the measured choice, otherwise the library would have chosen it.
    measured = np.where(chosen, measured, np.maximum(result, measured))
    return np.where(was_measured, measured, result)


def times(system: System, operation: str, group: Group, size: Bytes) -> dict[str, Seconds]:
    """Return the time of each algorithm that can run the operation in a group; arguments as in :func:`paced`."""
    names = candidates(system, operation, group)
    return {name: time_of(system, operation, group, name, size) for name in names}


def fastest(operation: str, times: Mapping[str, Seconds]) -> tuple[Array, Seconds]:
    """Return name and time of the fastest algorithm that NCCL can choose, by size; the first of equals.

    For a measured operation, return the measured choice.

    Source: NCCL's tuner, which takes the least of its estimates.
    """
    if MEASURED in times:
        time = times[MEASURED]
        return np.full(np.shape(time), MEASURED), time
    chosen = {name: times[name] for name in BY_LIBRARY[operation] if name in times}
    names, table = np.array(list(chosen)), np.stack(list(chosen.values()))
    return names[table.argmin(axis=0)], table.min(axis=0)


# Times and bytes of operations in columns of groups: as networks are published, by an algorithm, or by the fastest.

PUBLISHED, AUTO = "published", "auto"
"""Choices in addition to algorithm names: traffic by the network's ``ops``, and the fastest algorithm of NCCL."""


def group_time(
    system: System,
    operation: str,
    size: Bytes,
    group: Group,
    algorithm: str,
    *,
    per_step: Array | bool = False,
) -> Seconds:
    """Return the time of an operation in columns of groups.

    Args:
        operation: One of ``OPERATIONS``; ``p2p`` is a transfer between neighbors in the group.
        size: Bytes of the full array, as in nccl-tests.
        algorithm: ``published``: :meth:`Fabric.time` on the outermost network (a broadcast or reduce transfers the
            whole message; there is no all-to-all, scatter or gather). ``auto``: the measured time if the system states
            it, else the fastest algorithm that NCCL can choose. Or one of ``ALGORITHMS``, which falls back to ``auto``
            for operations or groups that it cannot run.
        per_step: True if collectives pay a latency per step; only for ``published``.
    """
    if algorithm == PUBLISHED:
        name = _published(operation)
        return system.fabric.time(group.network, name, size, group.ranks, per_step=per_step)
    _, table = _choices(system, operation, size, group, algorithm)
    return np.minimum.reduce(table)


def group_volume(
    system: System, operation: str, size: Bytes, group: Group, algorithm: str
) -> Bytes:
    """Return the bytes through each port of each network: shape (networks, ...); arguments as in :func:`group_time`.

    ``auto`` gives the bytes of the fastest algorithm. Protocol overhead is not counted.
    """
    networks = range(len(system.networks))
    if algorithm == PUBLISHED:
        volume = system.fabric.volume(group.network, _published(operation), size, group.ranks)
        return np.stack([np.where(group.network == i, volume, 0.0) for i in networks])
    names, table = _choices(system, operation, size, group, algorithm)
    taken = np.argmin(np.stack(table), axis=0)
    shares = [schedule_of(system, operation, group, name).shares for name in names]
    size = np.asarray(size, dtype=float)
    passed = [
        np.choose(taken, np.broadcast_arrays(taken, *(share[i] for share in shares))[1:]) * size
        for i in networks
    ]
    return np.stack(np.broadcast_arrays(*passed))


def _published(operation: str) -> str:
    """Return the operation of a network that represents another operation."""
    if operation in ("all_to_all", "scatter", "gather"):
        raise ValueError(f"ops of networks do not state the traffic of {operation}")
    return "p2p" if operation in ("broadcast", "reduce") else operation


def _choices(
    system: System, operation: str, size: Bytes, group: Group, algorithm: str
) -> tuple[Sequence[str], list[Seconds]]:
    """Return names and times of the algorithms that each group chooses from; infinite if a group cannot use one."""
    names: tuple[str, ...] = ()
    rows: list[Array] = []
    rest: Array = np.array(True)
    # Measured times take precedence, but a named algorithm is tried first: each group takes the first it can use.
    for name in (algorithm, MEASURED):
        if name in SUPPORTED[operation] and name not in names:
            here = rest & is_supported(system, group, name, operation)
            names, rows, rest = (*names, name), [*rows, here], rest & ~here
    if rest.any():
        others = [name for name in BY_LIBRARY[operation] if name != algorithm]
        names += tuple(others)
        rows += [rest & is_supported(system, group, name) for name in others]
    some = [(name, row) for name, row in zip(names, rows, strict=True) if row.any()]
    table = [
        np.where(row, time_of(system, operation, group, name, size), np.inf) for name, row in some
    ]
    return [name for name, _ in some], list(np.broadcast_arrays(*table))
