"""The largest or smallest batch for which a condition holds."""

from collections.abc import Callable

import numpy as np

from calculon.units import Array

GRID = 1024
"""Batches that are tried at once."""


def _batches(most: int) -> Array:
    """Return batches up to the most: all of them, or of many those whose logarithms are evenly spaced."""
    if most <= GRID:
        return np.arange(1.0, most + 1)
    return np.unique(np.round(np.geomspace(1, most, GRID)))


def _between(low: float, high: float) -> Array:
    """Return the batches between two of a grid, or of many as many as the grid has."""
    return np.unique(np.round(np.linspace(low, high, min(GRID, int(high - low) + 1))))


def largest(most: int, keeps: Callable[[Array], Array]) -> int:
    """Return the largest batch of 1 to `most` that keeps a limit; 0 if none does.

    Times rise with the batch but for steps of single kernels, so that all of them, or a fine grid, are tried.
    """
    tried = _batches(most)
    kept = tried[keeps(tried)]
    if not len(kept):
        return 0
    best = kept[-1]
    if best < tried[-1]:
        near = _between(best, tried[tried.searchsorted(best) + 1])
        best = near[keeps(near)][-1]
    return int(best)


def least(most: int, holds: Callable[[Array], Array]) -> int:
    """Return the smallest batch of 1 to `most` for which a condition holds; `most` + 1 if for none."""
    tried = _batches(most)
    found = holds(tried)
    if not found.any():
        return most + 1
    first = int(found.argmax())
    if first == 0:
        return int(tried[0])
    near = _between(tried[first - 1], tried[first])
    return int(near[holds(near).argmax()])
