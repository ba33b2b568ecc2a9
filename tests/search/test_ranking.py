"""Rankings keep what a filter, a sort or a comparison of all with all would keep."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.search.best_first import search_space
from calculon.search.cost_cache import CostCache
from calculon.search.objective import Objective
from calculon.search.ranking import Best, BestOfEach, ParetoFront, Together
from calculon.search.search_counts import dominated, pareto_front
from tests.search.brute import CONDITIONS, OBJECTIVES, not_dominated, same_rows, score
from tests.search.pool import on_pool


@on_pool(0, 3)
def test_the_front_is_what_no_execution_dominates(case, draw):
    kinds = {text.split(":")[0]: text for text in draw.sample(OBJECTIVES, len(OBJECTIVES))}
    texts, where = [*kinds.values()][: draw.randint(1, 3)], draw.choice(CONDITIONS)
    objectives = [Objective.parse(text) for text in texts]
    front = ParetoFront(objectives, where)
    search_space(case.space, front)
    rows = case.preferred[case.table.feasible[case.preferred]]
    if where is not None:
        rows = rows[np.broadcast_to(where.mask(case.table.column), len(case.rows))[rows]]
    scores = np.stack([score(one, case.table)[rows] for one in objectives])
    best, numbers = front.ranked()
    order = np.argsort(numbers)
    wanted = not_dominated(scores)
    wanted = wanted[np.argsort(rows[wanted])]
    assert same_rows(case.space.plan(numbers[order]), case.plan.take(rows[wanted]))
    assert (best[:, order] == scores[:, wanted]).all()
    assert (np.diff(best[0]) <= 0).all()


@on_pool(5, 12)
def test_rankings_keep_together_what_each_keeps_alone(case, draw):
    objective = Objective.parse(draw.choice(("total_time", "sample_rate")))
    stride, where = case.space.strides["pipeline_interleaving"], draw.choice(CONDITIONS)
    cache = CostCache()

    count = draw.choice((1, 3))
    alone, together = (
        (BestOfEach(objective, stride, where), Best(objective, count)) for _ in range(2)
    )
    for one in (*alone, Together(*together)):
        search_space(case.space, one, cache=cache)
    for one, other in zip(together, alone, strict=True):
        assert [found.tolist() for found in one.ranked()] == [
            found.tolist() for found in other.ranked()
        ]


RATE = Objective.parse("sample_rate")
SCORES = st.sampled_from((-np.inf, -2.0, 0.0, 0.5, 1.0, 1.0, 7.25, np.inf))


@st.composite
def offers(draw, statistics):
    """Scores of executions, and the parts in which they are offered, in any order."""
    rows = draw(st.lists(st.tuples(*[SCORES] * statistics), max_size=30))
    scores = np.array(rows, float).reshape(-1, statistics).T
    order = np.array(draw(st.permutations(range(len(rows)))), int)
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    return scores, np.split(order, cuts)


@given(offer=offers(1), count=st.integers(1, 8))
def test_the_best_of_any_order_are_those_of_a_stable_sort(offer, count):
    scores, parts = offer
    kept = Best(RATE, count)
    for part in parts:
        kept.keep(scores[:, part], part)
        assert (kept.threshold > -np.inf) <= (len(kept.numbers) == count)
    best, numbers = kept.ranked()
    wanted = np.argsort(-scores[0], kind="stable")[:count]
    assert numbers.tolist() == wanted.tolist()
    assert best.tolist() == scores[:, wanted].tolist()


@given(offer=offers(1), stride=st.integers(1, 8))
def test_the_best_of_each_kind_are_the_first_of_theirs_in_a_stable_sort(offer, stride):
    scores, parts = offer
    kept = BestOfEach(RATE, stride)
    for part in parts:
        kept.keep(scores[:, part], part)
    best, numbers = kept.ranked()
    order = np.argsort(-scores[0], kind="stable")
    wanted = [n for i, n in enumerate(order) if n // stride not in order[:i] // stride]
    assert numbers.tolist() == wanted
    assert best.tolist() == scores[:, wanted].tolist()
    every = np.arange(scores.shape[1])
    firsts = {n // stride: scores[0, n] for n in wanted}
    assert np.array_equal(
        np.broadcast_to(kept.least(every), every.shape), [firsts[n // stride] for n in every]
    )
    order = kept.order(scores[0], every)
    assert sorted(order.tolist()) == every.tolist()
    assert {n // stride for n in order[: len(wanted)].tolist()} == {*firsts}


@pytest.mark.parametrize("statistics", [1, 2, 3, 4])
def test_the_front_of_any_order_is_what_nothing_dominates(statistics):
    @given(offer=offers(statistics))
    def holds(offer):
        scores, parts = offer
        kept = ParetoFront([RATE] * statistics)
        for part in parts:
            kept.keep(scores[:, part], part)
        best, numbers = kept.ranked()
        assert sorted(numbers.tolist()) == not_dominated(scores).tolist()
        assert (best == scores[:, numbers]).all()
        keys = [(*-best[:, i], numbers[i]) for i in range(len(numbers))]
        assert keys == sorted(keys)

    holds()


@pytest.mark.parametrize("statistics", [1, 2, 3])
def test_of_equals_the_fewest_switches_are_on_the_front(statistics):
    draw = np.random.default_rng(statistics)
    for _ in range(8):
        scores = draw.integers(0, 3, (statistics, 9)).astype(float)
        numbers, switches = draw.permutation(9), draw.integers(0, 2, 9)
        front = pareto_front(scores, numbers, switches)
        preferred = np.lexsort((numbers, switches))
        wanted = preferred[not_dominated(scores[:, preferred])]
        assert sorted(front.tolist()) == sorted(wanted.tolist())
        if statistics == 2:
            best = scores[:, front][:, :, None]
            worse = (best >= scores[:, None]).all(axis=0) & (best > scores[:, None]).any(axis=0)
            assert dominated(scores, scores[:, front]).tolist() == worse.any(axis=0).tolist()


def test_many_winners_are_not_sorted_at_every_offer(monkeypatch):
    sorts = []
    lexsort = np.lexsort
    monkeypatch.setattr(np, "lexsort", lambda keys: sorts.append(1) or lexsort(keys))
    kept = Best(RATE, 1000)
    scores = np.random.default_rng(0).permutation(20_000).astype(float)
    for start in range(0, 20_000, 10):
        kept.keep(scores[None, start : start + 10], np.arange(start, start + 10))
    found, numbers = kept.ranked()
    assert found.tolist() == [list(range(19_999, 18_999, -1))]
    assert (scores[numbers] == found).all()
    assert len(sorts) < 20


def test_the_best_of_nothing():
    scores, numbers = Best(RATE, 3).ranked()
    assert scores.shape == (1, 0)
    assert len(numbers) == 0
    assert pareto_front(np.zeros((2, 0)), np.zeros(0, int)).tolist() == []


@on_pool(0, 6)
def test_memory_is_bounded_by_what_fits(case, draw):
    """Exactly: the best of a tile is what an execution of it has."""
    objective = Objective.parse(f"proc_mem_tier1_cap_req:{draw.choice(('min', 'max'))}")
    bounds = []

    class Noted(Best):
        def upper_bound(self, tile, nodes=None):
            bound = super().upper_bound(tile, nodes)
            bounds.extend([] if bound is None else [bound.max()])
            return bound

    found = Noted(objective, 1)
    search_space(case.space, found)
    scores, _ = found.ranked()
    assert max(bounds, default=None) == (scores[0, 0] if scores.size else None)
