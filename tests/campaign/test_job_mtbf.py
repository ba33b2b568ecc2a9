"""The mean time between failures of a job."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.campaign.job_mtbf import (
    SMALL_JOB,
    combined,
    job_mtbf,
    rate_among_published,
    small_job_warning,
)
from calculon.campaign.published import published_failures

PER_PROCESSOR = {one.run: one.mtbf_processor for one in published_failures()}
HOURS = st.floats(1e-3, 1e9)


@given(st.lists(HOURS, min_size=1, max_size=5))
def test_rates_add(hours):
    assert 1 / combined(*hours) == pytest.approx(sum(1 / h for h in hours), rel=1e-12)
    assert combined(*hours) <= min(hours) * (1 + 1e-12)
    assert combined(*hours, np.inf) == combined(*hours)


def test_failures_of_rsc_1_and_llama_3():
    hours = job_mtbf(np.array([16384, 131072]), PER_PROCESSOR["RSC-1"]) / 3600
    assert hours == pytest.approx([1.80, 0.225], rel=0.01)
    both = job_mtbf(16384, PER_PROCESSOR["Llama 3 405B"], 54 * 24 / 47)
    assert 54 * 24 * 3600 / both == pytest.approx(419 + 47)


@given(st.integers(1, 10**6), HOURS)
def test_twice_the_processors_fail_twice_as_often(number, hours):
    assert job_mtbf(2 * number, hours) == pytest.approx(job_mtbf(number, hours) / 2)
    assert job_mtbf(number, hours, 5.0) <= 5 * 3600 * (1 + 1e-12)


def test_nothing_fails():
    assert job_mtbf(10**5, np.inf) == np.inf
    assert job_mtbf(10**5, np.inf, 2.0) == 7200
    assert job_mtbf(0, 100.0) == np.inf


def test_small_jobs_are_warned_of():
    assert small_job_warning(SMALL_JOB) == ""
    expected = job_mtbf(1024, PER_PROCESSOR["RSC-1"]) / 3600
    assert f"7.9 h between failures, where the rate of its nodes says {expected:.1f} h" in (
        small_job_warning(SMALL_JOB - 1)
    )


def test_a_rate_is_set_among_those_that_are_published():
    hours = sorted(one for one in PER_PROCESSOR.values() if one)
    said = rate_among_published(2 * hours[-1])
    assert f"of {len(hours)} that are published {len(hours)} are higher" in said
    assert f"up to {2 * hours[-1] / hours[0]:.2g} times" in said
    assert rate_among_published(hours[0]) == ""
