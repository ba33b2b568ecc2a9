"""Collectives as separate layers: all-reduce, all-gather, reduce-scatter, all-to-all, point-to-point."""

import numpy as np

from calculon.architecture.layer import REDUCING, Collective, Flags, Layer, Number, TensorOperator
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
    """Return a collective of `elements` in the forward pass, and another one of their gradients in the backward pass.

    Each pass that communicates reads and writes the array once in tier-1 memory; a reduction adds one value per element
    and peer.

    Args:
        axis: One of :data:`~calculon.declarations.axes.LAYER_AXES`.
        elements, ranks: Elements of the whole array (gathered, or to be reduced), and ranks of a group; a single rank
            sends nothing.
        forward, backward: Operations, as in the ``ops`` of a network; None for a pass without communication.
        saved: Elements saved for the backward pass.
    """
    elements = np.where(ranks > 1, elements, 0.0)  # 0 elements make traffic, memory and FLOP vanish
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


# Collectives of tensor-parallel products as separate layers.


def tensor_collective(
    name: str,
    operator: TensorOperator,
    elements: Elements,
    tensor_par: Count,
    *,
    sequence_parallel: bool,
    outer: bool = False,
    dtype_bytes: float,
    gathered_bytes: float | None = None,
    flags: Flags,
) -> Layer:
    """Return operator *f* before column-parallel products, or *g* after a row-parallel one.

    Activation and gradient are complete in passes with communication, and absent in others; with sequence parallelism
    both are the share of a rank. `gathered_bytes` are the bytes per element of gathers, if narrower.

    Source: Shoeybi et al., *Megatron-LM*, arXiv 1909.08053, section 3; Korthikanti et al., arXiv 2205.05198, section
    4.2.2.
    """
    whole, split = operator
    forward, backward = split if sequence_parallel else whole
    layer = communication(
        name,
        "tp",
        elements,
        tensor_par,
        forward=forward,
        backward=backward,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )
    assert layer.collective is not None
    size = layer.collective.message
    part = size / tensor_par if sequence_parallel else size
    narrow = 1.0 if gathered_bytes is None else gathered_bytes / dtype_bytes
    first, second = (
        narrow if operation == "all_gather" else 1.0 for operation in (forward, backward)
    )
    moved = layer.accessed
    return layer._replace(
        accessed=(first * moved[0], second * moved[1], 0.0),
        inputs=layer.outputs,
        activation=part if forward else 0.0,
        activation_grad=part if backward else 0.0,
        collective=Collective(
            size, *operator, outer=outer, gathered=None if narrow == 1.0 else narrow * size
        ),
    )
