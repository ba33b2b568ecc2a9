"""Nodes that compute wrong results, which costs work done again, and slow nodes, for which others wait."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.campaign.job_failures import (
    any_slow,
    checkpoints_to_keep,
    expected_maximum,
    jitter,
    rework,
    share_slow,
    slow_nodes,
)

TIMES = st.floats(0.0, 1e5)
INTERVALS = st.floats(1.0, 1e5)


def simulated(rng, number, found_after, interval, restart, mtbf):
    """Return the times of segments that are repeated until they are clean; found after about `found_after`."""
    times = []
    for _ in range(number):
        time = 0.0
        while (corrupt := rng.exponential(mtbf)) < interval:
            time += corrupt + rng.exponential(found_after) + restart
        times.append(time + interval)
    return np.array(times)


def test_rework_as_simulated():
    figures = (3600.0, 600.0, 300.0, 5000.0)
    times = simulated(np.random.default_rng(7), 10_000, *figures) / figures[1]
    assert abs(times.mean() - rework(*figures)) < 3 * times.std() / np.sqrt(len(times))


@given(TIMES, INTERVALS, TIMES, st.floats(1e9, 1e15))
def test_rare_corruption_costs_what_it_undoes(found_after, interval, restart, mtbf):
    lost = interval / 2 + found_after + restart
    excess = rework(found_after, interval, restart, mtbf) - 1
    assert excess == pytest.approx(lost / mtbf, rel=1e-3, abs=1e-15)


def test_without_corruption_nothing_is_done_again():
    assert rework(3600.0, np.array([600.0, np.inf]), 300.0, np.inf).tolist() == [1, 1]
    assert rework(3600.0, 600.0, 300.0, 0.1) == np.inf


@given(st.one_of(st.just(0.0), st.floats(1e-6, 1e6)), INTERVALS)
def test_the_oldest_checkpoint_is_older_than_what_is_found(longest, interval):
    number = checkpoints_to_keep(longest, interval)
    assert (number - 1) * interval >= longest * (1 - 1e-12)
    assert number == 1 or (number - 2) * interval < longest


@given(st.integers(1, 10**6), st.floats(0.0, 1.0))
def test_some_node_is_slow_unless_all_are_good(number, share):
    assert any_slow(number, share) == pytest.approx(1 - (1 - share) ** number, abs=1e-9)
    assert any_slow(number, share) <= min(1.0, number * share) * (1 + 1e-12)


def test_a_step_waits_for_one_slow_node_as_for_all():
    assert slow_nodes(8, 1.0, 1.25) == slow_nodes(1000, 1.0, 1.25) == 1.25
    assert slow_nodes(1000, 0.0, 1.25) == 1
    assert slow_nodes(1000, 1e-12, 2.0) == pytest.approx(1 + 1e-9, rel=1e-12)


def test_a_node_is_slow_until_it_is_removed():
    assert share_slow(90.0, 10.0) == 0.1
    assert share_slow(np.inf, 10.0) == 0


def test_the_slowest_of_a_few_is_known():
    root = np.sqrt(np.pi)
    known = [0, 1 / root, 1.5 / root]
    assert expected_maximum(np.array([1, 2, 3])) == pytest.approx(known, abs=1e-12)


def test_the_slowest_of_many_as_drawn():
    draws = np.random.default_rng(6).standard_normal((2000, 64)).max(axis=1)
    error = draws.std() / np.sqrt(len(draws))
    assert abs(draws.mean() - expected_maximum(64)) < 3 * error


def test_the_limit_is_approached():
    number = np.geomspace(1e2, 1e15, 14)
    gap = 1 - expected_maximum(number) / np.sqrt(2 * np.log(number))
    assert np.all(np.diff(gap) < 0)
    assert 0 < gap[-1] < 0.04


def test_jitter_is_linear_in_the_spread_of_times():
    groups = np.array([1, 8, 8])
    assert jitter(groups, 0.0).tolist() == [1, 1, 1]
    assert jitter(groups, 0.02) - 1 == pytest.approx(0.02 * expected_maximum(groups))
