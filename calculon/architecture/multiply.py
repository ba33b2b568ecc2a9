"""Products with weights on the vector engine: every input times every weight, then sums."""

from collections.abc import Iterable, Iterator

from calculon.architecture.layers import Flags, Layer, When


def multiplied(layers: Iterable[Layer], form: str) -> Iterator[Layer]:
    """Yield layers with their products in a form of the execution field ``matmul_impl``.

    Products of two activations, those of attention, stay what they are.
    """
    for layer in layers:
        if layer.kernel != "product" or form == "gemm":
            yield layer
        elif form == "mul_sum":
            yield from _two_operators(layer)
        else:
            yield layer._replace(kernel="mul_sum_fused")


def _two_operators(layer: Layer) -> Iterator[Layer]:
    """Yield multiplication and sum of ``(m, n) x (n, k)``, each with half of the FLOP of each pass.

    Forward the sum is over `n`; the gradient of the input sums over `k`, that of the weights over `m`. The ``m n k``
    single products are in memory between the two, and not until the backward pass, which reads the operands again.
    """
    product = layer.product
    assert product is not None
    elements = product.m * product.n * product.k
    single = layer.output_bytes / layer.outputs * elements
    results = (layer.output_bytes, layer.activation, layer.weight_bytes)
    forward, inputs, weights = layer.flops
    halves = (forward / 2, inputs / 2, weights / 2)
    operands = [moved - result for moved, result in zip(layer.accessed, results, strict=True)]
    yield layer._replace(
        kernel="mul_sum",
        flops=halves,
        accessed=(operands[0] + single, operands[1] + single, operands[2] + single),
    )
    yield Layer(
        name=f"{layer.name}_Sum",
        kernel="mul_sum",
        flops=halves,
        accessed=(single + results[0], single + results[1], single + results[2]),
        inputs=elements,
        outputs=layer.outputs,
        output_bytes=layer.output_bytes,
        activation=single,
        flags=Flags(recompute=layer.flags.recompute, drops_activation=When.ALWAYS),
    )
