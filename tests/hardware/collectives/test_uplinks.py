"""Links between the switches of a network, which groups share."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon import inputs
from calculon.hardware.collectives.algorithm_times import AUTO, bus_factor, group_time
from calculon.hardware.collectives.placement import Group, fits_mesh
from tests.helpers import document
from tests.twin.collectives import group_time as expected_time
from tests.twin.mesh import mesh_group, rooms
from tests.twin.system import System

SWITCH, RATE, SIZE = 4, 3e9, 1e9
OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "p2p")


def _raw(nodes=(), **uplink):
    """Return nodes of 16 with or without an uplink, and with one between switches of nodes."""
    raw = document("systems", "h100_80g_sxm")
    raw["networks"][0]["size"] = 16
    raw["ext"]["networks"] = [{"kind": "pcie"}, {"kind": "net"}]
    if uplink:
        raw["ext"]["networks"][0]["uplink"] = uplink
    if nodes:
        raw["ext"]["networks"][1]["uplink"] = dict(nodes)
    return raw


UPLINK = _raw(processors=SWITCH, bandwidth=RATE / 1e9)
FAST = _raw(processors=SWITCH, bandwidth=1e6)


def _time(raw, operation, ranks, stride):
    system = inputs.system(raw)
    group = Group.in_mesh(system, np.atleast_1d(ranks), np.atleast_1d(stride))
    return group_time(system, operation, np.array([SIZE]), group, AUTO)


@pytest.mark.parametrize("operation", OPERATIONS[:3])
@pytest.mark.parametrize(
    ("ranks", "stride", "groups"), [(8, 1, 1), (4, 2, 2), (2, 4, 4), (2, 8, 4)]
)
def test_groups_of_a_mesh_share_the_edge_of_a_ring_that_leaves_a_switch(
    operation, ranks, stride, groups
):
    """Of strides beyond a switch, every processor is in a group of its own."""
    (found,) = _time(UPLINK, operation, ranks, stride)
    assert found == pytest.approx(groups * bus_factor(operation, ranks) * SIZE / RATE)


def test_processors_of_a_switch_send_an_exchange_to_all_others():
    (found,) = _time(UPLINK, "all_to_all", 8, 1)
    assert found == pytest.approx(SWITCH * SIZE * (8 - SWITCH) / 8 / RATE)
    assert _time(UPLINK, "p2p", 2, 4) == pytest.approx(SWITCH * SIZE / RATE)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_groups_below_a_switch_and_fast_uplinks_cost_nothing(operation):
    ranks, stride = np.array([1, 2, 4, 2]), np.array([1, 1, 1, 2])
    assert (
        _time(UPLINK, operation, ranks, stride) == _time(_raw(), operation, ranks, stride)
    ).all()
    others = np.array([8, 4, 32]), np.array([1, 2, 1])
    assert (_time(FAST, operation, *others) == _time(_raw(), operation, *others)).all()


@given(
    st.sampled_from(OPERATIONS),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5)), min_size=1, max_size=6),
    st.sampled_from((1, 2, 8, 32)),
    st.sampled_from((1, 2, 4, 8)),
)
def test_a_table_of_groups_takes_the_times_of_an_independent_implementation(
    operation, groups, nodes, processors
):
    between = {"processors": 16 * nodes, "bandwidth": 1.5}
    raw = _raw(between, processors=processors, bandwidth=RATE / 1e9)
    system = inputs.system(raw)
    ranks, stride = (2 ** np.array(values) for values in zip(*groups, strict=True))
    fits = fits_mesh(system, ranks, stride)
    found = _time(raw, operation, ranks, stride)
    other = System.of(raw)
    for one, apart, time in zip(
        ranks[fits].tolist(), stride[fits].tolist(), found[fits], strict=True
    ):
        group = mesh_group(other, rooms(other), one, apart)
        assert time == pytest.approx(expected_time(other, group, operation, SIZE, AUTO), rel=1e-12)
