"""Error statistics and rank quality, from their definitions."""

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.validate.score import Rank, Score, kendall_tau, regret, relative_errors

numbers = st.lists(st.integers(1, 6).map(float), min_size=2, max_size=12)


def test_an_error_is_relative_to_what_was_measured():
    found = relative_errors(np.array([2.0, 4.0, 5.0]), np.array([1.0, 5.0, 5.0]))
    assert found.tolist() == [-50, 25, 0]


def test_score():
    errors = [-10.0, 2.0, 4.0, -30.0, 6.0]
    found = Score.of(np.array(errors))
    sizes = sorted(map(abs, errors))
    assert found.n == len(errors)
    assert found.mean == pytest.approx(statistics.mean(sizes))
    assert found.median == statistics.median(sizes)
    assert found.p90 == pytest.approx(sizes[3] + 0.6 * (sizes[4] - sizes[3]))  # 0.9 * 4 = 3.6
    assert found.largest == 30
    assert found.bias == pytest.approx(statistics.mean(errors))


def _plain_tau(first, second):
    """Kendall's tau-b by counting pairs."""
    concordant = discordant = ties_first = ties_second = 0
    pairs = list(itertools.combinations(range(len(first)), 2))
    for i, j in pairs:
        one, two = first[i] - first[j], second[i] - second[j]
        ties_first += one == 0
        ties_second += two == 0
        concordant += one * two > 0
        discordant += one * two < 0
    untied = (len(pairs) - ties_first) * (len(pairs) - ties_second)
    return (concordant - discordant) / math.sqrt(untied) if untied else math.nan


@given(st.data(), numbers)
def test_kendall_tau_is_that_of_its_definition(data, first):
    second = data.draw(
        st.lists(st.integers(1, 6).map(float), min_size=len(first), max_size=len(first))
    )
    found = kendall_tau(np.array(first), np.array(second))
    assert found == pytest.approx(_plain_tau(first, second), nan_ok=True)


def test_regret_is_what_the_predicted_best_costs_over_the_best():
    measured = np.array([1.0, 1.5, 3.0])
    assert regret(measured, np.array([9.0, 5.0, 7.0])) == pytest.approx(50)
    assert regret(measured, measured) == 0


def test_rank_looks_into_groups_that_are_large_enough():
    measured = np.array([1.0, 2.0, 3.0, 1.0, 5.0, 4.0, 3.0])
    estimated = np.array([1.0, 2.0, 3.0, 9.0, 1.0, 2.0, 3.0])
    found = Rank.of(["a", "a", "a", "few", "b", "b", "b"], measured, estimated)
    assert found == Rank(
        sweeps=2, tau=0.0, regret=(0 + 100 * (5 / 3 - 1)) / 2, worst_regret=100 * (5 / 3 - 1)
    )
    assert Rank.of(["a", "b"], measured[:2], estimated[:2]) is None


def test_a_sweep_of_equal_estimates_tells_no_order():
    measured, names = np.array([1.0, 2.0, 3.0]), ["a", "a", "a"]
    rank = Rank.of(names, measured, np.full(3, 2.0))
    assert rank is not None
    assert rank.tau == 0
