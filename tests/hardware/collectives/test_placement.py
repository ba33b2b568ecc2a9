"""Where ranks sit."""

import pytest

from calculon import inputs
from calculon.errors import Infeasible, SpecError
from calculon.hardware.collectives.placement import Tier, place
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


def test_consecutive_ranks_fill_a_node_first(nodes):
    assert place(nodes, 4).tiers == (Tier(0, 4, 1, node=True),)
    assert place(nodes, 32).tiers == (Tier(0, 8, 1, node=True), Tier(1, 4, 8, node=False))


def test_ranks_per_node_may_be_stated(nodes):
    assert place(nodes, 32, 2).tiers == (Tier(0, 2, 1, node=True), Tier(1, 16, 2, node=False))
    assert place(nodes, 32, 1).tiers == (Tier(1, 32, 1, node=False),)


def test_one_rank_uses_no_network(nodes):
    assert place(nodes, 1).tiers == ()
    assert place(nested(0), 1).tiers == ()


def test_three_networks_nest():
    tiers = place(nested(8, 32, 1024), 128).tiers
    assert [(t.network, t.members, t.below) for t in tiers] == [(0, 8, 1), (1, 4, 8), (2, 4, 32)]
    tiers = place(nested(8, 32, 1024), 32, 2).tiers
    assert [(t.network, t.members, t.below) for t in tiers] == [(0, 2, 1), (1, 4, 2), (2, 4, 8)]


def test_a_network_no_larger_than_those_before_is_not_used():
    tiers = place(nested(8, 8, 64), 64).tiers
    assert [tier.network for tier in tiers] == [0, 2]


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
