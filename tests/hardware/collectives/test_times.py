"""Times of collectives: laws, a worked example, and measurements."""

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculon import inputs
from calculon.hardware.collectives.algorithms import BY_LIBRARY, CAN, OPERATIONS
from calculon.hardware.collectives.placement import place
from calculon.hardware.collectives.times import (
    algorithm_bandwidth,
    bus_bandwidth,
    bus_factor,
    fastest,
    time_of,
    times,
)
from tests.helpers import ROOT, document

SIZES = 2.0 ** np.arange(0, 36, 3)


def changed(name="h100_80g_sxm", links=({}, {}), **fields):
    """Return a system whose networks have other fields: a value for each of them."""
    raw = document("systems", name)
    for number, network in enumerate(raw["networks"]):
        network |= {field: values[number] for field, values in fields.items()}
    raw["ext"]["networks"] = [
        old | new for old, new in zip(raw["ext"]["networks"], links, strict=True)
    ]
    return inputs.system(raw)


PLAIN = changed()
FREE = changed(
    latency=(0, 0), efficiency=(0.8, 0.9), links=({"step_latency": 0}, {"step_latency": 0})
)
"""H100s with nodes of 8 at 360 GB/s and 45 GB/s a port, without latencies."""

RAMPED = changed(links=({"ramp": 9e-6}, {"ramp": 2e-5}))

groups = st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 32))


def test_the_worked_example():
    """1 GB among 16 x 8 H100: inside 2 x 7/8 S / 360 GB/s, across 15/8 x S/8 / 45 GB/s."""
    found = times(FREE, "all_reduce", place(FREE, 128), np.array(1e9))
    inside, across = 2 * 7 / 8 * 1e9 / 360e9, 2 * 15 / 16 * 1e9 / 8 / 45e9
    assert float(found["hierarchical"]) == pytest.approx(inside + across)
    assert float(found["pipelined"]) == pytest.approx(max(inside, across))
    milliseconds = [f"{1e3 * found[name]:.2f}" for name in ("hierarchical", "pipelined")]
    assert milliseconds == ["10.07", "5.21"]


def test_a_ring_in_a_node():
    found = times(PLAIN, "all_gather", place(PLAIN, 8), SIZES)["ring"]
    expected = 1e-5 + 7 * 3.4e-6 + 7 / 8 * SIZES / (450e9 * 0.65)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_a_ramp_is_that_of_the_network():
    system = changed(links=({"ramp": 9e-6}, {}))
    wire = (1 + 1 / 8) * SIZES / (450e9 * 0.65)
    found = times(system, "all_reduce", place(system, 8), SIZES)["nvls"]
    np.testing.assert_allclose(found, 1e-5 + wire + 2 * np.sqrt(9e-6 * wire), rtol=1e-14)


def test_networks_without_step_latency_pay_their_latency():
    system = inputs.system("a100_80g")
    found = times(system, "reduce_scatter", place(system, 4), np.array(1.0))["ring"]
    assert float(found) == pytest.approx(1e-5 + 3 * 1e-5, rel=1e-5)


@given(group=groups)
@settings(max_examples=20, deadline=None)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(group):
    per_node, nodes = group
    placement = place(PLAIN, per_node * nodes, per_node)
    whole, *halves = (
        time_of(PLAIN, operation, placement, "ring", SIZES)
        for operation in ("all_reduce", "reduce_scatter", "all_gather")
    )
    used = zip(PLAIN.fabric.latency, placement.used, strict=True)
    once = max((latency for latency, one in used if one), default=0)
    np.testing.assert_allclose(whole, sum(halves) - once, rtol=1e-12)  # one start, not two


