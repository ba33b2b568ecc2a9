"""Steady states of full batches that were found before: each replica with each batch is timed once."""

from collections.abc import Callable

import numpy as np

from calculon.base.units import Array, Count, Seconds
from calculon.plan.choices import distinct
from calculon.serving.states.steady import Prompts, Steady

State = tuple[Steady, Prompts, Seconds]
"""A steady state, what prompts add, and the time of a decode pass."""

AT_ONCE = 2**14
"""States that are timed together: bounds the memory of all rows of their passes."""

_BATCHES = 2.0**21
"""More than any batch has sequences."""

_STEADY, _PROMPTS = len(Steady._fields), len(Prompts._fields)


class KnownStates:
    """The states of replicas, by their number and a whole number of sequences.

    Args:
        find: Returns the states of replicas, given by their numbers, with batches.
    """

    def __init__(self, find: Callable[[Array, Count], State]):
        self._find = find
        self._keys = np.zeros(0)
        self._columns = np.zeros((_STEADY + _PROMPTS + 1, 0))

    def of(self, replicas: Array, batch: Count) -> State:
        """Return the states of replicas with batches; columns have the shape of `batch`."""
        _, place, first = distinct([replicas, batch.astype(np.int64)])
        keys = (replicas * _BATCHES + batch)[first]
        self._add(keys[~np.isin(keys, self._keys, assume_unique=True)])
        found = self._columns[:, np.searchsorted(self._keys, keys)[place]]
        steady, prompts = found[:_STEADY], found[_STEADY : _STEADY + _PROMPTS]
        return Steady(*steady), Prompts(*prompts), found[-1]

    def _add(self, keys: Array) -> None:
        """Find the states of new keys."""
        if not len(keys):
            return
        parts = []
        for first in range(0, len(keys), AT_ONCE):
            some = keys[first : first + AT_ONCE]
            replicas = np.floor(some / _BATCHES)
            steady, prompts, decode = self._find(
                replicas.astype(np.int64), some - replicas * _BATCHES
            )
            columns = (np.broadcast_to(one, some.shape) for one in (*steady, *prompts, decode))
            parts.append(np.stack([*columns]))
        every = np.concatenate([self._keys, keys])
        order = np.argsort(every, kind="stable")
        self._keys = every[order]
        self._columns = np.concatenate([self._columns, *parts], axis=1)[:, order]
