"""A model on a machine, as an engine that serves it finds both: by its memory shares of memory are converted."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from calculon.base.frozen import dataclass


class RankBytes(NamedTuple):
    """Memory of a rank of a server, in bytes.

    Attributes:
        capacity: What a process gets.
        weights, activation: What weights and the largest pass take.
        reserve: Context, libraries, graphs and workspaces.
    """

    capacity: float
    weights: float
    activation: float
    reserve: float

    @property
    def free(self) -> float:
        """What is left beside all of these."""
        return self.capacity - self.weights - self.activation - self.reserve


@dataclass(frozen=True)
class Server:
    """A model on a machine, by which shares of memory are converted.

    Attributes:
        system: Name of the machine.
        memory: Bytes of a processor.
        rank: Returns the memory of a rank of a deployment, given its fields; those that are left out have their
            default.
    """

    system: str
    memory: float
    rank: Callable[[Mapping[str, Any]], RankBytes]
