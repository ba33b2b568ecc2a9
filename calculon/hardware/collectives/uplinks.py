"""Links between the switches of a network, which the groups that cross them at the same time share."""

from collections.abc import Iterator

import numpy as np

from calculon.base.units import Bytes, Count, Seconds
from calculon.hardware.collectives.placement import Group, nested_networks
from calculon.hardware.stated_networks import Uplink
from calculon.hardware.system import System


def uplink_time(
    system: System, operation: str, group: Group, size: Bytes, bus_factors: Count
) -> Seconds | None:
    r"""Return the least time of an operation that the uplinks of switches leave; None if the system states none.

    All groups of a mesh run the operation at the same time. Below a switch with `p` processors, each of which belongs
    to one group, are :math:`p / m` groups with `m` members each. A ring enters and leaves the switch once, with the
    bytes of the busiest link:

    .. math:: t \ge \frac{p}{m} \frac{s f}{\beta}

    with the bus factor `f` of nccl-tests. In an all-to-all each processor sends :math:`s (n - m) / n` to others.
    Groups whose `n` members are all below one switch do not use the uplink.

    Args:
        size: Bytes of the full array, as in nccl-tests.
        bus_factors: Bytes on the busiest link per byte of the array.

    Source: NCCL, src/graph/search.cc: rings visit the processors below a PCIe switch one after the other, and one edge
    leaves it.
    """
    found: Seconds | None = None
    for number, inside, uplink in _uplinks(system):
        # Processors below a switch, in instances of the networks inside.
        places = np.maximum(uplink.processors // inside, 1)
        apart = 1 if group.apart is None else group.apart[number]
        below = np.minimum(group.members[number], np.maximum(places // apart, 1))
        members = below * group.below[number]
        crosses = group.members[number] > below
        if operation == "all_to_all":
            bytes_out = uplink.processors * (1 - members / np.asarray(group.ranks)) * size
        else:
            bytes_out = uplink.processors / members * bus_factors * size
        here = np.where(crosses, bytes_out / uplink.bandwidth, 0.0)
        found = here if found is None else np.maximum(found, here)
    return found


def _uplinks(system: System) -> Iterator[tuple[int, int, Uplink]]:
    """Yield each network with uplinks: its number, processors of an instance of the networks inside, and the uplink."""
    inside = 1
    for number, fanout in nested_networks(system):
        if (uplink := system.link(number).uplink) is not None:
            yield number, inside, uplink
        inside *= fanout
