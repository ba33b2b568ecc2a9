"""A linear layer fused with its tensor-parallel collective, cut into as many tiles as there are peers.

Source: Wang et al., *Overlap communication with dependent computation via decomposition*, ASPLOS 2023,
doi:10.1145/3567955.3567959.
"""

from typing import Literal

from calculon.architecture.layer import Collective, Flags, Layer, Number, Product, Widths
from calculon.editions.edition import OverlappedSpace
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
    widths: Widths,
    flags: Flags,
) -> Layer:
    """Linear layer ``(m, n) x (n, k)``, `n` and `k` already split, beside its collective.

    `bias` is how many of its columns have one. The gather side moves its input, the reduce side its output, both in
    the width of results.
    """
    flops = 2 * m * n * k
    stored, operand, result = widths
    inputs, outputs = m * n, m * k
    weights = n * k if bias is None else n * k + bias
    moved = operand * space.backward
    return Layer(
        name=name,
        kernel="product",
        flops=(flops, flops, flops),
        accessed=(
            operand * inputs + result * outputs + operand * weights,
            operand * weights + moved,
            result * weights + moved,
        ),
        inputs=inputs,
        outputs=outputs,
        weights=weights,
        weight_bytes=stored * weights,
        output_bytes=result * outputs,
        activation=operand * space.saved,
        activation_grad=result * space.grad,
        flags=flags,
        collective=Collective(
            side=side,
            message=result * (inputs if side == "gather" else outputs),
            overlapped=True,
            outer=outer,
        ),
        shard=operand * space.shard,
        product=Product(1, m, n, k),
    )
