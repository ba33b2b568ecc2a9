"""Kernel fusion: memory traffic and kernel launches of layers under a fusion policy.

A chain of elementwise operators and reductions over one tile becomes one kernel, which reads the inputs of the chain
and writes its outputs. Nothing is fused across a matrix product, a collective or fused attention; only policy ``max``
fuses activations and rotary embeddings into the preceding product. FLOP and activation memory do not change, with two
exceptions: a compiled loss makes no 4-byte copies of the logits, and RMSNorm without fusion saves its input in 4 bytes.

Each policy is a table by kind of kernel. Bytes per element: ``r`` of the residual stream, ``o`` of operands
of products, ``c`` of their results, 4 of softmax and loss in float32 (PyTorch, *Automatic Mixed Precision*, op list).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import NamedTuple

import numpy as np

from calculon.architecture.layer import Number, Widths
from calculon.architecture.layers import Flags, Layer, When
from calculon.architecture.layers.vocabulary import EAGER_LOSS, FLOAT_BYTES
from calculon.architecture.projection import multiplied
from calculon.architecture.shape import BlockShape
from calculon.hardware.kernels.kernel import KernelKind


class Moved(NamedTuple):
    """Bytes per element that an operator moves in its passes, and the number of kernels it launches."""

    forward: Number
    backward: Number
    launches: tuple[int, int, int]


Rule = Callable[[Layer, Widths], Moved]


def fused(
    generator: Callable[[BlockShape], Iterable[Layer]],
) -> Callable[[BlockShape], Iterator[Layer]]:
    """Wrap a generator of layers to apply the fusion policy, and the requested form of matrix products."""

    @wraps(generator)
    def layers(shape: BlockShape) -> Iterator[Layer]:
        return multiplied(_fused(generator(shape), shape), shape.choice.matmul_impl)

    return layers


def _fused(layers: Iterable[Layer], shape: BlockShape) -> Iterator[Layer]:
    """Yield layers with the traffic that remains under the policy; weights are still read once in each pass."""
    policy = _policy(shape)
    alone = shape.choice.fuses and shape.choice.compile_scope != "step"
    for layer in layers:
        rule = policy.get(layer.kernel)
        # Separately compiled blocks cannot fuse their first norm with the sum before it.
        if alone and layer.kernel == "norm":
            rule, alone = _of_stream(rule or _norm_joined), False
        yield _run(layer, rule, shape)
        if shape.choice.fusion == "none" and layer.kernel == "product":
            yield from _bias(layer, shape.widths)


def _run(layer: Layer, rule: Rule | None, shape: BlockShape) -> Layer:
    """Return a layer with the traffic and launches of the rule for its kind."""
    if rule is not None:
        moved = rule(layer, shape.widths)
        # The traffic of a loss is per logit, and of a fork per element of its input.
        elements = layer.inputs if layer.kernel in ("loss", "fork") else layer.outputs
        weights = layer.weight_bytes
        accessed = (moved.forward * elements + weights, moved.backward * elements + weights, 0.0)
        layer = layer._replace(accessed=accessed, launches=moved.launches)
        if layer.kernel == "loss" and shape.choice.fuses_loss:
            held = shape.widths.result * elements  # the gradient overwrites the logits
            layer = layer._replace(activation=held, activation_grad=held)
        if rule is _rmsnorm_alone and shape.widths.stored < FLOAT_BYTES:
            layer = _kept_in_float(layer)
    if layer.kernel == "activation" and shape.choice.fused_activation:
        layer = _computed_again(layer, shape)
    return layer


def _policy(shape: BlockShape) -> Mapping[KernelKind, Rule]:
    """Return the rules of a layout; an explicitly chosen implementation of the loss keeps its own traffic."""
    choice = shape.choice
    policy = dict(POLICIES.get(choice.fusion, {}))
    if choice.fuses_loss:
        policy["loss"] = _loss_joined
    if choice.rotary_impl != "real":
        policy["rotary"] = _ROTARY[choice.rotary_impl]
    if choice.ce_impl != "eager":
        policy.pop("loss", None)
    if choice.fusion == "none" and shape.model.norm == "rmsnorm":
        policy["norm"] = _rmsnorm_alone
    if choice.fuses and shape.recipe is not None:
        if choice.fusion not in shape.recipe.joined:
            policy["norm"] = _norm_unscaled
        elif shape.recipe.separate:
            policy["norm"] = _norm_in_both
    return policy


def _kept_in_float(layer: Layer) -> Layer:
    """Make RMSNorm save its input in 4 bytes for the square and the scaling, unless the norm is recomputed.

    The product with the gain saves its narrow input, which replaces the input of the norm. Source: Hugging Face
    transformers, ``LlamaRMSNorm``; saved tensors: PyTorch, tools/autograd/derivatives.yaml.
    """
    held = FLOAT_BYTES * layer.inputs
    if not layer.flags.shares_activation:
        return layer._replace(activation=layer.activation + held)
    flags = layer.flags._replace(drops_activation=When.RECOMPUTE_NORM, shares_activation=False)
    return layer._replace(activation=held, flags=flags)


def _computed_again(layer: Layer, shape: BlockShape) -> Layer:
    """Add the recomputation of a fused activation to the backward pass: it reads its inputs, and writes its output.

    [A60] A fused activation does not save its output. Source: Hsu et al., *Liger Kernel*, arXiv 2410.10989, section
    3.2.
    """
    if not shape.edition.computes_fused_activations_again:
        return layer
    forward, backward, weights = layer.accessed
    again = shape.widths.result * (layer.inputs + layer.outputs)
    first, second, third = layer.launches or (1, 1, 0)
    return layer._replace(
        accessed=(forward, backward + again, weights), launches=(first, second + 1, third)
    )


def _bias(layer: Layer, widths: Widths) -> Iterator[Layer]:
    """Yield the bias gradient of a product, a sum over tokens; the product itself adds the bias."""
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
        flags=Flags(recompute=layer.flags.recompute, module=layer.flags.module),
    )


_LEAST = 1e-300
"""Smallest divisor: keeps 0 elements at 0 bytes, for splits without elements that rules refuse later."""


def _width(layer: Layer) -> Number:
    """Return the bytes per element of a layer's output."""
    return layer.output_bytes / np.maximum(layer.outputs, _LEAST)


