"""Times of collectives: laws, a worked example, and measurements."""

import csv
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculon import inputs
from calculon.hardware.collectives.algorithm_times import (
    algorithm_bandwidth,
    bus_bandwidth,
    bus_factor,
    fastest,
    group_time,
    paced,
    times,
)
from calculon.hardware.collectives.algorithms import OPERATIONS, SUPPORTED, obstacle
from calculon.hardware.collectives.placement import place
from tests.draws import draws
from tests.helpers import ROOT, document

SIZES = 2.0 ** np.arange(0, 36, 3)


OWN = ({"step_latency": 3.4e-6}, {"step_latency": 14e-6})
"""Latencies of their own, instead of those of NCCL for their kinds."""


def changed(name="h100_80g_sxm", links=({}, {}), of=OWN, **fields):
    """Return a system whose networks have other fields: a value for each of them."""
    raw = document("systems", name)
    for number, network in enumerate(raw["networks"]):
        network |= {field: values[number] for field, values in fields.items()}
    raw["ext"]["networks"] = [old | new for old, new in zip(of, links, strict=True)]
    return inputs.system(raw)


KINDS = ({"kind": "nvlink"}, {"kind": "net"})
PLAIN = changed()
NCCL = changed(of=KINDS)
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


@pytest.mark.parametrize("name", ["ring", "hierarchical", "pipelined"])
@pytest.mark.parametrize("system", [PLAIN, NCCL], ids=["own latencies", "kinds"])
@given(group=groups)
@settings(max_examples=draws(10), deadline=None)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(system, name, group):
    per_node, nodes = group
    placement = place(system, per_node * nodes, per_node)
    whole, *halves = (
        paced(system, operation, placement, name, SIZES)
        for operation in ("all_reduce", "reduce_scatter", "all_gather")
    )
    for (pace, time), *parts in zip(whole, *halves, strict=True):
        used = zip(pace.base, placement.used, strict=True)
        once = max((base for base, one in used if one), default=0)  # one start, not two
        np.testing.assert_allclose(time, sum(half for _, half in parts) - once, rtol=1e-12)


def test_with_one_node_or_one_rank_in_each_there_are_no_phases():
    for name in ["hierarchical", "pipelined"]:
        for system in (PLAIN, NCCL):
            for group in ((8, None), (64, 1), (2, None)):
                assert name in obstacle(system, place(system, *group), name), group
            assert not obstacle(system, place(system, 64), name)


BETTER = {
    "NVLink": (changed(bandwidth=(900, 50)), PLAIN),
    "ports": (changed(bandwidth=(450, 400)), PLAIN),
    "efficiency": (changed(efficiency=(0.9, 0.95)), PLAIN),
    "latency": (changed(latency=(1e-6, 2e-5)), PLAIN),
    "step latency": (changed(links=({"step_latency": 1e-6}, {"step_latency": 1e-5})), PLAIN),
    "ramp": (PLAIN, RAMPED),
    "NVLink of its kind": (changed(of=KINDS, bandwidth=(900, 50)), NCCL),
    "ports of their kind": (changed(of=KINDS, bandwidth=(450, 400)), NCCL),
    "kind": (NCCL, changed(of=(KINDS[0] | {"kind": "pcie"}, KINDS[1]))),
    "latency and a kind": (
        changed(of=(KINDS[0], OWN[1]), latency=(1e-5, 1e-6)),
        changed(of=(KINDS[0], OWN[1])),
    ),
}
"""Systems with one better figure, and those without."""


@pytest.mark.parametrize(("better", "worse"), BETTER.values(), ids=BETTER)
def test_better_networks_are_never_slower(better, worse):
    groups = [(8, None), (128, None), (64, 2), (16, 1)]
    for operation, group in itertools.product(OPERATIONS, groups):
        quick, slow = (
            times(system, operation, place(system, *group), SIZES) for system in (better, worse)
        )
        assert quick.keys() == slow.keys()
        for found in (quick, slow):
            found["auto"] = fastest(operation, found)[1]
        for name, time in slow.items():
            assert (quick[name] <= time * (1 + 1e-15)).all(), (operation, group, name)
            assert (np.diff(time) >= 0).all(), (operation, group, name)


def test_the_bus_bandwidth_of_a_perfect_ring_is_that_of_the_links():
    ranks, size = 6, np.array([6e9])
    once = (ranks - 1) / ranks
    factors = {"all_reduce": 2 * once, "broadcast": 1, "reduce": 1, "p2p": 1}
    factors |= dict.fromkeys(
        ("reduce_scatter", "all_gather", "all_to_all", "scatter", "gather"), once
    )
    assert factors.keys() == set(OPERATIONS)
    for operation, factor in factors.items():
        assert bus_factor(operation, ranks) == pytest.approx(factor), operation
        flat = SUPPORTED[operation][0]
        seconds = times(FREE, operation, place(FREE, ranks), size)[flat]
        assert bus_bandwidth(operation, size, seconds, ranks) == pytest.approx([360e9]), operation
        assert algorithm_bandwidth(size, seconds) == pytest.approx([360e9 / factor]), operation


FOLDER = ROOT / "examples"
MEASURED = {
    "h100_sxm_all_reduce": ("h100_80g_sxm", "auto"),
    "h200_sxm_all_reduce": ("h200_141g_sxm", "auto"),
    "h200_sxm_ring": ("h200_141g_sxm", "ring"),
    "h200_sxm_4_nodes_all_reduce": ("h200_141g_sxm", "auto"),
    "b200_sxm_all_reduce": ("b200_sxm", "auto"),
    "b200_sxm_ring": ("b200_sxm", "ring"),
    "b200_sxm_4_nodes_all_reduce": ("b200_sxm", "auto"),
    "a100_sxm_all_reduce": ("a100_80g_sxm", "auto"),
}
"""Measurements, the shipped system, and what may be chosen there.

Of these only all-reduces and all-gathers of 8 and 16 GiB in one node of H200 and B200 are among the rows of the fits.
"""


def errors(file):
    """Return sizes and relative errors of a file of measurements."""
    name, algorithm = MEASURED[file]
    system, found = inputs.system(name), []
    with (FOLDER / "measurements" / f"{file}.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            operation, members, size = row["operation"], int(row["members"]), float(row["bytes"])
            passed = bus_factor(operation, members) * size
            measured = float(row.get("seconds") or passed / float(row["busbw"]) / 1e9)
            group = place(system, members)
            time = group_time(system, operation, size, group, algorithm)
            found.append((size, float(time) / measured - 1))
    return np.array(found).T


def shown(percents, sign=""):
    return f"{100 * percents.mean():{sign}.1f} %" if len(percents) else ""


def test_errors_of_measured_times_are_those_told_and_small_for_large_messages():
    told = (ROOT / "systems" / "calibration.md").read_text(encoding="utf-8")
    for file, (system, algorithm) in MEASURED.items():
        sizes, off = errors(file)
        cells = [
            f"`{file}`",
            f"`{system}`",
            algorithm,
            str(len(off)),
            shown(abs(off[sizes <= 2**20])),
            shown(abs(off[sizes > 2**20])),
            shown(off[sizes >= 2**30], "+"),
        ]
        assert "| " + " | ".join(cells) + " |" in told
        assert (abs(off[sizes >= 2**30]) <= 0.3).all(), file
