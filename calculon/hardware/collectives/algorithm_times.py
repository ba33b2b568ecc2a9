"""Times of collectives over sizes, the fastest algorithm, and bandwidths as nccl-tests counts them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from calculon.base.units import Array, Bytes, BytesPerSecond, Count, Fraction, Seconds
from calculon.hardware.collectives.algorithms import (
    ALGORITHMS,
    BY_LIBRARY,
    CAN,
    MEASURED,
    Schedule,
    able,
    is_measured,
    obstacle,
)
from calculon.hardware.collectives.placement import Group
from calculon.hardware.collectives.protocols import Pace, flagged_limit, paces
from calculon.hardware.system import System

_BUS_PASSES = {
    "all_reduce": 2,
    "reduce_scatter": 1,
    "all_gather": 1,
    "all_to_all": 1,
    "scatter": 1,
    "gather": 1,
}


def bus_factor(operation: str, ranks: int) -> float:
    """Bytes on the busiest link per byte of the full array.

    Source: nccl-tests, doc/PERFORMANCE.md, section "Bus bandwidth"; scatter and gather: src/scatter.cu, src/gather.cu.
    """
    return _BUS_PASSES[operation] * (ranks - 1) / ranks if operation in _BUS_PASSES else 1.0


def algorithm_bandwidth(size: Bytes, seconds: Seconds) -> BytesPerSecond:
    """Size over time; infinite for a group of one, which takes no time. Source: as :func:`bus_factor`."""
    with np.errstate(divide="ignore"):
        rate: Array = np.divide(size, seconds)
    return rate


def bus_bandwidth(operation: str, size: Bytes, seconds: Seconds, ranks: int) -> BytesPerSecond:
    """Rate at the busiest link, which can be compared with that of the hardware; 0 for a group of one.

    Source: as :func:`bus_factor`.
    """
    if ranks == 1:
        return np.zeros_like(seconds)
    return bus_factor(operation, ranks) * algorithm_bandwidth(size, seconds)


def candidates(system: System, operation: str, group: Group) -> list[str]:
    """Return every algorithm that can do the operation in one group."""
    return [name for name in CAN[operation] if not obstacle(system, group, name, operation)]


def schedule_of(system: System, operation: str, group: Group, name: str) -> Schedule:
    """Return the schedule of an algorithm in groups that are :func:`able` to use it."""
    return ALGORITHMS[name].schedule(system, group, operation)


def paced(
    system: System, operation: str, group: Group, name: str, size: Bytes
) -> list[tuple[Pace, Seconds]]:
    r"""Return the time of a collective by one algorithm with each protocol that it has.

    .. math:: t = \alpha_b + \sum_i k_i \alpha_i + \max_i \, m_i(s \, c_i / r)

    with the largest base latency of the networks used :math:`\alpha_b`, steps :math:`k_i` of step latency
    :math:`\alpha_i`, the time :math:`m_i` to move its bytes on network `i` (:meth:`Fabric.moving`), the schedule's
    shares :math:`c_i` and the part `r` of the rate that it can use. Phases that do not overlap are added up instead.
    No collective takes less than its launch; a group of one takes no time. Where the system states what the operation
    reaches on a network (:class:`~calculon.hardware.collective_law.CollectiveLaw`), bytes move there at that rate.

    Args:
        size: Bytes of the full array, as nccl-tests counts them.

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
    straight = system.fabric.ramp is None  # then a share of the rate takes that much longer
    moved = _moved(system, schedule, networks, size) if straight else np.array(0.0)
    found = []
    for pace in paces(system, form):
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
        found.append((pace, np.where(alone, 0.0, np.maximum(time, system.fabric.launch))))
    return found


def _moved(
    system: System, schedule: Schedule, networks: Sequence[tuple[int, Array]], size: Bytes
) -> Seconds:
    """Return the time that the bytes of messages take, all networks together or one after the other."""
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


def _as_measured(system: System, operation: str, group: Group, size: Bytes) -> tuple[Pace, Seconds]:
    """Return the time of an operation in groups on one network each, as the system states it there."""
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
    return Pace("", base, step, 1.0), time


