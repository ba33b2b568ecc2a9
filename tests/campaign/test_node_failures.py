"""Failures of the nodes of a job: the time between them, nodes away for repair, and how many spares it takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaln, pdtrc, xlogy

from calculon.campaign.job_failures import (
    SMALL_JOB,
    combined,
    job_mtbf,
    rate_among_published,
    small_job_warning,
)
from calculon.campaign.published import published_failures
from calculon.campaign.spares import (
    ENOUGH,
    cheapest_spares,
    elastic_rate,
    fewest_spares,
    nodes_in_repair,
    probability_of_waiting,
    share_of_time_waiting,
)
from tests.campaign.simulation import share_waiting
from tests.cases import for_each

PER_PROCESSOR = {one.run: one.mtbf_processor for one in published_failures()}
HOURS = st.floats(1e-3, 1e9)


@given(st.lists(HOURS, min_size=1, max_size=5))
def test_rates_add(hours):
    assert 1 / combined(*hours) == pytest.approx(sum(1 / h for h in hours), rel=1e-12)
    assert combined(*hours) <= min(hours) * (1 + 1e-12)
    assert combined(*hours, np.inf) == combined(*hours)


def test_a_job_has_failures_of_its_processors_and_those_common_to_all():
    both = job_mtbf(16384, PER_PROCESSOR["Llama 3 405B"], 54 * 24 / 47)
    assert 54 * 24 * 3600 / both == pytest.approx(419 + 47)


def test_nothing_fails():
    assert job_mtbf(10**5, np.inf) == np.inf
    assert job_mtbf(10**5, np.inf, 2.0) == 7200
    assert job_mtbf(0, 100.0) == np.inf


def test_small_jobs_are_warned_of():
    assert small_job_warning(SMALL_JOB) == ""
    expected = job_mtbf(1024, PER_PROCESSOR["RSC-1"]) / 3600
    assert f"7.9 h between failures, while the rate of its nodes suggests {expected:.1f} h" in (
        small_job_warning(SMALL_JOB - 1)
    )


def test_a_rate_is_set_among_those_that_are_published():
    hours = sorted(one for one in PER_PROCESSOR.values() if one)
    said = rate_among_published(2 * hours[-1])
    assert f"{len(hours)} of {len(hours)} published rates are higher" in said
    assert f"up to {2 * hours[-1] / hours[0]:.2g} times" in said
    assert rate_among_published(hours[0]) == ""


MEANS = st.one_of(st.floats(1e-6, 3.0), st.floats(3.0, 1000.0))


@given(MEANS, st.integers(0, 1300))
def test_the_tail_is_that_of_a_poisson_law(mean, spares):
    expected = pdtrc(spares, mean)
    assert probability_of_waiting(mean, spares) == pytest.approx(expected, rel=1e-9, abs=1e-290)


def test_without_failures_nobody_waits():
    nothing = np.zeros(3)
    spares = np.array([0, 1, 50])
    assert nodes_in_repair(1000, np.inf, 24.0) == 0
    assert probability_of_waiting(nothing, spares).tolist() == [0, 0, 0]
    assert share_of_time_waiting(nothing, spares).tolist() == [0, 0, 0]
    assert fewest_spares(nothing).tolist() == [0, 0, 0]
    assert elastic_rate(nothing, spares, 8).tolist() == [1, 1, 1]


def test_nodes_of_a_job_are_away_as_often_as_they_fail():
    assert nodes_in_repair(2048, 50_677 / 8, 24.0) == pytest.approx(24.0 / (50_677 / 8 / 2048))


@given(MEANS)
def test_the_fewest_spares_are_enough_and_one_less_is_not(mean):
    number = fewest_spares(mean)
    assert probability_of_waiting(mean, number) <= 1 - ENOUGH
    assert number == 0 or probability_of_waiting(mean, number - 1) > 1 - ENOUGH


@given(MEANS, st.integers(0, 60))
def test_waiting_follows_the_recursion_of_erlang(mean, spares):
    busy = 1.0
    for places in range(1, spares + 2):
        busy = mean * busy / (places + mean * busy)
    assert share_of_time_waiting(mean, spares) == pytest.approx(busy, rel=1e-9)
    assert busy <= probability_of_waiting(mean, spares) * (1 + 1e-9)


@for_each(("mean", "spares"), [(0.5, 0), (2.0, 1), (5.0, 6)])
def test_waiting_as_simulated_with_repairs_of_one_length(mean, spares):
    rng = np.random.default_rng(5)
    shares = np.array([share_waiting(rng, 1000, mean, spares) for _ in range(20)])
    error = shares.std() / np.sqrt(len(shares))
    assert abs(shares.mean() - share_of_time_waiting(mean, spares)) < 3 * error


@given(st.floats(1e-6, 60.0), st.integers(0, 40), st.integers(1, 200))
def test_an_elastic_job_runs_with_the_replicas_that_are_complete(mean, spares, replicas):
    number = np.arange(spares, int(mean + 40 * mean**0.5 + 300))
    missing = np.minimum(number - spares, replicas) / replicas
    chance = np.exp(xlogy(number, mean) - mean - gammaln(number + 1))
    expected = 1 - (chance * missing).sum()
    found = elastic_rate(mean, spares, replicas)
    assert found == pytest.approx(expected, abs=1e-10)
    assert found >= 1 - probability_of_waiting(mean, spares) - 1e-12


def test_a_node_takes_all_its_replicas_with_it():
    rare = 1e-6
    assert 1 - elastic_rate(rare, 0, 4) == pytest.approx(rare / 4, rel=1e-4)
    assert 1 - elastic_rate(rare, 0, 80, num_nodes=10) == pytest.approx(rare / 10, rel=1e-4)
    assert elastic_rate(rare, 0, 1) == pytest.approx(1 - probability_of_waiting(rare, 0))


@given(st.floats(1e-6, 60.0), st.integers(1, 20_000))
def test_the_cheapest_spares_are_found(mean, nodes):
    every = np.arange(300.0)
    paid = (nodes + every) / (1 - share_of_time_waiting(mean, every))
    number = int(cheapest_spares(mean, float(nodes)))
    assert paid[number] == paid.min()
