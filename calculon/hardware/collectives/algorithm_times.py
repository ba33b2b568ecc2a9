"""Times of collectives over sizes, the fastest algorithm, and bandwidths as nccl-tests counts them."""

from collections.abc import Mapping, Sequence

import numpy as np

from calculon.hardware.collectives.algorithms import (
    ALGORITHMS,
    BY_LIBRARY,
    CAN,
    SPANNING,
    Schedule,
    obstacle,
)
from calculon.hardware.collectives.placement import Group
from calculon.hardware.collectives.protocols import Pace, paces
from calculon.hardware.system import System
from calculon.units import Array, Bytes, BytesPerSecond, Seconds

_BUS_PASSES = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "all_to_all": 1}


def bus_factor(operation: str, ranks: int) -> float:
    """Bytes on the busiest link per byte of the full array.

    Source: nccl-tests, doc/PERFORMANCE.md, section "Bus bandwidth".
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
    """Return every algorithm that can do the operation in one group; of forms that are the same, the flat one."""
    several = bool(group.several)
    return [
        name
        for name in CAN[operation]
        if (several or name not in SPANNING) and not obstacle(system, group, name)
    ]


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
    No collective takes less than its launch; a group of one takes no time.

    Parameters
    ----------
    size : array
        Bytes of the full array, as nccl-tests counts them.

    Source: Hockney's model, as in Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 3; NCCL,
    src/graph/tuning.cc, for latencies and shares by protocol.
    """
    size = np.asarray(size, dtype=float)
    schedule = schedule_of(system, operation, group, name)
    networks = [(i, used) for i, used in enumerate(group.used) if used.any()]
    alone = np.asarray(group.ranks) == 1
    straight = system.fabric.ramp is None  # then a share of the rate takes that much longer
    moved = _moved(system, schedule, networks, size) if straight else np.array(0.0)
    found = []
    for pace in paces(system, ALGORITHMS[name].form):
        fixed: Seconds = np.array(0.0)
        steps: Seconds = np.array(0.0)
        for i, used in networks:
            fixed = np.maximum(fixed, np.where(used, pace.base[i], 0.0))
            steps = steps + schedule.steps[i] * pace.step[i]
        if straight:
            time = fixed + steps + moved / pace.rate
        else:
            time = fixed + steps + _moved(system, schedule, networks, size / pace.rate)
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


def time_of(system: System, operation: str, group: Group, name: str, size: Bytes) -> Seconds:
    """Return the time of a collective by one algorithm, with the fastest of its protocols; as :func:`paced`."""
    found = [time for _, time in paced(system, operation, group, name, size)]
    return np.minimum.reduce(found)


def times(system: System, operation: str, group: Group, size: Bytes) -> dict[str, Seconds]:
    """Return the time of each algorithm that can do the operation in one group; arguments as in :func:`paced`."""
    names = candidates(system, operation, group)
    return {name: time_of(system, operation, group, name, size) for name in names}


def fastest(operation: str, found: Mapping[str, Seconds]) -> tuple[Array, Seconds]:
    """Return name and time of the fastest algorithm that NCCL can choose, size by size; the first of equals.

    Source: NCCL's tuner, which takes the least of its estimates.
    """
    chosen = {name: found[name] for name in BY_LIBRARY[operation] if name in found}
    names, table = np.array(list(chosen)), np.stack(list(chosen.values()))
    return names[table.argmin(axis=0)], table.min(axis=0)
