"""Beam search for larger fixes of an infeasible execution: the nearest neighbors are changed further."""

from collections.abc import Iterator, Sequence

import numpy as np

from calculon.advise.neighborhood import Neighborhood, NeighborTable, one_more
from calculon.advise.neighbors import FieldChange
from calculon.base.units import Array
from calculon.plan.rules.failures import broken_rules

BEAM_WIDTH = 8
"""Neighbors kept after each step."""

MAX_STEPS = 8
"""Maximum number of changes after the initial ones."""


def beam_search(
    near: Neighborhood, changes: Sequence[FieldChange], start: NeighborTable
) -> Iterator[NeighborTable]:
    """Yield a neighbor that runs, without unnecessary changes; nothing if none is found.

    Each step adds a change to the nearest neighbors, until one runs or none comes nearer. Neighbors that break fewer
    rules are nearer; among those that break none, those that exceed memory by less. The search is heuristic: a fix with
    fewer changes may exist.

    Args:
        changes: Allowed changes.
        start: Neighbors to start from.
    """
    best = _distance(near, start)
    beam = _nearest(start, best)
    for _ in range(MAX_STEPS):
        grown = one_more(changes, beam)
        if not len(grown):
            return
        table = near.evaluate(changes, grown)
        if table.in_order:
            yield _without_needless(near, table, table.in_order[0])
            return
        here = _distance(near, table)
        if not _nearer(here, best):
            return
        best, beam = here, _nearest(table, here)


def _distance(near: Neighborhood, table: NeighborTable) -> Array:
    """Return the distance of neighbors from running, shape (2, rows): broken rules, and bytes over the limits."""
    rules = np.zeros(len(table.choices))
    illegal = np.flatnonzero(~table.legal | ~table.real)
    plan = table.plan.take(illegal)
    rules[illegal] = broken_rules(near.model, near.system, plan)
    # Malformed rows, and rows in which a change was overridden by its consequences, never enter the
    # beam.
    rules[illegal] += np.where((plan.malformed >= 0) | ~table.real[illegal], np.inf, 0)
    # Memory is compared only for executions that break no rule: it is unknown for the others.
    over = table.memory - np.array(near.system.usable)[:, None]
    return np.stack([rules, np.where(rules == 0, np.maximum(over, 0).sum(axis=0), 0.0)])


def _nearest(table: NeighborTable, distance: Array) -> Array:
    """Return the changes of the neighbors nearest to running, at most one for each set of fields."""
    rules, over = distance
    # `lexsort` sorts by its last key first.
    order = np.lexsort((table.distances, ~table.practised, over, rules))
    rows = order[np.isfinite(rules[order])].tolist()
    return table.choices[table.first_of_fields(rows)[:BEAM_WIDTH]]


def _nearer(here: Array, before: Array) -> bool:
    """Return True if some neighbor is nearer to running than all earlier ones."""
    first, second = (
        min(map(tuple, one.T.tolist()), default=(np.inf, 0.0)) for one in (here, before)
    )
    return first < second


def _without_needless(near: Neighborhood, table: NeighborTable, row: int) -> NeighborTable:
    """Return a neighbor that runs, after dropping changes that it does not need."""
    changes, choices = table.changes, table.choices[row : row + 1]
    while choices.shape[1] > 1:
        # Greedy removal, one change at a time: beam search may have added changes that later ones
        # made redundant.
        fewer = np.stack([np.delete(choices[0], place) for place in range(choices.shape[1])])
        running = near.evaluate(changes, fewer).in_order
        if not running:
            break
        choices = fewer[running[:1]]
    return near.evaluate(changes, choices)
