"""The operators f and g of tensor parallelism, as layers of their own.

`f` gathers (or copies) the input of a column-split product, `g` reduces the output of a row-split one; each is the
other's backward pass. Source: Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3; split into all-gather and
reduce-scatter: Korthikanti et al., arXiv 2205.05198, section 4.2.2.
"""

from typing import Literal

import numpy as np

from calculon.architecture.layer import Collective, Flags, Layer
from calculon.units import Bytes, Count, Elements


def gather(
    name: str,
    elements: Elements,
    tensor_par: Count,
    *,
    sequence_parallel: bool,
    outer: bool = False,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Operator `f`: its backward pass reduces one value per element and peer."""
    args = (elements, tensor_par, sequence_parallel, outer, dtype_bytes, flags)
    return _layer(name, "gather", *args)


def reduce(
    name: str,
    elements: Elements,
    tensor_par: Count,
    *,
    sequence_parallel: bool,
    outer: bool = False,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Operator `g`: its forward pass reduces one value per element and peer."""
    args = (elements, tensor_par, sequence_parallel, outer, dtype_bytes, flags)
    return _layer(name, "reduce", *args)


def total(name: str, elements: Elements, tensor_par: Count, *, value_bytes: int) -> Layer:
    """Sum or maximum of one value per element over the ranks, needed in the forward pass only."""
    elements = np.where(tensor_par > 1, elements, 0.0)
    size: Bytes = value_bytes * elements
    return Layer(
        name=name,
        kernel="collective",
        flops=(elements * (tensor_par - 1) / tensor_par, 0.0, 0.0),
        accessed=(2 * size, 0.0, 0.0),
        inputs=elements,
        outputs=elements,
        weights=0.0,
        weight_bytes=0.0,
        output_bytes=size,
        activation=0.0,
        activation_grad=0.0,
        flags=Flags(),
        collective=Collective(side="total", message=size),
    )


def collect(
    name: str,
    elements: Elements,
    tensor_par: Count,
    *,
    summed: bool,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Gather the columns of a product, so that every rank has all `elements`.

    Where the gradient that comes back is `summed`, each rank has only its part of it (its readers are split):
    it is reduced and scattered. Otherwise every rank has the whole of it, and takes its slice.
    """
    elements = np.where(tensor_par > 1, elements, 0.0)
    size: Bytes = dtype_bytes * elements
    additions = elements * (tensor_par - 1) / tensor_par
    moved = 2 * size
    return Layer(
        name=name,
        kernel="collective",
        flops=(0.0, additions if summed else 0.0, 0.0),
        accessed=(moved, moved if summed else 0.0, 0.0),
        inputs=elements / tensor_par,
        outputs=elements,
        weights=0.0,
        weight_bytes=0.0,
        output_bytes=size,
        activation=size / tensor_par,
        activation_grad=size,
        flags=flags,
        collective=Collective(side="collect" if summed else "join", message=size),
    )


def _layer(
    name: str,
    side: Literal["gather", "reduce"],
    elements: Elements,
    tensor_par: Count,
    sequence_parallel: bool,
    outer: bool,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Build either side: nothing at all without tensor parallelism."""
    elements = np.where(tensor_par > 1, elements, 0.0)
    size: Bytes = dtype_bytes * elements
    additions = elements * (tensor_par - 1) / tensor_par
    pass_bytes = 2 * dtype_bytes * elements
    forward, backward = (0.0, additions) if side == "gather" else (additions, 0.0)
    none = np.zeros_like(size)
    if sequence_parallel:
        moved = (pass_bytes, pass_bytes)
        saved, grad = size / tensor_par, size / tensor_par
    elif side == "gather":
        moved, saved, grad = (none, pass_bytes), none, size
    else:
        moved, saved, grad = (pass_bytes, none), size, none
    return Layer(
        name=name,
        kernel="collective",
        flops=(forward, backward, 0.0),
        accessed=(*moved, 0.0),
        inputs=elements,
        outputs=elements,
        weights=0.0,
        weight_bytes=0.0,
        output_bytes=size,
        activation=saved,
        activation_grad=grad,
        flags=flags,
        collective=Collective(side=side, message=size, outer=outer),
    )
