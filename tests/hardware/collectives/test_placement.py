"""Where ranks sit."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculon import inputs
from calculon.base.errors import Infeasible, SpecError
from calculon.hardware.collectives.placement import Group, fits_mesh, place
from tests.draws import draws
from tests.helpers import document


@pytest.fixture
def nodes():
    """Nodes of 8, and a network between them."""
    return inputs.system("h100_80g_sxm")


def nested(*sizes):
    """Return a system with networks of these sizes."""
    raw = document("systems", "h100_80g_sxm")
    raw["networks"] = [raw["networks"][1] | {"size": size} for size in sizes]
    return inputs.system(raw)


def tiers(group):
    """Return number, members and ranks below of each network that one group uses."""
    members, below = (list(map(int, column)) for column in (group.members, group.below))
    return [(i, n, below[i]) for i, n in enumerate(members) if n > 1]


def test_ranks_fill_networks_from_the_inside(nodes):
    """Consecutive ranks a node first, unless ranks of a node are stated; one no larger than another is not used."""
    three, alike = nested(8, 32, 1024), nested(8, 8, 64)
    for system, ranks, per_node, expected in (
        (nodes, 1, None, []),
        (nested(0), 1, None, []),
        (nodes, 4, None, [(0, 4, 1)]),
        (nodes, 32, None, [(0, 8, 1), (1, 4, 8)]),
        (nodes, 32, 2, [(0, 2, 1), (1, 16, 2)]),
        (nodes, 32, 1, [(1, 32, 1)]),
        (three, 128, None, [(0, 8, 1), (1, 4, 8), (2, 4, 32)]),
        (three, 32, 2, [(0, 2, 1), (1, 4, 2), (2, 4, 8)]),
        (alike, 64, None, [(0, 8, 1), (2, 8, 8)]),
    ):
        group = place(system, ranks, per_node)
        assert tiers(group) == expected, (ranks, per_node)
        if expected:
            assert (group.network, group.innermost) == (expected[-1][0], expected[0][0])
    assert place(nodes, 32).node == place(nodes, 1).network == 0


@pytest.mark.parametrize("per_node", [None, 4])
def test_nodes_hold_equal_numbers(nodes, per_node):
    with pytest.raises(SpecError, match=r"a multiple of \d") as raised:
        place(nodes, 18, per_node)
    assert raised.value.hint.endswith("--per-node 6" if per_node is None else "--per-node 3")


@pytest.mark.parametrize(
    ("ranks", "per_node", "limit"),
    [
        (65537, None, r"networks\[1\], 65,536"),
        (8192 * 4 + 4, 4, r"networks\[1\], 32,768"),
        (16, 16, r"the 8 of networks\[0\]"),
    ],
)
def test_says_which_network_is_too_small(nodes, ranks, per_node, limit):
    with pytest.raises(Infeasible, match=limit):
        place(nodes, ranks, per_node)


def test_a_system_without_a_network_connects_nobody():
    with pytest.raises(Infeasible, match="no network"):
        place(nested(1), 2)


def test_ranks_of_a_mesh(nodes):
    for ranks, stride, joined in [
        (16, 1, (8, 2)),
        (16, 8, (1, 16)),
        (8, 2, (4, 2)),
        (4, 16, (1, 4)),
        (4, 1, (4, 1)),
        (2, 4, (2, 1)),
        (5, 24, (1, 5)),
        (1, 3, (1, 1)),
    ]:
        group = Group.in_mesh(nodes, ranks, stride)
        assert tuple(map(int, group.members)) == joined, (ranks, stride)
        assert int(group.below[1]) == joined[0], (ranks, stride)
        assert int(group.network) == (joined[1] > 1), (ranks, stride)
        assert fits_mesh(nodes, ranks, stride)


def test_says_which_groups_of_a_mesh_do_not_fit(nodes):
    for ranks, stride in [(12, 1), (2, 3), (3, 4), (2, 12), (65536, 2), (8193, 8), (65537, 1)]:
        assert not fits_mesh(nodes, ranks, stride)


SMALL = nested(4, 8, 64)


@given(ranks=st.integers(1, 20), stride=st.integers(1, 20))
@settings(max_examples=draws(60), deadline=None)
def test_a_mesh_joins_as_many_as_numbers_differ(ranks, stride):
    """Count members from the numbers of the processors: distinct instances of each network in one of the next."""
    numbers = [rank * stride for rank in range(ranks)]
    fits = bool(fits_mesh(SMALL, ranks, stride))
    if numbers[-1] >= 64:
        assert not fits
    if not fits:
        return
    expected = []
    for inner, outer in itertools.pairwise((1, 4, 8, 64)):
        instances = {(number // outer, number // inner) for number in numbers}
        per = [sum(one == where for one, _ in instances) for where in {one for one, _ in instances}]
        assert len(set(per)) == 1 or (inner, outer) == (4, 8)  # the last pod may hold fewer
        assert per.count(max(per)) >= len(per) - 1
        expected.append(max(per))
    assert tuple(map(int, Group.in_mesh(SMALL, ranks, stride).members)) == tuple(expected)


def test_columns_of_groups_are_groups(nodes):
    ranks, stride = np.array([16, 16, 8, 4, 1, 2]), np.array([1, 8, 2, 16, 5, 1])
    column = Group.in_mesh(nodes, ranks, stride)
    for i, (n, apart) in enumerate(zip(ranks, stride, strict=True)):
        one = Group.in_mesh(nodes, int(n), int(apart))
        for name in ("members", "below"):
            for many, single in zip(getattr(column, name), getattr(one, name), strict=True):
                assert np.broadcast_to(many, ranks.shape)[i] == single
        for name in ("network", "innermost", "several"):
            assert np.broadcast_to(getattr(column, name), ranks.shape)[i] == getattr(one, name)
        assert fits_mesh(nodes, ranks, stride)[i] == fits_mesh(nodes, int(n), int(apart))


def test_ranks_may_be_single_endpoints_of_a_network(nodes):
    group = Group.on_network(nodes, np.array([0, 1, 1]), np.array([8, 64, 1]))
    assert [joined.tolist() for joined in group.members] == [[8, 1, 1], [1, 64, 1]]
    assert all((below == 1).all() for below in group.below)
    assert group.network.tolist() == [0, 1, 1]
    assert not group.several.any()
