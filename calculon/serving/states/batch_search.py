"""Search for the largest or smallest batch of each of several deployments that meets a condition.

Times increase with the batch except for steps in the times of single kernels. First all powers of two are tried, then a
few batches at a time inside the gap between the best batch that meets the condition and the next one that does not.
"""

from collections.abc import Callable

import numpy as np

from calculon.base.units import Array, Count

PARTS = 8
"""Parts into which a gap is divided in each round."""

Restart = Callable[[Array, Count], Count]
"""Function that returns the next larger batch after which times rise anew, for each deployment at an index."""

Condition = Callable[[Array, Count], Array]
"""Function that returns a mask of batches that meet the condition, each for the deployment at an index."""


def largest(most: Count, keeps: Condition, restart: Restart | None = None) -> Count:
    """Return the largest batch from 1 to `most` of each deployment that meets a condition; 0 if none does.

    Batches at which times fall once, given by `restart`, are tried as well.
    """
    places, batches = _powers(most)
    if restart is not None:
        places, batches = _with_restarts(most, places, batches, restart)
    # above is the smallest batch over the best one that was tried and failed
    best, above = np.zeros_like(most), most + 1
    while len(places):
        kept = keeps(places, batches)
        np.maximum.at(best, places[kept], batches[kept])
        larger = batches > best[places]
        np.minimum.at(above, places[larger], batches[larger])
        places, batches = _between(best, above, best > 0)
    return best


def least(most: Count, holds: Condition) -> Count:
    """Return the smallest batch from 1 to `most` of each deployment that meets a condition; 0 if none does."""
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
    """Return powers of two up to `most` for each deployment, and `most` itself."""
    exponents = np.arange(1 + int(np.log2(np.max(most, initial=1.0))))
    # infinity becomes `most`, and duplicates after it are dropped by the difference below
    tried = np.minimum(np.append(2.0**exponents, np.inf), most[:, None])
    new = np.diff(tried, axis=1, prepend=0.0) > 0
    places, _ = np.nonzero(new)
    return places, tried[new]


def _with_restarts(
    most: Count, places: Array, batches: Count, restart: Restart
) -> tuple[Array, Count]:
    """Return the batches together with the batches at which times fall, up to `most` of each deployment."""
    at, batch = np.arange(len(most)), np.zeros_like(most)
    while len(at):
        batch = restart(at, batch)
        within = batch <= most[at]
        at, batch = at[within], batch[within]
        places, batches = np.append(places, at), np.append(batches, batch)
    return places, batches


def _between(low: Count, high: Count, wanted: Array) -> tuple[Array, Count]:
    """Return batches inside the gap between two batches of each deployment that were already tried."""
    places = np.flatnonzero(wanted & (high - low > 1))
    share = np.arange(1, PARTS) / PARTS
    tried = np.floor(low[places, None] + (high - low)[places, None] * share)
    new = np.diff(tried, axis=1, prepend=low[places, None]) > 0
    rows, _ = np.nonzero(new)
    return places[rows], tried[new]
