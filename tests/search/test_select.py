"""What is kept does not depend on the order in which executions are offered."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.search.select import Counts, Pareto, TopN, pareto_front

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
    kept = TopN(count)
    for part in parts:
        kept.add(scores[0, part], part)
        assert (kept.threshold > -np.inf) <= (len(kept.numbers) == count)
    best, numbers = kept.ranked()
    wanted = np.argsort(-scores[0], kind="stable")[:count]
    assert numbers.tolist() == wanted.tolist()
    assert best.tolist() == scores[0, wanted].tolist()


@pytest.mark.parametrize("statistics", [1, 2, 3, 4])
def test_the_front_of_any_order_is_what_nothing_dominates(statistics):
    @given(offer=offers(statistics))
    def holds(offer):
        scores, parts = offer
        kept = Pareto(statistics)
        for part in parts:
            kept.add(scores[:, part], part)
        best, numbers = kept.ranked()
        assert sorted(numbers.tolist()) == _front(scores)
        assert (best == scores[:, numbers]).all()
        keys = [(*-best[:, i], numbers[i]) for i in range(len(numbers))]
        assert keys == sorted(keys)

    holds()


def _front(scores):
    """Numbers of executions that no other is at least as good as everywhere, or as good with a smaller number."""
    columns = scores.T
    return [
        i
        for i, one in enumerate(columns)
        if not any(
            (other >= one).all() and ((other > one).any() or j < i)
            for j, other in enumerate(columns)
            if j != i
        )
    ]


def test_an_infinitely_bad_second_score_is_no_reason_to_leave_the_front():
    scores = np.array([[2.0, 1.0, 3.0], [-np.inf, 5.0, -np.inf]])
    assert sorted(pareto_front(scores, np.arange(3)).tolist()) == [1, 2]


def test_many_winners_are_not_sorted_at_every_offer(monkeypatch):
    sorts = []
    lexsort = np.lexsort
    monkeypatch.setattr(np, "lexsort", lambda keys: sorts.append(1) or lexsort(keys))
    kept = TopN(1000)
    scores = np.random.default_rng(0).permutation(20_000).astype(float)
    for start in range(0, 20_000, 10):
        kept.add(scores[start : start + 10], np.arange(start, start + 10))
    found, numbers = kept.ranked()
    assert found.tolist() == list(range(19_999, 18_999, -1))
    assert (scores[numbers] == found).all()
    assert len(sorts) < 20


def test_the_best_of_nothing():
    scores, numbers = TopN(3).ranked()
    assert len(scores) == len(numbers) == 0
    assert pareto_front(np.zeros((2, 0)), np.zeros(0, int)).tolist() == []


def test_counts_add_up():
    counts = Counts()
    counts.add(Counts(10, 4))
    other = Counts(5, 2)
    other.reasons["mem1_capacity"] += 3
    other.nearest_miss["mem1_capacity"] = 7.0
    counts.add(other)
    counts.add(other)
    assert (counts.total, counts.good, counts.bad) == (20, 8, 12)
    assert counts.reasons == {"mem1_capacity": 6}
    assert counts.nearest_miss == {"mem1_capacity": 7.0}
    closer = Counts(nearest_miss={"mem1_capacity": 2.0})
    counts.add(closer)
    assert counts.nearest_miss == {"mem1_capacity": 2.0}
