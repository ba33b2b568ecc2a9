"""Kernel fusion: the memory traffic and the kernel launches of layers under a fusion policy.

A chain of elementwise operators and reductions over one tile becomes one kernel: it reads the inputs of the chain and
writes its outputs. Nothing is fused across a matrix product, a collective or fused attention; only policy ``max``
puts activations and rotary embeddings into the product before them. FLOP and activation memory stay as they are.

Each policy is a table by kind of kernel. Bytes per element: ``r`` of the residual stream, ``o`` of operands
of products, ``c`` of their results, 4 of softmax and loss in float32 (PyTorch, *Automatic Mixed Precision*, op list).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import NamedTuple

import numpy as np

from calculon.architecture.layer import Number, Widths
from calculon.architecture.layers import Flags, Layer, When
from calculon.architecture.layers.vocabulary import FLOAT_BYTES
from calculon.architecture.multiply import multiplied
from calculon.architecture.shape import BlockShape
from calculon.hardware.kernels.kernel import KernelKind


class Moved(NamedTuple):
    """Bytes per element that an operator moves in its passes, and the kernels it launches."""

    forward: Number
    backward: Number
    launches: tuple[int, int, int]


Rule = Callable[[Layer, Widths], Moved]


def fused(
    generator: Callable[[BlockShape], Iterable[Layer]],
) -> Callable[[BlockShape], Iterator[Layer]]:
    """Make a generator of layers yield them as the fusion policy runs them, with products in the requested form."""

    @wraps(generator)
    def layers(shape: BlockShape) -> Iterator[Layer]:
        return multiplied(_fused(generator(shape), shape), shape.choice.matmul_impl)

    return layers


def _fused(layers: Iterable[Layer], shape: BlockShape) -> Iterator[Layer]:
    """Yield layers with the traffic that the policy leaves; weights move as before, once in each pass."""
    fusion, widths = shape.choice.fusion, shape.widths
    policy = POLICIES.get(fusion, {})
    for layer in layers:
        if rule := policy.get(layer.kernel):
            moved = rule(layer, widths)
            # of a loss the policy counts by logits, of a fork by its input
            elements = layer.inputs if layer.kernel in ("loss", "fork") else layer.outputs
            weights = layer.weight_bytes
            forward = moved.forward * elements + weights
            accessed = (forward, moved.backward * elements + weights, 0.0)
            yield layer._replace(accessed=accessed, launches=moved.launches)
        else:
            yield layer
        if fusion == "none" and layer.kernel == "product":
            yield from _bias(layer, widths)


def _bias(layer: Layer, widths: Widths) -> Iterator[Layer]:
    """Yield the sum over tokens that is the gradient of a product's bias; the product itself adds the bias."""
    product = layer.product
    assert product is not None
    columns = layer.weights - product.n * product.k
    if not np.any(columns):
        return
    elements = product.m * columns
    yield Layer(
        name=f"{layer.name}_Bias",
        kernel="reduction",
        flops=(0.0, 0.0, elements),
        accessed=(0.0, 0.0, widths.result * elements),
        inputs=elements,
        flags=Flags(recompute=layer.flags.recompute),
    )


def _gated(layer: Layer) -> bool:
    """Whether an activation has two inputs."""
    return layer.inputs is not layer.outputs


# -- none: one kernel for each operator, as eager frameworks run them -------------------------------------------------


def _softmax_alone(layer: Layer, widths: Widths) -> Moved:
    """Scale, mask and softmax; narrow scores are converted to float32 and back."""
    c = widths.result
    casts = 2 * (c + FLOAT_BYTES) if c < FLOAT_BYTES else 0
    whole = 2 * c + 2 * c + casts
    launches = 3 if c == FLOAT_BYTES else 5
    return Moved(whole + 2 * FLOAT_BYTES, whole + 3 * FLOAT_BYTES, (launches, launches, 0))


def _activation_alone(layer: Layer, widths: Widths) -> Moved:
    """Run the function, and with a gate the product of both halves, as kernels of their own."""
    c = widths.result
    if _gated(layer):
        return Moved(2 * c + 3 * c, 5 * c + 3 * c, (2, 2, 0))
    return Moved(2 * c, 3 * c, (1, 1, 0))


def _rotary_alone(layer: Layer, widths: Widths) -> Moved:
    """Two products with sine and cosine, and their sum."""
    return Moved(6 * widths.result, 6 * widths.result, (3, 3, 0))


