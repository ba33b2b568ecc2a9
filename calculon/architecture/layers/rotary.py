"""Rotary position embeddings."""

from calculon.architecture.layer import Flags, Layer, Number, pointwise


def rotary(name: str, elements: Number, *, dtype_bytes: float, flags: Flags) -> Layer:
    """Turn pairs of elements of queries and keys by an angle: 6 FLOP each per pass; nothing is saved.

    Source: Su et al., *RoFormer*, arXiv 2104.09864, equation 34; its backward pass turns back.
    """
    return pointwise(
        name,
        "rotary",
        (6 * elements, 6 * elements),
        elements,
        activation=0.0,
        activation_grad=dtype_bytes * elements,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )
