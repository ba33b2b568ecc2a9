"""Dispatch of tokens to experts: expected copies, bytes by network, times, and what DeepEP measured."""

from dataclasses import replace
from math import comb

import numpy as np
import pytest

from calculon import inputs
from calculon.base.errors import SpecError
from calculon.hardware.collectives.algorithm_times import AUTO, group_time
from calculon.hardware.collectives.dispatch import (
    ENTRY_BYTES,
    LIBRARIES,
    Routing,
    copies,
    distinct_parts,
    engine_share,
    exchange_time,
    exchange_volume,
    has_ports,
)
from calculon.hardware.collectives.placement import Group, place
from tests.helpers import document

H800 = inputs.system("h800_80g_sxm")
DEEPSEEK = Routing(256, 8, groups=8, limit=4)
TOKENS, WIDTH = 4096, 7168
RANKS = np.array([1, 2, 4, 8, 16, 32, 64, 128])


def changed(**networks):
    """Return an H800 without latencies, all of whose bandwidth is reached, with other networks."""
    raw = document("systems", "h800_80g_sxm")
    for network, bandwidth in zip(raw["networks"], (200, 50), strict=True):
        network |= {"bandwidth": networks.get("bandwidth", bandwidth), "efficiency": 1.0}
        network["latency"] = 0.0
    raw["networks"][0]["bandwidth"] = networks.get("inside", raw["networks"][0]["bandwidth"])
    links = [{"step_latency": 0.0}, {"step_latency": 0.0, "kind": "net"}]
    whole = {"nvlink_efficiency": 1.0, "nic_efficiency": 1.0}
    raw["ext"] = {"networks": links, "launch": {"kernel": 0.0}, "ep_library": whole}
    return inputs.system(raw)


IDEAL = changed(inside=160)


