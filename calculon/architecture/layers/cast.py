"""Conversions of mixed precision, for products whose operands are narrower than stored tensors."""

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
    gradients_alone: bool,
    flags: Flags,
) -> Layer:
    """Convert weights, input and gradients of a product of `weights`, `inputs` and `outputs` elements.

    Weights are converted once per microbatch, and the copies kept for its backward pass; their gradients go back to the
    stored type. Inputs come in `source` bytes per element, and gradients of outputs in the width of results; where they
    are `alone`, converting them takes a pass of its own, otherwise the kernel that makes them writes both; and so for
    the gradients of outputs.

    Source: Micikevicius et al., *Mixed Precision Training*, arXiv 1710.03740, section 3; 8-bit: Micikevicius et al.,
    *FP8 Formats for Deep Learning*, arXiv 2209.05433, section 3.
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
    if gradients_alone and operand < result:
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