def _sum_alone(layer: Layer, widths: Widths) -> Moved:
    """Read stream and branch, write the stream; its gradient is handed on, converted where the branch is narrower."""
    r, c = widths.stored, widths.result
    narrow = c < r
    return Moved(2 * r + c, r + c if narrow else 0.0, (1, int(narrow), 0))


def _loss_alone(layer: Layer, widths: Widths) -> Moved:
    """Logarithm of the softmax, then its entry of the target; backward, its gradient and that of the softmax."""
    c = widths.result
    cast = c + FLOAT_BYTES if c < FLOAT_BYTES else 0
    launches = 2 + bool(cast)
    return Moved(cast + 3 * FLOAT_BYTES, 4 * FLOAT_BYTES + cast, (launches, launches, 0))


# -- compile: chains in one kernel ------------------------------------------------------------------------------------


def _norm_joined(layer: Layer, widths: Widths) -> Moved:
    """Entry norms only write: the sum before them reads. Their backward kernel adds the gradient of the stream."""
    r, o, c = widths.stored, widths.operand, widths.result
    if layer.flags.shares_activation:
        return Moved(o, c + 3 * r, (0, 1, 0))
    width = layer.output_bytes / layer.outputs
    return Moved(2 * width, 3 * width, (1, 1, 0))


def _joined(layer: Layer, widths: Widths) -> Moved:
    """Move nothing: the next kernel adds a bias, and the backward kernel of the norm adds the gradients."""
    return Moved(0.0, 0.0, (0, 0, 0))


def _softmax_joined(layer: Layer, widths: Widths) -> Moved:
    """Scale, mask and softmax in one kernel that reads a row twice; and one backward."""
    c = widths.result
    return Moved(4 * c, 3 * c, (1, 1, 0))


def _dropout_joined(layer: Layer, widths: Widths) -> Moved:
    """Only its mask moves; the gradient of a branch of the residual stream is written."""
    flags = layer.flags  # in a block, and not dropped as that of scores is
    branch = flags.recompute != When.NEVER and flags.drops_activation == When.NEVER
    gradient = widths.stored + widths.result if branch else 0
    return Moved(1.0, 1.0 + gradient, (0, int(branch), 0))


def _activation_joined(layer: Layer, widths: Widths) -> Moved:
    c = widths.result
    return Moved(3 * c, 5 * c, (1, 1, 0)) if _gated(layer) else Moved(2 * c, 3 * c, (1, 1, 0))


def _rotary_joined(layer: Layer, widths: Widths) -> Moved:
    return Moved(2 * widths.result, 2 * widths.result, (1, 1, 0))


def _sum_joined(layer: Layer, widths: Widths) -> Moved:
    """Write the narrow gradient of a branch in the kernel that has that of the stream."""
    r, c = widths.stored, widths.result
    return Moved(2 * r + c, c if c < r else 0.0, (1, 0, 0))


def _loss_joined(layer: Layer, widths: Widths) -> Moved:
    """Read the logits twice; read them once and write their gradient."""
    return Moved(2 * widths.result, 2 * widths.result, (1, 1, 0))


# -- max: also into the product before --------------------------------------------------------------------------------


def _activation_in_product(layer: Layer, widths: Widths) -> Moved:
    """Compute it before the product writes; backward, read the saved input (and write both gradients of a gate)."""
    c = widths.result
    return Moved(c, 4 * c, (0, 0, 0)) if _gated(layer) else Moved(0.0, c, (0, 0, 0))


NONE: Mapping[KernelKind, Rule] = {
    "softmax": _softmax_alone,
    "activation": _activation_alone,
    "rotary": _rotary_alone,
    "sum": _sum_alone,
    "loss": _loss_alone,
}
COMPILE: Mapping[KernelKind, Rule] = {
    "norm": _norm_joined,
    "fork": _joined,
    "bias": _joined,
    "softmax": _softmax_joined,
    "dropout": _dropout_joined,
    "activation": _activation_joined,
    "rotary": _rotary_joined,
    "sum": _sum_joined,
    "loss": _loss_joined,
}
MAX: Mapping[KernelKind, Rule] = {
    **COMPILE,
    "activation": _activation_in_product,
    "rotary": _joined,
}
POLICIES: Mapping[str, Mapping[KernelKind, Rule]] = {"none": NONE, "compile": COMPILE, "max": MAX}
"""Policies by value of the execution field ``fusion``; ``published`` leaves layers as they are."""
