"""Sums of two tensors: the residual connection."""

from calculon.layers.layer import Flags, Layer, Number, operator


def elementwise(name: str, elements: Number, *, dtype_bytes: float, flags: Flags) -> Layer:
    """Sum of two tensors of equal size: one FLOP per element forward, two backward."""
    return operator(
        name,
        "vector",
        (elements, 2 * elements, 0.0),
        inputs=2 * elements,
        outputs=elements,
        saved=2 * elements,
        grad=elements,
        dtype_bytes=dtype_bytes,
        flags=flags,
        kind="sum",
    )