@pytest.mark.parametrize("operation", OPERATIONS)
@given(group=groups)
@settings(max_examples=10, deadline=None)
def test_the_fastest_is_never_slower_than_any(operation, group):
    per_node, nodes = group
    found = times(PLAIN, operation, place(PLAIN, per_node * nodes, per_node), SIZES)
    names, best = fastest(operation, found)
    assert all((best <= found[name]).all() for name in BY_LIBRARY[operation] if name in found)
    assert [found[name][i] for i, name in enumerate(names)] == best.tolist()


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (changed(bandwidth=(900, 50)), PLAIN),
        (changed(bandwidth=(450, 400)), PLAIN),
        (changed(efficiency=(0.9, 0.95)), PLAIN),
        (changed(latency=(1e-6, 2e-5)), PLAIN),
        (changed(links=({"step_latency": 1e-6}, {"step_latency": 1e-5})), PLAIN),
        (PLAIN, RAMPED),
    ],
    ids=["NVLink", "ports", "efficiency", "latency", "step latency", "ramp"],
)
@pytest.mark.parametrize(("ranks", "per_node"), [(8, None), (128, None), (64, 2), (16, 1)])
def test_better_networks_are_never_slower(operation, better, worse, ranks, per_node):
    quick, slow = (
        times(system, operation, place(system, ranks, per_node), SIZES)
        for system in (better, worse)
    )
    assert quick.keys() == slow.keys()
    for name in quick:
        assert (quick[name] <= slow[name] * (1 + 1e-15)).all(), name
        assert (np.diff(slow[name]) >= 0).all(), name


@pytest.mark.parametrize("operation", OPERATIONS)
def test_one_rank_takes_no_time(operation):
    placement = place(RAMPED, 1)
    for name in CAN[operation]:
        found = time_of(RAMPED, operation, placement, name, SIZES)
        assert found.tolist() == [0.0] * len(SIZES)
    assert bus_bandwidth(operation, SIZES, np.zeros(len(SIZES)), 1).tolist() == [0] * len(SIZES)


@pytest.mark.parametrize(
    ("operation", "factor"),
    [
        ("all_reduce", lambda n: 2 * (n - 1) / n),
        ("reduce_scatter", lambda n: (n - 1) / n),
        ("all_gather", lambda n: (n - 1) / n),
        ("all_to_all", lambda n: (n - 1) / n),
        ("broadcast", lambda n: 1),
        ("reduce", lambda n: 1),
        ("p2p", lambda n: 1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_bus_bandwidth_of_a_perfect_ring_is_that_of_the_links(operation, factor):
    assert bus_factor(operation, 6) == pytest.approx(factor(6))
    size = np.array([6e9])
    flat = CAN[operation][0]
    seconds = times(FREE, operation, place(FREE, 6), size)[flat]
    assert bus_bandwidth(operation, size, seconds, 6) == pytest.approx([360e9])
    assert algorithm_bandwidth(size, seconds) == pytest.approx([360e9 / factor(6)])


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter", "all_gather"])
def test_large_messages_of_small_groups_reach_their_links(operation, ranks):
    """What the first collectives that people write show, on 2 and 4 processors."""
    system, size = inputs.system("a100_80g_sxm"), np.array([4 * 2.0**30])
    _, seconds = fastest(operation, times(system, operation, place(system, ranks), size))
    rate = bus_bandwidth(operation, size, seconds, ranks)[0] / (300e9 * 0.65)
    assert 0.99 < rate < 1


MEASURED = (
    ("h100_sxm_all_reduce", "h100_80g_sxm"),
    ("h200_sxm_all_reduce", "h200_141g_sxm"),
    ("b200_sxm_all_reduce", "b200_sxm"),
    ("a100_sxm_all_reduce", "a100_80g_sxm"),
)
"""Measurements, and the shipped system: nothing in it was fitted to them but the efficiency of the B200's NVLink."""

BOUNDS = ((2**25, 0.6), (2**30, 0.25))
"""Errors, loosely, from 32 MiB and from 1 GiB on; below that the ramp decides, of which those systems have none."""


@pytest.mark.parametrize(("file", "name"), MEASURED)
def test_times_in_a_node_are_near_measured_ones(file, name):
    system = inputs.system(name)
    with (ROOT / "examples" / "measurements" / f"{file}.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        members, size = int(row["members"]), float(row["bytes"])
        passed = bus_factor("all_reduce", members) * size
        measured = float(row.get("seconds") or passed / float(row["busbw"]) / 1e9)
        group = place(system, members)
        _, found = fastest("all_reduce", times(system, "all_reduce", group, np.array(size)))
        for least, bound in BOUNDS:
            if size >= least:
                assert abs(float(found) / measured - 1) <= bound, row
