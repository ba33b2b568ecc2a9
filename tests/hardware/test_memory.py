import numpy as np

from calculon import inputs


def test_time_is_bytes_over_the_bandwidth_at_their_size():
    memory = inputs.system("a100_80g").mem1
    size = np.array([0, 1e5, 1e6, 50e6, 100e6])
    expected = size / (2048e9 * np.array([0.3, 0.3, 0.6, 0.75, 0.9]))
    np.testing.assert_array_equal(memory.time(size), expected)


def test_a_tier_without_capacity_still_has_a_time():
    memory = inputs.system("tests/reference/systems/no_tier2.json").mem2
    assert memory.capacity == 0
    assert memory.time(np.array(0.0)) == 0
