"""Memory-bound layers: elementwise operators, activation functions, norms and casts."""

from collections.abc import Mapping
from typing import NamedTuple

from calculon.architecture.layer import Flags, Layer, Number, Widths, operator, pointwise
from calculon.declarations.recipes import Recipe


def residual_sum(name: str, elements: Number, *, dtype_bytes: float, flags: Flags) -> Layer:
    """Return the sum of two tensors of equal size: one FLOP per element forward, two backward.

    Source: Isaev et al., *Calculon*, SC'23, doi:10.1145/3581784.3607102.
    """
    return operator(
        name,
        "sum",
        (elements, 2 * elements, 0.0),
        inputs=2 * elements,
        outputs=elements,
        saved=2 * elements,
        grad=elements,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )


def added_bias(
    name: str, elements: Number, *, followed: bool, dtype_bytes: float, flags: Flags
) -> Layer:
    """Return the in-place addition of a vector to every token; if `followed`, it fuses with the next operator."""
    return Layer(
        name=name,
        kernel="bias" if followed else "add",
        flops=(elements, 0.0, 0.0),
        accessed=(2 * dtype_bytes * elements, 0.0, 0.0),
        inputs=elements,
        outputs=elements,
        output_bytes=dtype_bytes * elements,
        flags=flags,
    )


def fork(name: str, elements: Number, users: int, *, dtype_bytes: float, flags: Flags) -> Layer:
    """Return the fork of a tensor to several layers: free in the forward pass, one sum per user in the backward pass.

    Source: Isaev et al., *Calculon*, SC'23, doi:10.1145/3581784.3607102.
    """
    return Layer(
        name=name,
        kernel="fork",
        flops=(0.0, users * elements, 0.0),
        accessed=(0.0, dtype_bytes * elements * (users + 1), 0.0),
        inputs=elements,
        activation=dtype_bytes * elements,
        flags=flags,
    )


def dropout(
    name: str, elements: Number, *, grad_bytes: float, dtype_bytes: float, flags: Flags
) -> Layer:
    """Return dropout: one FLOP per element and pass; saves a mask of one byte per element.

    `grad_bytes` is the bytes per element of the gradient.

    Source: Srivastava et al., *Dropout*, JMLR 15, 2014; its mask: Korthikanti et al., arXiv 2205.05198, section 4.1.
    """
    return pointwise(
        name,
        "dropout",
        (elements, elements),
        elements,
        mask_bytes=elements,
        activation=elements,
        activation_grad=grad_bytes * elements,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )


def gate(name: str, elements: Number, *, dtype_bytes: float, flags: Flags) -> Layer:
    """Return the product of a tensor with the sigmoid of another: 5 FLOP per element forward, 8 backward; saves both.

    The backward pass recomputes the sigmoid. Source: Qiu et al., *Gated Attention*, arXiv 2505.06708, equation 5;
    Megatron-LM, ``core/transformer/attention.py``, ``--attention-output-gate``: a single kernel.
    """
    return pointwise(
        name,
        "gate",
        (5 * elements, 8 * elements),
        elements,
        inputs=2 * elements,
        activation=2 * dtype_bytes * elements,
        activation_grad=dtype_bytes * elements,
        input_grad=True,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )


def softmax(
    name: str, elements: Number, *, input_grad: bool = False, dtype_bytes: float, flags: Flags
) -> Layer:
    """Return softmax: 5 FLOP per element forward, 8 backward; saves its output instead of its input.

    Source: Isaev et al., *Calculon*, SC'23, doi:10.1145/3581784.3607102.
    """
    return pointwise(
        name,
        "softmax",
        (5 * elements, 8 * elements),
        elements,
        activation=dtype_bytes * elements,
        activation_grad=dtype_bytes * elements,
        input_grad=input_grad,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )


def rotary(name: str, elements: Number, *, dtype_bytes: float, flags: Flags) -> Layer:
    """Return the rotary embedding of queries and keys: 6 FLOP per element and pass; nothing is saved.

    Source: Su et al., *RoFormer*, arXiv 2104.09864, equation 34; the backward pass is the inverse rotation.
    """
    return pointwise(
        name,
        "rotary",
        (6 * elements, 6 * elements),
        elements,
        activation_grad=dtype_bytes * elements,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )


# The activation function of the MLP.


class Function(NamedTuple):
    """FLOP per output element, forward and backward, and inputs per output (2 for gated functions)."""

    forward: int
    backward: int
    inputs: int


