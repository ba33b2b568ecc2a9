"""Matrix products: a linear layer and the batched products of attention."""

from calculon.architecture.layer import Flags, Layer, Number, Product, Widths, operator


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
    """Linear layer ``(m, n) x (n, k)``: 2mnk FLOP in every pass; saves its input.

    `bias` is how many columns have one; adding it is part of the product's pass over its output.

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
    """Return the bytes that the passes of a product with weights move, of so many elements: as of :func:`linear`."""
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
    """`batch` products ``(m, n) x (n, k)`` of two activations: both operands get a gradient.

    `shared` is how many different second operands there are: key or value heads.

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
