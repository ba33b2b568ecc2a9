"""Launches of kernels: no kernel takes less time than its launch."""

import numpy as np

from calculon.frozen import dataclass
from calculon.spec.fields import declare
from calculon.units import Array, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The cost of launching kernels, which bounds small operators."""

    kernel: float = declare(
        "least time of a kernel or a collective, or of its launch", unit="s", at_least=0
    )
    step: float = declare(
        "time of a step in which no kernel runs: reading data, logging, waiting for the host",
        unit="s",
        at_least=0,
        default=0.0,
    )

    def bounded(self, time: Seconds, kernels: Array | float) -> Seconds:
        """Return times of work that launches n kernels: at least that of the launches."""
        return np.maximum(time, self.kernel * kernels)