def _gated(layer: Layer) -> bool:
    """Return True if an activation has two inputs."""
    return layer.inputs is not layer.outputs


# -- none: one kernel per operator, as in eager frameworks ------------------------------------------------------------


def _softmax_alone(layer: Layer, widths: Widths) -> Moved:
    """Scale, mask and softmax; narrow scores are converted to float32 and back."""
    c = widths.result
    casts = 2 * (c + FLOAT_BYTES) if c < FLOAT_BYTES else 0
    whole = 2 * c + 2 * c + casts
    launches = 3 if c == FLOAT_BYTES else 5
    return Moved(whole + 2 * FLOAT_BYTES, whole + 3 * FLOAT_BYTES, (launches, launches, 0))


def _norm_alone(layer: Layer, widths: Widths) -> Moved:
    """One kernel that reads a row twice; backward, one that reads both inputs twice, and a sum over tokens of both.

    Source: PyTorch, aten/src/ATen/native/cuda/layer_norm_kernel.cu; measured: 3 and 7 passes (memory_bound.csv).
    """
    width = _width(layer)
    if not np.any(layer.weights):
        return Moved(3 * width, 5 * width, (1, 1, 0))
    return Moved(3 * width, 7 * width, (1, 2, 0))


def _rmsnorm_alone(layer: Layer, widths: Widths) -> Moved:
    """Square, mean, scaling and product with the gain, in 4 bytes between two conversions of narrower values.

    Backward: product and sum for the gain, product with it; product and sum for the root, product with it; broadcast of
    the mean; power, doubling and product for the square; sum of both.
    Source: Hugging Face transformers, ``LlamaRMSNorm``; measured: 36 and 92 bytes of 2-byte values (memory_bound.csv).
    """
    width, narrow = _width(layer), widths.stored < FLOAT_BYTES
    casts = 2 * (width + FLOAT_BYTES) if narrow else 0
    forward = casts + (2 + 1 + 2) * FLOAT_BYTES + 2 * width
    backward = casts + (3 + 1 + 2) * width + (3 + 1 + 2 + 1 + 2 + 2 + 3 + 3) * FLOAT_BYTES
    more = 2 * narrow
    return Moved(forward, backward, (6 + more, 12 + more, 0))


