"""A linear layer that overlaps its tensor-parallel collective, cut into as many tiles as there are peers."""

from calculon.architecture.layer import (
    COLUMN_INPUT,
    ROW_OUTPUT,
    Collective,
    Flags,
    Layer,
    Number,
    TensorOperator,
    Widths,
)
from calculon.architecture.layers.matmul import linear
from calculon.base.units import Elements
from calculon.editions.edition import OverlappedSpace


def overlapped_linear(
    name: str,
    operator: TensorOperator,
    m: Elements,
    n: Elements,
    k: Elements,
    *,
    bias: Number = 0.0,
    outer: bool,
    space: OverlappedSpace,
    tiles: tuple[Number, Number, Number] | None = None,
    widths: Widths,
    layouts: int = 1,
    flags: Flags,
) -> Layer:
    """Linear layer ``(m, n) x (n, k)``, `n` and `k` already split, that overlaps its collective.

    `bias` is how many of its columns have one. A column-parallel layer sends its input, a row-parallel one its output,
    both in the width of results, and gathered in that of operands, gradients in so many `layouts`. The gradient of the
    input is a result. `tiles` is in how many products each pass is cut, each of which reads all weights.

    Source: Wang et al., *Overlap communication with dependent computation via decomposition*, ASPLOS 2023,
    doi:10.1145/3567955.3567959.
    """
    product = linear(name, m, n, k, bias=bias, widths=widths, flags=flags)
    operand, result, held = widths.operand, widths.result, widths.multiplied * product.weights
    moved = operand * space.backward
    fw, agrad = product.accessed[0], held + moved
    if operand < result:
        agrad = agrad + (result - operand) * product.inputs
    if tiles is not None:
        fw = fw + (tiles[0] - 1) * held
        agrad = agrad + (tiles[1] - 1) * held
    elements = m * n if operator == COLUMN_INPUT else m * k
    gathered = operand * elements if operand < result else None
    if gathered is not None and operator == ROW_OUTPUT:
        gathered = layouts * gathered
    return product._replace(
        accessed=(fw, agrad, result * product.weights + moved),
        activation=operand * space.saved,
        activation_grad=result * space.grad,
        collective=Collective(
            result * elements, *operator, overlapped=True, outer=outer, gathered=gathered
        ),
        shard=operand * space.shard,
        tiles=tiles,
    )
