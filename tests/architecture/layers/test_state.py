"""Layers of linear attention: FLOP, bytes and what is kept, as formulas of their sizes."""

import numpy as np
import pytest

from calculon.architecture.layer import RECOMPUTED
from calculon.architecture.layers.state import (
    Core,
    gated_norm,
    linear_core,
    short_convolution,
)

T, C, K, B = 6.0, 10.0, 4, 2.0
"""Tokens, channels, taps and bytes of an element."""


@pytest.mark.parametrize(("bias", "again"), [(False, False), (True, True)])
def test_a_convolution_has_a_weight_for_each_tap_and_keeps_its_input(bias, again):
    layer = short_convolution(
        "conv",
        T,
        C,
        K,
        bias=bias,
        stored=C,
        again=again,
        dtype_bytes=B,
        stored_bytes=4.0,
        flags=RECOMPUTED,
    )
    weights = (K + bias) * C
    silu, back = 5, 8
    assert layer.weights == weights
    assert layer.weight_bytes == 4 * weights
    assert layer.flops == ((2 * K + silu) * T * C, (2 * K + back) * T * C, 2 * K * T * C)
    forward = B * (2 * T * C + weights)
    repeated = forward if again else 0
    assert layer.accessed == (forward, B * (3 * T * C + 2 * weights) + repeated, 0)
    assert layer.activation == layer.output_bytes == B * T * C


def test_a_state_hands_on_what_is_between_its_kernels():
    core = Core(flops=7, read=5, written=3, between=11, saved=13, weights=2, counted=1)
    layer = linear_core("state", T, core, dtype_bytes=B, stored_bytes=4.0, flags=RECOMPUTED)
    assert layer.flops == (7 * T, 2.5 * 7 * T, 0)
    assert layer.accessed == (
        T * (B * (5 + 3) + 2 * 11),
        T * (B * (2 * 5 + 3) + 4 * 11),
        0,
    )
    assert (layer.activation, layer.weights, layer.weight_bytes) == (13 * T, 2, 8)
    assert (layer.kernel, layer.engine, layer.counted) == ("linear_attention", "matrix", 1)


def test_a_norm_with_a_gate_keeps_both_inputs():
    layer = gated_norm("norm", T * C, C, dtype_bytes=B, stored_bytes=4.0, flags=RECOMPUTED)
    elements = T * C
    assert layer.flops == (10 * elements, 18 * elements, 3 * elements)
    assert layer.accessed == (B * (3 * elements + C), B * (5 * elements + 2 * C), 0)
    assert np.all([layer.activation == 2 * B * elements, layer.weight_bytes == 4 * C])
