"""Intervals by source: their formula, how often they hold on sources not seen, and the laws that they keep."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from calculon.declarations.statistics import LEVEL
from calculon.estimate.source_errors import (
    FEWEST,
    WITHIN,
    SourceErrors,
    equal_weights,
    weighted_quantile,
)
from calculon.estimate.student import probability, quantile
from tests.draws import draws

NONE = np.array([], int)


def errors_of(ratios, context=None, factors=(), seen=()):
    """Return errors from a list of lists of ratios, some of which a fit has seen."""
    source = np.repeat(np.arange(len(ratios)), [len(some) for some in ratios])
    rows = np.concatenate([np.asarray(some, float) for some in ratios])
    context = np.zeros((0, len(rows)), int) if context is None else np.asarray(context)
    weights = equal_weights(source.tolist(), source.tolist())
    return SourceErrors(rows, source, weights, context, factors, ~np.isin(source, seen))


def drawn(rng, count):
    """Draw sources as they are: of very different size, with a bias of their own each."""
    sizes = rng.choice([1, 3, 8, 25, 100], count)
    return [rng.normal(0, 0.1) + rng.uniform(0.02, 0.1) * rng.standard_normal(n) for n in sizes]


def inside(rows, limits):
    return (rows >= limits[0]) & (rows <= limits[2])


@pytest.mark.parametrize("count", [4, 6, 11, 40])
def test_it_holds_on_sources_not_seen(count):
    rng = np.random.default_rng(17)
    shares = []
    for _ in range(400):
        some = drawn(rng, count + 1)
        shares.append(inside(some[-1], errors_of(some[:-1]).limits(NONE)).mean())
    assert LEVEL - 0.025 < np.mean(shares) < LEVEL + 0.05


def test_the_interval_is_that_of_students_t_over_effective_sources():
    """Three sources; rows that share the feature count four times as much."""
    found = errors_of([[0.1, 0.2], [0.3], [-0.1]], [[0, 0, 1, 1]], (4.0,))
    low, middle, high = found.limits(np.array([1]))
    weights, middle_row, near = np.array([0.5, 0.5, 4, 4]), 0.1, 0.2  # -0.1 reaches 4 of 9 only
    assert middle == middle_row
    assert weights[np.abs(found.ratios - middle) <= near + 1e-9].sum() >= WITHIN * weights.sum()
    effective = 9**2 / (1 + 16 + 16)
    freedom = max(1.0, effective - 1)
    scale = near / stats.norm.ppf((1 + WITHIN) / 2) * math.sqrt(1 + 1 / effective)
    half = stats.t.ppf((1 + LEVEL) / 2, freedom) * scale
    assert (low, high) == pytest.approx((middle - half, middle + half), rel=5e-3)


def test_fewer_effective_sources_make_it_wider():
    """Of sources that err alike, an interval for a class of few is wider than one for a class of many."""
    some = [[-0.1, 0.1]] * 12
    code = np.repeat([0, 1], [4, 20])[None]
    few, many = (errors_of(some, code, (50.0,)).limits(np.array([one])) for one in (0, 1))
    assert few[2] - few[0] > 1.25 * (many[2] - many[0])


def test_sides_are_those_of_intervals_found_without_the_source():
    some = drawn(np.random.default_rng(3), 9)
    sides = iter(errors_of(some).sides)
    for number, own in enumerate(some):
        low, _, high = errors_of(some[:number] + some[number + 1 :]).limits(NONE)
        for row in own:
            assert next(sides) == np.sign(row - np.clip(row, low, high))


def test_what_a_fit_saw_is_no_evidence():
    some = drawn(np.random.default_rng(11), 12)
    found = errors_of(some, seen=(2, 7))
    rest = errors_of([one for i, one in enumerate(some) if i not in (2, 7)])
    assert found.limits(NONE) == rest.limits(NONE)
    assert found.count == 10
    for number in (2, 7):
        held = found.sides[found.source == number] == 0
        assert (held == inside(some[number], rest.limits(NONE))).all()


def test_nothing_is_said_of_coverage_by_too_few_sources():
    assert len(errors_of(drawn(np.random.default_rng(3), FEWEST)).sides) == 0


ratios = st.lists(
    st.lists(st.integers(-40, 40).map(lambda n: n / 100), min_size=1, max_size=5),
    min_size=FEWEST,
    max_size=8,
)


@given(ratios, st.integers(-50, 50), st.integers(1, 8), st.randoms())
@settings(max_examples=draws(40))
def test_limits_follow_the_errors_and_sources_count_once_in_any_order(
    some, percent, factor, random
):
    """A bias of all rows moves the interval, larger errors widen it, and repeated rows of a source change nothing."""
    plain, shift = errors_of(some).limits(NONE), percent / 100
    moved = [[one * factor + shift for one in rows] for rows in some]
    moved[random.randrange(len(some))] *= 3
    random.shuffle(moved)
    expected = [one * factor + shift for one in plain]
    assert errors_of(moved).limits(NONE) == pytest.approx(expected, abs=1e-9)


@given(ratios, st.integers(2, 5), st.integers(1, 8), st.randoms())
@settings(max_examples=draws(40))
def test_fewer_sources_that_differ_as_much_make_an_interval_wider(some, times, factor, random):
    """Sources that exist several times have the same scale, which is better known."""
    codes = [random.randrange(2) for rows in some for _ in rows]
    few, many = (
        errors_of(some * count, [codes * count], (float(factor),)).limits(np.array([1]))
        for count in (1, times)
    )
    assert many[1] == few[1]
    wide, narrow = few[2] - few[0], many[2] - many[0]
    assert narrow < wide or wide == 0


def test_rows_that_are_alike_count_more_and_others_still_count():
    rng = np.random.default_rng(5)
    near, far = rng.normal(0, 0.01, (10, 20)), rng.normal(0.3, 0.1, (10, 20))
    code = np.repeat([0, 1], 200)[None]
    narrow, wide = (errors_of([*near, *far], code, (3.0,)).limits(np.array([c])) for c in (0, 1))
    alone = errors_of(list(near)).limits(NONE)
    assert narrow[1] < wide[1]  # the median follows what is alike
    assert narrow[2] > alone[2]  # and rows unlike it make the interval wider


def test_a_context_that_no_row_has_is_that_of_all_rows_alike():
    some = drawn(np.random.default_rng(7), 8)
    code = np.arange(sum(map(len, some)))[None] % 2
    assert errors_of(some, code, (5.0,)).limits(np.array([-1])) == errors_of(some).limits(NONE)


def test_students_t_is_that_of_scipy():
    random = np.random.default_rng(0)
    for _ in range(draws(50)):
        freedom, values = random.uniform(1, 30), random.normal(0, 3, 10)
        assert probability(values, freedom) == pytest.approx(stats.t.cdf(values, freedom), abs=5e-5)
        for level in (0.05, 0.5, 0.9, 0.99):
            found = quantile(level, freedom)
            assert found == pytest.approx(stats.t.ppf(level, freedom), rel=5e-3, abs=1e-9)
            assert probability(found, freedom) == pytest.approx(level, abs=1e-9)
    assert probability(np.array([-np.inf, np.inf]), 2.5).tolist() == [0, 1]


def test_weights_of_each_group_add_up_to_1():
    sources, studies = ["a", "a", "b", "a"], ["x", "x", "x", "y"]
    assert equal_weights(sources, studies).tolist() == [0.25, 0.25, 1, 0.5]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.sampled_from([0.25, 0.5, 0.75]))
def test_a_weighted_quantile_of_equal_weights_is_that_of_the_rows(values, level):
    found = weighted_quantile(np.array(values, float), np.ones(len(values)), level)
    assert found == np.quantile(values, level, method="inverted_cdf")
