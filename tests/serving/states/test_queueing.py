"""Queues: known results, and what makes them longer."""

import numpy as np
import pytest

from calculon.serving.states.queueing import (
    batch_percentile,
    closed_rate,
    erlang_c,
    next_end,
    pass_left,
    wait,
    wait_for_batch,
)


def test_erlang_c_by_the_recursion_of_erlang_b():
    shares = np.array([0.7, 2900 / 3000, 2999 / 3000])
    for servers in (1, 2, 40, 3000):
        loads, blocked = servers * shares, np.ones(3)
        for number in range(1, servers + 1):
            blocked = loads * blocked / (number + loads * blocked)
        expected = blocked / (1 - shares * (1 - blocked))
        found = erlang_c(np.full(3, servers), loads)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-15)


def test_one_server_with_exponential_and_with_equal_times():
    share, service = np.array([0.1, 0.5, 0.9]), 0.2
    mean = service * share / (1 - share)
    add_waits = [
        wait(share / service, service + 0 * share, np.ones(3), 1.0, cv, 0.99) for cv in (1.0, 0.0)
    ]
    np.testing.assert_allclose(add_waits[0].mean, mean)
    np.testing.assert_allclose(add_waits[1].mean, mean / 2)  # Pollaczek and Khinchine
    left = share * np.exp(-add_waits[0].percentile * (1 - share) / service)
    assert np.all(np.minimum(left, 0.01) == pytest.approx(left))


def test_a_queue_that_is_not_served_has_no_end():
    found = wait(np.array([10.0, 11.0]), np.full(2, 0.1), np.ones(2), 1.0, 0.0, 0.9)
    assert np.all(np.isinf(found.mean))
    assert np.all(np.isinf(found.percentile))


def test_batches_vary_as_their_root():
    assert batch_percentile(np.array([100.0]), 0.8413)[0] == pytest.approx(110, abs=0.01)


def test_nobody_waits_without_load_and_no_tail_is_below_the_mean():
    rates = np.array([0.0, 1e-9, 1e-3, 1.0, 5.0, 9.9])
    one = np.ones_like(rates)
    for found in (
        wait(rates, 0.1 * one, one, 1.0, 0.5, 0.99),
        pass_left(rates, 0.1 * one, 0.99),
        wait_for_batch(rates, one, 0.1 * one, 5 * one, 0.3 * one, 1.0, 0.99),
    ):
        assert found.mean[0] == 0
        assert found.mean[1] < 1e-9
        assert np.all(np.diff(found.mean) > 0)
        assert np.all(found.percentile >= found.mean)


def test_what_is_left_of_a_pass_is_uniform():
    found = next_end(np.ones(1), np.ones(1), np.ones(1), 0.99)
    assert found == (pytest.approx(0.5), pytest.approx(0.99))
    several = next_end(np.full(3, 2.0), np.array([1.0, 2, 7]), np.ones(3), 0.9)
    np.testing.assert_allclose(several.mean, 2 / np.array([2, 3, 8]))
    left = (1 - several.percentile / 2) ** np.array([1, 2, 7])
    np.testing.assert_allclose(left, 0.1)  # all servers are at work for longer
    rare = next_end(np.ones(1), np.ones(1), np.full(1, 1e-3), 0.99)
    assert rare.percentile == rare.mean  # of one request in a thousand


def test_batches_of_one_wait_as_one_server():
    """Pollaczek and Khinchine with fixed times."""
    shares, lasts = np.array([0.1, 0.6, 0.95]), np.full(3, 0.2)
    found = wait_for_batch(shares / lasts, np.ones(3), lasts, np.ones(3), lasts, 1.0, 0.99)
    np.testing.assert_allclose(found.mean, lasts * shares / (1 - shares) / 2)


def test_batches_wait_for_the_one_at_work_and_then_for_places():
    rates, one = np.array([2.0, 5.0, 7.9, 7.999, 8.0]), np.ones(5)
    lasts, most = 0.5 + rates / 8, 12.0  # of as many as come meanwhile; 12 take 1.5 s
    found = wait_for_batch(rates, one, lasts, most * one, 1.5 * one, 1.0, 0.99)
    np.testing.assert_allclose(found.mean[0], lasts[0] / 2, rtol=1e-2)
    np.testing.assert_allclose(found.percentile[0], 0.99 * lasts[0], rtol=1e-2)
    # with all places taken as a queue whose server has a place's share of the time for each
    heavy = 1.5 / most / (1 - rates[3] / 8) / 2
    assert found.mean[3] == pytest.approx(heavy, rel=1e-2)
    assert np.isinf(found.mean[4])


def test_a_single_user_never_waits_and_more_get_no_less():
    users = np.arange(1.0, 400)
    service, servers, elsewhere = np.full(399, 0.1), np.full(399, 2.0), np.full(399, 3.0)
    rate = closed_rate(users, service, servers, 0.0, elsewhere)
    assert rate[0] == pytest.approx(1 / 3)
    assert np.all(np.diff(rate) >= -1e-9)
    assert np.all(rate <= 2 / 0.1)
    assert np.all(rate <= users / 3 * (1 + 1e-9))
    waits = users / rate - 3
    assert np.all(np.diff(waits) > 0)


def test_the_exact_mean_value_analysis_of_one_exponential_server():
    """Reiser and Lavenberg: W(U) = s (1 + Q(U - 1)), to which the others' share of all comes close."""
    service, elsewhere, queue, expected = 0.1, 1.9, 0.0, []
    for users in range(1, 31):
        stays = service * (1 + queue)
        rate = users / (elsewhere + stays)
        queue = rate * stays
        expected.append(rate)
    one = np.ones(30)
    found = closed_rate(np.arange(1.0, 31), service * one, one, 1.0, (elsewhere + service) * one)
    np.testing.assert_allclose(found, expected, rtol=0.06)
