"""Variations that combine moves: every set of different fields once, the nearest first."""

from itertools import combinations

import numpy as np

from calculon.planner.combinations import choices_of, distances_of, parts_of, subsets
from calculon.planner.moves import Move
from tests.cases import for_each

MOVED = tuple(
    Move(name, value, distance)
    for name, value, distance in (
        *(("tensor_par", 2, 1.0), ("tensor_par", 8, 3.0), ("pipeline_par", 4, 2.0)),
        *(("tp_async", 1, 1.0), ("zero_stage", 3, 1.0), ("zero_stage", 4, 1.0)),
    )
)


@for_each("size", [0, 1, 2, 3, 4])
def test_every_set_of_different_fields_is_there_once(size):
    fields = [one.field for one in MOVED]
    expected = {
        some
        for some in combinations(range(len(MOVED)), size)
        if len({fields[number] for number in some}) == size
    }
    found = choices_of(MOVED, size, 0)
    assert {tuple(sorted(row)) for row in found.tolist()} == expected
    assert len(found) == len(expected)
    distances = distances_of(MOVED, found).tolist()
    assert distances == sorted(distances)


def test_one_of_the_first_moves_is_in_each_where_it_is_needed():
    found = choices_of(MOVED, 3, 2).tolist()
    everything = choices_of(MOVED, 3, 0).tolist()
    needed = {tuple(sorted(row)) for row in everything if {*row} & {0, 1}}
    assert {tuple(sorted(row)) for row in found} == needed
    assert len(found) == len(needed)


def test_parts_are_the_whole_in_order():
    found = subsets(np.arange(80), 3, 0)
    assert len(found) == 80 * 79 * 78 // 6
    parts = [*parts_of(found)]
    assert len(parts) > 1
    assert [row for part in parts for row in part.tolist()] == found.tolist()
