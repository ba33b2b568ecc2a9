"""Softmax over attention scores."""

from calculon.architecture.layer import Flags, Layer, Number, pointwise


def softmax(
    name: str, elements: Number, *, input_grad: bool = False, dtype_bytes: float, flags: Flags
) -> Layer:
    """Softmax: 5 FLOP per element forward, 8 backward; saves its output in place of its input."""
    return pointwise(
        name,
        "softmax",
        (5 * elements, 8 * elements),
        elements,
        activation=dtype_bytes * elements,
        activation_grad=dtype_bytes * elements,
        input_grad=input_grad,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )
