"""The law ``stream`` of memory-bound kernels, the rate of all traffic, and what slows them."""

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.hardware.kernels.kernel import LONGEST_START
from calculon.hardware.residuals import Spread
from calculon.hardware.slower import slowed
from tests.hardware.kernels.layers import layer, times
from tests.hardware.kernels.test_kernels import NORM, SOFTMAX, TYPE, raw_system, stated

LAW = {"law": "stream", "efficiency": 0.8, "start": 3e-6}
TRAFFIC = {"efficiency": 0.9, "start": 2e-6}
BANDWIDTH = 3350e9


def test_a_kernel_takes_its_start_and_its_bytes_at_a_share_of_the_bandwidth():
    _, memory = times(stated("norm", LAW), NORM, TYPE)
    np.testing.assert_allclose(memory, 3e-6 + np.array(NORM.accessed) / (0.8 * BANDWIDTH))


def test_backward_passes_may_have_a_share_of_their_own():
    _, memory = times(stated("norm", LAW | {"backward": 0.5}), NORM, TYPE)
    shares = np.array([0.8, 0.5, 0.5])
    np.testing.assert_allclose(memory, 3e-6 + np.array(NORM.accessed) / (shares * BANDWIDTH))


def test_each_kernel_of_a_chain_has_a_start():
    chain = NORM._replace(launches=(6, 12, 0))
    _, memory = times(stated("norm", LAW), chain, TYPE)
    starts = 3e-6 * np.array([6, 12, 0])
    np.testing.assert_allclose(memory, starts + np.array(NORM.accessed) / (0.8 * BANDWIDTH))


def test_arithmetic_beside_traffic_is_at_the_rate_of_long_operations():
    system = stated("norm", LAW)
    arithmetic, _ = times(system, NORM, TYPE)
    engine = system.vector[TYPE]
    np.testing.assert_allclose(arithmetic, np.array(NORM.flops) / (engine.peak * 0.95))


def test_more_work_never_takes_less_time():
    """Which it does on the steps of a curve."""
    moved = np.geomspace(1.0, 1e12, 2000)
    system = inputs.system(raw_system(traffic=TRAFFIC))
    assert (np.diff(system.move_time(moved)) > 0).all()
    assert (np.diff(system.vector_time(TYPE, moved)) > 0).all()
    assert (np.diff(system.published.move_time(moved)) < 0).any()


def test_any_stands_for_the_types_that_are_not_stated():
    own = LAW | {"efficiency": 0.5}
    system = inputs.system(raw_system(kernels={"norm": {"any": LAW, TYPE: own}}))
    assert system.rate("norm", TYPE).efficiency == 0.5
    assert system.rate("norm", "float16").efficiency == 0.8
    assert system.rate("softmax", TYPE) is None


def test_kinds_that_are_not_stated_have_the_rate_of_all_traffic():
    system = inputs.system(raw_system(traffic=TRAFFIC, kernels={"norm": {"any": LAW}}))
    for one, start, share in ((NORM, 3e-6, 0.8), (SOFTMAX, 2e-6, 0.9)):
        _, memory = times(system, one, TYPE)
        assert memory[0] == pytest.approx(start + one.accessed[0] / (share * BANDWIDTH))
    assert system.move_time(np.array([1e9]))[0] == pytest.approx(2e-6 + 1e9 / (0.9 * BANDWIDTH))


def test_a_slower_memory_slows_all_that_is_a_share_of_it():
    ext = {"traffic": TRAFFIC, "kernels": {"norm": {"any": LAW | {"backward": 0.6}}}}
    system = inputs.system(raw_system(**ext))
    slower = slowed(system, Spread(part="mem1", low=1.0, high=2.0, level=0.9), 2.0)
    size = np.array([1e8])
    np.testing.assert_allclose(slower.move_time(size), 2 * system.move_time(size))
    for one in (NORM, SOFTMAX):
        before, after = (times(machine, one, TYPE)[1] for machine in (system, slower))
        np.testing.assert_allclose(after, 2 * before)
    small = slowed(system, Spread(part="mem1", low=1.0, high=2.0, level=0.9, end=1e6), 2.0)
    assert small.move_time(size)[0] == pytest.approx(system.move_time(size)[0] + 2e-6)


def test_a_share_above_one_is_refused():
    with pytest.raises(calculon.SpecError, match=r"ext\.kernels\.norm\.any\.efficiency"):
        inputs.system(raw_system(kernels={"norm": {"any": LAW | {"efficiency": 1.2}}}))
    for start in (-1, 1e30):
        with pytest.raises(calculon.SpecError, match=r"ext\.traffic\.start: expected a number"):
            inputs.system(raw_system(traffic=TRAFFIC | {"start": start}))
    inputs.system(raw_system(traffic=TRAFFIC | {"start": LONGEST_START}))


def test_layers_of_a_rate_have_their_own_kernels():
    found = times(stated("add", LAW), layer("add", (0.0, 0.0, 0.0), (1e6, 0.0, 0.0)), TYPE)[1]
    np.testing.assert_allclose(found, [3e-6 + 1e6 / (0.8 * BANDWIDTH), 0, 0])
