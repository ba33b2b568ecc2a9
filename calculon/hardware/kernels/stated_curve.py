"""A rate that a system file states as a curve over the size of the operation."""

from dataclasses import replace

import numpy as np

from calculon.base.frozen import dataclass
from calculon.declarations.fields import declare
from calculon.hardware.curve import Curve
from calculon.hardware.engine import Engine
from calculon.hardware.kernels.kernel import Shapes, Times
from calculon.hardware.memory import Memory

OVER = ("flops", "keys", "bytes")
"""Sizes of a curve: FLOP of a pass, mean keys per query, bytes that a pass moves in tier-1 memory."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StatedCurve:
    """Share of a peak by the size of the operation, as a step function.

    Over FLOP or keys it is a share of the engine's peak, and gives the arithmetic time. Over bytes it is one of the
    bandwidth of tier-1 memory, and gives the memory time; the arithmetic is then at the engine's own rate.
    """

    curve: Curve = declare(
        "reached share of the peak by size: [threshold, share], falling; in FLOP, keys per query or bytes",
    )
    over: str = declare(
        "what the thresholds are: shares over bytes are of the bandwidth of mem1, others of the engine's peak",
        choices=OVER,
    )

    def times(self, shapes: Shapes, engine: Engine, memory: Memory, element_bytes: float) -> Times:
        """Return the times of layers: see :meth:`~calculon.hardware.kernels.kernel.Rate.times`."""
        flops = shapes.flops()
        if self.over == "bytes":
            accessed = shapes.accessed()
            return engine.time(flops), accessed / (memory.bandwidth * self.curve.at(accessed))
        share = self.curve.at(shapes.keys() if self.over == "keys" else flops)
        return flops / (engine.peak * share), None

    def slowed(self, factor: float, start: float, end: float) -> "StatedCurve":
        """Return the rate of operations that take `factor` times as long; over keys all of it but for small ones."""
        if self.over != "keys":
            return replace(self, curve=self.curve.scaled(1 / factor, start, end))
        return self if end < np.inf else replace(self, curve=self.curve.scaled(1 / factor))

    @property
    def follows_engine(self) -> bool:
        """Whether arithmetic times are in shares of the engine's peak."""
        return self.over != "bytes"
