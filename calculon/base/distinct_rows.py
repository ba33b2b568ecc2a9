"""Distinct rows of columns: each is computed once."""

from collections.abc import Sequence

import numpy as np

from calculon.base.units import Array

LARGEST_RANGE = 65_536
"""Range of values up to which a lookup table is used; wider ranges are sorted."""

MAX_EMPTY = 4
"""Lookup table entries per value that are acceptable for many values."""


def unlike(columns: Sequence[Array]) -> tuple[Array, Array]:
    """Return the distinct rows of columns, of shape (columns, distinct rows), and the place of each row among them.

    >>> unlike([np.array([2, 2, 1]), np.array([0.5, 0.5, 0.5])])[1].tolist()
    [0, 0, 1]
    """
    table = np.stack(columns, axis=1).astype(float)
    place: dict[bytes, int] = {}
    inverse = np.array([place.setdefault(row, len(place)) for row in map(bytes, table)], np.int64)
    first = np.zeros(len(place), np.int64)
    # The last write wins: the first row of each.
    first[inverse[::-1]] = np.arange(len(inverse))[::-1]
    return table[first].T, inverse


def distinct(columns: Sequence[Array]) -> tuple[Array, Array, Array]:
    """Return the distinct rows of columns as integers in ascending order, the index of each row, and a row of each."""
    length = len(columns[0])
    if length == 1:
        return (
            np.array([[int(c[0]) for c in columns]]),
            np.zeros(1, np.int64),
            np.zeros(1, np.int64),
        )
    ranks = np.zeros(length, np.int64)
    for values in columns:
        if (values == values[0]).all():
            continue
        count, inverse = _ranked(values)
        ranks = ranks * count + inverse
        if ranks.max(initial=0) > 2**40:  # before the product overflows
            ranks = _ranked(ranks)[1]
    count, inverse = _ranked(ranks)
    first = np.zeros(count, np.int64)
    first[inverse[::-1]] = np.arange(length)[::-1]  # the last write wins: the first row of each
    return np.stack([c[first] for c in columns], axis=1).astype(np.int64), inverse, first


def _whole(values: Array) -> bool:
    """Return True if all values are integers."""
    return values.dtype.kind != "f" or bool((values == np.floor(values)).all())


def _ranked(values: Array) -> tuple[int, Array]:
    """Return the number of distinct values and the rank of each value; small ranges need no sorting."""
    low, high = int(values.min()), int(values.max())
    if high - low > max(LARGEST_RANGE, MAX_EMPTY * len(values)) or not _whole(values):
        found, inverse = np.unique(values, return_inverse=True)
        return len(found), inverse
    places = values.astype(np.int64) - low
    there = np.zeros(high - low + 1, bool)
    there[places] = True
    ranks = np.cumsum(there) - 1
    return int(ranks[-1]) + 1, ranks.take(places)
