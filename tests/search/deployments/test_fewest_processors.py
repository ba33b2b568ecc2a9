"""The fewest processors are those of the smallest deployment of all that meets the limits."""

from dataclasses import replace

import pytest

import calculon
from calculon.advise.serving_fixes import fixes_of_search
from calculon.base.errors import Infeasible, SpecError
from calculon.search.deployments.fewest_processors import fewest, largest_replica
from calculon.search.deployments.serving_search import make_space, searched
from tests.search.deployments.test_serving_search import LENGTHS, MIXTURE
from tests.serving.given import H100, SMALL

LIMITS = {"tpot_limit": 0.004, "ttft_limit": 0.02}
FIX = {"pipeline_par": (1, 2), "token_budget": (0, 512)}


@pytest.mark.parametrize(
    ("model", "load"),
    [
        (SMALL, {"rate": 100}),
        (SMALL, {"rate": 900, "percentile": 0.9, **LIMITS}),
        (SMALL, {"users": 30, "think": 0.1, **LIMITS}),
        (MIXTURE, {"rate": 400, **LIMITS}),
    ],
)
def test_no_smaller_count_is_sufficient(model, load):
    space = make_space(model, "any", H100, LENGTHS | load, fix=FIX)
    fleet = fewest(space)
    count = fleet.found.best.deployment.num_procs
    # Replicas of other sizes than a node has parts, such as 3, are not tried.
    sizes = {"tensor_par": (1, 2, 4, 8)}
    every = make_space(model, f"1:{count}", H100, LENGTHS | load, fix=FIX | sizes)
    best = searched(every).best
    assert best.deployment.num_procs == count
    assert (best.deployment, best.batch) == (fleet.found.best.deployment, fleet.found.best.batch)
    assert bool(fleet.missed) == (count > 1)
    if count > 1:
        assert " would miss " in fleet.missed
    same = calculon.search_deployments(model, "any", H100, LENGTHS | load, fix=FIX)
    assert same.best.deployment == best.deployment


def test_a_higher_rate_never_needs_fewer():
    counts = [
        calculon.search_deployments(
            SMALL, "any", H100, LENGTHS | LIMITS, rate=rate, fix=FIX
        ).best.deployment.num_procs
        for rate in (10, 300, 1000, 5000, 50_000)
    ]
    assert counts == sorted(counts)
    assert counts[-1] > 10 * counts[0]


def test_a_limit_that_no_number_of_replicas_meets_is_named():
    with pytest.raises(Infeasible, match="misses TPOT"):
        fewest(make_space(SMALL, "any", H100, LENGTHS, {"rate": 5, "tpot_limit": 1e-6}, fix=FIX))


def test_no_count_is_suggested_if_all_miss_a_limit():
    with pytest.raises(Infeasible, match="no number of processors") as found:
        fewest(make_space(SMALL, "any", H100, LENGTHS, {"rate": 1e5, "tpot_limit": 1e-6}, fix=FIX))
    assert "Hint" not in str(found.value)


def test_larger_replicas_are_suggested_if_none_fits():
    """A model of 4.2 T parameters needs more than the 8 nodes of the largest replica that is tried."""
    large = replace(SMALL, hidden=102_400, feedforward=215_040, num_blocks=64)
    space = make_space(large, "any", H100, LENGTHS, {"rate": 5}, fix={"token_budget": 512})
    with pytest.raises(Infeasible, match="fits in memory"):
        fewest(space)
    counts = [one for one in fixes_of_search(space) if one.startswith("on ")]
    assert counts == [f"on {2 * largest_replica(space)} processors"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "a load for the fewest processors: --rate or --users"),
        ({"rate": 5, "objective": "ttft"}, "state counts for objective"),
        ({"rate": 5, "where": "tpot < 1"}, "state counts for where"),
    ],
)
def test_questions_without_a_fewest_count_are_refused(options, message):
    with pytest.raises(SpecError, match=message):
        calculon.search_deployments(SMALL, "any", H100, LENGTHS, **options)
