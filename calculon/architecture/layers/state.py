"""Layers of linear attention: short convolution, the state in chunks, and the norm with a gate after it.

Each is one kernel at roofline level: FLOP at the rate of its kind, or memory.
"""

from typing import NamedTuple

from calculon.architecture.layer import Flags, Layer, Number

STATE_BACKWARD = 2.5
"""FLOP of the backward pass over those of the forward one: both gradients of each product, and states once more.

Assumed at roofline level: of the products forward about half make states, which no implementation keeps. Source: Dao
and Gu, arXiv 2405.21060, ``ssd_combined.py`` (``_mamba_chunk_scan_combined_bwd``); flash-linear-attention,
``gated_delta_rule/chunk.py`` (``chunk_gated_delta_rule_bwd``); Qin et al., arXiv 2401.04658, algorithm 2.
"""

SILU = (5, 8)
"""FLOP of SiLU per element, forward and backward."""


class Core(NamedTuple):
    """What one token has of the state of linear attention on a rank, in elements unless said otherwise.

    Attributes:
        flops: FLOP of the forward pass.
        read, written: Inputs, and outputs.
        between: Bytes that its kernels hand on to each other: states of chunks, and products inside of them.
        saved: Bytes that stay for the backward pass.
        weights: Weights of the rank, of all tokens together.
        counted: FLOP that MFU counts, of a whole block.
    """

    flops: Number
    read: Number
    written: Number
    between: Number
    saved: Number
    weights: Number
    counted: float


def short_convolution(
    name: str,
    tokens: Number,
    channels: Number,
    taps: int,
    *,
    bias: bool,
    stored: Number,
    again: bool,
    dtype_bytes: float,
    stored_bytes: float,
    flags: Flags,
) -> Layer:
    """Convolve each channel over so many tokens (`taps`), and apply SiLU: one kernel; saves its input.

    `taps` weights for each of the `stored` channels, and one more with a `bias`. The backward pass reads input and
    gradient, and writes the gradient of the input; with `again` it also makes the output once more, which is then not
    kept by who reads it.

    Source: Yang et al., arXiv 2412.06464, section 3.4; Dao and Gu, arXiv 2405.21060, section 7;
    Dao-AILab/causal-conv1d.
    """
    elements, weights = tokens * channels, (taps + bias) * stored
    silu, back = SILU
    moved, held = dtype_bytes * elements, dtype_bytes * weights
    repeated = 2 * moved + held if again else 0.0
    return Layer(
        name=name,
        kernel="convolution",
        flops=((2 * taps + silu) * elements, (2 * taps + back) * elements, 2 * taps * elements),
        accessed=(2 * moved + held, 3 * moved + 2 * held + repeated, 0.0),
        inputs=elements,
        outputs=elements,
        weights=weights,
        weight_bytes=stored_bytes * weights,
        output_bytes=moved,
        activation=moved,
        activation_grad=moved,
        flags=flags,
        launches=(1, 2 if again else 1, 0),
    )


def linear_core(
    name: str, tokens: Number, core: Core, *, dtype_bytes: float, stored_bytes: float, flags: Flags
) -> Layer:
    """Write and read the state of linear attention, in chunks of tokens.

    Forward it reads inputs, writes outputs, and what is `between` its kernels once each. The backward pass makes that
    again and its gradients, reads inputs and the gradient of outputs, and writes those of inputs.
    """
    flops = tokens * core.flops
    inputs, outputs = tokens * core.read, tokens * core.written
    between = tokens * core.between
    return Layer(
        name=name,
        kernel="linear_attention",
        flops=(flops, STATE_BACKWARD * flops, 0.0),
        accessed=(
            dtype_bytes * (inputs + outputs) + 2 * between,
            dtype_bytes * (2 * inputs + outputs) + 4 * between,
            0.0,
        ),
        inputs=inputs,
        outputs=outputs,
        weights=core.weights,
        weight_bytes=stored_bytes * core.weights,
        output_bytes=dtype_bytes * outputs,
        activation=tokens * core.saved,
        activation_grad=dtype_bytes * outputs,
        flags=flags,
        counted=core.counted,
    )


def gated_norm(
    name: str,
    elements: Number,
    width: Number,
    *,
    dtype_bytes: float,
    stored_bytes: float,
    flags: Flags,
) -> Layer:
    """Normalise by the root mean square, times a gain of `width` and the SiLU of a gate: one kernel; saves both inputs.

    RMSNorm: 4, 7 and 3 FLOP per element (forward, input, gain); the gate: 6 forward, 11 backward, as of SwiGLU.

    Source: Dao and Gu, arXiv 2405.21060, section 7; Yang et al., arXiv 2412.06464, section 3.4.
    """
    moved, held = dtype_bytes * elements, dtype_bytes * width
    return Layer(
        name=name,
        kernel="gated_norm",
        flops=((4 + 6) * elements, (7 + 11) * elements, 3 * elements),
        accessed=(3 * moved + held, 5 * moved + 2 * held, 0.0),
        inputs=2 * elements,
        outputs=elements,
        weights=width,
        weight_bytes=stored_bytes * width,
        output_bytes=moved,
        activation=2 * moved,
        activation_grad=moved,
        flags=flags,
    )
