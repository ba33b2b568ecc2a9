import numpy as np
import pytest

from calculon.architecture.layers import Flags, norm

E, WIDTH = np.array([30.0, 60.0]), 5


@pytest.mark.parametrize(
    ("kind", "flops", "weights"),
    [
        ("layernorm", (9, 14, 7), 2 * WIDTH),
        ("layernorm_no_bias", (9, 14, 5), WIDTH),
        ("layernorm_plain", (7, 12, 0), 0),
        ("rmsnorm", (4, 7, 3), WIDTH),
    ],
)
@pytest.mark.parametrize("input_grad", [False, True])
def test_arithmetic_weights_and_traffic_of_a(kind, flops, weights, input_grad):
    layer = norm("x", kind, E, WIDTH, input_grad=input_grad, dtype_bytes=2, flags=Flags())
    np.testing.assert_array_equal(layer.flops, np.outer(flops, E))
    assert layer.weights == weights
    assert layer.weight_bytes == 2 * weights
    reads = 2 * (weights + E + E)
    written = 2 * E if input_grad else 0 * E
    for found, expected in zip(
        layer.accessed, (reads, reads + written, reads * (weights > 0)), strict=True
    ):
        np.testing.assert_array_equal(np.broadcast_to(found, 2), expected)
    np.testing.assert_array_equal(layer.activation, 2 * E)
    np.testing.assert_array_equal(layer.activation_grad, 2 * E)
    assert layer.engine == "vector"
