"""The mean time between failures of a job."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.campaign.job_mtbf import combined, job_mtbf

HOURS = st.floats(1e-3, 1e9)


@given(st.lists(HOURS, min_size=1, max_size=5))
def test_rates_add(hours):
    assert 1 / combined(*hours) == pytest.approx(sum(1 / h for h in hours), rel=1e-12)
    assert combined(*hours) <= min(hours) * (1 + 1e-12)
    assert combined(*hours, np.inf) == combined(*hours)


def test_the_projection_of_rsc_1():
    per_processor = 8 * 24 * 1000 / 6.5
    hours = job_mtbf(np.array([16384, 131072]), per_processor) / 3600
    assert hours == pytest.approx([1.80, 0.225], rel=0.01)


@given(st.integers(1, 10**6), HOURS)
def test_twice_the_processors_fail_twice_as_often(number, hours):
    assert job_mtbf(2 * number, hours) == pytest.approx(job_mtbf(number, hours) / 2)
    assert job_mtbf(number, hours, 5.0) <= 5 * 3600 * (1 + 1e-12)


def test_nothing_fails():
    assert job_mtbf(10**5, np.inf) == np.inf
    assert job_mtbf(10**5, np.inf, 2.0) == 7200
    assert job_mtbf(0, 100.0) == np.inf