def _activation_alone(layer: Layer, widths: Widths) -> Moved:
    """Activation function, and the product of both halves if gated, as separate kernels; twice as many backward."""
    c = widths.result
    if _gated(layer):
        return Moved(2 * c + 3 * c, 2 * 3 * c + 3 * c, (2, 3, 0))
    return Moved(2 * c, 3 * c, (1, 1, 0))


def _gate_alone(layer: Layer, widths: Widths) -> Moved:
    """Sigmoid, and the product with it; backward the gradients of both factors, and of the sigmoid."""
    c = widths.result
    return Moved(2 * c + 3 * c, 2 * 3 * c + 3 * c, (2, 3, 0))


def _rotary_alone(layer: Layer, widths: Widths) -> Moved:
    """Product with cosine; negation of one half, concatenation, product with sine; sum.

    Backward, each half is expanded with zeros. Source: Hugging Face transformers, ``apply_rotary_pos_emb``.
    """
    c = widths.result
    return Moved((2 + 1 + 2 + 2 + 3) * c, (2 + 1 + 4 + 3 + 2 + 3) * c, (5, 9, 0))


def _rotary_complex(layer: Layer, widths: Widths) -> Moved:
    """Conversion to 4 bytes, product with complex numbers, and conversion back; the same backward.

    Source: torchtitan, ``apply_rotary_emb``; PyTorch's compiler does not fuse it (pytorch/pytorch#125718).
    """
    c = widths.result
    casts, copies = (2 * (c + FLOAT_BYTES), 2) if c < FLOAT_BYTES else (0, 0)
    moved = casts + 2 * FLOAT_BYTES
    return Moved(moved, moved, (1 + copies, 1 + copies, 0))


def _rotary_unfused(layer: Layer, widths: Widths) -> Moved:
    """Move bytes as :func:`_rotary_alone`, and launch kernels for queries and keys each, and for cosine and sine.

    Source: operators of Megatron-Core 0.14.0, ``apply_rotary_pos_emb`` with latent attention: 11 forward (cosine and
    sine with their scale, order of pairs, product, negation, concatenation, product, sum, concatenation), 7 backward.
    """
    return _rotary_alone(layer, widths)._replace(launches=(2 * 11, 2 * 7, 0))


_ROTARY = {"complex": _rotary_complex, "unfused": _rotary_unfused}
"""Rules of implementations of rotary embeddings that are the same with every policy."""


def _sum_alone(layer: Layer, widths: Widths) -> Moved:
    """Read stream and branch, write the stream; the gradient is passed on, converted if the branch is narrower."""
    r, c = widths.stored, widths.result
    narrow = c < r
    return Moved(2 * r + c, r + c if narrow else 0.0, (1, int(narrow), 0))


def _loss_alone(layer: Layer, widths: Widths) -> Moved:
    """Log-softmax, then the entry of the target; backward, the gradient of that entry and of the log-softmax."""
    c = widths.result
    forward, backward = EAGER_LOSS.moved(c)
    return Moved(forward, backward, EAGER_LOSS.launched(c))


# -- compile: chains of operators in one kernel -----------------------------------------------------------------------


