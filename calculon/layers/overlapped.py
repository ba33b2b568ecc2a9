"""A linear layer fused with its tensor-parallel collective, cut into as many tiles as there are peers.

Source: Wang et al., *Overlap communication with dependent computation via decomposition*, ASPLOS 2023,
doi:10.1145/3567955.3567959.
"""

from typing import Literal

from calculon.layers.layer import Collective, Flags, Layer, operator
from calculon.units import Elements


def overlapped_linear(
    name: str,
    side: Literal["gather", "reduce"],
    m: Elements,
    n: Elements,
    k: Elements,
    *,
    saved: Elements,
    grad: Elements,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Linear layer ``(m, n) x (n, k)``, `n` and `k` already split, beside its collective.

    `saved` and `grad` are the elements of the saved input and of the output's gradient. The gather side moves its
    input, the reduce side its output.
    """
    flops = 2 * m * n * k
    inputs, outputs = m * n, m * k
    return operator(
        name,
        "matrix",
        (flops, flops, flops),
        inputs=inputs,
        outputs=outputs,
        weights=n * k,
        saved=saved,
        grad=grad,
        dtype_bytes=dtype_bytes,
        flags=flags,
        collective=Collective(
            side=side,
            message=dtype_bytes * (inputs if side == "gather" else outputs),
            overlapped=True,
        ),
    )
