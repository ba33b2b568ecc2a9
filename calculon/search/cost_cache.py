"""Cache of block costs for the searches of one question, whose processor counts need mostly the same blocks."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from calculon.base.arrays import is_shared_zeros
from calculon.base.record_arrays import apply, arrays_of, concatenate
from calculon.base.units import Array

R = TypeVar("R")
K = TypeVar("K", bound=Hashable)

CACHE_BYTES = 110_000_000
"""Largest total size of the arrays of a cache; further costs are computed, but not kept."""


class _Kept(NamedTuple):
    """Records of a choice (one for each kind of block), and the sizes of their blocks, shape (blocks, fields)."""

    sizes: Array
    records: tuple[Any, ...]


class CostCache:
    """Costs of blocks by choice and size, of one model on one machine in one edition.

    Fewer processors usually need more different blocks, because they run larger microbatches: search the smallest
    count first.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, Hashable], _Kept] = {}
        self._bytes = 0

    def clear(self) -> None:
        """Free the memory of all costs."""
        self._kept.clear()
        self._bytes = 0

    def records(
        self,
        kind: str,
        choices: Sequence[K],
        sizes: Array,
        compute: Callable[[Sequence[K], Array], Sequence[tuple[R, ...]]],
    ) -> list[tuple[R, ...]]:
        """Return the records of each choice, with one row for each block.

        Args:
            kind: Kind of the records.
            choices: Choices of one layout.
            sizes: Sizes of the blocks, shape (blocks, fields).
            compute: Function of choices and sizes that computes records. Rows must not depend on each other.
        """
        found: dict[K, tuple[R, ...]] = {}
        for known, alike in self._alike(kind, choices, sizes[:0]):
            whole = {choice: self._kept[kind, choice].records for choice in alike if len(known)}
            rows = _find(sizes, known)
            missing = sizes[rows < 0]
            every = np.concatenate([known, missing])
            if len(missing):
                rows[rows < 0] = np.arange(len(known), len(every))
                for choice, more in zip(alike, compute(alike, missing), strict=True):
                    old = whole.get(choice)
                    joined = map(concatenate, zip(old, more, strict=True)) if old else more
                    whole[choice] = tuple(joined)
                    self._keep((kind, choice), _Kept(every, whole[choice]))
            for choice, records in whole.items():
                found[choice] = tuple(_take(one, rows, len(every)) for one in records)
        return [found[choice] for choice in choices]

    def _alike(
        self, kind: str, choices: Sequence[K], none: Array
    ) -> Iterator[tuple[Array, list[K]]]:
        """Yield the choices in groups with equal known sizes; `none` stands for no sizes."""
        groups: dict[int, tuple[Array, list[K]]] = {}
        for choice in choices:
            kept = self._kept.get((kind, choice))
            sizes = none if kept is None else kept.sizes
            groups.setdefault(id(sizes), (sizes, []))[1].append(choice)
        yield from groups.values()

    def _keep(self, key: tuple[str, Hashable], kept: _Kept) -> None:
        """Keep records, if there is space for them."""
        before = self._kept.get(key)
        more = _bytes(kept) - (0 if before is None else _bytes(before))
        if self._bytes + more <= CACHE_BYTES:
            self._kept[key] = kept
            self._bytes += more


def _bytes(kept: _Kept) -> int:
    """Return the size of the arrays of records."""
    return sum(values.nbytes for record in kept.records for values in arrays_of(record))


def _find(wanted: Array, known: Array) -> Array:
    """Return the position of each wanted row among the known ones; -1 if it is not among them."""
    place = {row: position for position, row in enumerate(map(bytes, known))}
    return np.array([place.get(row, -1) for row in map(bytes, wanted)])


def _take(record: R, rows: Array, count: int) -> R:
    """Return selected rows of a record of `count` rows."""
    if len(rows) == count and (rows == np.arange(count)).all():
        return record

    def taken(values: Array) -> Array:
        shared = is_shared_zeros(values) or values.shape[-1] < count
        return values if shared else values.take(rows, axis=-1)

    return apply(taken, [record])
