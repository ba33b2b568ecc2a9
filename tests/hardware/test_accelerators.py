"""Accelerators of AMD, Google, Intel and AWS: every figure accounted for, and what their links give a group."""

import csv

import numpy as np
import pytest

from calculon import inputs
from calculon.hardware.collectives.group_times import AUTO, group_time
from calculon.hardware.collectives.placement import place
from tests.helpers import ROOT

MESHES = ("mi300x", "mi325x", "mi350x", "mi355x", "gaudi2", "gaudi3")
TORI = ("tpu_v4", "tpu_v5e", "tpu_v5p", "tpu_v6e", "trainium2", "trainium2_ultra")
NAMES = ("mi250x", *MESHES, *TORI)
LARGE = 64e9
"""Bytes of a message whose latency and ramp do not count."""
PCIE_PEAK = 14.0
"""TFLOP/s of a V100-PCIe in float32."""


def _rate(system, operation, ranks):
    """Return the bus bandwidth of a large message as a share of that of a port."""
    moved = LARGE if operation == "p2p" else LARGE * (ranks - 1) / ranks
    moved *= 2 if operation == "all_reduce" else 1
    seconds = group_time(system, operation, LARGE, place(system, ranks), AUTO)
    return moved / seconds / system.networks[0].bandwidth


def test_a_group_has_the_links_to_its_members():
    for mesh in MESHES:
        system = inputs.system(mesh)
        for operation in ("all_reduce", "all_gather", "all_to_all"):
            whole = _rate(system, operation, 8)
            for ranks in (2, 4):
                share = _rate(system, operation, ranks) / whole
                assert share == pytest.approx((ranks - 1) / 7, rel=0.03), mesh
        assert _rate(system, "p2p", 2) <= 1 / 7, mesh


def test_mi300x_reaches_what_its_maker_asks_for():
    bus = _rate(inputs.system("mi300x"), "all_reduce", 8) * 448
    assert bus == pytest.approx(304, rel=0.02)
    assert _rate(inputs.system("mi300x"), "p2p", 2) * 448 == pytest.approx(48, rel=0.01)


def test_a_slice_has_the_links_of_its_block():
    for torus, ranks, links in (
        *(("tpu_v5e", 8, 2), ("tpu_v5e", 256, 4), ("tpu_v6e", 128, 3), ("tpu_v5p", 64, 6)),
        *(("tpu_v5p", 6144, 6), ("tpu_v4", 32, 3), ("trainium2", 4, 2), ("trainium2", 16, 4)),
    ):
        system = inputs.system(torus)
        axes = len(system.ext.networks[0].torus.sides)
        share = links / (2 * axes) * system.networks[0].efficiency
        found = _rate(system, "all_gather", ranks)
        assert found == pytest.approx(share, rel=0.01), (torus, ranks)


def test_float32_products_of_a_v100_are_those_measured():
    with (ROOT / "systems" / "measured" / "gemm.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu"] == "V100-PCIe-32GB"]
    sizes = ("batch", "m", "n", "k")
    flop = np.array([2 * np.prod([float(row[size]) for size in sizes]) for row in rows])
    measured = np.array([float(row["tflops"]) for row in rows]) / PCIE_PEAK
    engine = inputs.system("v100_sxm2_32g").matrix["float32"]
    same_duration = flop * engine.peak / (PCIE_PEAK * 1e12)
    predicted = engine.efficiency.at(same_duration)
    assert len(rows) > 100
    assert np.median(measured / predicted) == pytest.approx(1, abs=0.02)
    assert np.median(abs(measured / predicted - 1)) < 0.08
