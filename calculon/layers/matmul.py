"""Matrix products: a linear layer and the batched products of attention."""

from calculon.layers.layer import Flags, Layer, Number, operator


def linear(
    name: str, m: Number, n: Number, k: Number, *, dtype_bytes: float, flags: Flags
) -> Layer:
    """Linear layer ``(m, n) x (n, k)``: 2mnk FLOP in every pass; saves its input."""
    flops = 2 * m * n * k
    return operator(
        name,
        "matrix",
        (flops, flops, flops),
        inputs=m * n,
        outputs=m * k,
        weights=n * k,
        saved=m * n,
        grad=m * k,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )


def batched_matmul(
    name: str,
    batch: Number,
    m: Number,
    n: Number,
    k: Number,
    *,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """`batch` products ``(m, n) x (n, k)`` of two activations: both operands get a gradient."""
    flops = 2 * batch * m * n * k
    operands = batch * (m * n + n * k)
    return operator(
        name,
        "matrix",
        (flops, 2 * flops, 0.0),
        inputs=operands,
        outputs=batch * m * k,
        saved=operands,
        grad=batch * m * k,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )
