"""Times and bytes of operations in columns of groups: as networks are published, by an algorithm, or by the fastest."""

from collections.abc import Sequence

import numpy as np

from calculon.base.units import Array, Bytes, Seconds
from calculon.hardware.collectives.algorithm_times import schedule_of, time_of
from calculon.hardware.collectives.algorithms import BY_LIBRARY, CAN, MEASURED, able
from calculon.hardware.collectives.placement import Group
from calculon.hardware.system import System

PUBLISHED, AUTO = "published", "auto"
"""Choices next to the names of algorithms: the traffic under ``ops`` of the network; the fastest of NCCL."""


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
        system: Its networks.
        operation: One of ``OPERATIONS``; ``p2p`` is a transfer between neighbours of the group.
        size: Bytes of the full array, as nccl-tests counts them.
        group: The process groups.
        algorithm: ``published``, as :meth:`Fabric.time` on the outermost network (a broadcast or reduce is a transfer
            of the whole message; there is no all-to-all, scatter or gather); ``auto``, as measured where the system
            says so and else the fastest that NCCL can choose; or one of ``ALGORITHMS``. Where that cannot do the
            operation, or not in a group, it is as for ``auto``.
        per_step: Only for ``published``.
    """
    if algorithm == PUBLISHED:
        name = _published(operation)
        return system.fabric.time(group.network, name, size, group.ranks, per_step=per_step)
    _, table = _choices(system, operation, size, group, algorithm)
    return np.minimum.reduce(table)


def group_volume(
    system: System, operation: str, size: Bytes, group: Group, algorithm: str
) -> Bytes:
    """Return the bytes that pass each port of each network: shape (networks, ...); arguments as in :func:`group_time`.

    For ``auto`` those of the fastest algorithm. Bytes that protocols add are not counted.
    """
    networks = range(len(system.networks))
    if algorithm == PUBLISHED:
        all_of_it = system.fabric.volume(group.network, _published(operation), size, group.ranks)
        return np.stack([np.where(group.network == i, all_of_it, 0.0) for i in networks])
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
    """Return the operation of a network that stands for another."""
    if operation in ("all_to_all", "scatter", "gather"):
        raise ValueError(f"networks do not say under ops what {operation} moves")
    return "p2p" if operation in ("broadcast", "reduce") else operation


def _choices(
    system: System, operation: str, size: Bytes, group: Group, algorithm: str
) -> tuple[Sequence[str], list[Seconds]]:
    """Return names and times of the algorithms from which each group has the fastest; infinite where it has not."""
    names: tuple[str, ...] = ()
    rows: list[Array] = []
    rest: Array = np.array(True)
    for name in (algorithm, MEASURED):
        if name in CAN[operation] and name not in names:
            here = rest & able(system, group, name, operation)
            names, rows, rest = (*names, name), [*rows, here], rest & ~here
    if rest.any():
        others = [name for name in BY_LIBRARY[operation] if name != algorithm]
        names += tuple(others)
        rows += [rest & able(system, group, name) for name in others]
    some = [(name, row) for name, row in zip(names, rows, strict=True) if row.any()]
    table = [
        np.where(row, time_of(system, operation, group, name, size), np.inf) for name, row in some
    ]
    return [name for name, _ in some], list(np.broadcast_arrays(*table))
