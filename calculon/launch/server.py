"""Model and machine of a serving engine, which convert between its shares of memory and bytes."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from calculon.base.frozen import dataclass


class RankBytes(NamedTuple):
    """Memory of a rank of a server, in bytes.

    Attributes:
        capacity: Memory available to a process.
        weights, activation: Memory of the weights, and of the activations of the largest pass.
        reserve: Memory of context, libraries, CUDA graphs and workspaces.
    """

    capacity: float
    weights: float
    activation: float
    reserve: float

    @property
    def free(self) -> float:
        """Memory that is left for the KV cache."""
        return self.capacity - self.weights - self.activation - self.reserve


@dataclass(frozen=True)
class Server:
    """A model on a machine, used to convert shares of memory.

    Attributes:
        system: Name of the machine.
        memory: Memory of a processor in bytes.
        rank: Function from the fields of a deployment to the memory of a rank; missing fields have their default.
    """

    system: str
    memory: float
    rank: Callable[[Mapping[str, Any]], RankBytes]
