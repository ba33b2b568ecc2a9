"""Matrix products: linear layers, attention, FlashAttention, and products that overlap with their collective."""

from calculon.architecture.layer import (
    COLUMN_INPUT,
    ROW_OUTPUT,
    Collective,
    Flags,
    Layer,
    Number,
    Product,
    TensorOperator,
    Widths,
    operator,
)
from calculon.base.units import Elements
from calculon.editions.edition import OverlappedSpace


def linear(
    name: str,
    m: Number,
    n: Number,
    k: Number,
    *,
    bias: Number = 0.0,
    widths: Widths,
    flags: Flags,
) -> Layer:
    """Return a linear layer ``(m, n) x (n, k)``: 2mnk FLOP in every pass; saves its input.

    `bias` is the number of columns with a bias, which the product adds while it writes its output.

    Source: each of the ``m k`` results, ``m n`` and ``n k`` gradients is a dot product, of a multiplication and a sum
    per term; bytes with operands narrower than results: Micikevicius et al., arXiv 1710.03740, section 3.
    """
    flops = 2 * m * n * k
    inputs, outputs = m * n, m * k
    stored, operand, result, _ = widths
    weights = n * k + bias
    held, read, written = widths.multiplied * weights, operand * inputs, result * outputs
    return Layer(
        name=name,
        kernel="product",
        flops=(flops, flops, flops),
        accessed=product_traffic(weights, inputs, outputs, widths),
        inputs=inputs,
        outputs=outputs,
        weights=weights,
        weight_bytes=held if stored == operand else stored * weights,
        output_bytes=written,
        activation=read,
        activation_grad=written,
        flags=flags,
        product=Product(1, m, n, k),
    )


def product_traffic(
    weights: Number, inputs: Number, outputs: Number, widths: Widths
) -> tuple[Number, Number, Number]:
    """Return the bytes that the passes of a product with weights move, given its elements; as for :func:`linear`."""
    _, operand, result, _ = widths
    held, read, written = widths.multiplied * weights, operand * inputs, result * outputs
    into_inputs = into_weights = held + read + written
    if operand < result:
        into_inputs = held + result * inputs + operand * outputs
        into_weights = result * weights + read + operand * outputs
    return read + written + held, into_inputs, into_weights


def batched_matmul(
    name: str,
    batch: Number,
    m: Number,
    n: Number,
    k: Number,
    *,
    shared: Number,
    input_grad: bool = False,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Return `batch` products ``(m, n) x (n, k)`` of two activations: both operands get a gradient.

    `shared` is the number of different second operands: key or value heads (grouped-query attention).

    Source: Vaswani et al., arXiv 1706.03762, equation 1; shared heads: Ainslie et al., *GQA*, arXiv 2305.13245.
    """
    flops = 2 * batch * m * n * k
    operands = batch * (m * n) + shared * (n * k)
    layer = operator(
        name,
        "batched_product",
        (flops, 2 * flops, 0.0),
        inputs=operands,
        outputs=batch * m * k,
        saved=operands,
        grad=batch * m * k,
        input_grad=input_grad,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )
    return layer._replace(product=Product(batch, m, n, k), launches=(1, 2, 0))


# Linear layer that overlaps with its tensor-parallel collective, cut into as many tiles as there are peers.


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
    """Return a linear layer ``(m, n) x (n, k)``, `n` and `k` already divided, that overlaps with its collective.

    `bias` is the number of its columns with a bias. A column-parallel layer sends its input, a row-parallel one its
    output: both in the width of results, and gathers in the width of operands, gradients in the given number of
    `layouts`. The input gradient is a result. `tiles` is the number of products in each pass; each reads all weights.

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


# FlashAttention: scores, softmax and weighted values in one kernel that never materializes the score matrix.

STATISTIC_BYTES = 4
"""Bytes of the log-sum-exp saved per query and head, and of an element of the query gradient's accumulator."""


def flash_attention(
    name: str,
    tokens: Number,
    heads: Number,
    key_value_heads: Number,
    size: int,
    *,
    value_size: int = 0,
    key_tokens: Number | None = None,
    keys: Number,
    slowest: Number = 1.0,
    causal: bool,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Return attention of `heads` query heads of width `size` on one rank, with `keys` keys per query on average.

    The slowest rank has `slowest` times as many keys for its queries; this determines the time, while FLOP are the
    mean.

    Value and output heads have the width `value_size`; 0: the width of queries and keys. There are `key_tokens` keys
    and values, by default as many as queries; other ranks save the keys and values of their tokens.

    The forward pass has two products; the backward pass has five (recomputed scores, and gradients of values,
    probabilities, queries and keys), 2.5 times as many FLOP. It saves queries, keys and values (the reader saves the
    output) and a 4-byte log-sum-exp per query and head; the backward pass accumulates query gradients in 4 bytes.

    Source: Dao et al., *FlashAttention*, arXiv 2205.14135, section 3; Dao, *FlashAttention-2*, arXiv 2307.08691,
    section 4 (2.5 times).
    """
    value_size = value_size or size
    queries, outputs = tokens * heads * size, tokens * heads * value_size
    saved = inputs = queries + tokens * key_value_heads * (size + value_size)
    if key_tokens is not None:
        inputs = queries + key_tokens * key_value_heads * (size + value_size)
    statistic = STATISTIC_BYTES * tokens * heads
    flops = 2 * tokens * keys * heads * (size + value_size)
    return Layer(
        name=name,
        kernel="attention",
        flops=(flops, 2.5 * flops, 0.0),
        accessed=(
            dtype_bytes * (inputs + outputs) + statistic,
            dtype_bytes * 2 * (inputs + outputs) + statistic + 2 * STATISTIC_BYTES * queries,
            0.0,
        ),
        inputs=inputs,
        outputs=outputs,
        output_bytes=dtype_bytes * outputs,
        activation=dtype_bytes * saved + statistic,
        activation_grad=dtype_bytes * outputs,
        flags=flags,
        keys=keys,
        slowest=slowest,
        head_width=size,
        value_width=value_size,
        causal=causal,
        launches=(1, 2, 0),
    )
