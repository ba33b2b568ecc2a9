"""A rate that is one share of the engine's peak, whatever the size: where no curve is known."""

from dataclasses import replace

import numpy as np

from calculon.base.frozen import dataclass
from calculon.hardware.engine import Engine
from calculon.hardware.kernels.kernel import Shapes, Times
from calculon.hardware.memory import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOfPeak:
    """Arithmetic at a share of the engine's peak."""

    share: float

    def times(self, shapes: Shapes, engine: Engine, memory: Memory, element_bytes: float) -> Times:
        """Return the times of layers: see :meth:`~calculon.hardware.kernels.kernel.Rate.times`."""
        return shapes.flops() / (engine.peak * self.share), None

    def slowed(self, factor: float, start: float, end: float) -> "ShareOfPeak":
        """Return the rate of operations that take `factor` times as long; those of some sizes only stay as they are."""
        return self if end < np.inf else replace(self, share=self.share / factor)

    @property
    def follows_engine(self) -> bool:
        """Its times are shares of the engine's peak."""
        return True
