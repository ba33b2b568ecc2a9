"""Engines, memories and hosts, and the memory that is not available to a model."""

from collections.abc import Mapping

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import GIB, GIGA, MEGA, MIB, TERA, Bytes, Count, Flops, Seconds
from calculon.declarations.fields import declare
from calculon.hardware.curve import Curve

# Processing engines: the time of FLOP.


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


# Precision recipes that a machine runs, and the operand layout that its matrix engine requires.


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeUse:
    """Operand layout of a recipe on a machine.

    Source: NVIDIA, *Transformer Engine* documentation, performance considerations (handling transposes); cuBLAS,
    ``cublasLtMatmul``: 8-bit kernels of compute capability 8.9, 9.0 and 12 require A transposed and B not transposed.
    """

    transposes: bool = declare(
        "products read operands only if the terms of a sum are contiguous, so operands without block scales also have "
        "transposed copies; false: products read one copy along either dimension",
        default=False,
    )


OF_EVERY_ENGINE: Mapping[str, RecipeUse] = {
    "delayed": RecipeUse(transposes=True),
    "tensorwise": RecipeUse(transposes=True),
}
"""Recipes that every 8-bit engine runs: per-tensor factors scale the results."""


# Memories: the time to move bytes, and the capacity.


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A memory tier: tier 1 (HBM) next to the engines, or tier 2 (host memory) for offloading."""

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


# Memory that is not available to a model: drivers, libraries, allocators, and the host's own needs.


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Memory of both tiers that is not available to the model.

    A communicator allocates the buffers of its channels regardless of its traffic (NCCL, issues 864, 964 and 986); the
    number of communicators follows from the parallelism of an execution.
    """

    withheld: float = declare(
        "memory that no process can allocate: the capacity minus the memory that a framework reports",
        key="withheld_GiB",
        unit="GiB",
        scale=GIB,
        at_least=0,
        default=0.0,
    )
    context: float = declare(
        "memory of a process context (CUDA context), including loaded kernels",
        key="context_MiB",
        unit="MiB",
        scale=MIB,
        at_least=0,
        default=0.0,
    )
    workspaces: float = declare(
        "memory for workspaces of kernel libraries",
        key="workspaces_MiB",
        unit="MiB",
        scale=MIB,
        at_least=0,
        default=0.0,
    )
    communicator: float = declare(
        "memory of the communicator of a process group",
        key="communicator_MiB",
        unit="MiB",
        scale=MIB,
        at_least=0,
        default=0.0,
    )
    fragmentation: float = declare(
        "allocator fragmentation, as a share of the memory that is allocated and freed in a step",
        at_least=0,
        below=1,
        default=0.0,
    )
    host_share: float = declare(
        "share of host memory for offloading; the rest is for the operating system, data loaders, checkpoints and "
        "rounding of pinned memory",
        at_least=0,
        at_most=1,
        default=1.0,
    )


# Hosts: shared by the processors of a node when they offload.


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The host of a node, whose memory is the tier 2 of its processors."""

    bandwidth: float = declare(
        "memory bandwidth of a node", key="GBps", unit="GB/s", scale=GIGA, above=0
    )
    efficiency: float = declare("achieved share of the bandwidth", above=0, at_most=1)
    processors: int = declare("processors per node, which share its memory", at_least=1)
    network: int | None = declare(
        "number of the network whose traffic shares the processor's link to the host; none if absent",
        at_least=0,
        default=None,
    )

    def time(self, size: Bytes, processors: Count) -> Seconds:
        """Return the time for each processor to move some bytes to or from its node's memory.

        At most the processors of one node share this memory.
        """
        sharing = np.minimum(processors, self.processors)
        return size * sharing / (self.bandwidth * self.efficiency)
