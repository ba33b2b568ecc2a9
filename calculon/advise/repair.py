"""Many changes of an execution that cannot run, found step by step: the nearest variations are changed on."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from calculon.advise.combinations import Tried, in_order, numbers_of_fields
from calculon.advise.moves import Move
from calculon.base.units import Array
from calculon.declarations.model import Model
from calculon.hardware.system import System
from calculon.plan.rules.failures import broken_rules

WIDTH = 8
"""Variations that are changed further."""

MOST_STEPS = 8
"""Changes beyond the first ones."""


class Trying(Protocol):
    """What tries tables of variations of one execution."""

    model: Model
    system: System

    def tried(self, moved: Sequence[Move], choices: Array) -> Tried:
        """Try a table of variations."""


def repaired(changes: Trying, moved: Sequence[Move], start: Tried) -> Iterator[Tried]:
    """Yield tables of variations with ever more changes, until one runs or none comes nearer.

    Nearer are those that break fewer rules; of those that break none, those that need less memory beyond what there is.
    What runs is yielded with no change that it can do without. Nothing says that no other way is shorter.

    Args:
        moved: What may be changed.
        start: The variations to start from.
    """
    best = _distance(changes, start)
    states = _nearest(start, best)
    for _ in range(MOST_STEPS):
        grown = _grown(moved, states)
        if not len(grown):
            return
        tried = changes.tried(moved, grown)
        if running := in_order(tried):
            yield _without_needless(changes, tried, running[0])
            return
        here = _distance(changes, tried)
        if not _nearer(here, best):
            return
        best, states = here, _nearest(tried, here)


def _distance(changes: Trying, tried: Tried) -> Array:
    """Return how far variations are from running, shape (2, rows): rules that they break, and bytes too much."""
    rules = np.zeros(len(tried.choices))
    illegal = np.flatnonzero(~tried.trials.legal | ~tried.real)
    plan = tried.plan.take(illegal)
    rules[illegal] = broken_rules(changes.model, changes.system, plan)
    rules[illegal] += np.where((plan.malformed >= 0) | ~tried.real[illegal], np.inf, 0)
    needed = tried.trials.memory - np.array(changes.system.usable)[:, None]
    return np.stack([rules, np.where(rules == 0, np.maximum(needed, 0).sum(axis=0), 0.0)])


def _nearest(tried: Tried, distance: Array) -> Array:
    """Return the moves of the variations that are nearest to running, at most one for each set of fields."""
    rules, over = distance
    order = np.lexsort((tried.distances, ~tried.practised, over, rules))
    fields = np.sort(numbers_of_fields(tried.moves)[tried.choices], axis=1)
    found: dict[tuple[int, ...], int] = {}
    for row in order[np.isfinite(rules[order])].tolist():
        found.setdefault(tuple(fields[row].tolist()), row)
        if len(found) == WIDTH:
            break
    return tried.choices[list(found.values())]


def _nearer(here: Array, before: Array) -> bool:
    """Whether some variation is nearer to running than all were before."""
    first, second = (
        min(map(tuple, one.T.tolist()), default=(np.inf, 0.0)) for one in (here, before)
    )
    return first < second


def _grown(moved: Sequence[Move], states: Array) -> Array:
    """Return variations with one more change of a further field, each set of moves once."""
    fields = numbers_of_fields(moved)
    more = np.tile(np.arange(len(moved)), len(states))[:, None]
    found = np.concatenate([np.repeat(states, len(moved), axis=0), more], axis=1)
    apart = (fields[found[:, :-1]] != fields[found[:, -1:]]).all(axis=1)
    return np.unique(np.sort(found[apart], axis=1), axis=0)


def _without_needless(changes: Trying, tried: Tried, row: int) -> Tried:
    """Return a variation that runs, without the changes that it can do without."""
    found = changes.tried(tried.moves, tried.choices[row : row + 1])
    while found.choices.shape[1] > 1:
        moves = found.choices[0]
        fewer = np.stack([np.delete(moves, place) for place in range(len(moves))])
        without = changes.tried(tried.moves, fewer)
        running = in_order(without)
        if not running:
            break
        found = changes.tried(tried.moves, fewer[running[:1]])
    return found
