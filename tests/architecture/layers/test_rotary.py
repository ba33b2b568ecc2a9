import numpy as np

from calculon.architecture.layers import Flags, rotary

E = np.array([30.0, 60.0])


def test_turning_a_pair_takes_four_products_and_two_sums_in_both_directions():
    layer = rotary("x", E, dtype_bytes=2, flags=Flags())
    pairs = E / 2
    for found in layer.flops[:2]:
        np.testing.assert_array_equal(found, 2 * (4 + 2) * pairs)
    assert layer.flops[2] == 0
    for found in layer.accessed[:2]:
        np.testing.assert_array_equal(found, 2 * (E + E))


def test_it_saves_nothing_and_has_no_weights():
    layer = rotary("x", E, dtype_bytes=2, flags=Flags())
    assert layer.activation == layer.weights == layer.weight_bytes == 0
    np.testing.assert_array_equal(layer.activation_grad, 2 * E)
    assert layer.engine == "vector"
