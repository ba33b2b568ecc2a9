"""Launches of kernels: no kernel takes less time than the device needs, nor many than the host that launches them."""

from typing import cast

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array, Seconds
from calculon.declarations.fields import declare


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The cost of launching kernels, which bounds small operators."""

    kernel: float = declare(
        "least time of a kernel or a collective, or of its launch", unit="s", at_least=0
    )
    eager: float = declare(
        "time that the host takes for a kernel when a framework runs operators one by one",
        unit="s",
        at_least=0,
        default=0.0,
    )
    compile: float = declare("the same in compiled programs", unit="s", at_least=0, default=0.0)
    graph: float = declare(
        "the same of a kernel in a graph that is launched as a whole (CUDA graph)",
        unit="s",
        at_least=0,
        default=0.0,
    )
    step: float = declare(
        "time of a step in which no kernel runs: reading data, logging, waiting for the host",
        unit="s",
        at_least=0,
        default=0.0,
    )

    def host(self, mode: str | None) -> float:
        """Return the time of the host for a kernel in one of :data:`LAUNCH_MODES`; None: it is not waited for."""
        if mode is None:
            return 0.0
        return self.eager if mode == "blocking" else cast("float", getattr(self, mode))

    def bounded(self, time: Seconds, kernels: Array | float) -> Seconds:
        """Return times of work that launches n kernels: at least that of the launches."""
        return np.maximum(time, self.kernel * kernels)
