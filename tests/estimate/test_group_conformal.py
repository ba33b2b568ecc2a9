"""Intervals by group: how often they hold on groups not seen, and the laws that they keep."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculon.estimate.group_conformal import (
    FEWEST,
    LEVEL,
    Groups,
    equal_weights,
    weighted_quantile,
)
from tests.draws import draws

NONE = np.array([], int)


def groups_of(ratios, context=None, gains=(), seen=()):
    """Return groups from a list of lists of ratios, some of which a fit has seen."""
    group = np.repeat(np.arange(len(ratios)), [len(some) for some in ratios])
    rows = np.concatenate([np.asarray(some, float) for some in ratios])
    context = np.zeros((0, len(rows)), int) if context is None else np.asarray(context)
    weights = equal_weights(group.tolist(), group.tolist())
    return Groups(rows, group, weights, context, gains, ~np.isin(group, seen))


def drawn(rng, count):
    """Draw groups as sources are: of very different size, with a bias of their own each."""
    sizes = rng.choice([1, 3, 8, 25, 100], count)
    return [rng.normal(0, 0.1) + rng.uniform(0.02, 0.1) * rng.standard_normal(n) for n in sizes]


@pytest.mark.parametrize("count", [11, 40])
def test_it_holds_on_groups_not_seen(count):
    rng = np.random.default_rng(17)
    shares = []
    for _ in range(60):
        some = drawn(rng, count + 1)
        low, _, high = groups_of(some[:-1]).limits(NONE)
        shares.append(((some[-1] >= low) & (some[-1] <= high)).mean())
    error = np.std(shares) / np.sqrt(len(shares))
    assert LEVEL - 0.05 - error < np.mean(shares) < LEVEL + 0.05 + error


def test_coverage_is_that_of_intervals_found_without_the_group():
    some = drawn(np.random.default_rng(3), 9)
    found = groups_of(some)
    for number, own in enumerate(some):
        low, _, high = groups_of(some[:number] + some[number + 1 :]).limits(NONE)
        assert found.coverage[number] == pytest.approx(((own >= low) & (own <= high)).mean())


def test_what_a_fit_saw_is_no_evidence():
    some = drawn(np.random.default_rng(11), 12)
    found = groups_of(some, seen=(2, 7))
    rest = groups_of([one for i, one in enumerate(some) if i not in (2, 7)])
    assert found.limits(NONE) == rest.limits(NONE)
    assert (found.count, found.speaking) == (12, 10)
    low, _, high = rest.limits(NONE)
    for number in (2, 7):
        held = (some[number] >= low) & (some[number] <= high)
        assert found.coverage[number] == pytest.approx(held.mean())


def test_nothing_is_said_of_coverage_by_too_few_groups():
    found = groups_of(drawn(np.random.default_rng(3), FEWEST))
    assert found.coverage == []
    assert len(found.inside) == 0


ratios = st.lists(
    st.lists(st.integers(-40, 40).map(lambda n: n / 100), min_size=1, max_size=5),
    min_size=FEWEST,
    max_size=8,
)


@given(ratios, st.integers(-50, 50), st.integers(1, 8), st.randoms())
@settings(max_examples=draws(40))
def test_limits_follow_the_errors_and_groups_count_once_in_any_order(some, percent, factor, random):
    """A bias of all rows moves the interval, larger errors widen it, and repeated rows of a group change nothing."""
    plain, shift = groups_of(some).limits(NONE), percent / 100
    moved = [[one * factor + shift for one in rows] for rows in some]
    moved[random.randrange(len(some))] *= 3
    random.shuffle(moved)
    expected = [one * factor + shift for one in plain]
    assert groups_of(moved).limits(NONE) == pytest.approx(expected, abs=1e-9)


def test_rows_that_are_alike_count_more_and_others_still_count():
    rng = np.random.default_rng(5)
    near, far = rng.normal(0, 0.01, (10, 20)), rng.normal(0.3, 0.1, (10, 20))
    code = np.repeat([0, 1], 200)[None]
    narrow, wide = (groups_of([*near, *far], code, (9.0,)).limits(np.array([c])) for c in (0, 1))
    alone = groups_of(list(near)).limits(NONE)
    assert narrow[1] < wide[1]  # the median follows what is alike
    assert (
        narrow[2] > alone[2] + 0.1
    )  # and rows unlike it make the interval wider than that of the alike alone


def test_a_context_that_no_row_has_is_that_of_all_rows_alike():
    some = drawn(np.random.default_rng(7), 8)
    rows = sum(map(len, some))
    code = np.arange(rows)[None] % 2
    found = groups_of(some, code, (5.0,))
    assert found.quantiles(np.array([-1]), np.ones(8, bool)) == pytest.approx(
        groups_of(some).quantiles(NONE, np.ones(8, bool))
    )


def test_weights_of_each_group_add_up_to_1():
    sources, studies = ["a", "a", "b", "a"], ["x", "x", "x", "y"]
    assert equal_weights(sources, studies).tolist() == [0.25, 0.25, 1, 0.5]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.sampled_from([0.25, 0.5, 0.75]))
def test_a_weighted_quantile_of_equal_weights_is_that_of_the_rows(values, level):
    found = weighted_quantile(np.array(values, float), np.ones(len(values)), level)
    assert found == np.quantile(values, level, method="inverted_cdf")
