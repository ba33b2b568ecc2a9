"""A cache of costs gives what computing all of them gives, and computes nothing twice."""

import numpy as np
import pytest

from calculon.base.arrays import shared_zeros
from calculon.cost.data.replication import Windows
from calculon.search import cost_cache
from calculon.search.cost_cache import CostCache
from tests.draws import draws

CHOICES = "abcdef"


def _costs(choices, sizes):
    """Return two records of each choice, with a row for each block."""
    found = []
    for choice in choices:
        each = ord(choice) + sizes @ np.array([1.0, 0.1, 0.01])
        windows = Windows(forward=each, backward=np.stack([each, 2 * each]), head=shared_zeros())
        found.append((windows, Windows(forward=-each, backward=3 * each, head=1 / each)))
    return found


def _same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert (one.forward == other.forward).all()
        assert (one.backward == other.backward).all()
        assert (one.head == other.head).all()


@pytest.mark.parametrize("space", [10**9, 3_000, 0])
def test_costs_are_the_computed_ones_whatever_was_asked_before(space, monkeypatch):
    monkeypatch.setattr(cost_cache, "CACHE_BYTES", space)
    random = np.random.default_rng(42)
    every = np.stack([axis.ravel() for axis in np.mgrid[:4, :3, :2]], axis=1)
    for _ in range(draws(20)):
        cache, known = CostCache(), set()

        def compute(choices, sizes, known=known):
            asked = {(choice, *size) for choice in choices for size in sizes.tolist()}
            if space == 10**9:
                assert not asked & known
            known |= asked
            return _costs(choices, sizes)

        for _ in range(5):
            choices = random.permutation([*CHOICES])[: random.integers(1, 5)].tolist()
            sizes = random.permutation(every)[: random.integers(1, len(every))]
            found = cache.records("blocks", choices, sizes, compute)
            for one, expected in zip(found, _costs(choices, sizes), strict=True):
                _same(one, expected)


def test_choices_of_different_kinds_are_different():
    cache, sizes = CostCache(), np.ones((2, 3))
    cache.records("blocks", "a", sizes, _costs)
    _same(
        cache.records("ends", "a", sizes, lambda *_: _costs("b", sizes))[0], _costs("b", sizes)[0]
    )
