"""Rankings keep what a filter, a sort or a comparison of all with all would keep."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculon.search.objective import Objective
from calculon.search.one import search_space
from calculon.search.ranking import Best, Front
from calculon.search.where import Condition
from tests.search.brute import CONDITIONS, OBJECTIVES, cases, score

conditions = st.sampled_from(CONDITIONS).map(lambda text: Condition.parse(text) if text else None)


def _not_dominated(scores):
    """Positions of what no other one equals or beats everywhere; of equals the first."""
    front = []
    for i in range(scores.shape[1]):
        as_good = (scores >= scores[:, [i]]).all(axis=0)
        better = as_good & (scores > scores[:, [i]]).any(axis=0)
        if not better.any() and not as_good[:i].any():
            front.append(i)
    return front


def _same_rows(found, case, rows):
    wanted = case.plan.take(rows)
    return all((found.values(n) == wanted.values(n)).all() for n in case.space.values)


@settings(max_examples=14)
@given(
    case=cases(),
    texts=st.lists(
        st.sampled_from(OBJECTIVES), min_size=1, max_size=3, unique_by=lambda t: t.split(":")[0]
    ),
    where=conditions,
)
def test_the_front_is_what_no_execution_dominates(case, texts, where):
    objectives = [Objective.parse(text) for text in texts]
    front = Front(objectives, where)
    search_space(case.space, front)
    rows = np.flatnonzero(case.table.feasible)
    if where is not None:
        rows = rows[np.broadcast_to(where.mask(case.table.column), len(case.rows))[rows]]
    scores = np.stack([score(one, case.table)[rows] for one in objectives])
    best, numbers = front.ranked()
    order = np.argsort(numbers)
    assert _same_rows(case.space.plan(numbers[order]), case, rows[_not_dominated(scores)])
    assert (best[:, order] == scores[:, _not_dominated(scores)]).all()
    assert (np.diff(best[0]) <= 0).all()


@settings(max_examples=15)
@given(case=cases(), where=conditions)
def test_a_condition_keeps_the_rows_that_meet_it(case, where):
    everything = Best(Objective.parse("sample_rate"), len(case.rows) + 1, where)
    search_space(case.space, everything)
    _, numbers = everything.ranked()
    mask = case.table.feasible
    if where is not None:
        mask = mask & where.mask(case.table.column)
    assert _same_rows(case.space.plan(np.sort(numbers)), case, np.flatnonzero(mask))


@pytest.mark.parametrize(
    ("text", "prune", "bounded"),
    [
        ("sample_rate", True, True),
        ("sample_rate", False, False),
        ("sample_rate:min", True, False),
        ("total_time", True, True),
        ("total_efficiency", True, False),
    ],
)
def test_only_what_has_a_bound_is_pruned(text, prune, bounded):
    class Stub:
        least_time = np.ones((1, 1))
        batch_size = np.array([8])

    bound = Best(Objective.parse(text), 1, prune=prune).bound(Stub())
    assert (bound is not None) == bounded
    assert Front([Objective.parse(text)]).bound(Stub()) is None


def test_the_threshold_rises_when_there_are_enough():
    best = Best(Objective.parse("total_time"), 2)
    assert best.threshold == -np.inf
    best.keep(np.array([[-5.0]]), np.array([3]))
    assert best.threshold == -np.inf
    best.keep(np.array([[-7.0, -4.0]]), np.array([1, 2]))
    assert best.threshold == -5.0
    scores, numbers = best.ranked()
    assert (scores.tolist(), numbers.tolist()) == ([[-4.0, -5.0]], [2, 3])
    assert Front([Objective.parse("total_time")]).threshold == -np.inf
