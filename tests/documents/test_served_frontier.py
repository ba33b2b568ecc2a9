"""Frontiers of served models: no point is beaten, and none of those that the search finds is above them."""

from itertools import pairwise

import pytest

from calculon.documents.served_frontier import AXES, frontier_of
from calculon.inputs import Changed
from calculon.search.deployments.best_deployment import search_deployments
from calculon.serving.serve import serve
from tests.serving.given import H100, SMALL

LOAD = {"prompt": 900, "output": 300, "tpot_limit": 0.01}


@pytest.fixture(scope="module")
def points():
    document = frontier_of(SMALL, "1,2", [H100], LOAD, {}, {"token_budget": [0, 2048]})
    assert document["num_procs"] == [1, 2]
    (curve,) = document["curves"]
    assert curve["system"] == H100.name
    return curve["points"]


def test_rates_of_processors_rise_as_those_of_users_fall(points):
    for one, other in pairwise(points):
        assert one["interactivity"] > other["interactivity"]
        assert one["output_rate_per_proc"] < other["output_rate_per_proc"]


def reached(points, *wanted):
    """Return whether one of the points has as much of both, and so none above it is lost."""
    return any(
        all(one[name] >= value * (1 - 1e-9) for name, value in zip(AXES, wanted, strict=True))
        for one in points
    )


def test_nothing_that_the_search_finds_is_above(points):
    fix = {"token_budget": [0, 2048]}
    found = search_deployments(SMALL, "1,2", H100, LOAD, pareto=AXES, fix=fix)
    assert len(found) > 2
    for rate, speed in zip(*(found.columns[name] for name in AXES), strict=True):
        assert reached(points, rate, speed)


def test_every_point_is_an_answer_that_keeps_the_limits(points):
    for one in (points[0], points[len(points) // 2], points[-1]):
        limit = {"max_batch": int(one["batch"])}
        found = serve(SMALL, one["deployment"], H100, LOAD, changes=limit)
        assert found.batch == one["batch"]
        for name in (*AXES, "tpot", "ttft", "output_rate"):
            assert one[name] == pytest.approx(found[name], rel=1e-9)
        assert one["tpot"] <= 0.01


def test_pools_apart_are_on_it_where_they_win():
    load, fix = {"prompt": 900, "output": 300}, {"token_budget": [2048], "tensor_par": [1]}
    plain, apart = (
        frontier_of(SMALL, "4", [H100], load, {}, fix, apart=apart)["curves"][0]
        for apart in (False, True)
    )
    assert all(one["deployment"].prefill is None for one in plain["points"])
    assert any(one["deployment"].prefill is not None for one in apart["points"])
    for one in plain["points"]:
        assert reached(apart["points"], *(one[name] for name in AXES))


def test_a_machine_counts_once():
    asked = (LOAD, {}, {"token_budget": [2048]})
    again = Changed("h100", {"mem1.GiB": 40})
    machines = ["h100", "h100_80g_sxm", again, "h100"]
    curves = frontier_of(SMALL, 1, machines, *asked)["curves"]
    assert [one["system"] for one in curves] == ["h100_80g_sxm", "h100_80g_sxm (mem1.GiB=40)"]


def test_a_machine_without_a_frontier_says_why():
    free = {"prompt": 900, "output": 300}
    fix = {"token_budget": [2048]}
    one = search_deployments("llama3-70B", 1, "b200", free, fix=fix, objective="interactivity")[0]
    limit = one["tpot"] * 1.05
    machines = ["h100", "b200", Changed("b200", {"mem1.GBps": 1000})]
    curves = frontier_of("llama3-70B", 1, machines, free | {"tpot_limit": limit}, {}, fix)["curves"]
    assert [one["none"] for one in curves] == ["none fits in memory", None, "none meets the limits"]
