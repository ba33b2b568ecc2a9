import numpy as np
import pytest

from calculon.architecture.layers import Flags, activation

E = np.array([30.0, 60.0])
FLOPS = {
    "gelu": (8, 13),
    "relu": (1, 1),
    "squared_relu": (2, 3),
    "swiglu": (5 + 1, 8 + 1 + 2),  # SiLU and a product; backward also both products' gradients
    "geglu": (8 + 1, 13 + 1 + 2),
}
GATED = ("swiglu", "geglu")
kinds = pytest.mark.parametrize("kind", FLOPS)


def _layer(kind, fused=False, beta=2, **changes):
    return activation("x", kind, E, fused=fused, dtype_bytes=beta, flags=Flags(), **changes)


@kinds
def test_arithmetic_of(kind):
    forward, backward, weights = _layer(kind).flops
    np.testing.assert_array_equal(forward, FLOPS[kind][0] * E)
    np.testing.assert_array_equal(backward, FLOPS[kind][1] * E)
    assert weights == 0


@kinds
def test_a_fused_one_keeps_an_input_less_and_no_gradient(kind):
    inputs = (2 if kind in GATED else 1) * E
    for beta in (1, 2, 4):
        stored, fused = (_layer(kind, form, beta) for form in (False, True))
        for layer in (stored, fused):
            np.testing.assert_array_equal(layer.inputs, inputs)
            np.testing.assert_array_equal(layer.outputs, E)
        np.testing.assert_array_equal(stored.activation, beta * inputs)
        np.testing.assert_array_equal(stored.activation_grad, beta * E)
        np.testing.assert_array_equal(fused.activation, beta * (inputs - E))
        assert not np.any(fused.activation_grad), beta


@kinds
def test_it_reads_its_inputs_and_writes_its_output_fused_or_not(kind):
    inputs = (2 if kind in GATED else 1) * E
    for fused in (False, True):
        layer = _layer(kind, fused, input_grad=True)
        np.testing.assert_array_equal(layer.accessed[0], 2 * (inputs + E))
        np.testing.assert_array_equal(layer.accessed[1], 2 * (inputs + E + inputs))


def test_as_published_the_gradient_that_is_written_does_not_count():
    for kind in ("gelu", "relu", "squared_relu"):
        np.testing.assert_array_equal(_layer(kind).accessed[1], 2 * (E + E), err_msg=kind)
