"""A linear layer fused with its tensor-parallel collective, cut into as many tiles as there are peers.

Source: Wang et al., *Overlap communication with dependent computation via decomposition*, ASPLOS 2023,
doi:10.1145/3567955.3567959.
"""

from typing import Literal

from calculon.edition import OverlappedSpace
from calculon.layers.layer import Collective, Flags, Layer, Number
from calculon.units import Elements


def overlapped_linear(
    name: str,
    side: Literal["gather", "reduce"],
    m: Elements,
    n: Elements,
    k: Elements,
    *,
    bias: Number | None,
    outer: bool,
    space: OverlappedSpace,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Linear layer ``(m, n) x (n, k)``, `n` and `k` already split, beside its collective.

    `bias` is how many of its columns have one. The gather side moves its input, the reduce side its output.
    """
    flops = 2 * m * n * k
    inputs, outputs = m * n, m * k
    weights = n * k if bias is None else n * k + bias
    backward = dtype_bytes * (weights + space.backward)
    return Layer(
        name=name,
        engine="matrix",
        flops=(flops, flops, flops),
        accessed=(dtype_bytes * (inputs + outputs + weights), backward, backward),
        inputs=inputs,
        outputs=outputs,
        weights=weights,
        weight_bytes=dtype_bytes * weights,
        output_bytes=dtype_bytes * outputs,
        activation=dtype_bytes * space.saved,
        activation_grad=dtype_bytes * space.grad,
        flags=flags,
        collective=Collective(
            side=side,
            message=dtype_bytes * (inputs if side == "gather" else outputs),
            overlapped=True,
            outer=outer,
        ),
        shard=dtype_bytes * space.shard,
    )
