"""The host of a node: what the processors of a node share when they offload."""

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import GIGA, Bytes, Count, Seconds
from calculon.declarations.fields import declare


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The host of a node, whose memory is the tier 2 of its processors."""

    bandwidth: float = declare(
        "bandwidth of the memory of a node", key="GBps", unit="GB/s", scale=GIGA, above=0
    )
    efficiency: float = declare("achieved share of the bandwidth", above=0, at_most=1)
    processors: int = declare("processors of a node, which share its memory", at_least=1)
    network: int | None = declare(
        "number of the network whose traffic shares the link of a processor to the host; none if absent",
        at_least=0,
        default=None,
    )

    def time(self, size: Bytes, processors: Count) -> Seconds:
        """Return the time in which each of some processors moves some bytes to or from the memory of its node.

        At most as many as a node has share its memory.
        """
        sharing = np.minimum(processors, self.processors)
        return size * sharing / (self.bandwidth * self.efficiency)
