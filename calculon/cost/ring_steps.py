"""The time of each step of attention whose keys and values go round a ring."""

import numpy as np

from calculon.architecture.layers import Layer
from calculon.base.records import record
from calculon.base.units import Array, Bytes, Flops, Fraction, Seconds
from calculon.hardware.kernels.kernel import Kernel, Shapes, Types
from calculon.hardware.system import KERNELS, System


@record
class RingSteps:
    """Times of the steps of attention in a ring; all but the number of steps of shape (phases, blocks).

    Attributes:
        steps: How many there are.
        first, later: Time of the first step, of the rank's own keys, and of each other one.
        arithmetic, memory: Times of all steps.
    """

    steps: Array
    first: Seconds
    later: Seconds
    arithmetic: Seconds
    memory: Seconds


def ring_steps(
    layer: Layer, flops: Flops, accessed: Bytes, system: System, types: Types
) -> RingSteps:
    """Time the steps of a layer of attention, of which each is a kernel for its own queries and keys.

    FLOP and bytes moved are those of the layer, of shape (phases, blocks). All steps move the same bytes. The law of
    the kernel is that of whole sequences: few queries fill the processor less, and few keys make more of where a tile
    begins and ends.
    """
    ring = layer.ring
    assert ring is not None, layer.name
    kernel = KERNELS[layer.kernel](system, types)
    moved = accessed / ring.steps

    def time(share: Fraction, widened: float, *, causal: bool) -> tuple[Seconds, Seconds]:
        some = share > 0
        part = np.where(some, share, 1.0)
        keys = np.maximum(layer.keys * part * widened, 1.0)
        step = layer._replace(keys=keys, causal=causal, ring=None)
        arithmetic, memory = _time(kernel, step, flops * part, moved, system)
        return np.where(some, arithmetic, 0.0), memory

    arithmetic, memory = time(ring.first, 1, causal=layer.causal)
    later = time(ring.later, 1, causal=ring.masked)
    if ring.halves:
        other = time(ring.later, 2, causal=ring.masked)  # half of the queries, and all keys
        later = np.maximum(later[0], other[0]), np.maximum(later[1], other[1])
    rest = ring.steps - 1
    kernels = np.array(layer.launches or (1, 1, 0))[:, None]
    first, after = (
        system.ext.launch.bounded(system.combine(*times), kernels)
        for times in ((arithmetic, memory), later)
    )
    return RingSteps(
        steps=ring.steps,
        first=first,
        later=after,
        arithmetic=arithmetic + rest * later[0],
        memory=memory + rest * later[1],
    )


def _time(
    kernel: Kernel, layer: Layer, flops: Flops, accessed: Bytes, system: System
) -> tuple[Seconds, Seconds]:
    """Return arithmetic and memory time of one kernel."""
    shapes = Shapes(flops[:, None], accessed[:, None], [layer], np.zeros(1, int))
    arithmetic, own = kernel.times(shapes, system.mem1)
    memory = system.move_time(accessed[:, None]) if own is None else own
    return arithmetic[:, 0], memory[:, 0]
