"""Sums: the residual connection, and a bias in a pass of its own."""

from calculon.architecture.layer import Flags, Layer, Number, operator


def elementwise(name: str, elements: Number, *, dtype_bytes: float, flags: Flags) -> Layer:
    """Sum of two tensors of equal size: one FLOP per element forward, two backward."""
    return operator(
        name,
        "sum",
        (elements, 2 * elements, 0.0),
        inputs=2 * elements,
        outputs=elements,
        saved=2 * elements,
        grad=elements,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )


def added_bias(
    name: str, elements: Number, *, followed: bool, dtype_bytes: float, flags: Flags
) -> Layer:
    """Add one vector to every token, in place; `followed` by an elementwise operator, it can be joined to that."""
    return Layer(
        name=name,
        kernel="bias" if followed else "add",
        flops=(elements, 0.0, 0.0),
        accessed=(2 * dtype_bytes * elements, 0.0, 0.0),
        inputs=elements,
        outputs=elements,
        weights=0.0,
        weight_bytes=0.0,
        output_bytes=dtype_bytes * elements,
        activation=0.0,
        activation_grad=0.0,
        flags=flags,
    )