def _norm_joined(layer: Layer, widths: Widths) -> Moved:
    """Entry norms only write, because the preceding sum reads; their backward kernel adds the stream's gradient.

    Gradients of gains are a sum over tokens, which reads both again. Measured for compiled norms: memory_bound.csv.
    """
    r, o, c = widths.stored, widths.operand, widths.result
    width, gain = _width(layer), bool(np.any(layer.weights))
    if layer.flags.shares_activation:
        return Moved(o, c + 3 * r + gain * (c + r), (0, 1 + gain, 0))
    return Moved(2 * width, (3 + 2 * gain) * width, (1, 1 + gain, 0))


def _of_stream(norm: Rule) -> Rule:
    """Let the first norm of a separately compiled part read the stream: the sum before it is in another program."""

    def alone(layer: Layer, widths: Widths) -> Moved:
        joined = norm(layer, widths)
        if not layer.flags.shares_activation:
            return joined
        _, second, third = joined.launches
        return joined._replace(forward=joined.forward + widths.stored, launches=(1, second, third))

    return alone


def _norm_unscaled(layer: Layer, widths: Widths) -> Moved:
    """Entry norms write an output that is read again for its maximum, or by the kernel that converts it."""
    return _norm_joined(layer, widths._replace(operand=widths.result))


def _norm_in_both(layer: Layer, widths: Widths) -> Moved:
    """Entry norms write the input of a product in both layouts, which differ in more than their order."""
    return _norm_joined(layer, widths._replace(operand=2 * widths.operand))


def _joined(layer: Layer, widths: Widths) -> Moved:
    """No traffic: the next kernel adds a bias, and the backward kernel of the norm adds the gradients."""
    return Moved(0.0, 0.0, (0, 0, 0))


def _softmax_joined(layer: Layer, widths: Widths) -> Moved:
    """Scale, mask and softmax in one kernel that reads a row twice; and one backward."""
    c = widths.result
    return Moved(4 * c, 3 * c, (1, 1, 0))


def _dropout_joined(layer: Layer, widths: Widths) -> Moved:
    """Only the mask moves; the gradient of a branch of the residual stream is written."""
    # A branch is inside a block, and unlike the dropout of scores it is not dropped
    flags = layer.flags
    branch = flags.recompute != When.NEVER and flags.drops_activation == When.NEVER
    gradient = widths.stored + widths.result if branch else 0
    return Moved(1.0, 1.0 + gradient, (0, int(branch), 0))


def _activation_joined(layer: Layer, widths: Widths) -> Moved:
    c = widths.result
    return Moved(3 * c, 5 * c, (1, 1, 0)) if _gated(layer) else Moved(2 * c, 3 * c, (1, 1, 0))


def _gate_joined(layer: Layer, widths: Widths) -> Moved:
    """Read both and write one; backward, read both and a gradient, and write two. Attention is a separate kernel."""
    return Moved(3 * widths.result, 5 * widths.result, (1, 1, 0))


def _rotary_joined(layer: Layer, widths: Widths) -> Moved:
    return Moved(2 * widths.result, 2 * widths.result, (1, 1, 0))


def _sum_joined(layer: Layer, widths: Widths) -> Moved:
    """Write the narrow gradient of a branch in the kernel that computes the stream's gradient."""
    r, c = widths.stored, widths.result
    return Moved(2 * r + c, c if c < r else 0.0, (1, 0, 0))


def _loss_joined(layer: Layer, widths: Widths) -> Moved:
    """Read the logits twice; backward, read them once and write their gradient."""
    return Moved(2 * widths.result, 2 * widths.result, (1, 1, 0))


# -- max: fusion into the preceding product as well -------------------------------------------------------------------


def _activation_in_product(layer: Layer, widths: Widths) -> Moved:
    """Apply it before the product writes; backward, read the saved input (a gate writes both gradients)."""
    c = widths.result
    return Moved(c, 4 * c, (0, 0, 0)) if _gated(layer) else Moved(0.0, c, (0, 0, 0))


NONE: Mapping[KernelKind, Rule] = {
    "norm": _norm_alone,
    "softmax": _softmax_alone,
    "activation": _activation_alone,
    "gate": _gate_alone,
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
    "gate": _gate_joined,
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
"""Policies by value of the execution field ``fusion``; ``published`` leaves layers unchanged."""
