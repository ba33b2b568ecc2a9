"""Prefixes between requests: laws of caches, and what fetching costs."""

import heapq
from dataclasses import replace

import numpy as np
import pytest

from calculon.base.errors import SpecError
from calculon.hardware.serving import Disk
from calculon.serving.caches.prefixes import (
    SecondTier,
    hit_locations,
    idle_conversations,
    kept_share,
)
from tests.cases import for_each
from tests.serving.given import H100

RATE, THINK = np.array([4.0]), 30.0


@for_each("turns", [2, 5, 40])
def test_a_cache_keeps_what_its_time_lets_it(turns):
    """Of conversations that last for long a cache keeps its share; what ends takes room until it is evicted."""
    idle = idle_conversations(RATE, THINK, turns)
    room = np.linspace(0.0, idle[0], 50)
    kept = kept_share(room, RATE, THINK, turns)
    assert kept[0] == pytest.approx(0, abs=1e-12)
    assert np.all(np.diff(kept) > 0)
    assert kept[-1] < 1
    assert np.all(kept <= room / idle[0] + 1e-12)
    time = -np.log1p(-kept)  # T / z
    held = RATE * THINK * ((turns - 1) / turns * kept + time / turns)
    np.testing.assert_allclose(held, room, rtol=1e-9, atol=1e-9)


def test_conversations_that_do_not_end_have_their_share_of_the_room():
    room = np.array([10.0, 60.0, 110.0])
    kept = kept_share(room, RATE, THINK, 10**9)
    np.testing.assert_allclose(kept, room / (RATE * THINK), rtol=1e-6)
    assert kept_share(room, RATE, 0.0, 3) == pytest.approx(1)


def test_a_simulated_cache_keeps_as_much():
    """Room for 60 conversations of four turns, from which the least recently used goes first."""
    random, turns, room = np.random.default_rng(3), 4, 60
    starts = np.cumsum(random.exponential(turns / RATE[0], 6000))
    coming = [(start, number, 1) for number, start in enumerate(starts)]
    cached: list[int] = []
    hits = followed = 0
    while coming:
        time, number, turn = heapq.heappop(coming)
        if turn > 1 and time > 300:
            followed += 1
            hits += number in cached
        if number in cached:
            cached.remove(number)
        cached.append(number)
        del cached[:-room]
        if turn < turns:
            heapq.heappush(coming, (time + random.exponential(THINK), number, turn + 1))
    expected = kept_share(np.array([float(room)]), RATE, THINK, turns)[0]
    assert hits / followed == pytest.approx(expected, abs=0.02)


def test_tiers_share_the_hits():
    first, second = np.array([0.0, 20, 50, 200]), np.array([0.0, 0, 100, 1e9])
    places = hit_locations(first, second, RATE, THINK, 3)
    np.testing.assert_allclose(places.first + places.second + places.lost, 1)
    assert np.all(np.asarray(places) >= 0)
    assert places.lost[0] == pytest.approx(1)
    assert places.second[1] == pytest.approx(0, abs=1e-12)
    assert places.lost[3] == pytest.approx(0, abs=1e-12)


def test_the_memory_of_a_node_is_shared():
    tier, size = SecondTier(H100, "host"), np.array([4e9])
    own = H100.mem2.time(size)
    assert tier.capacity == H100.usable[1]
    assert tier.time(size, np.ones(1)) >= own
    shared = H100.ext.host.time(size, np.full(1, 8.0))
    assert tier.time(size, np.full(1, 8.0)) == np.maximum(own, shared)
    plain = replace(H100, ext=replace(H100.ext, host=None))
    assert SecondTier(plain, "host").time(size, np.full(1, 8.0)) == own


def test_a_system_without_a_second_tier_is_refused():
    bare = replace(H100, mem2=replace(H100.mem2, capacity=0.0))
    with pytest.raises(SpecError, match="has no host memory"):
        SecondTier(bare, "host")
    with pytest.raises(SpecError, match=r"states no ext\.serving\.disk"):
        SecondTier(H100, "disk")
    serving = replace(H100.ext.serving, disk=Disk(capacity=1e12, bandwidth=6e9))
    able = SecondTier(replace(H100, ext=replace(H100.ext, serving=serving)), "disk")
    assert (able.capacity, able.time(6e9, 1)) == (1e12, 1.0)
