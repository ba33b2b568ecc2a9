import numpy as np
import pytest

from calculon.base.arrays import ordered_sum, rate


@pytest.mark.parametrize("blocks", [1, 2, 7])
def test_layers_add_up_from_first_to_last_whatever_the_shape(blocks):
    tiny = 2.0**-53
    layers = np.full((5, blocks), tiny)
    layers[0] = 1.0
    np.testing.assert_array_equal(ordered_sum(layers), np.ones(blocks))
    np.testing.assert_array_equal(ordered_sum(layers[::-1]), np.full(blocks, 1.0 + 4 * tiny))
    np.testing.assert_array_equal(ordered_sum(np.stack([layers, 3 * layers]))[0], np.ones(blocks))


@pytest.mark.parametrize(
    ("amount", "time", "expected"),
    [(6.0, 2.0, 3.0), (0.0, 2.0, 0.0), (0.0, 0.0, 0.0), (6.0, 0.0, np.nan), (6.0, -2.0, -3.0)],
)
def test_a_rate_is_null_for_something_in_no_time_and_zero_for_nothing(amount, time, expected):
    np.testing.assert_equal(rate(np.array([amount]), np.array(time)).item(), expected)
