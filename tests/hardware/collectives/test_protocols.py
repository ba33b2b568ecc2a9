"""Latencies by kind of link and protocol."""

import math

import numpy as np
import pytest

from calculon import inputs
from calculon.base.errors import SpecError
from calculon.hardware.collectives.algorithm_times import (
    BASE,
    HOPS,
    IN_SWITCH,
    LL,
    LL128,
    RATES,
    SIMPLE,
    TREE_BANDWIDTH,
    link_kind,
    paced,
    protocol_rates,
    time_of,
)
from calculon.hardware.collectives.placement import place
from calculon.hardware.extension import STEP_LATENCY
from tests.helpers import document


def linked(*links):
    """Return a system with nodes of 8 whose networks have these additions."""
    raw = document("systems", "h100_80g_sxm")
    raw["ext"]["networks"] = list(links)
    return inputs.system(raw)


SYSTEM = linked({"kind": "nvlink"}, {"kind": "net"})
"""H100 whose rates are the efficiencies of its networks, whatever the operation."""

NVLINK, NET = (SYSTEM.fabric.bandwidth[i] for i in (0, 1))


LIMIT = {SIMPLE: math.inf, LL128: math.inf, LL: 35e9}
"""Most bus bandwidth among more than two nodes of Hopper (NCCL, src/graph/tuning.cc, llMaxBws)."""


def names(system, form="ring"):
    return {pace.protocol for pace in protocol_rates(system, form)}


def test_nvlink_systems_have_all_protocols_and_others_all_but_one():
    assert names(SYSTEM) == names(SYSTEM, "tree") == {SIMPLE, LL, LL128}
    assert names(linked({"kind": "pcie"}, {"kind": "net"})) == {SIMPLE, LL}
    assert names(linked({"kind": "nvlink"})) == {SIMPLE, LL, LL128}
    assert names(SYSTEM, "nvls") == {SIMPLE}


def test_unknown_or_fitted_networks_have_their_own_latencies():
    for link in [{}, {"step_latency": 1e-6}, {"ramp": 1e-6}]:
        for form in RATES:
            system = linked(*([{"kind": "nvlink"} | link, link] if link else [{}, {}]))
            (pace,) = protocol_rates(system, form)
            fabric = system.fabric
            assert pace.protocol == "", (link, form)
            assert pace.base == tuple(fabric.latency), (link, form)
            assert pace.step == tuple(fabric.step_latency), (link, form)
            assert link_kind(system, 0) is None, (link, form)


@pytest.mark.parametrize("kind", STEP_LATENCY)
def test_a_kind_says_the_latency_of_a_step_unless_one_is_stated(kind):
    assert linked({"kind": kind}).fabric.step_latency[0] == HOPS["ring"][kind][SIMPLE]
    assert linked({"kind": kind, "step_latency": 1e-9}).fabric.step_latency[0] == 1e-9


@pytest.mark.parametrize("protocol", BASE)
def test_a_ring_over_nodes_by_each_protocol(protocol):
    size, inside, across = 1e6, 2 * (31 - 4), 2 * 4  # edges of 4 nodes of 8, but one
    found = {p.protocol: t for p, t in paced(SYSTEM, "all_reduce", place(SYSTEM, 32), "ring", size)}
    hops, rate = HOPS["ring"], RATES["ring"][protocol]
    latency = BASE[protocol] + inside * hops["nvlink"][protocol] + across * hops["net"][protocol]
    moved = 2 * 31 / 32 * size / min(rate * min(NVLINK, 8 * NET), LIMIT[protocol])
    assert found[protocol] == pytest.approx(latency + moved)


@pytest.mark.parametrize("protocol", BASE)
def test_a_tree_over_nodes_by_each_protocol(protocol):
    size = 1e6
    found = {p.protocol: t for p, t in paced(SYSTEM, "all_reduce", place(SYSTEM, 32), "tree", size)}
    hops, rate = HOPS["tree"], RATES["tree"][protocol]
    latency = BASE[protocol] + 2 * 7 * hops["nvlink"][protocol]
    latency += 2 * math.log2(4) * hops["net"][protocol]
    moved = 2 * size / rate / min(NVLINK, 8 * NET)
    limited = 2 * 31 / 32 * size / LIMIT[protocol]
    assert found[protocol] == pytest.approx(latency + max(moved, limited))


def test_switches_take_a_start_and_trees_across_them_steps():
    inside, across = IN_SWITCH["nvlink"], IN_SWITCH["net"]
    one = time_of(SYSTEM, "all_reduce", place(SYSTEM, 8), "nvls", 0)
    several = time_of(SYSTEM, "all_reduce", place(SYSTEM, 32), "nvls_tree", 0)
    assert (one, several) == (inside, pytest.approx(inside + 2 * math.log2(4) * across))
    large = time_of(SYSTEM, "all_reduce", place(SYSTEM, 32), "nvls_tree", 1e15)
    moved = max((1 + 1 / 8) / NVLINK, 2 / 8 / NET) * 1e15 / TREE_BANDWIDTH
    assert large == pytest.approx(moved, rel=1e-6)


def test_a_network_of_nodes_of_one_is_no_chain():
    chain, tree = (
        time_of(linked(link), "all_reduce", place(linked(link), 8), "tree", 0)
        for link in ({"kind": "nvlink"}, {"kind": "net"})
    )
    assert chain == pytest.approx(BASE[LL] + 2 * 7 * HOPS["tree"]["nvlink"][LL])
    assert tree == pytest.approx(BASE[LL] + 2 * math.log2(8) * HOPS["tree"]["net"][LL])


def test_beside_an_unknown_network_there_is_one_protocol():
    system = linked({"kind": "nvlink"})
    found = paced(system, "all_reduce", place(system, 32), "ring", np.array([1.0, 1e9]))
    assert {p.protocol for p, t in found if np.isfinite(t).all()} == {SIMPLE}
    inside = paced(system, "all_reduce", place(system, 8), "ring", 1.0)
    assert {p.protocol for p, t in inside if np.isfinite(t)} == {SIMPLE, LL, LL128}


def test_small_messages_take_ll_and_large_ones_the_switches():
    """What 8 H200 do with NCCL 2.27.7: rings with LL up to 1 MiB, the switches from 2 MiB on (ml-engineering)."""
    system = inputs.system("h200_141g_sxm")
    group = place(system, 8)
    for size, name, protocol in ((2**15, "ring", LL), (2**20, "ring", LL), (2**21, "nvls", SIMPLE)):
        every = {
            (form, pace.protocol): float(time)
            for form in ("ring", "tree", "nvls")
            for pace, time in paced(system, "all_reduce", group, form, size)
        }
        assert min(every, key=every.__getitem__) == (name, protocol)


def test_an_unknown_kind_is_an_error():
    with pytest.raises(SpecError, match="one of nvlink, pcie, net"):
        linked({"kind": "infiniband"})