def _at_stated_rates(
    system: System, operation: str, group: Group, name: str, schedule: Schedule
) -> Schedule:
    """Return a schedule whose bytes are what takes as long at the efficiency of each network."""
    if not any(link.operations or link.torus for link in system.ext.networks):
        return schedule
    shares = list(schedule.shares)
    for i, network in enumerate(system.networks):
        reached = port_share(system, i, operation, name, group)
        if reached is not None:
            shares[i] = shares[i] * (network.efficiency / reached)
    return replace(schedule, shares=tuple(shares))


_LIKE = {"reduce": "reduce_scatter", "broadcast": "all_gather", "scatter": "p2p", "gather": "p2p"}
"""The measurable operation at whose rate another one moves its bytes."""


def port_share(
    system: System, network: int, operation: str, name: str, group: Group
) -> Fraction | None:
    r"""Return the share of a port's bandwidth that an algorithm reaches with large messages, as the system states it.

    A ring of an all-reduce goes at the rate of a reduce-scatter and an all-gather, unless the network cannot reduce and
    its all-reduce is a ring. Switches that reduce see :math:`1 + 1 / n` where the bus bandwidth counts
    :math:`2 (n - 1) / n`; their rate is that in the largest group that was measured. On a torus it is the efficiency
    of the links that the group has. None where nothing is stated, and the efficiency of the network holds.

    Source: nccl-tests, doc/PERFORMANCE.md, and :func:`~calculon.hardware.collectives.algorithms.nvls`.
    """
    members: Count = np.maximum(group.members[network], 2)  # one alone moves nothing
    operation = _LIKE.get(operation, operation)
    whole = system.law(network, operation)
    one = system.link(network).torus
    if one is not None and name == "torus":
        links = one.exchange_share if operation == "all_to_all" else one.share
        return system.networks[network].efficiency * links(members, group.neighbours(network))
    if operation != "all_reduce" or not system.reduces_in_network(network):
        return whole.rates.share(members) if whole else None
    if name == MEASURED and whole:
        share = whole.rates.share(members)
        return np.where(members > 2, share * (members + 1) / (2 * (members - 1)), share)
    if name == "nvls" or (name == "nvls_tree" and network == group.node):
        if whole is None:
            return None
        ranks = whole.largest
        return whole.rates.share(np.array(ranks)) * (ranks + 1) / (2 * (ranks - 1))
    halves = [system.law(network, half) for half in ("reduce_scatter", "all_gather")]
    times = [1 / law.rates.share(members) for law in halves if law]
    return 1 / np.mean(times, axis=0) if times else None


def time_of(system: System, operation: str, group: Group, name: str, size: Bytes) -> Seconds:
    """Return the time of a collective by one algorithm; arguments as in :func:`paced`.

    It is that of the fastest protocol. Where the operation was measured, libraries chose the fastest of their
    algorithms: the one that they chose takes the measured time, and no other one takes less.

    Source: NCCL, src/graph/tuning.cc and src/enqueue.cc: the tuner takes the least of its estimates.
    """
    found = np.minimum.reduce([time for _, time in paced(system, operation, group, name, size)])
    was_measured = able(system, group, MEASURED, operation)
    if name == MEASURED or not was_measured.any():
        return found
    measured = time_of(system, operation, group, MEASURED, size)
    chosen = is_measured(system, group, name, operation)
    measured = np.where(chosen, measured, np.maximum(found, measured))
    return np.where(was_measured, measured, found)


def times(system: System, operation: str, group: Group, size: Bytes) -> dict[str, Seconds]:
    """Return the time of each algorithm that can do the operation in one group; arguments as in :func:`paced`."""
    names = candidates(system, operation, group)
    return {name: time_of(system, operation, group, name, size) for name in names}


def fastest(operation: str, found: Mapping[str, Seconds]) -> tuple[Array, Seconds]:
    """Return name and time of the fastest algorithm that NCCL can choose, size by size; the first of equals.

    What was measured is what NCCL has chosen.

    Source: NCCL's tuner, which takes the least of its estimates.
    """
    if MEASURED in found:
        time = found[MEASURED]
        return np.full(np.shape(time), MEASURED), time
    chosen = {name: found[name] for name in BY_LIBRARY[operation] if name in found}
    names, table = np.array(list(chosen)), np.stack(list(chosen.values()))
    return names[table.argmin(axis=0)], table.min(axis=0)
