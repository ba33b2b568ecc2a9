"""Networks of a mesh whose instances have more processors than its groups use."""

from dataclasses import asdict
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

import numpy as np

from calculon.base.frozen import dataclass
from calculon.declarations.execution import Execution
from calculon.hardware.collectives.placement import nested_rooms
from calculon.hardware.system import System
from calculon.plan.mesh import DEGREES, rooms
from calculon.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A network of which every instance leaves processors idle, so that all groups sit evenly.

    Idle processors are not among ``num_procs``: nothing is counted of them, neither time nor rates.

    Attributes:
        network, size: Its number, and the processors that an instance has.
        used: How many of them the groups use.
        instances: How many instances the execution takes.
        idle: Processors of these that it does not use, in total.
    """

    network: int
    size: int
    used: int
    instances: int
    idle: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def domains(system: System, execution: Execution) -> list[Domain]:
    """Return the networks of which a mesh leaves processors idle, from the inside out; none where all are used."""
    nested = nested_rooms(system)
    used = [int(np.asarray(room).item()) for room in rooms(Plan.of(execution), system)]
    count = prod(getattr(execution, name) for name in DEGREES)
    found = []
    places = zip(nested, used, accumulate(used, mul), strict=True)
    for (number, room), joined, inside in places:
        if joined < room:
            size, instances = system.networks[number].size, -(-count // inside)
            idle = instances * size - count
            found.append(
                Domain(network=number, size=size, used=inside, instances=instances, idle=idle)
            )
    return found
