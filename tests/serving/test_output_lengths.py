"""Outputs of different lengths: laws of the longest."""

import math

import numpy as np
import pytest

from calculon.serving.output_lengths import longest_output, weibull_shape


@pytest.mark.parametrize("variation", [0.02, 0.3, 1.0, 2.5])
def test_weibull_lengths_have_their_mean_and_variation(variation):
    shape = weibull_shape(variation)
    moments = [math.gamma(1 + n / shape) for n in (1, 2)]
    assert math.sqrt(moments[1] / moments[0] ** 2 - 1) == pytest.approx(variation, rel=1e-6)
    # the longest of one is any
    assert longest_output(np.ones(1), 300, variation)[0] == pytest.approx(300, rel=1e-5)


def test_the_longest_of_exponential_outputs_is_a_harmonic_sum():
    batch = np.array([1.0, 2, 7, 64, 1000])
    harmonic = [sum(1 / n for n in range(1, int(one) + 1)) for one in batch]
    found = longest_output(batch, 500.0, 1.0)
    np.testing.assert_allclose(found, 500 * np.array(harmonic), rtol=1e-4)
    # the minimum of n Weibull lengths is shorter by n to 1/k, so that of two the longest is 2 - 2 to -1/k of the mean
    for variation in (0.3, 2.0):
        two = 2 - 2 ** (-1 / weibull_shape(variation))
        assert longest_output(np.full(1, 2.0), 1.0, variation)[0] == pytest.approx(two, rel=1e-5)


def test_equal_outputs_end_together():
    np.testing.assert_array_equal(longest_output(np.arange(1.0, 90), 300, 0.0), np.full(89, 300.0))
    np.testing.assert_allclose(longest_output(np.arange(1.0, 90), 300, 1e-3), 300, rtol=0.02)