def test_expected_destinations_are_those_of_random_tokens():
    for parts in [1, 2, 4, 8, 16, 32]:
        for routing in [Routing(32, 3), Routing(32, 3, 8, 3), Routing(32, 5, 4, 2)]:
            random, tokens = np.random.default_rng(1), 20_000
            scores = random.random((tokens, routing.experts))
            if routing.limit:
                groups = random.random((tokens, routing.groups)).argsort(axis=1)[:, : routing.limit]
                allowed = np.zeros((tokens, routing.groups), dtype=bool)
                np.put_along_axis(allowed, groups, values=True, axis=1)
                scores[~np.repeat(allowed, routing.experts // routing.groups, axis=1)] = -1
            chosen = scores.argsort(axis=1)[:, -routing.each :] * parts // routing.experts
            hit = np.zeros((tokens, parts), dtype=bool)
            np.put_along_axis(hit, chosen, values=True, axis=1)
            assert float(distinct_parts(routing, parts)) == pytest.approx(
                hit.sum(axis=1).mean(), rel=0.01
            )


def test_the_chance_is_a_ratio_of_binomials_however_large():
    for experts, each, parts in ((256, 8, 8), (4096, 256, 16), (4096, 256, 4096)):
        size = experts // parts
        exact = parts * (1 - comb(experts - size, each) / comb(experts, each))
        assert float(distinct_parts(Routing(experts, each), parts)) == pytest.approx(exact)


def test_parts_that_cut_groups_have_no_limit():
    limited = Routing(24, 3, groups=8, limit=2)
    for parts in (3, 6, 12):
        assert distinct_parts(limited, parts) == distinct_parts(Routing(24, 3), parts)


def test_deepseek_v3_on_8_nodes():
    group = place(IDEAL, 64)
    inside, between = copies(IDEAL, DEEPSEEK, group)
    assert between * WIDTH == pytest.approx(22.8e3, rel=0.002)
    assert between * WIDTH * 2 == pytest.approx(45.5e3, rel=0.002)
    nic, nvlink = between * TOKENS / 50e9, inside * TOKENS / 160e9
    assert nic * WIDTH == pytest.approx(1.86e-3, rel=0.004)
    assert nic * WIDTH * 2 == pytest.approx(3.73e-3, rel=0.004)
    assert nvlink * WIDTH == pytest.approx(1.18e-3, rel=0.004)
    assert nvlink * WIDTH * 2 == pytest.approx(2.36e-3, rel=0.004)
    row = WIDTH - ENTRY_BYTES * DEEPSEEK.each  # so that a copy has as many bytes as a token
    for name in LIBRARIES:
        time = exchange_time(IDEAL, name, TOKENS, row, DEEPSEEK, group)
        assert time == pytest.approx(max(nic, nvlink) * WIDTH)
    whole = exchange_volume(IDEAL, "alltoall", TOKENS, WIDTH, DEEPSEEK, group)
    np.testing.assert_allclose(whole / TOKENS, [8 * WIDTH * 7 / 64, 8 * WIDTH * 56 / 64])


def test_an_all_to_all_shares_its_rows_between_both_networks():
    for ranks in (2, 8, 16, 64):
        inside = min(ranks, 8)
        found = exchange_volume(
            H800, "alltoall", TOKENS, WIDTH, DEEPSEEK, place(H800, ranks), imbalance=1.5
        )
        sent = 1.5 * TOKENS * 8 * WIDTH
        shares = [(inside - 1) / ranks, (ranks - inside) / ranks]
        np.testing.assert_allclose(found, np.multiply(sent, shares))
        time = exchange_time(H800, "alltoall", TOKENS, WIDTH, DEEPSEEK, place(H800, ranks))
        whole = np.array(TOKENS * 8.0 * WIDTH)
        assert time == group_time(H800, "all_to_all", whole, place(H800, ranks), AUTO)


@pytest.mark.parametrize("dispatcher", ["alltoall", *LIBRARIES])
def test_a_column_is_each_group_alone(dispatcher):
    column = Group.in_mesh(H800, RANKS, np.array(1))
    times = exchange_time(H800, dispatcher, TOKENS, WIDTH, DEEPSEEK, column)
    volumes = exchange_volume(H800, dispatcher, TOKENS, WIDTH, DEEPSEEK, column)
    shares = engine_share(H800, dispatcher, column)
    for i, ranks in enumerate(RANKS):
        one = Group.in_mesh(H800, np.array(ranks), np.array(1))
        assert times[i] == exchange_time(H800, dispatcher, TOKENS, WIDTH, DEEPSEEK, one)
        np.testing.assert_array_equal(
            volumes[:, i], exchange_volume(H800, dispatcher, TOKENS, WIDTH, DEEPSEEK, one)
        )
        assert shares[i] == engine_share(H800, dispatcher, one)
    assert (times[0], shares[0], volumes[:, 0].tolist()) == (0, 0, [0, 0])
    assert has_ports(H800, dispatcher, column).all()


@pytest.mark.parametrize("routing", [Routing(256, 8), DEEPSEEK, Routing(128, 1), Routing(8, 2)])
def test_libraries_are_not_slower_than_rows_where_both_reach_the_same(routing):
    system = changed()
    ranks = RANKS[routing.experts >= RANKS]
    for stride in (1, 2, 8):
        group = Group.in_mesh(system, ranks, np.array(stride))
        row = WIDTH - ENTRY_BYTES * routing.each
        library = exchange_time(system, "deepep", TOKENS, row, routing, group)
        rows = exchange_time(system, "alltoall", TOKENS, WIDTH, routing, group)
        assert np.all(library <= rows * (1 + 1e-12))


def test_bytes_between_pods_leave_through_the_port_to_the_network():
    raw = document("systems", "h800_80g_sxm")
    raw["networks"][1]["size"] = 32
    raw["networks"].append(raw["networks"][1] | {"size": 1024})
    raw["ext"] = {"networks": [{}, {"kind": "net"}, {"kind": "net"}]}
    pods = inputs.system(raw)
    routing, group = Routing(256, 8), place(pods, 128)  # 16 nodes, 4 in each of 4 pods
    to_nodes = distinct_parts(routing, 16) / 16
    np.testing.assert_allclose(copies(pods, routing, group)[1:], [15 * to_nodes, 12 * to_nodes])


def test_the_busiest_rank_and_more_bandwidth():
    group = place(H800, 64)
    slow = exchange_time(H800, "deepep", TOKENS, WIDTH, DEEPSEEK, group, imbalance=2.0)
    even = exchange_time(H800, "deepep", TOKENS, WIDTH, DEEPSEEK, group)
    volumes = [
        exchange_volume(H800, "deepep", TOKENS, WIDTH, DEEPSEEK, group, imbalance=n) for n in (1, 2)
    ]
    np.testing.assert_allclose(volumes[1], 2 * volumes[0])
    assert even < slow < 2 * even
    for inside, bandwidth in ((400, 50), (160, 100)):
        faster = changed(inside=inside, bandwidth=bandwidth)
        assert exchange_time(faster, "deepep", TOKENS, WIDTH, DEEPSEEK, place(faster, 64)) <= even


def test_the_share_of_the_engine():
    group = place(H800, 16)
    assert engine_share(H800, "deepep", group) == 24 / 132
    usage = H800.fabric.processor_usage.max()
    assert engine_share(H800, "alltoall", group) == usage
    plain = replace(H800, ext=replace(H800.ext, ep_library=None))
    assert engine_share(plain, "deepep", group) == usage


def test_a_library_that_takes_all_multiprocessors_is_refused():
    with pytest.raises(SpecError, match="less than multiprocessors=132"):
        inputs.system({"base": "h800_80g_sxm", "ext.ep_library.num_sms": 132})


def test_a_torus_has_no_ports():
    system = inputs.system("tpu_v5p")
    assert not has_ports(system, "deepep", place(system, 64))
    assert has_ports(system, "alltoall", place(system, 64))


MEASURED = [
    # system, ranks, groups chosen, bytes of an element, bandwidth as DeepEP counts it: with bytes that stay
    ("h800_80g_sxm", 8, 0, 1 + 4 / 128, 153),
    ("h800_80g_sxm", 8, 0, 2, 158),
    ("h800_80g_sxm", 32, 4, 1 + 4 / 128, 58),
    ("h800_80g_sxm", 32, 4, 2, 57),
    ("h800_80g_sxm", 64, 4, 1 + 4 / 128, 51),
    ("h800_80g_sxm", 64, 4, 2, 50),
    ("h100_80g_sxm", 16, 0, 1 + 4 / 128, 90),
    ("h100_80g_sxm", 16, 0, 2, 81),
    ("b200_sxm", 8, 0, 1 + 4 / 128, 643),
    ("b200_sxm", 8, 0, 2, 675),
    ("b200_sxm", 16, 0, 1 + 4 / 128, 90),
    ("b200_sxm", 16, 0, 2, 91),
]
"""Source: DeepEP, README, commits 84d3d6f, 3b1045d and b306af0."""


@pytest.mark.parametrize(("name", "ranks", "limit", "element", "bandwidth"), MEASURED)
def test_times_are_near_those_of_deepep(name, ranks, limit, element, bandwidth):
    system, nodes = inputs.system(name), ranks // 8
    limit = limit if limit < nodes else 0
    routing = Routing(256, 8, groups=nodes if limit else 0, limit=limit)
    parts = nodes if nodes > 1 else ranks
    counted = float(distinct_parts(routing, parts)) * TOKENS * WIDTH * element
    time = exchange_time(system, "deepep", TOKENS, WIDTH * element, routing, place(system, ranks))
    assert counted / time / 1e9 == pytest.approx(bandwidth, rel=0.09)
