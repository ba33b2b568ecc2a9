import math

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.hardware.extension import Link
from calculon.hardware.network import Fabric
from tests.helpers import document

FAST, SLOW = 0, 1
"""Networks of a100_80g: NVLink, with ring collectives, and InfiniBand, in effect."""


@pytest.fixture
def fabric():
    """The networks of a system whose numbers are round."""
    return inputs.system("a100_80g").fabric


def test_a_collective_moves_its_message_so_many_times(fabric):
    for members in [2, 4, 8]:
        for operation, passes in [
            ("all_reduce", lambda n: 2 * (n - 1) / n),
            ("reduce_scatter", lambda n: 1.5 * (n - 1) / n),
            ("all_gather", lambda n: 1.5 * (n - 1) / n),
            ("p2p", lambda n: 1),
        ]:
            size = 300e6
            time = fabric.time(np.array(FAST), operation, np.array(size), np.array(float(members)))
            assert time == pytest.approx(1e-5 + passes(members) * size / (300e9 * 0.65), rel=1e-14)


def test_each_row_uses_its_own_network(fabric):
    networks, size, members = np.array([SLOW, FAST]), np.array([1e6, 1e6]), np.array([2.0, 2.0])
    together = fabric.time(networks, "p2p", size, members)
    alone = [fabric.time(networks[i], "p2p", size[i], members[i]) for i in range(2)]
    np.testing.assert_array_equal(together, alone)
    assert together[0] == 2e-5 + 1e6 / (25e9 * 0.9)


OPERATIONS = ("p2p", "reduce_scatter", "all_gather", "all_reduce")
SIZES = np.concatenate([[0.0], 2.0 ** np.arange(0, 40)])


def ramped(*ramps):
    """Networks of a100_80g with ramps, or without for None."""
    networks = inputs.system("a100_80g").networks
    return Fabric.of(networks, tuple(Link() if r is None else Link(ramp=r) for r in ramps))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_ramp_is_that_of_a_pipeline_with_the_best_number_of_segments(fabric, operation):
    overhead, stages, size, members = 1e-6, 7, 300e6, 2.0 if operation == "p2p" else 8.0
    call = (np.array(FAST), operation, np.array(size), np.array(members))
    plain = fabric.time(*call)
    wire = plain - fabric.latency[FAST]
    segments = np.arange(1, 20_000)
    best = ((segments + stages - 1) * (overhead + wire / segments)).min()
    ramp = (stages - 1) * overhead
    time = ramped(ramp).time(*call) - fabric.latency[FAST]
    assert time + ramp == pytest.approx(best, rel=1e-6)


def test_no_ramp_is_the_plain_form_to_the_bit(fabric):
    for links in [(), (0.0,), (None,), (0.0, 1e-3)]:
        for operation in OPERATIONS:
            for members in (1.0, 2.0, 3.0, 8.0):
                call = (np.array(FAST), operation, SIZES, np.array(members))
                np.testing.assert_array_equal(
                    ramped(*links).time(*call), fabric.time(*call), err_msg=str((links, operation))
                )
            assert (ramped(*links).ramp is None) == (not any(links)), (links, operation)


def test_a_link_may_say_its_ramp_or_its_step_latency_or_both():
    raw = document("systems", "h100_80g_sxm")
    raw["ext"]["networks"] = [{"ramp": 1e-5}, {"step_latency": 2e-6}]
    fabric = inputs.system(raw).fabric
    assert fabric.ramp.tolist() == [1e-5, 0]
    assert fabric.step_latency.tolist() == [raw["networks"][0]["latency"], 2e-6]


@pytest.mark.parametrize("value", [-1e-9, math.inf, "1e-5", None])
def test_a_bad_ramp_is_refused(value):
    raw = document("systems", "h100_80g_sxm")
    raw["ext"]["networks"][0]["ramp"] = value
    with pytest.raises(
        calculon.SpecError, match=r"ext\.networks\[0\]\.ramp: expected a number of at least 0"
    ):
        inputs.system(raw)


def test_no_operation_takes_less_than_its_launch():
    networks = calculon.inputs.system("a100_80g").networks
    plain, launched = Fabric.of(networks), Fabric.of(networks, launch=1e-3)
    sizes = np.array([1.0, 1e6, 1e10])
    for operation in ("p2p", "all_reduce"):
        times = plain.time(np.array(0), operation, sizes, np.array(8.0))
        found = launched.time(np.array(0), operation, sizes, np.array(8.0))
        np.testing.assert_array_equal(found, np.maximum(times, 1e-3))
        assert found[-1] == times[-1] > 1e-3
