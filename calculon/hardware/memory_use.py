"""Memory that a model cannot have: what drivers, libraries and allocators take, and what hosts need for themselves."""

from calculon.base.frozen import dataclass
from calculon.base.units import GIB, MIB
from calculon.declarations.fields import declare


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
