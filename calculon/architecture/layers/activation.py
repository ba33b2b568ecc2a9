"""The activation function of the MLP."""

from collections.abc import Mapping
from typing import NamedTuple

from calculon.architecture.layer import Flags, Layer, Number, pointwise


class Function(NamedTuple):
    """FLOP per element of the output, forward and backward, and inputs per output (2 for a gated one)."""

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
    """Activation of `elements` outputs; fused, it keeps one input less per output, and no gradient.

    The gradients of both inputs of a gated one are always written.
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
