"""Times of collectives over sizes, the fastest algorithm, and bandwidths as nccl-tests counts them."""

from collections.abc import Mapping

import numpy as np

from calculon.hardware.collectives.algorithms import (
    ALGORITHMS,
    CAN,
    SPANNING,
    Schedule,
    obstacle,
)
from calculon.hardware.collectives.placement import Placement
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
    rate: Array = bus_factor(operation, ranks) * algorithm_bandwidth(size, seconds)
    return rate


def schedule_of(system: System, operation: str, placement: Placement, name: str) -> Schedule:
    """Return what an algorithm does, nothing for a group of one; the caller has asked for an :func:`obstacle`."""
    if not placement.tiers:
        return Schedule((), ())
    return ALGORITHMS[name][0](system, placement, operation)


def candidates(system: System, operation: str, placement: Placement) -> dict[str, Schedule]:
    """Return every algorithm that can do the operation here; of forms that are the same, the flat one."""
    several = len(placement.tiers) > 1
    return {
        name: schedule_of(system, operation, placement, name)
        for name in CAN[operation]
        if (several or name not in SPANNING) and not obstacle(system, placement, name)
    }


def time_of(system: System, placement: Placement, schedule: Schedule, size: Bytes) -> Seconds:
    r"""Time of a collective by one schedule.

    .. math:: t = \alpha_b + \sum_i k_i \alpha_i + \max_i \, m_i(s \, c_i / r)

    with the largest latency of the networks used :math:`\alpha_b`, steps :math:`k_i` of step latency
    :math:`\alpha_i`, the time :math:`m_i` to move so many bytes on network `i` (:meth:`Fabric.moving`), the schedule's
    shares :math:`c_i` and the part `r` of the rate that it can use. Phases that do not overlap are added up instead.

    Parameters
    ----------
    size : array
        Bytes of the full array, as nccl-tests counts them.

    Source: Hockney's model, as in Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 3.
    """
    size = np.asarray(size, dtype=float)
    if not placement.tiers:
        return np.zeros_like(size)
    fabric, networks = system.fabric, [tier.network for tier in placement.tiers]
    fixed = max(fabric.latency[n] for n in networks)
    fixed += sum(k * fabric.step_latency[n] for k, n in zip(schedule.steps, networks, strict=True))
    moving = [
        fabric.moving(np.array(n), size * (share / schedule.rate))
        for share, n in zip(schedule.shares, networks, strict=True)
    ]
    moved = np.maximum.reduce(moving) if schedule.together else np.add.reduce(moving)
    time: Seconds = fixed + moved
    return time


def times(system: System, operation: str, placement: Placement, size: Bytes) -> dict[str, Seconds]:
    """Return the time of each algorithm that can do the operation here; arguments as in :func:`time_of`."""
    return {
        name: time_of(system, placement, schedule, size)
        for name, schedule in candidates(system, operation, placement).items()
    }


def fastest(found: Mapping[str, Seconds]) -> tuple[Array, Seconds]:
    """Return the name and the time of the fastest algorithm, size by size; the first of equals.

    Source: NCCL's tuner, which takes the least of its estimates.
    """
    names, table = np.array(list(found)), np.stack(list(found.values()))
    return names[table.argmin(axis=0)], table.min(axis=0)
