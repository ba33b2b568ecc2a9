import dataclasses

import numpy as np
import pytest

from calculon import inputs
from calculon.hardware.curve import Curve
from tests.helpers import document


@pytest.mark.parametrize(
    ("mode", "combined"), [("roofline", [3.0, 5.0]), ("no_overlap", [5.0, 9.0])]
)
def test_arithmetic_and_memory_time_combine_by_the_mode(mode, combined):
    system = dataclasses.replace(inputs.system("a100_80g"), processing_mode=mode)
    times = system.combine(np.array([3.0, 4.0]), np.array([2.0, 5.0]))
    np.testing.assert_array_equal(times, combined)


def test_datatypes_are_those_of_both_engines():
    raw = document("systems", "h100_80g_nvl8")
    assert set(inputs.system(raw).datatypes) == {"float8", "float16"}
    del raw["vector"]["float8"]
    assert inputs.system(raw).datatypes == ("float16",)


def test_another_network_makes_another_fabric():
    system = inputs.system("a100_80g")
    slower = tuple(dataclasses.replace(n, latency=1.0) for n in system.networks)
    assert dataclasses.replace(system, networks=slower).fabric.latency.tolist() == [1.0, 1.0]


def test_time_is_bytes_over_the_bandwidth_at_their_size():
    memory = inputs.system("a100_80g").mem1
    size = np.array([0, 1e5, 1e6, 50e6, 100e6])
    expected = size / (2048e9 * np.array([0.3, 0.3, 0.6, 0.75, 0.9]))
    np.testing.assert_array_equal(memory.time(size), expected)


def test_a_tier_without_capacity_still_has_a_time():
    memory = inputs.system("tests/reference/systems/no_tier2.json").mem2
    assert memory.capacity == 0
    assert memory.time(np.array(0.0)) == 0


def test_time_is_flops_over_the_rate_at_their_size():
    engine = inputs.system("a100_80g").matrix["float16"]
    flops = np.array([0, 0.5e9, 1e9, 64e9, 128e9])
    expected = flops / (312e12 * np.array([0.1, 0.1, 0.6, 0.9, 0.95]))
    np.testing.assert_array_equal(engine.time(flops), expected)


STEPS = [[16, 0.9], [1, 0.6], [0, 0.1]]


@pytest.fixture
def curve():
    """Efficiency by size in billions."""
    problems = []
    decoded = Curve.decode(STEPS, "curve", problems, 1e9)
    assert problems == []
    return decoded


def test_an_efficiency_holds_from_its_threshold_on(curve):
    for size, efficiency in [
        (0, 0.1),
        (np.nextafter(1e9, 0), 0.1),
        (1e9, 0.6),
        (15.9e9, 0.6),
        (16e9, 0.9),
        (1e300, 0.9),
    ]:
        assert curve.at(np.array(size)) == efficiency


def test_a_table_of_sizes_is_looked_up_at_once(curve):
    sizes = np.array([[0, 1e9], [2e9, 1e12]])
    np.testing.assert_array_equal(curve.at(sizes), [[0.1, 0.6], [0.6, 0.9]])


def test_a_single_step_is_a_constant():
    constant = Curve.decode([[0, 0.5]], "curve", [], 1e6)
    np.testing.assert_array_equal(constant.at(np.array([0.0, 1.0, 1e30])), 0.5)
