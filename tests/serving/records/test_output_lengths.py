"""Outputs of different lengths: laws of the longest."""

import math

import numpy as np
import pytest

from calculon.serving.records.output_lengths import draining_batch, longest_output, weibull_shape
from tests.cases import for_each


@for_each("variation", [0.02, 0.3, 1.0, 2.5])
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


@for_each("under_way", [False, True])
@for_each("variation", [0.05, 0.5, 1.0, 2.0])
def test_a_batch_runs_out_with_all_its_tokens(variation, under_way):
    batch, steps = np.array([1.0, 8, 300]), 400.0
    out = draining_batch(batch, steps, variation, under_way=under_way)
    each = steps * (1 + variation**2) / 2 if under_way else steps
    np.testing.assert_allclose((out.passes * out.left).sum(axis=1), batch * each, rtol=3e-3)
    assert np.all(np.diff(out.left, axis=1) <= 1e-9 * batch[:, None])
    assert np.all(out.left >= 1 - 1e-6)
    assert np.all(np.diff(out.made, axis=1) > 0)
    if not under_way:
        last = longest_output(batch, steps, variation)
        np.testing.assert_allclose(out.passes.sum(axis=1), last, rtol=1e-3)


@pytest.mark.parametrize("variation", [0.5, 1.0])
def test_what_is_under_way_is_as_in_a_simulation(variation):
    """Each of 64 places takes one output after the other; at some time nobody follows."""
    random, shape, runs = np.random.default_rng(5), weibull_shape(variation), 150
    lengths = random.weibull(shape, (runs, 64, 60)) / math.gamma(1 + 1 / shape)
    ends = lengths.cumsum(axis=2)
    left = np.where(ends > 20, ends, np.inf).min(axis=2) - 20
    assert np.isfinite(left).all()
    out = draining_batch(np.full(1, 64.0), 1.0, variation, under_way=True)
    assert left.max(axis=1).mean() == pytest.approx(out.passes.sum(), rel=0.05)
    assert left.sum(axis=1).mean() == pytest.approx((out.passes * out.left).sum(), rel=0.05)