FUNCTIONS: Mapping[str, Function] = {
    "gelu": Function(8, 13, 1),
    "relu": Function(1, 1, 1),
    "squared_relu": Function(2, 3, 1),
    "swiglu": Function(6, 11, 2),
    "geglu": Function(9, 16, 2),
    "silu": Function(5, 8, 1),
}
"""Activations by name.

GeLU as published; a gate adds a product forward and two backward (Shazeer, arXiv 2002.05202, equation 6); SiLU counts
5 FLOP forward and 8 backward; squared ReLU: So et al., *Primer*, arXiv 2109.08668.
"""


def activation(
    name: str,
    kind: str,
    elements: Number,
    *,
    fused: bool,
    input_grad: bool = False,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Return an activation of `elements` outputs; if fused, it saves one input less per output, and no gradient.

    Gated activations always write the gradients of both inputs.
    """
    function = FUNCTIONS[kind]
    gated = function.inputs > 1
    inputs = function.inputs * elements if gated else elements
    return pointwise(
        name,
        "activation",
        (function.forward * elements, function.backward * elements),
        elements,
        inputs=inputs,
        activation=dtype_bytes * (inputs - elements if fused else inputs),
        activation_grad=0.0 if fused else dtype_bytes * elements,
        input_grad=input_grad or gated,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )


# Names of activations in the list of layers.

ACTIVATIONS = {
    "gelu": "GeLU",
    "relu": "ReLU",
    "squared_relu": "ReLU2",
    "swiglu": "SwiGLU",
    "geglu": "GeGLU",
}
"""Names of activations in the list of layers."""


# Normalization.


class Kind(NamedTuple):
    """FLOP per element (forward, input gradient, weight gradient), and weights per unit of width."""

    flops: tuple[int, int, int]
    weights: int


KINDS: Mapping[str, Kind] = {
    "layernorm": Kind((9, 14, 7), 2),
    "layernorm_no_bias": Kind((9, 14, 5), 1),
    "layernorm_plain": Kind((7, 12, 0), 0),
    "rmsnorm": Kind((4, 7, 3), 1),
}
"""Norms by name: published layer normalization, without bias, without gain; RMSNorm (arXiv 1910.07467)."""


def norm(
    name: str,
    kind: str,
    elements: Number,
    width: int,
    *,
    gain_only: bool = False,
    input_grad: bool = False,
    dtype_bytes: float,
    stored_bytes: float | None = None,
    flags: Flags,
) -> Layer:
    """Return the normalization of `elements` over their last axis of `width`; saves its input.

    With `gain_only` it has one weight per unit of width, for any kind. A weight is stored in `stored_bytes`, by default
    in the width of elements.

    Source: Ba et al., *Layer normalization*, arXiv 1607.06450; Zhang and Sennrich, *RMSNorm*, arXiv 1910.07467.
    """
    (forward, agrad, wgrad), weights = KINDS[kind]
    layer = operator(
        name,
        "norm",
        (forward * elements, agrad * elements, wgrad * elements),
        inputs=elements,
        outputs=elements,
        weights=float(width if gain_only else weights * width),
        saved=elements,
        grad=elements,
        input_grad=input_grad,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )
    if stored_bytes is None:
        return layer
    return layer._replace(weight_bytes=stored_bytes * layer.weights)


# Conversions for mixed precision, for products whose operands are narrower than stored tensors.


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
    """Return the conversions of a product with `weights`, `inputs` and `outputs` elements.

    Weights are converted once per microbatch, and the copies are saved for its backward pass; their gradients are
    converted back to the stored type. Inputs have `source` bytes per element, and gradients of outputs the width of
    results. If conversions are `alone`, they are separate passes; otherwise the kernel that creates a tensor writes
    both versions.

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
    """Tensor to convert: its `elements`, of which a rank converts its `own`, from `source` bytes each.

    `gathered` is True if the rank receives the other elements in 8 bits.
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
    """Return the kernels that convert weights, input and output gradients of a product to operands of 8 or 4 bits.

    Gradient products need input and output gradient in a second layout if the terms of each sum must be contiguous. A
    second layout is a transpose of the first: one kernel writes both; or, for a gathered tensor, each rank converts its
    own part, and the whole tensor is transposed in the backward pass. With block scales the layouts are `separate`:
    each rank creates both for its own part, and rotated ones in another kernel that reads the tensor again. The norm
    creates a `normed` input in the narrow type already. If scales are `measured`, each tensor is read once before its
    conversion. If `restored`, a separate pass converts the input gradient back. Copies of weights are saved, and
    created in each microbatch unless they are `cached`.

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
    """Return the bytes and kernels to create an operand, and the bytes of a later transposition.

    For tensors that a norm has `written`, only the transposed layout is created.
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
