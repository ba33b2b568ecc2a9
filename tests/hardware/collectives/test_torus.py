"""Tori: links that a group has, and the times of its collectives as formulas."""

import numpy as np
import pytest

from calculon import inputs
from calculon.base.errors import Infeasible, SpecError
from calculon.hardware.collectives.algorithm_times import (
    AUTO,
    candidates,
    group_time,
    group_volume,
    time_of,
    times,
)
from calculon.hardware.collectives.algorithms import obstacle
from calculon.hardware.collectives.placement import Group, place
from calculon.hardware.stated_networks import Sides, Torus
from tests.helpers import document

SIDE, LINK, HOP, SHARE = 16, 50e9, 1e-6, 0.9
SIZE = 1e9


def system(torus=None, size=SIDE * SIDE, bandwidth=4 * LINK):
    """Return one of processors in a torus of 16 x 16, with a network outside."""
    raw = document("systems", "h100_80g_sxm")
    inside, _ = raw["networks"]
    ops = {name: [2.0 if name == "all_reduce" else 1.0, -1] for name in inside["ops"]}
    ops["p2p"] = [4.0, None]
    inside |= {"bandwidth": bandwidth / 1e9, "efficiency": SHARE, "latency": HOP, "size": size}
    inside |= {"ops": ops, "must_be_filled": False}
    raw["ext"]["networks"] = [
        {"step_latency": HOP, "torus": torus or {"sides": [SIDE, SIDE]}},
        {"step_latency": 2e-5},
    ]
    raw["ext"].pop("launch", None)
    return inputs.system(raw)


SYSTEM = system()


def test_a_group_is_the_most_compact_block():
    for ranks, links, hops in [
        (2, 1, 1),
        (4, 2, 2),  # 2 x 2
        (8, 2, 4),  # 2 x 4
        (32, 2, 10),  # 4 x 8
        (128, 3, 15),  # 8 x 16: one ring
        (256, 4, 16),  # two rings
        (7, 1, 6),
        (34, 1, 33),  # no block: a side has 16
    ]:
        torus = Torus(sides=Sides((SIDE, SIDE)))
        assert float(torus.share(np.array(ranks))) == links / 4
        assert int(torus.hops(np.array(ranks))) == hops
        rate, steps = links * LINK * SHARE, hops * HOP
        moved = SIZE * (ranks - 1) / ranks
        group = place(SYSTEM, ranks)
        for operation, passes in (("reduce_scatter", 1), ("all_gather", 1), ("all_reduce", 2)):
            found = group_time(SYSTEM, operation, SIZE, group, AUTO)
            assert found == pytest.approx(HOP + passes * (steps + moved / rate)), (ranks, links)
            volume = group_volume(SYSTEM, operation, SIZE, group, AUTO)
            assert volume.tolist() == pytest.approx([passes * moved, 0]), (ranks, links)


def test_switches_close_rings_of_whole_cubes():
    torus = Torus(sides=Sides((16, 20, 28)), cube=4)
    ranks = np.array([1, 8, 32, 64, 128, 8960])
    np.testing.assert_array_equal(torus.share(ranks), [1, 3 / 6, 3 / 6, 1, 1, 1])
    np.testing.assert_array_equal(torus.hops(ranks), [0, 3, 7, 6, 8, 8 + 10 + 14])
    alone = Torus(sides=Sides((16, 20, 28)))
    np.testing.assert_array_equal(alone.share(ranks), [1, 3 / 6, 3 / 6, 3 / 6, 3 / 6, 1])


def test_large_groups_are_laid_out_at_once():
    torus = Torus(sides=Sides((4096,) * 4))
    assert float(torus.share(np.array(2**24))) == 4 / 8
    assert float(torus.share(np.array(10**9 + 7))) == 1 / 8  # a prime: a line


