"""Variations that combine moves, in tables: which there are, and what became of them."""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from calculon.advise.moves import Move
from calculon.advise.trials import Trials
from calculon.advise.variations import Variations
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Seconds
from calculon.plan.plan import Plan

AT_ONCE = 65_536
"""Of more, so many are tried at a time: the nearest may do."""

DIGITS = 9
"""Digits of distances that count: sums of logarithms are rounded."""


@dataclass(frozen=True)
class Tried:
    """A table of variations, each with the same number of changes.

    Attributes:
        moves: Those that they are made of.
        choices (shape (rows, changes)): The moves of each variation.
        plan: The variations.
        trials: What became of them.
        practised: Whether degrees are as people choose them who run the framework.
    """

    moves: tuple[Move, ...]
    choices: Array
    plan: Plan
    trials: Trials
    practised: Array

    @cached_property
    def distances(self) -> Array:
        """The sum of the distances of the moves of each variation."""
        return distances_of(self.moves, self.choices)

    @cached_property
    def paces(self) -> Seconds:
        """Seconds of a sample: batches may differ."""
        found: Seconds = self.trials.time / self.plan.batch_size
        return found

    @cached_property
    def real(self) -> Array:
        """Mask of the variations in which every changed field has the value that it was changed to."""
        good = np.ones(len(self.choices), bool)
        for number, move in enumerate(self.moves):
            if move.value is not None:
                rows = (self.choices == number).any(axis=1)
                good &= ~rows | (getattr(self.plan, move.field) == move.value)
        return good


def table_of(variations: Variations, moved: Sequence[Move], choices: Array) -> Plan:
    """Return the table of variations that combine moves."""
    changes: dict[str, tuple[Array, Array]] = {}
    followed: dict[str, Array] = {}
    fields, values = numbers_of_fields(moved), np.array([one.value or 0 for one in moved], np.int64)
    free = np.array([one.value is None for one in moved], bool)
    for number, name in enumerate(dict.fromkeys(one.field for one in moved)):
        rows, places = np.nonzero(fields[choices] == number)  # at most one change of a field
        which = choices[rows, places]
        if free[which].any():
            followed[name] = rows[free[which]]
        if not free[which].all():
            stated = ~free[which]
            changes[name] = rows[stated], values[which[stated]]
    return variations.table(len(choices), changes, followed)


def numbers_of_fields(moved: Sequence[Move]) -> Array:
    """Return a number for the field of each move, alike for moves of the same."""
    numbers = {name: n for n, name in enumerate(dict.fromkeys(one.field for one in moved))}
    return np.array([numbers[one.field] for one in moved], np.int64)


def distances_of(moved: Sequence[Move], choices: Array) -> Array:
    """Return the sum of the distances of the moves of each variation."""
    found: Array = np.array([one.distance for one in moved])[choices].sum(axis=1)
    return found


def choices_of(moved: Sequence[Move], size: int, needed: int) -> Array:
    """Return the moves of all variations of so many changes of different fields, the nearest first.

    Each has one of so many first moves, where any are `needed`.
    """
    fields = numbers_of_fields(moved)
    found = subsets(fields, size - bool(needed), needed)
    if needed:
        first = np.repeat(np.arange(needed)[:, None], len(found), axis=0)
        found = np.concatenate([first, np.tile(found, (needed, 1))], axis=1)
        found = found[(fields[found[:, 1:]] != fields[found[:, :1]]).all(axis=1)]
    order = np.argsort(np.round(distances_of(moved, found), DIGITS), kind="stable")
    return found[order]


def subsets(fields: Array, size: int, start: int) -> Array:
    """Return all sets of so many moves of different fields, from one on: shape (sets, size)."""
    found = np.zeros((1, 0), np.int64)
    for _ in range(size):
        last = found[:, -1] if found.shape[1] else np.full(1, start - 1)
        counts = len(fields) - 1 - last
        rows = np.repeat(np.arange(len(found)), counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        new = last[rows] + 1 + within
        apart = (fields[found[rows]] != fields[new][:, None]).all(axis=1)
        found = np.concatenate([found[rows], new[:, None]], axis=1)[apart]
    return found


def parts_of(choices: Array) -> Iterator[Array]:
    """Yield variations as they are tried: all together where they are few, else the nearest first."""
    for start in range(0, len(choices), AT_ONCE):
        yield choices[start : start + AT_ONCE]


def in_order(tried: Tried) -> list[int]:
    """Return the variations that run: the practised first, then the nearest, then the fastest."""
    rows = np.flatnonzero(tried.trials.runs & tried.real)
    near = np.round(tried.distances[rows], DIGITS)
    by = tried.paces[rows], near, ~tried.practised[rows]
    order: list[int] = rows[np.lexsort(by)].tolist()
    return order


def firsts(tried: Tried, rows: Sequence[int]) -> list[int]:
    """Return of some variations the first of each set of changed fields, in their order."""
    fields = np.sort(numbers_of_fields(tried.moves)[tried.choices[rows]], axis=1)
    places = np.sort(np.unique(fields, axis=0, return_index=True)[1])
    return [rows[place] for place in places.tolist()]
