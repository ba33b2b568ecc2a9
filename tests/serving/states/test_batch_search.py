"""The largest and the least batch: those that trying all of them finds."""

import numpy as np
from hypothesis import given, strategies

from calculon.serving.states.batch_search import largest, least
from tests.cases import for_each

BOUNDS = strategies.lists(
    strategies.tuples(strategies.integers(1, 5000), strategies.integers(0, 6000)),
    min_size=1,
    max_size=20,
)
"""The most, and the batch up to which a condition holds, of several deployments."""


@given(BOUNDS)
def test_the_largest_and_the_least_of_all(bounds):
    most, bound = np.array(bounds, float).T
    tried = []

    def keeps(places, batches):
        assert np.all((batches >= 1) & (batches <= most[places]))
        tried.append(len(batches))
        return batches <= bound[places]

    np.testing.assert_array_equal(largest(most, keeps), np.minimum(most, bound))
    beyond = np.where(bound + 1 <= most, bound + 1, 0)
    found = least(most, lambda at, batches: batches > bound[at])
    np.testing.assert_array_equal(found, beyond)
    assert len(tried) <= 1 + 5  # gaps of up to 2048, of which an eighth is left each time


@for_each("most", [1, 2, 3, 1023, 1024, 1025, 2**20])
def test_all_powers_of_two_and_the_most_are_tried_first(most):
    seen = []

    def never(places, batches):
        seen.append(batches)
        return np.zeros(len(places), bool)

    assert largest(np.array([float(most)]), never).tolist() == [0]
    powers = {2.0**n for n in range(21) if 2**n <= most}
    assert set(seen[0]) == powers | {most}
    assert len(seen) == 1
