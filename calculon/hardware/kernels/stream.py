"""The law ``stream``: kernels that are bound by tier-1 memory take a start, and move their bytes at one rate."""

from dataclasses import replace

import numpy as np

from calculon.base.arrays import over_passes
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, Seconds
from calculon.declarations.fields import declare
from calculon.hardware.engine import Engine
from calculon.hardware.kernels.kernel import LONGEST_START, Shapes, Times
from calculon.hardware.memory import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """How fast memory-bound kernels run: seconds are ``start`` of each kernel, and bytes over a share of the bandwidth.

    More bytes never take less time, as they may with a share that rises in steps. Data is taken to lie in memory and
    not in the cache of the processor: a training kernel reads what was left many megabytes ago.
    Source: Hockney and Jesshope, *Parallel Computers 2*, 1988, section 1.3 (start-up and asymptotic rate).
    """

    efficiency: float = declare(
        "share of the bandwidth of mem1 that long kernels reach", above=0, at_most=1
    )
    backward: float | None = declare(
        "the same of backward passes, which also reduce over tokens; if absent as forward",
        above=0,
        at_most=1,
        default=None,
    )
    start: float = declare(
        "time of a kernel that moves nothing",
        unit="s",
        at_least=0,
        at_most=LONGEST_START,
        default=0.0,
    )

    def move(
        self,
        size: Bytes,
        memory: Memory,
        kernels: Array | float = 1.0,
        share: Array | float | None = None,
    ) -> Seconds:
        """Return the time of kernels that move a number of bytes together (0 for none)."""
        share = self.efficiency if share is None else share
        return size / (memory.bandwidth * share) + np.where(size > 0, self.start * kernels, 0.0)

    def times(self, shapes: Shapes, engine: Engine, memory: Memory, element_bytes: float) -> Times:
        """Return the times of layers: see :meth:`~calculon.hardware.kernels.kernel.Rate.times`."""
        backward = self.efficiency if self.backward is None else self.backward
        share = over_passes(self.efficiency, backward, backward)
        moved = self.move(shapes.accessed(), memory, shapes.launches(), share)
        return engine.long_time(shapes.flops()), moved

    def slowed(self, factor: float, start: float, end: float) -> "Stream":
        """Return the rate of operations that take `factor` times as long: the start of small ones, or the share."""
        if end < np.inf:
            return replace(self, start=self.start * factor)
        slower = replace(self, efficiency=self.efficiency / factor)
        if self.backward is not None:
            slower = replace(slower, backward=self.backward / factor)
        return slower if start > 0 else replace(slower, start=self.start * factor)

    @property
    def follows_engine(self) -> bool:
        """Whether arithmetic times are in shares of the engine's peak: they hide behind those of memory."""
        return False
