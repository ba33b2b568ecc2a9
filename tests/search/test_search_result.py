"""A result is a sequence of estimates."""

import sys

import numpy as np
import pytest

import calculon
from calculon.advise.candidate import tied_candidates

SPACE = ("megatron-126M", "a100_80g", 8, 8)


@pytest.fixture(scope="module")
def result():
    """The three best of a small space."""
    return calculon.search(*SPACE, top=3, fix={"tensor_par": 1})


def test_ranks_are_estimates_best_first(result):
    wanted = [estimate.stats for estimate in result.estimates()]
    assert [estimate.stats for estimate in result] == wanted
    assert [result[i].stats for i in (0, 1, np.int64(2))] == wanted
    assert result[-1].stats == wanted[2]
    assert [estimate.stats for estimate in result[1:]] == wanted[1:]
    assert result.best.stats == wanted[0]


def test_an_estimate_is_made_when_it_is_asked_for(result, monkeypatch):
    asked = []

    def estimate(*arguments):
        asked.append(arguments)
        return calculon.estimate(*arguments)

    monkeypatch.setattr(sys.modules[calculon.SearchResult.__module__], "estimate", estimate)
    assert iter(result) is not None
    assert not asked
    next(iter(result))
    assert len(asked) == 1


@pytest.mark.parametrize("rank", [3, -4])
def test_there_is_no_rank_beyond_the_last(result, rank):
    with pytest.raises(IndexError, match=f"rank {rank} of 3"):
        result[rank]
    with pytest.raises(TypeError):
        result["best"]


def test_nothing_has_no_best():
    nothing = calculon.search("turing-530B", "a100_80g", 8, 8)
    assert list(nothing) == nothing[:] == nothing.estimates() == []
    assert len(nothing.to_frame()) == len(nothing.evaluation) == 0
    assert "0 feasible>" in repr(nothing)
    wanted = r"executions can run.*memory is too small: [0-9,]+\)"
    with pytest.raises(calculon.Infeasible, match=wanted) as error:
        nothing.best  # noqa: B018
    assert error.value.reason == "mem1_capacity"
    unwanted = calculon.search(*SPACE, where="total_time < 0", fix={"tensor_par": 1})
    with pytest.raises(calculon.Infeasible, match="feasible executions"):
        unwanted.best  # noqa: B018


def test_winners_are_ordered_against_the_fastest():
    found = calculon.search(
        "llama3-8B",
        "h100_80g_sxm",
        64,
        512,
        "bfloat16",
        preset="megatron-lm",
        top=20,
        fix={"batch_size": 512},
        objective="proc_mem_tier1_cap_req:min",
    )
    rates = found.evaluation["sample_rate"]
    assert rates[found.fastest] == rates.max()
    assert found.fastest != 0  # the best by memory is not the fastest
    assert len(found.orders) == len(found)
    assert found.orders[found.fastest].probability == 0.5
    for order, rate in zip(found.orders, rates, strict=True):
        assert order.longer == pytest.approx(rates.max() / rate - 1)
        assert order.probability >= 0.5
    ranks = [rank for rank, _ in tied_candidates(found)]
    assert sorted(ranks) == [i for i, one in enumerate(found.orders) if not one.distinguishable]
    keys = [one.simplicity for _, one in tied_candidates(found)]
    assert keys == sorted(keys)
    published = calculon.search("megatron-126M", "a100_80g", 8, 8, top=3)
    assert published.orders == []


def test_a_frontier_is_that_of_the_whole_space(result):
    statistics = ("sample_rate", "proc_mem_tier1_cap_req")
    front = result.pareto(*statistics)
    searched = calculon.search(*SPACE, pareto=statistics, fix={"tensor_par": 1})
    assert front.numbers.tolist() == searched.numbers.tolist()
    assert front.numbers.tolist() == result.pareto().numbers.tolist()


def test_a_frontier_meets_a_condition(result):
    front = result.pareto("sample_rate", "total_time", where="microbatch_size == 2")
    assert set(front.to_frame()["microbatch_size"]) == {2}
    with pytest.raises(calculon.SpecError, match="two statistics or more"):
        result.pareto("sample_rate")
    with pytest.raises(calculon.SpecError, match="did you mean 'total_time'"):
        result.pareto("sample_rate", "total_tim")
