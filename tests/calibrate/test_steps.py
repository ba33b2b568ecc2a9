"""Rising step curves: the best partition, and curves that come back."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.calibrate.steps import MAX_STEPS, fit_steps, partition
from calculon.hardware.curve import Curve

numbers = st.lists(st.floats(-3, 0).map(lambda x: round(x, 3)), min_size=1, max_size=9)


def error(values, weights, starts):
    ends = [*starts[1:], len(values)]
    total = 0.0
    for a, b in zip(starts, ends, strict=True):
        mean = np.average(values[a:b], weights=weights[a:b])
        total += float((weights[a:b] * (values[a:b] - mean) ** 2).sum())
    return total


@given(numbers, st.integers(1, 4), st.data())
def test_the_partition_is_the_best_of_all(values, most, data):
    weights = data.draw(st.lists(st.integers(1, 5), min_size=len(values), max_size=len(values)))
    values, weights = np.array(values), np.array(weights, dtype=float)
    starts = partition(values, weights, most)
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    assert len(starts) <= most
    least = min(
        error(values, weights, [0, *inner])
        for count in range(min(most, len(values)))
        for inner in combinations(range(1, len(values)), count)
    )
    assert error(values, weights, starts) == pytest.approx(least, abs=1e-9)


@given(
    st.lists(st.integers(1, 99), min_size=1, max_size=MAX_STEPS, unique=True).map(sorted),
    st.lists(st.integers(1, 28), min_size=MAX_STEPS - 1, max_size=MAX_STEPS - 1, unique=True),
)
def test_a_curve_comes_back(percents, edges):
    efficiencies = np.array(percents) / 100
    sizes = 2.0 ** np.arange(30)
    thresholds = np.array([0.0, *(2.0 ** np.sort(edges[: len(percents) - 1]))])
    made = Curve(thresholds, efficiencies)
    found = fit_steps(sizes[::-1], made.at(sizes)[::-1])
    assert found.values == pytest.approx(efficiencies, rel=1e-12)
    assert found.sizes[0] == 0
    for threshold, edge in zip(found.sizes[1:], thresholds[1:], strict=True):
        assert edge / 2 < threshold <= edge
    problems = []
    read = Curve.decode(found.pairs, "curve", problems, 1.0)
    assert problems == []
    assert read.at(sizes) == pytest.approx(made.at(sizes))


def test_more_steps_are_never_farther():
    draw = np.random.default_rng(6)
    sizes = np.geomspace(1, 1e6, 60)
    efficiencies = sizes / (sizes + 300) * draw.lognormal(0, 0.1, 60)
    efficiencies = np.minimum(efficiencies, 1.0)

    def distance(most):
        steps = fit_steps(sizes, efficiencies, most)
        fitted = Curve(np.array(steps.sizes), np.array(steps.values)).at(sizes)
        return float((np.log(fitted / efficiencies) ** 2).sum())

    distances = [distance(most) for most in range(1, 9)]
    assert all(b <= a * (1 + 1e-4) for a, b in pairwise(distances))
    assert distances[5] < 0.1 * distances[0]


def test_several_measurements_of_a_size_are_their_geometric_mean():
    found = fit_steps(np.array([1.0, 1.0]), np.array([0.2, 0.8]))
    assert found.pairs == [[0.0, 0.4]]


def test_a_dip_is_averaged_not_chased():
    found = fit_steps(np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.8, 0.2]))
    assert found.values == (0.1, 0.4)


def test_nothing_exceeds_the_peak():
    assert fit_steps(np.array([1.0, 2.0]), np.array([1.04, 1.02])).pairs == [[0.0, 1.0]]
