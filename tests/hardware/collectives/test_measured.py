"""Collectives as a system file states them by measurement."""

import numpy as np
import pytest

from calculon import inputs
from calculon.base.errors import SpecError
from calculon.hardware.collectives.algorithm_times import (
    AUTO,
    bus_bandwidth,
    bus_factor,
    group_time,
    port_share,
    schedule_of,
    time_of,
)
from calculon.hardware.collectives.algorithms import obstacle
from calculon.hardware.collectives.placement import Group, place
from tests.helpers import document

LAWS = {
    "all_reduce": {
        "latency": 4e-6,
        "rank_latency": 1e-6,
        "rates": [[2, 0.8, 4e-6], [8, 1.1, 9e-6]],
    },
    "all_gather": {"latency": 5e-6, "rates": [[2, 0.5, 0], [4, 0.7, 1e-6], [8, 0.8, 1e-6]]},
    "reduce_scatter": {"latency": 5e-6, "rates": [[8, 0.6, 0]]},
    "p2p": {"latency": 7e-6, "rates": [[2, 0.84, 0]]},
}
PORT = 450e9
SIZES = 2.0 ** np.arange(0, 36, 2)


def stated(laws=LAWS, bandwidth=450, base="h100_80g_sxm"):
    """Return H100 whose NVLink states operations."""
    raw = document("systems", base)
    raw["networks"][0]["bandwidth"] = bandwidth
    raw["ext"]["networks"] = [{"kind": "nvlink", "operations": laws}, {"kind": "net"}]
    return inputs.system(raw)


SYSTEM = stated()


def test_time_is_latency_of_ranks_wire_and_ramp():
    wire = bus_factor("all_reduce", 8) * SIZES / PORT / 1.1
    expected = 4e-6 + 7 * 1e-6 + wire + 2 * np.sqrt(9e-6 * wire)
    found = group_time(SYSTEM, "all_reduce", SIZES, place(SYSTEM, 8), AUTO)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_steps_of_long_messages_take_a_least_time():
    step, least = 0.9 * 2**21 / PORT, 14e-6
    law = {"latency": 5e-6, "rates": [[8, 0.6, 0]], "long_step": step, "least_step": least}
    sizes = 2.0 ** np.arange(20, 32)
    for largest, ranks in ((None, 8), (4, 4), (4, 8)):
        system = stated({"reduce_scatter": law | ({"ring_ranks": largest} if largest else {})})
        plain = 5e-6 + (ranks - 1) / ranks * sizes / (0.6 * PORT)
        steps = (ranks - 1) * (sizes >= ranks * 2**21) * (ranks <= (largest or ranks))
        found = group_time(system, "reduce_scatter", sizes, place(system, ranks), AUTO)
        np.testing.assert_allclose(found, np.cbrt(plain**3 + (steps * least) ** 3), rtol=1e-12)


def test_rates_between_measured_groups_go_by_the_logarithm_of_the_ranks():
    found = group_time(SYSTEM, "all_gather", np.array(1e15), place(SYSTEM, 6), AUTO)
    share = 0.7 + (np.log(6 / 4) / np.log(8 / 4)) * (0.8 - 0.7)
    rate = bus_bandwidth("all_gather", np.array(1e15), found, 6)
    assert float(rate) == pytest.approx(share * PORT, rel=1e-3)


def test_a_small_group_has_the_rate_of_the_smallest_measured():
    found = group_time(SYSTEM, "reduce_scatter", SIZES, place(SYSTEM, 2), AUTO)
    np.testing.assert_allclose(found, 5e-6 + SIZES / 2 / (0.6 * PORT), rtol=1e-14)


def test_switches_that_reduce_pass_less_than_the_bus_bandwidth_counts():
    for ranks, share, name in ((2, 0.8, "measured"), (8, 1.1, "measured"), (8, 1.1, "nvls")):
        passed = (1 + 1 / ranks) / (2 * (ranks - 1) / ranks) if ranks > 2 else 1.0
        found = port_share(SYSTEM, 0, "all_reduce", name, place(SYSTEM, ranks))
        assert found == pytest.approx(share * passed)


def test_a_transfer_is_between_two_of_any_group():
    four = Group.on_network(SYSTEM, np.array(0), np.array(4))
    found = group_time(SYSTEM, "p2p", SIZES, four, AUTO)
    np.testing.assert_allclose(found, 7e-6 + SIZES / (0.84 * PORT), rtol=1e-14)


