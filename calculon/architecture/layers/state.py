"""Layers of linear attention: short convolution, chunked state, and the gated norm after it.

Each is a single kernel in a roofline model: limited by the FLOP rate of its kind, or by memory.
"""

from typing import NamedTuple

from calculon.architecture.layer import Flags, Layer, Number

STATE_BACKWARD = 2.5
"""Ratio of backward to forward FLOP: both gradients of each product, and recomputed states.

It is an assumption at roofline level: about half of the forward products create states, which no implementation saves.
Source: Dao and Gu, arXiv 2405.21060, ``ssd_combined.py`` (``_mamba_chunk_scan_combined_bwd``);
flash-linear-attention, ``gated_delta_rule/chunk.py`` (``chunk_gated_delta_rule_bwd``); Qin et al., arXiv 2401.04658,
algorithm 2.
"""

SILU = (5, 8)
"""FLOP of SiLU per element, forward and backward."""


class Core(NamedTuple):
    """Cost of the state of linear attention per token on a rank, in elements unless stated otherwise.

    Attributes:
        flops: FLOP of the forward pass.
        read, written: Inputs and outputs.
        between: Bytes exchanged between its kernels: states of chunks, and products within chunks.
        saved: Bytes saved for the backward pass.
        weights: Weights of the rank, for all tokens together.
        counted: FLOP that count for MFU, of a whole block.
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
    """Return the convolution of each channel over `taps` tokens with SiLU: one kernel; saves its input.

    It has `taps` weights for each of the `stored` channels, and one more with a `bias`. The backward pass reads input
    and gradient, and writes the input gradient; with `again` it also recomputes the output, which its reader then need
    not save.

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
    """Return the kernels that write and read the state of linear attention, in chunks of tokens.

    The forward pass reads inputs, writes outputs, and writes and reads the data `between` its kernels once. The
    backward pass recomputes these data, computes their gradients, reads inputs and output gradients, and writes input
    gradients.
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
    """Return RMSNorm with a gain of `width`, multiplied by the SiLU of a gate: one kernel; saves both inputs.

    RMSNorm: 4, 7 and 3 FLOP per element (forward, input, gain); the gate: 6 forward, 11 backward, as in SwiGLU.

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
