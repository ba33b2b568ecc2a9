"""A collective of an axis of parallelism, as a layer of its own."""

import numpy as np

from calculon.architecture.layer import REDUCING, Collective, Flags, Layer, Number
from calculon.base.units import Bytes, Count, Elements


def communication(
    name: str,
    axis: str,
    elements: Elements,
    ranks: Count,
    *,
    forward: str | None,
    backward: str | None,
    saved: Number = 0.0,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Run a collective of `elements` in the forward pass, and another one of their gradients in the backward pass.

    Each pass that communicates reads and writes the array once in tier-1 memory; a reduction adds one value per element
    and peer.

    Args:
        axis: One of :data:`~calculon.declarations.axes.LAYER_AXES`.
        elements, ranks: Elements of the whole array (gathered, or to be reduced), and ranks of a group; nothing is sent
            by one alone.
        forward, backward: Operations, as in the ``ops`` of a network; none where a pass sends nothing.
        saved: Elements saved for the backward pass.
    """
    elements = np.where(ranks > 1, elements, 0.0)
    size: Bytes = dtype_bytes * elements
    additions = elements * (ranks - 1) / ranks
    return Layer(
        name=name,
        kernel="collective",
        flops=(
            additions if forward in REDUCING else 0.0,
            additions if backward in REDUCING else 0.0,
            0.0,
        ),
        accessed=(2 * size if forward else 0.0, 2 * size if backward else 0.0, 0.0),
        inputs=elements / ranks,
        outputs=elements,
        output_bytes=size,
        activation=dtype_bytes * np.where(ranks > 1, saved, 0.0),
        activation_grad=0.0 * size if backward is None else size,
        flags=flags,
        collective=Collective(size, (forward, backward), axis=axis),
    )
