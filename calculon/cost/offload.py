"""Offloading to tier-2 memory: bytes moved, transfer time, and exposed time."""

import numpy as np

from calculon.base.records import record
from calculon.base.units import Bytes, Seconds


@record
class Offload:
    """Bytes moved per block and pass, and the time that takes."""

    forward_size: Bytes
    backward_size: Bytes
    forward: Seconds
    backward: Seconds


def exposed(transfer: Seconds, memory: Seconds, busy: Seconds) -> Seconds:
    """Time of a transfer that a block does not hide: it uses the memory when the block does not."""
    return np.maximum(0.0, transfer + memory - busy)
