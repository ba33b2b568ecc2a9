"""Host time of engine steps: scheduling, preparation of inputs, sampling and detokenization."""

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Seconds
from calculon.hardware.system import System
from calculon.serving.passes.pass_sizes import PassSizes


@dataclass(frozen=True, slots=True, kw_only=True)
class StepHost:
    """Host time of an engine step.

    Attributes:
        per_pass: Seconds of each pass; None for ``ext.serving.step_host`` of the machine.
        per_sequence: Seconds of each sequence of a pass.
        overlaps: True if the host prepares the next pass while the processors run this one.
    """

    per_pass: float | None = None
    per_sequence: float = 0.0
    overlaps: bool = False

    def exposed(self, system: System, sizes: PassSizes, device: Seconds) -> Seconds:
        """Return the host time that passes wait for (shape (passes,)): all of it, or the part beyond `device`.

        A scheduler serves one group of ranks with its own requests, so the sequences of the busiest group count.
        Sources of the overlap: Zheng et al., *SGLang v0.4*, 2024 (zero-overhead batch scheduler); TensorRT-LLM,
        *Overlap Scheduler*; vLLM, pull request 27614 (asynchronous scheduling).
        """
        group = sizes.of_group
        fixed = system.ext.serving.step_host if self.per_pass is None else self.per_pass
        taken = fixed + self.per_sequence * (group.decoded + group.prompts)
        return np.maximum(0.0, taken - device) if self.overlaps else taken


PLAIN_HOST = StepHost()
"""Host time of the machine in each pass, which nothing hides."""