def test_others_between_its_processors_keep_a_block_of_cubes_open():
    torus = Torus(sides=Sides((16, 16, 24)), cube=4)
    ranks, alone = np.array([64, 64, 8]), np.array([True, False, False])
    np.testing.assert_array_equal(torus.share(ranks, alone), [1, 3 / 6, 3 / 6])
    np.testing.assert_array_equal(torus.hops(ranks, alone), [6, 9, 3])
    one = system({"sides": [16, 16, 24], "cube": 4}, 16 * 16 * 24, 6 * LINK)
    groups = Group.in_mesh(one, np.array([64, 64]), np.array([1, 8]))
    near, far = group_time(one, "all_gather", SIZE, groups, AUTO)
    moved = SIZE * 63 / 64 / (6 * LINK * SHARE)
    assert (near, far) == pytest.approx((7 * HOP + moved, 10 * HOP + 2 * moved))


def test_half_of_an_all_to_all_passes_the_middle_of_a_row():
    for ranks, middle in [
        (2, 1 / 2),
        (3, 2 / 3),
        (4, 1 / 2),
        (64, 8 / 4),
        (128, 2.0),
        (256, 16 / 8),
    ]:
        found = time_of(SYSTEM, "all_to_all", place(SYSTEM, ranks), "torus", SIZE)
        steps = int(Torus(sides=Sides((SIDE, SIDE))).hops(np.array(ranks)))
        expected = HOP + steps * HOP + SIZE * middle / (LINK * SHARE)
        assert found == pytest.approx(expected), (ranks, middle)


def test_a_transfer_goes_over_one_link():
    found = group_time(SYSTEM, "p2p", SIZE, place(SYSTEM, 2), AUTO)
    assert found == pytest.approx(HOP + SIZE / (LINK * SHARE))


def test_tori_are_joined_phase_after_phase():
    ranks, tori = 512, 2
    group = place(SYSTEM, ranks)
    inside = 2 * SIZE * 255 / 256 / (4 * LINK * SHARE)
    outside = SYSTEM.networks[1]
    across = 2 * SIZE / 256 * (tori - 1) / tori / (outside.bandwidth * outside.efficiency)
    steps = 2 * (16 * HOP + (tori - 1) * 2e-5)
    base = max(HOP, outside.latency)
    found = group_time(SYSTEM, "all_reduce", SIZE, group, AUTO)
    assert found == pytest.approx(base + steps + inside + across)


def test_other_algorithms_cannot_run_on_a_torus():
    group = place(SYSTEM, 8)
    assert candidates(SYSTEM, "all_reduce", group) == ["torus"]
    assert set(times(SYSTEM, "all_to_all", group, SIZE)) == {"torus"}
    assert "is a torus" in obstacle(SYSTEM, group, "ring")
    hopper = inputs.system("h100_80g_sxm")
    assert "ext.networks[].torus" in obstacle(hopper, place(hopper, 8), "torus")
    assert "torus" not in candidates(hopper, "all_reduce", place(hopper, 8))
    with pytest.raises(Infeasible):
        place(SYSTEM, 10**9)


def test_groups_beside_the_torus_have_rings():
    beside = Group.in_mesh(SYSTEM, np.array([1, 4]), np.array([256, 256]))
    found = group_time(SYSTEM, "all_reduce", SIZE, beside, AUTO)
    across = 2 * SIZE * 3 / 4 / (SYSTEM.networks[1].bandwidth * SYSTEM.networks[1].efficiency)
    assert found.tolist() == pytest.approx([0, across + SYSTEM.networks[1].latency + 6 * 2e-5])


def test_a_wrong_torus_is_refused():
    for torus, field in [
        ({"sides": [4, 4]}, "ext.networks[0].torus.sides"),
        ({"sides": []}, "ext.networks[0].torus.sides"),
        ({"sides": [16] * 7}, "ext.networks[0].torus.sides"),
        ({"sides": [1, 256]}, "ext.networks[0].torus.sides[0]"),
        ({"sides": [16.5, 16]}, "ext.networks[0].torus.sides[0]"),
        ({"sides": [16, 16], "cube": 1}, "ext.networks[0].torus.cube"),
        ({}, "ext.networks[0].torus.sides"),
    ]:
        with pytest.raises(SpecError) as caught:
            system(torus or {"cube": 4})
        assert field in str(caught.value), (torus, field)
