"""Dropout."""

from calculon.architecture.layer import Flags, Layer, Number, pointwise


def dropout(
    name: str, elements: Number, *, grad_bytes: float, dtype_bytes: float, flags: Flags
) -> Layer:
    """Dropout: one FLOP per element and pass; saves a mask of one byte per element.

    `grad_bytes` is the size of one element of the gradient.
    """
    return pointwise(
        name,
        "dropout",
        (elements, elements),
        elements,
        mask_bytes=elements,
        activation=elements,
        activation_grad=grad_bytes * elements,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )
