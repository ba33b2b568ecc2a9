import numpy as np
import pytest

from calculon.hardware.curve import Curve

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
