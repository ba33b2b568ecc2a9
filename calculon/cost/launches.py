"""The host, which launches kernels: no pass of a block takes less time than its launches."""

import numpy as np

from calculon.base.arrays import ordered_sum
from calculon.base.units import Array, Seconds


def host_times(of_layers: Seconds, added: Seconds | float, again: Array | None) -> Seconds:
    """Return the time in which the host launches each phase: shape (phases, blocks).

    Args:
        of_layers (shape (phases, layers, blocks)): Time in which it launches the kernels of a layer.
        added: Time to launch the kernels that add gradients, with the weight gradients.
        again (shape (layers, blocks)): Mask of layers whose forward pass is launched again, with the activation
            gradients.
    """
    host = ordered_sum(of_layers)
    host[2] += added
    if again is not None:
        host[1] += ordered_sum(of_layers[0] * again)
    return host


def bounded_by_launches(
    processing: Seconds, host: Seconds, again: Seconds, exposed: Seconds
) -> Seconds:
    """Return processing times of passes that take at least the launches of their kernels: shape (phases, blocks).

    The host launches on while the device waits for a collective. Exposed time is of a base block: the collectives
    of edge blocks depend on the pipeline, and a block costs the same with and without pipeline. Recomputation and both
    gradients are one pass for the host; the time that they wait for it is added to the weight gradients.

    Args:
        again: Time of recomputation.
        exposed: Exposed time of collectives, by pass of :data:`~calculon.cost.tensor.PASSES`.
    """
    forward = np.maximum(processing[0], host[0] - exposed[0])
    busy = again + processing[1] + processing[2] + (exposed[1] + exposed[2])
    waited = np.maximum(0.0, (host[1] + host[2]) - busy)
    return np.stack([forward, processing[1], processing[2] + waited])