def test_nothing_was_measured_of_larger_groups_other_operations_and_several_nodes():
    assert "all_to_all for these 8 ranks" in obstacle(
        SYSTEM, place(SYSTEM, 8), "measured", "all_to_all"
    )
    assert obstacle(SYSTEM, place(SYSTEM, 16), "measured", "all_reduce")
    assert not obstacle(SYSTEM, place(SYSTEM, 8), "measured", "all_reduce")
    large = inputs.system({"base": "h100_80g_sxm", "networks[0].size": 16})
    group = place(large, 16)
    found = group_time(large, "all_gather", SIZES, group, AUTO)
    rings = time_of(large, "all_gather", group, "ring", SIZES)
    switches = time_of(large, "all_gather", group, "nvls", SIZES)
    np.testing.assert_array_equal(found, np.minimum(rings, switches))


def test_rings_and_switches_of_larger_groups_have_the_rates_measured():
    for operation, name, share in [
        ("all_gather", "ring", 0.8),
        ("reduce_scatter", "ring", 0.6),
        ("broadcast", "ring", 0.8),
        ("reduce", "ring", 0.6),
        ("all_reduce", "ring", 2 / (1 / 0.8 + 1 / 0.6)),  # the one after the other
        ("all_reduce", "nvls_tree", 1.1 * (1 + 1 / 8) / (2 * 7 / 8)),  # what the switches pass
        ("scatter", "rooted", 0.84),
        ("all_to_all", "pairwise", None),
    ]:
        group = place(SYSTEM, 64)
        found = port_share(SYSTEM, 0, operation, name, group)
        assert (found is None) == (share is None), (operation, name)
        assert found is None or float(found) == pytest.approx(share), (operation, name)
        part = float(schedule_of(SYSTEM, operation, group, name).shares[0])
        other = float(schedule_of(SYSTEM, operation, group, name).shares[1]) / (50e9 * 0.9)
        wire = max(part / ((share or 0.65) * PORT), other) / (0.92 if name == "nvls_tree" else 1)
        time = time_of(SYSTEM, operation, group, name, np.array(1e16))
        assert float(time) == pytest.approx(wire * 1e16, rel=1e-5), (operation, name)


def test_a_ring_of_links_that_do_not_reduce_is_the_measured_all_reduce():
    system = stated(base="a100_80g_sxm", bandwidth=300)
    assert float(port_share(system, 0, "all_reduce", "ring", place(system, 16))) == 1.1


def test_says_what_is_wrong_with_rates():
    for rates, words in [
        ([], r"a list of rows \[ranks, share, ramp\]"),
        ([[2, 0.5]], r"a row \[ranks, share, ramp\]"),
        ([[4, 0.5, 0], [2, 0.6, 0]], r"more ranks than in the row before \(4\)"),
        ([[1, 0.5, 0]], "at least 2"),
        ([[2, 2.5, 0]], "at most 2"),
    ]:
        with pytest.raises(SpecError, match=words):
            stated({"all_reduce": {"latency": 1e-6, "rates": rates}})


def test_the_same_laws_are_equal():
    assert stated().ext.networks == SYSTEM.ext.networks
    faster = LAWS | {"p2p": LAWS["p2p"] | {"latency": 6e-6}}
    assert stated(faster).ext.networks != SYSTEM.ext.networks


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "all_to_all", "scatter"])
def test_a_group_inside_a_pod_does_not_meet_what_is_beyond(operation):
    base, pods = (inputs.system(name) for name in ("h100_80g_sxm", "h100_80g_sxm_24k"))
    for ranks, stride in ((8, 1), (128, 8), (3072, 1), (3, 1024)):
        times = [
            group_time(one, operation, SIZES, Group.in_mesh(one, ranks, stride), AUTO)
            for one in (base, pods)
        ]
        np.testing.assert_array_equal(*times)


def test_what_leaves_a_pod_goes_at_the_rate_between_pods():
    pods, size = inputs.system("h100_80g_sxm_24k"), 1e12
    uplink = pods.fabric.bandwidth[2]
    # one of a group in each pod: nothing is inside
    ring = group_time(pods, "all_gather", size, Group.in_mesh(pods, 8, 3072), AUTO)
    assert float(ring) == pytest.approx(7 / 8 * size / uplink, rel=1e-3)
    # all to all: 7/8 of what a processor sends leaves its pod
    every = group_time(pods, "all_to_all", size, place(pods, 24576), AUTO)
    assert float(every) == pytest.approx(7 / 8 * size / uplink, rel=1e-3)
    # and passes the port of the network inside as well
    shares = schedule_of(pods, "all_to_all", place(pods, 24576), "pairwise").shares
    assert float(shares[1]) == pytest.approx(1 - 8 / 24576)


def test_sixteen_thousand_fill_five_pods_and_a_third():
    pods = inputs.system("h100_80g_sxm_24k")
    for group in (Group.in_mesh(pods, 16384, 1), place(pods, 16384)):
        assert [int(n) for n in group.members] == [8, 384, 6]
    stages = Group.in_mesh(pods, 16, 1024)
    assert [int(n) for n in stages.members] == [1, 3, 6]
