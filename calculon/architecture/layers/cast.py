"""Conversions of mixed precision, for products whose operands are narrower than stored tensors."""

from typing import NamedTuple

from calculon.architecture.layer import Flags, Layer, Number, Widths


def cast(
    name: str,
    weights: Number,
    inputs: Number,
    outputs: Number,
    *,
    widths: Widths,
    source: int,
    alone: bool,
    flags: Flags,
) -> Layer:
    """Convert weights, input and gradients of a product of `weights`, `inputs` and `outputs` elements.

    Weights are converted once per microbatch, and the copies kept for its backward pass; their gradients go back to the
    stored type. Inputs come in `source` bytes per element, and gradients of outputs in the width of results; where they
    are `alone`, converting them takes a pass of its own, otherwise the kernel that makes them writes both.

    Source: Micikevicius et al., *Mixed Precision Training*, arXiv 1710.03740, section 3.
    """
    stored, operand, result = widths
    copies = operand < stored
    forward = (stored + operand) * weights if copies else 0.0 * weights
    gradient = (result + stored) * weights if result < stored else 0.0 * weights
    launches = [int(copies), 0, int(result < stored)]
    backward: Number = 0.0
    if alone and operand != source:
        forward, launches[0] = forward + (source + operand) * inputs, launches[0] + 1
    if alone and result != source:
        backward, launches[1] = backward + (result + source) * inputs, launches[1] + 1
    if alone and operand < result:
        backward, launches[1] = backward + (result + operand) * outputs, launches[1] + 1
    return Layer(
        name=name,
        kernel="cast",
        flops=(0.0, 0.0, 0.0),
        accessed=(forward, backward, gradient),
        inputs=inputs,
        activation=operand * weights if copies else 0.0,
        flags=flags,
        launches=(launches[0], launches[1], launches[2]),
    )


class Converted(NamedTuple):
    """A tensor that is converted: its `elements`, of which a rank converts its `own`, in `source` bytes each.

    `gathered` says whether the others' come from them in 8 bits.
    """

    elements: Number
    own: Number
    source: int
    gathered: bool


def cast_to_8_bits(
    name: str,
    weights: Number,
    inputs: Converted,
    gradients: Converted,
    *,
    widths: Widths,
    normed: bool,
    restored: bool,
    measured: bool,
    flags: Flags,
) -> Layer:
    """Convert weights, input and gradients of outputs of a product to 8 bits, by kernels of their own.

    The products of gradients need input and gradient in a second layout, as those of 8 bits take operands only with
    the terms of a sum side by side: one kernel writes both, or, of a tensor that is gathered, each rank converts its
    own, and all of it is transposed in the backward pass. A `normed` input comes in 8 bits from the norm. Where the
    factor is `measured`, each tensor is read once before it is converted. `restored` is whether the gradient of the
    input goes back to its type by a pass of its own. Weights are converted once per microbatch, and kept.

    Source: Micikevicius et al., *FP8 Formats for Deep Learning*, arXiv 2209.05433, section 3; cuBLAS,
    ``cublasLtMatmul``: 8-bit kernels of processors before Blackwell want A transposed and B not; Transformer Engine 1
    and 2, ``pytorch/module/linear.py`` and ``layernorm_linear.py``: ``fp8_cast_transpose_fused``, ``fp8_transpose`` and
    ``Float8CurrentScalingQuantizer``; torchao, ``float8/README.md``: dynamic scaling reads for the largest value first.
    """
    stored, operand, result = widths
    forward, backward = (stored + operand) * weights, 0.0 * weights
    first, second = 1, 0
    if not normed:
        layouts = 1 if inputs.gathered else 2
        forward, first = forward + (inputs.source + layouts * operand) * inputs.own, first + 1
    if normed or inputs.gathered:
        backward, second = backward + 2 * operand * inputs.elements, second + 1
    layouts = 1 if gradients.gathered else 2
    backward = backward + (gradients.source + layouts * operand) * gradients.own
    second += 1
    if gradients.gathered:
        backward, second = backward + 2 * operand * gradients.elements, second + 1
    if measured:
        forward, first = forward + stored * weights + inputs.source * inputs.own, first + 2
        backward, second = backward + gradients.source * gradients.own, second + 1
    if restored and result != inputs.source:
        backward, second = backward + (result + inputs.source) * inputs.elements, second + 1
    narrow = result < stored
    return Layer(
        name=name,
        kernel="cast",
        flops=(0.0, 0.0, 0.0),
        accessed=(forward, backward, narrow * (result + stored) * weights),
        inputs=inputs.elements,
        activation=operand * weights,
        flags=flags,
        launches=(first, second, int(narrow)),
    )
