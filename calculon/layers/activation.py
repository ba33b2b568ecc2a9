"""The activation function of the MLP."""

from calculon.layers.layer import Flags, Layer, Number, pointwise


def gelu(name: str, elements: Number, *, fused: bool, dtype_bytes: float, flags: Flags) -> Layer:
    """GeLU: 8 FLOP per element forward, 13 backward; fused, it keeps neither input nor gradient."""
    kept = 0.0 if fused else dtype_bytes * elements
    return pointwise(
        name,
        (8 * elements, 13 * elements),
        elements,
        activation=kept,
        activation_grad=kept,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )
