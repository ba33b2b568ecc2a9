"""Engines, memories and host of a node, and what of the memory a model cannot have."""

from collections.abc import Mapping

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import GIB, GIGA, MEGA, MIB, TERA, Bytes, Count, Flops, Seconds
from calculon.declarations.fields import declare
from calculon.hardware.curve import Curve

# A processing engine: the time of some FLOP.


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A matrix or vector engine in one datatype."""

    peak: float = declare("peak rate", key="tflops", unit="TFLOP/s", scale=TERA, above=0)
    efficiency: Curve = declare(
        "achieved share of the peak by size of the operation: [threshold, efficiency], falling",
        key="gflops_efficiency",
        unit="GFLOP",
        scale=GIGA,
    )

    def time(self, flops: Flops) -> Seconds:
        """Return the arithmetic time of operations from their FLOP (0 for none).

        Source: Isaev et al., SC'23, doi:10.1145/3581784.3607102, section 3.2 (size-dependent efficiency).
        """
        return flops / (self.peak * self.efficiency.at(flops))

    def long_time(self, flops: Flops) -> Seconds:
        """Return the time of operations at the rate of long ones: startup hides behind memory traffic."""
        return flops / (self.peak * self.efficiency.efficiencies[-1])


# Recipes of training that a machine runs, and what its matrix engine asks of their operands.


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeUse:
    """How a machine runs a recipe.

    Source: NVIDIA, *Transformer Engine* documentation, performance considerations (handling transposes); cuBLAS,
    ``cublasLtMatmul``: 8-bit kernels of compute capability 8.9, 9.0 and 12 want A transposed and B not.
    """

    transposes: bool = declare(
        "its products read operands only with the terms of a sum side by side, so that transposed copies exist of what "
        "has no scales of blocks; false: they read one copy along either side",
        default=False,
    )


OF_EVERY_ENGINE: Mapping[str, RecipeUse] = {
    "delayed": RecipeUse(transposes=True),
    "tensorwise": RecipeUse(transposes=True),
}
"""Recipes that every 8-bit engine runs: factors of whole tensors scale results."""


# A memory: the time to move some bytes, and how many fit.


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


# Memory that a model cannot have: what drivers, libraries and allocators take, and what hosts need for themselves.


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """What of both tiers is taken by others than the model.

    A communicator holds the buffers of its channels whatever it sends (NCCL, issues 864, 964 and 986); how many there
    are follows from the axes of an execution.
    """

    withheld: float = declare(
        "tier 1 that no process gets: the capacity less what a framework finds",
        key="withheld_GiB",
        unit="GiB",
        scale=GIB,
        at_least=0,
        default=0.0,
    )
    context: float = declare(
        "tier 1 that the context of a process takes, with its kernels",
        key="context_MiB",
        unit="MiB",
        scale=MIB,
        at_least=0,
        default=0.0,
    )
    workspaces: float = declare(
        "tier 1 that libraries of kernels keep to work in",
        key="workspaces_MiB",
        unit="MiB",
        scale=MIB,
        at_least=0,
        default=0.0,
    )
    communicator: float = declare(
        "tier 1 that the communicator of a process group takes",
        key="communicator_MiB",
        unit="MiB",
        scale=MIB,
        at_least=0,
        default=0.0,
    )
    fragmentation: float = declare(
        "fragments of the allocator, as a share of the memory that comes and goes in a step",
        at_least=0,
        below=1,
        default=0.0,
    )
    host_share: float = declare(
        "share of tier 2 that offloading may take; the rest is for the operating system, data loaders, checkpoints and "
        "what pinning rounds up",
        at_least=0,
        at_most=1,
        default=1.0,
    )


# The host of a node: what the processors of a node share when they offload.


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
        """Return the time for each processor to move some bytes to or from its node's memory.

        At most the processors of one node share this memory.
        """
        sharing = np.minimum(processors, self.processors)
        return size * sharing / (self.bandwidth * self.efficiency)
