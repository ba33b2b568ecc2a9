"""A memory: the time to move some bytes, and how many fit."""

from calculon.base.frozen import dataclass
from calculon.base.units import GIB, GIGA, MEGA, Bytes, Seconds
from calculon.declarations.fields import declare
from calculon.hardware.curve import Curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One tier of memory: tier 1 next to the engines, or tier 2 for offloading."""

    capacity: float = declare("capacity", key="GiB", unit="GiB", scale=GIB, at_least=0)
    bandwidth: float = declare("bandwidth", key="GBps", unit="GB/s", scale=GIGA, above=0)
    efficiency: Curve = declare(
        "achieved share of the bandwidth by size of the transfer: [threshold, efficiency], falling",
        key="MB_efficiency",
        unit="MB",
        scale=MEGA,
    )

    def time(self, size: Bytes) -> Seconds:
        """Return the time to move a number of bytes (0 for none)."""
        return size / (self.bandwidth * self.efficiency.at(size))
