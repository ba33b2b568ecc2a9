import dataclasses

import numpy as np
import pytest

from calculon import inputs
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
