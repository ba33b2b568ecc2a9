"""The largest or smallest batch of each of several deployments for which a condition holds.

Times rise with the batch but for steps of single kernels. First all powers of two are tried, then as few batches as
narrow down the gap between those of which one keeps the condition and the next does not.
"""

from collections.abc import Callable

import numpy as np

from calculon.base.units import Array, Count

PARTS = 8
"""Parts into which a gap is cut at a time."""

Restart = Callable[[Array, Count], Count]
"""The next larger batch from which on times rise anew after a fall, each of the deployment at a place."""

Condition = Callable[[Array, Count], Array]
"""Whether the condition holds for batches, each of the deployment at a place."""


def largest(most: Count, keeps: Condition, restart: Restart | None = None) -> Count:
    """Return the largest batch of 1 to the most of each deployment that keeps a condition; 0 if none does.

    Batches at which times fall once, by `restart`, are tried as well.
    """
    places, batches = _powers(most)
    if restart is not None:
        places, batches = _with_restarts(most, places, batches, restart)
    best, above = np.zeros_like(most), most + 1
    while len(places):
        kept = keeps(places, batches)
        np.maximum.at(best, places[kept], batches[kept])
        larger = batches > best[places]
        np.minimum.at(above, places[larger], batches[larger])
        places, batches = _between(best, above, best > 0)
    return best


def least(most: Count, holds: Condition) -> Count:
    """Return the smallest batch of 1 to the most of each deployment for which a condition holds; 0 if for none."""
    places, batches = _powers(most)
    below, best = np.zeros_like(most), most + 1
    while len(places):
        held = holds(places, batches)
        np.minimum.at(best, places[held], batches[held])
        smaller = batches < best[places]
        np.maximum.at(below, places[smaller], batches[smaller])
        places, batches = _between(below, best, best <= most)
    return np.where(best <= most, best, 0.0)


def _powers(most: Count) -> tuple[Array, Count]:
    """Return powers of two up to the most of each deployment, and the most itself."""
    exponents = np.arange(1 + int(np.log2(np.max(most, initial=1.0))))
    tried = np.minimum(np.append(2.0**exponents, np.inf), most[:, None])
    new = np.diff(tried, axis=1, prepend=0.0) > 0
    places, _ = np.nonzero(new)
    return places, tried[new]


def _with_restarts(
    most: Count, places: Array, batches: Count, restart: Restart
) -> tuple[Array, Count]:
    """Return batches with those at which times fall, up to the most of each deployment."""
    at, batch = np.arange(len(most)), np.zeros_like(most)
    while len(at):
        batch = restart(at, batch)
        there = batch <= most[at]
        at, batch = at[there], batch[there]
        places, batches = np.append(places, at), np.append(batches, batch)
    return places, batches


def _between(low: Count, high: Count, wanted: Array) -> tuple[Array, Count]:
    """Return batches in the gaps between two of each deployment, of which the ends were tried."""
    places = np.flatnonzero(wanted & (high - low > 1))
    share = np.arange(1, PARTS) / PARTS
    tried = np.floor(low[places, None] + (high - low)[places, None] * share)
    new = np.diff(tried, axis=1, prepend=low[places, None]) > 0
    rows, _ = np.nonzero(new)
    return places[rows], tried[new]
