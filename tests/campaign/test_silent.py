"""Silent corruption: work done again, and checkpoints kept."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.campaign.silent import checkpoints_to_keep, rework

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
