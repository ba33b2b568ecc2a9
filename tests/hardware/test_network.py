import numpy as np
import pytest

from calculon import inputs

FAST, SLOW = 0, 1
"""Networks of a100_80g: NVLink, with ring collectives, and InfiniBand, in effect."""


@pytest.fixture
def fabric():
    """The networks of a system whose numbers are round."""
    return inputs.system("a100_80g").fabric


@pytest.mark.parametrize("members", [2, 4, 8])
@pytest.mark.parametrize(
    ("operation", "passes"),
    [
        ("all_reduce", lambda n: 2 * (n - 1) / n),
        ("reduce_scatter", lambda n: 1.5 * (n - 1) / n),
        ("all_gather", lambda n: 1.5 * (n - 1) / n),
        ("p2p", lambda n: 1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_collective_moves_its_message_so_many_times(fabric, operation, passes, members):
    size = 300e6
    time = fabric.time(np.array(FAST), operation, np.array(size), np.array(float(members)))
    assert time == pytest.approx(1e-5 + passes(members) * size / (300e9 * 0.65), rel=1e-14)


def test_an_empty_message_still_costs_the_latency(fabric):
    networks = np.array([FAST, SLOW])
    time = fabric.time(networks, "all_reduce", np.zeros(2), np.array([4.0, 4.0]))
    np.testing.assert_array_equal(time, [1e-5, 2e-5])


def test_each_row_uses_its_own_network(fabric):
    networks, size, members = np.array([SLOW, FAST]), np.array([1e6, 1e6]), np.array([2.0, 2.0])
    together = fabric.time(networks, "p2p", size, members)
    alone = [fabric.time(networks[i], "p2p", size[i], members[i]) for i in range(2)]
    np.testing.assert_array_equal(together, alone)
    assert together[0] == 2e-5 + 1e6 / (25e9 * 0.9)


def test_columns_follow_the_order_of_the_networks(fabric):
    system = inputs.system("a100_80g")
    for name in ("latency", "processor_usage", "size", "must_be_filled"):
        assert getattr(fabric, name).tolist() == [getattr(n, name) for n in system.networks]
