"""The overlays for other links: PCIe alone, Ethernet alone, pairs of H100 NVL, and 72 GB200 in a domain of NVLink."""

import numpy as np
import pytest

from calculon import inputs
from calculon.hardware.collectives.algorithm_times import times
from calculon.hardware.collectives.placement import place
from calculon.spec import catalog
from calculon.units import GIB, GIGA, MIB, TERA
from tests.hardware.test_catalog_systems import (
    BOTH_DIRECTIONS,
    SPARSE,
    leaves,
    matching,
    patterns,
)
from tests.helpers import document

NAMES = ("a100_80g_pcie", "a100_80g_ethernet", "h100_94g_nvl")
OVERLAYS = tuple(one for one in catalog.names("system") if "base" in document("systems", one))


def pcie(gigatransfers):
    """GB/s of 16 lanes in one direction: 130 bits for 16 bytes."""
    return 16 * gigatransfers * 128 / 130 / 8


def test_every_figure_that_is_stated_has_a_source_or_is_assumed():
    for name in OVERLAYS:
        stated = document("systems", name)
        about = stated.pop("about")
        assert stated.pop("base")
        told = {pattern: matching(pattern) for pattern in patterns(about)}
        figures = list(leaves(stated))
        without = [f for f in figures if not any(matches(f) for matches in told.values())]
        assert (name, without) == (name, [])
        unused = {p for p, matches in told.items() if not any(map(matches, figures))}
        assert unused <= {"base", "everything else"}, name


def test_collectives_move_what_a_ring_moves():
    for name in NAMES:
        for network in inputs.system(name).networks:
            ops = network.ops
            assert (ops.all_reduce.scalar, ops.all_reduce.offset) == (2, -1), name
            assert ops.all_gather == ops.reduce_scatter, name
            assert (ops.all_gather.scalar, ops.all_gather.offset) == (1, -1), name


def test_a_card_without_nvlink_has_its_pcie_slot():
    card, module = inputs.system("a100_80g_pcie"), inputs.system("a100_80g_sxm")
    assert card.mem1.bandwidth == 1935 * GIGA
    assert card.mem1.capacity == 80 * GIB
    for datatype, engine in module.matrix.items():
        assert card.matrix[datatype].peak == engine.peak
    node, cluster = card.networks
    assert node.bandwidth == pytest.approx(pcie(16) * GIGA, rel=5e-3)
    assert (node.size, cluster) == (8, module.networks[1])
    assert [link.kind for link in card.ext.networks] == ["pcie", "net"]


def test_ethernet_is_all_there_is():
    system = inputs.system("a100_80g_ethernet")
    (only,) = system.networks
    assert only.bandwidth == 10 / 8 * GIGA
    assert system.mem1.bandwidth == inputs.system("a100_80g_pcie").mem1.bandwidth
    assert system.ext.networks[0].kind == "net"


def test_a_pair_of_h100_nvl():
    system, module = inputs.system("h100_94g_nvl"), inputs.system("h100_80g_sxm")
    rates = {"float8": 3341 * SPARSE, "float16": 1671 * SPARSE, "bfloat16": 1671 * SPARSE}
    for datatype, rate in (rates | {"float32": 60}).items():
        assert system.matrix[datatype].peak == pytest.approx(rate * TERA, rel=1e-3)
        assert (
            system.matrix[datatype].efficiency.efficiencies
            == module.matrix[datatype].efficiency.efficiencies
        ).all()
        assert system.vector[datatype].peak == (60 if datatype == "float32" else 120) * TERA
    assert system.mem1.capacity == 94 * GIB
    assert 2 * system.mem1.bandwidth == 7800 * GIGA  # of the pair, as NVIDIA announced it
    pair, server = system.networks
    assert (pair.bandwidth, pair.size) == (600 * BOTH_DIRECTIONS * GIGA, 2)
    assert server.bandwidth == pytest.approx(pcie(32) * GIGA, rel=5e-3)
    assert server.size == 8


def test_a_domain_of_72_gb200():
    """Sums of 72 processors of the datasheet."""
    system, b200 = inputs.system("gb200_nvl72"), inputs.system("b200_sxm")
    rates = {"float8": 720e3 / 72 * SPARSE, "float16": 360e3 / 72 * SPARSE}
    for datatype, rate in (rates | {"bfloat16": rates["float16"], "float32": 80}).items():
        assert system.matrix[datatype].peak == pytest.approx(rate * TERA)
    assert system.mem1.capacity == pytest.approx(13.4e3 / 72 * GIB, rel=1e-2)
    assert system.mem1.bandwidth == 576e3 / 72 * GIGA
    assert system.mem2.capacity == 480 / 2 * GIB
    assert system.mem2.bandwidth == 900 / 2 * BOTH_DIRECTIONS * GIGA
    domain, cluster = system.networks
    assert domain.bandwidth == pytest.approx(130e3 / 72 * BOTH_DIRECTIONS * GIGA, rel=1e-2)
    assert (domain.size, cluster) == (72, b200.networks[1])


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_ring_over_ethernet_takes_the_time_of_its_bytes(ranks):
    system, size = inputs.system("a100_80g_ethernet"), 64.0 * MIB
    (link,) = system.networks
    ring = times(system, "all_reduce", place(system, ranks), np.array([size]))["ring"][0]
    moved = 2 * (ranks - 1) / ranks * size / (link.bandwidth * link.efficiency)
    assert ring == pytest.approx(moved, rel=0.01)
    assert ring > moved


def test_slower_links_are_slower():
    found = []
    for name in ("h100_94g_nvl", "a100_80g_pcie", "a100_80g_ethernet"):
        system = inputs.system(name)
        ring = times(system, "all_reduce", place(system, 2), np.array([float(GIB)]))["ring"]
        found.append(float(ring[0]))
    assert found == sorted(found)
    assert found[1] > 5 * found[0]
    assert found[2] > 10 * found[1]
