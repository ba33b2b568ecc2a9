"""Pools that are chosen separately reach the rate of the best of all pairs."""

from dataclasses import replace

import numpy as np
import pytest

from calculon.search.deployments.pool_pairs import PoolRates, matched_pairs
from calculon.search.deployments.serving_search import make_space, searched
from tests.search.deployments.test_serving_search import LENGTHS, MIXTURE
from tests.serving.given import H100, SMALL

RNG = np.random.default_rng(43)


@pytest.mark.parametrize("count", [1, 2, 7, 16, 61])
def test_a_pair_passes_on_as_much_as_the_best_of_all(count):
    engines = RNG.integers(1, 5, (6, 9))
    engines[2:] = 1
    procs = engines[0] * engines[1]
    rates = PoolRates(*RNG.uniform(0.0, 3.0, (2, 9)) * (RNG.uniform(size=(2, 9)) < 0.8))
    every = [
        min(n * rates.prefill[p], (count - n * procs[p]) / procs[d] * rates.decode[d])
        for p in range(9)
        for d in range(9)
        for n in range(1, 1 + count // procs[p])
        if count > n * procs[p] and (count - n * procs[p]) % procs[d] == 0
    ]
    found = matched_pairs(engines, [count], rates)
    if max(every, default=0) == 0:
        assert not found.rates.any()
        return
    assert found.rates.max() == pytest.approx(max(every), rel=1e-12)
    # What a pair states is what its pools pass on.
    assert found.pools is not None
    prefill, decode = found.pools[0], found.own[0] - found.pools[0]
    assert np.all(prefill % (found.pools[1] * found.pools[2]) == 0)
    assert np.all(decode % (found.own[1] * found.own[2]) == 0)


@pytest.mark.parametrize(
    ("model", "count", "limits"),
    [
        (SMALL, 3, {}),
        (SMALL, 6, {"ttft_limit": 0.02, "tpot_limit": 0.004}),
        (SMALL, 8, {"tpot_limit": 0.002}),
        (MIXTURE, 5, {"ttft_limit": 0.05}),
        (SMALL, 4, {"rate": 60, "ttft_limit": 0.05}),
    ],
)
def test_the_best_of_matched_pools_is_the_best_of_all(model, count, limits):
    space = make_space(model, count, H100, LENGTHS | limits)
    every, matched = (searched(replace(space, kinds=(kind,))) for kind in ("apart", "matched"))
    assert every.counts.total > matched.counts.total > 0
    rate = "output_rate_per_proc"
    assert matched.best[rate] == pytest.approx(every.best[rate], rel=1e-9)
    assert matched.best["interactivity"] <= every.best["interactivity"] * (1 + 1e-9)


def test_no_pair_without_processors_for_both_pools():
    assert len(searched(replace(make_space(SMALL, 1, H100, LENGTHS), kinds=("matched",)))) == 0
