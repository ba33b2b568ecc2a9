"""What algorithms do on each network: steps and bytes."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculon import inputs
from calculon.hardware.collectives.algorithm_times import bus_factor, candidates, schedule_of
from calculon.hardware.collectives.algorithms import obstacle
from calculon.hardware.collectives.placement import place
from tests.draws import draws
from tests.helpers import document

SYSTEM = inputs.system("h100_80g_sxm")
"""Nodes of 8 whose switches reduce, and a network between them whose switches do not."""

ROUND = ("all_reduce", "reduce_scatter", "all_gather")


def schedule(operation, name, ranks, per_node=None, system=SYSTEM):
    return schedule_of(system, operation, place(system, ranks, per_node), name)


def numbers(columns):
    return tuple(map(float, columns))


@pytest.mark.parametrize("operation", ROUND)
def test_a_ring_in_a_node_moves_the_bus_factor(operation):
    found = schedule(operation, "ring", 8)
    assert numbers(found.shares) == (bus_factor(operation, 8), 0)
    assert numbers(found.steps) == ((2 if operation == "all_reduce" else 1) * 7, 0)


def test_a_ring_over_nodes_leaves_each_of_them_once_by_all_ports():
    found = schedule("all_gather", "ring", 32)
    assert numbers(found.steps) == (31 - 4, 4)
    assert numbers(found.shares) == (31 / 32, 31 / 32 / 8)
    assert numbers(schedule("all_gather", "ring", 4, 1).steps) == (0, 3)


def test_a_tree_is_a_chain_in_a_node_and_halves_the_nodes():
    assert numbers(schedule("all_reduce", "tree", 128).steps) == (2 * 7, 2 * math.log2(16))
    assert numbers(schedule("broadcast", "tree", 128).steps) == (7, 4)
    assert numbers(schedule("reduce", "tree", 16, 1).steps) == (0, 4)


@pytest.mark.parametrize("ranks", [8, 72])
def test_switches_move_less_than_a_ring(ranks):
    system = inputs.system({"base": "h100_80g_sxm", "networks[0].size": 72})
    ring, nvls = (schedule("all_reduce", name, ranks, None, system) for name in ("ring", "nvls"))
    ratio = ring.shares[0] / nvls.shares[0]
    assert ratio == pytest.approx(2 * (ranks - 1) / (ranks + 1))
    assert round(ratio, 2) == {8: 1.56, 72: 1.95}[ranks]


@pytest.mark.parametrize("name", ["hierarchical", "pipelined"])
def test_in_one_network_the_hierarchical_form_is_the_flat_one(name):
    groups = [(8, None), (2, None), (16, 1)]
    for operation, group in itertools.product([*ROUND, "all_to_all"], groups):
        flat = "pairwise" if operation == "all_to_all" else "ring"
        one, other = (schedule(operation, which, *group) for which in (name, flat))
        assert numbers(one.steps) == numbers(other.steps), (operation, group)
        assert numbers(one.shares) == numbers(other.shares), (operation, group)


@given(n=st.integers(1, 8), nodes=st.integers(1, 64), operation=st.sampled_from(ROUND))
@settings(max_examples=draws(30), deadline=None)
def test_a_hierarchy_moves_as_much_as_a_ring(n, nodes, operation):
    placement = place(SYSTEM, n * nodes, n)
    shares = schedule_of(SYSTEM, operation, placement, "hierarchical").shares
    assert sum(shares) == pytest.approx(bus_factor(operation, n * nodes), abs=1e-12)


@given(n=st.integers(1, 8), nodes=st.integers(1, 64))
@settings(max_examples=draws(30), deadline=None)
def test_an_all_to_all_sends_each_part_once(n, nodes):
    shares = schedule("all_to_all", "pairwise", n * nodes, n).shares
    assert sum(shares) == pytest.approx(bus_factor("all_to_all", n * nodes), abs=1e-12)


def test_switches_across_see_a_message_once():
    path = "ext.networks[1].in_network_reduction"
    system = inputs.system({"base": "h100_80g_sxm", path: True})
    plain, found = (
        schedule("all_reduce", name, 128, None, system) for name in ("pipelined", "collnet")
    )
    assert numbers(found.shares) == (plain.shares[0], (1 + 1 / 16) / 8)
    assert numbers(found.steps) == (plain.steps[0], 0)
    assert "collnet" in candidates(system, "all_reduce", place(system, 128))


def test_switches_inside_and_trees_across():
    for half in ("all_gather", "reduce_scatter"):  # of an all-reduce moves the array
        assert numbers(schedule(half, "nvls", 8).shares) == (1, 0)
    inside, across = schedule("all_reduce", "nvls", 8), schedule("all_reduce", "tree", 128)
    found = schedule("all_reduce", "nvls_tree", 128)
    assert numbers(found.shares) == (inside.shares[0], across.shares[1])
    assert numbers(found.steps) == (0, across.steps[1])
    assert "nvls_tree" in candidates(SYSTEM, "all_reduce", place(SYSTEM, 128))


def test_a_point_to_point_transfer_moves_what_the_network_says():
    mesh = inputs.system("v100_sxm2_32g")
    found = schedule("p2p", "direct", 2, None, mesh)
    assert numbers(found.shares) == (mesh.networks[0].ops.p2p.scalar, 0)


def test_says_why_not():
    for system, ranks, name, words in [
        ("a100_80g_sxm", 8, "nvls", "switches that reduce"),
        ("h100_80g_sxm", 16, "nvls", "a group in one network"),
        ("h100_80g_sxm", 8, "collnet", "a group in several networks"),
        ("h100_80g_sxm", 8, "nvls_tree", "a group in several networks"),
        ("a100_80g_sxm", 16, "nvls_tree", "ext.networks[0].in_network_reduction"),
        ("h100_80g_sxm", 16, "collnet", "ext.networks[1].in_network_reduction"),
    ]:
        machine = inputs.system(system)
        assert words in obstacle(machine, place(machine, ranks), name)
        assert name not in candidates(machine, "all_reduce", place(machine, ranks))


def test_a_file_states_whether_its_switches_reduce():
    raw = document("systems", "h100_80g_sxm")
    assert [inputs.system(raw).reduces_in_network(i) for i in (0, 1)] == [True, False]
    raw["ext"]["networks"] = [{"in_network_reduction": False}, {"in_network_reduction": True}]
    assert [inputs.system(raw).reduces_in_network(i) for i in (0, 1)] == [False, True]
    del raw["ext"]
    assert [inputs.system(raw).reduces_in_network(i) for i in (0, 1)] == [True, False]
