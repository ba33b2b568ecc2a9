"""Conversions of mixed precision, for products whose operands are narrower than stored tensors."""

from typing import NamedTuple

from calculon.architecture.layer import Flags, Layer, Number, Widths
from calculon.declarations.recipes import Recipe


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
    stored, operand, result, _ = widths
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


def cast_to_recipe(
    name: str,
    weights: Number,
    inputs: Converted,
    gradients: Converted,
    *,
    widths: Widths,
    recipe: Recipe,
    normed: bool,
    restored: bool,
    flags: Flags,
) -> Layer:
    """Make operands of 8 or 4 bits of weights, input and gradients of outputs of a product, by kernels of their own.

    The products of gradients need input and gradient in a second layout, where operands have to come with the terms of
    a sum side by side. A second layout is transposed of the first: one kernel writes both, or, of a tensor that is
    gathered, each rank converts its own, and all of it is transposed in the backward pass. Where scales are of blocks
    it is `separate`: each rank makes both of its own, rotated ones by another kernel that reads the tensor again. A
    `normed` input comes in as many bits from the norm. Where the factor is `measured`, each tensor is read once before
    it is converted. `restored` is whether the gradient of the input goes back to its type by a pass of its own. Copies
    of weights are kept, and made in each microbatch where they are not `cached`.

    Source: Micikevicius et al., *FP8 Formats for Deep Learning*, arXiv 2209.05433, section 3; cuBLAS,
    ``cublasLtMatmul``: 8-bit kernels of processors before Blackwell want A transposed and B not; Transformer Engine 1
    and 2, ``pytorch/module/linear.py`` and ``layernorm_linear.py``: ``fp8_cast_transpose_fused``, ``fp8_transpose`` and
    ``Float8CurrentScalingQuantizer``, and for recipes with blocks :data:`~calculon.declarations.recipes.RECIPES`;
    torchao, ``float8/README.md``: dynamic scaling reads for the largest value first.
    """
    stored, operand, result, _ = widths
    forward = backward = 0.0 * weights
    first = second = 0
    if not recipe.cached:
        forward, first = forward + recipe.conversion(stored) * weights, 1 + recipe.measured
    for tensor, is_input in ((inputs, True), (gradients, False)):
        made, kernels, later = _made_operand(tensor, operand, recipe, written=normed and is_input)
        if later is not None:
            backward, second = backward + later, second + 1
        if is_input:
            forward, first = forward + made, first + kernels
        else:
            backward, second = backward + made, second + kernels
    if restored and result != inputs.source:
        backward, second = backward + (result + inputs.source) * inputs.elements, second + 1
    narrow = result < stored
    return Layer(
        name=name,
        kernel="cast",
        flops=(0.0, 0.0, 0.0),
        accessed=(forward, backward, narrow * (result + stored) * weights),
        inputs=inputs.elements,
        activation=recipe.copies * weights,
        flags=flags,
        launches=(first, second, int(narrow)),
    )


def _made_operand(
    tensor: Converted, operand: float, recipe: Recipe, *, written: bool
) -> tuple[Number, int, Number | None]:
    """Return the bytes that making an operand moves, in how many kernels, and those of a transposition later.

    Of what a norm has `written` nothing is made but the transposed layout.
    """
    transposed = recipe.layouts == 2 and not recipe.separate
    later = None
    if transposed and (written or tensor.gathered):
        later = 2 * operand * tensor.elements
    if written:
        return 0.0 * tensor.own, 0, later
    layouts = 1 if transposed and tensor.gathered else recipe.layouts
    reads = 1 + recipe.measured + recipe.rotated
    return (reads * tensor.source + layouts * operand) * tensor.own, reads, later
