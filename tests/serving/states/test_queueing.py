"""Queues: known results, and what makes them longer."""

import math

import numpy as np
import pytest

from calculon.serving.states.queueing import batch_percentile, erlang_c, wait


@pytest.mark.parametrize("servers", [1, 2, 5, 40])
def test_erlang_c_is_its_sum(servers):
    load = 0.7 * servers
    terms = [load**n / math.factorial(n) for n in range(servers)]
    last = load**servers / math.factorial(servers) / (1 - load / servers)
    assert erlang_c(np.array([servers]), np.array([load]))[0] == pytest.approx(
        last / (sum(terms) + last)
    )


def test_one_server_with_exponential_and_with_equal_times():
    share, service = np.array([0.1, 0.5, 0.9]), 0.2
    mean = service * share / (1 - share)
    both = [
        wait(share / service, service + 0 * share, np.ones(3), 1.0, cv, 0.99) for cv in (1.0, 0.0)
    ]
    np.testing.assert_allclose(both[0].mean, mean)
    np.testing.assert_allclose(both[1].mean, mean / 2)  # Pollaczek and Khinchine
    left = share * np.exp(-both[0].percentile * (1 - share) / service)
    assert np.all(np.minimum(left, 0.01) == pytest.approx(left))


def test_more_load_waits_longer_and_more_servers_less():
    rates = np.linspace(0.1, 9.9, 30)
    found = wait(rates, np.full(30, 0.1), np.ones(30), 1.0, 0.0, 0.99)
    assert np.all(np.diff(found.mean) > 0)
    assert np.all(np.diff(found.percentile) >= 0)
    servers = np.array([1.0, 2, 8])
    means = wait(9.0 * servers, np.full(3, 0.1), servers, 1, 1, 0.99).mean
    assert means[0] > means[1] > means[2]


def test_a_queue_that_is_not_served_has_no_end():
    found = wait(np.array([10.0, 11.0]), np.full(2, 0.1), np.ones(2), 1.0, 0.0, 0.9)
    assert np.all(np.isinf(found.mean))
    assert np.all(np.isinf(found.percentile))


def test_batches_vary_as_their_root():
    assert batch_percentile(np.array([100.0]), 0.8413)[0] == pytest.approx(110, abs=0.01)
