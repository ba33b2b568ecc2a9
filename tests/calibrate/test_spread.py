"""Spreads cover what they say, on noise of known structure and on published measurements."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculon.base.errors import Problem, SpecError
from calculon.calibrate.readers import read_collectives
from calculon.calibrate.solve import (
    LEVEL,
    NEAR_PEAK,
    cross_validated,
    independent,
    large_size,
    quantiles,
    spreads,
)
from calculon.declarations.decode import decode
from calculon.hardware.system import System
from tests.calibrate.measured import calibrated, row
from tests.draws import draws
from tests.helpers import ROOT, document

EXAMPLE = str(ROOT / "examples" / "measurements" / "h100_sxm_all_reduce.csv")
BASE = document("systems", "h100_80g_sxm")


@settings(max_examples=draws(30), deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=60), st.sampled_from([0.5, 0.8, 0.9]))
def test_one_row_a_group_gives_the_order_statistics_of_split_conformal(values, level):
    n, ordered = len(values), sorted(values)
    low, high, reached = quantiles(np.array(values), [str(i) for i in range(n)], level)
    rank = math.ceil((n + 1) * (1 + level) / 2 - 1e-9)
    assert (low, high) == (ordered[max(n - rank, 0)], ordered[min(rank, n) - 1])
    assert reached == pytest.approx(min(level, (n - 1) / (n + 1)))


def grouped(rng, groups, members, share):
    """Return noise of variance 1, of which a share is that of the group."""
    common = rng.normal(size=(groups, 1)) * np.sqrt(share)
    return common + rng.normal(size=(groups, members)) * np.sqrt(1 - share)


def test_rows_of_new_groups_are_covered_as_often_as_is_said():
    for groups, members in [(20, 1), (30, 4), (10, 3), (7, 8), (4, 10), (2, 10)]:
        for share in [0.0, 0.5, 0.9]:
            # the tolerance: 3 points below the level that is said, of 60 seeds of 100 new groups
            names = [str(i) for i in range(groups) for _ in range(members)]
            inside, said = [], []
            for seed in range(draws(60)):
                rng = np.random.default_rng(seed)
                low, high, level = quantiles(grouped(rng, groups, members, share).ravel(), names)
                new = grouped(rng, 100, members, share)
                inside.append(((new >= low) & (new <= high)).mean())
                said.append(level)
            assert np.mean(inside) >= np.mean(said) - 0.03, (groups, members)
            assert max(said) <= LEVEL, (groups, members)


def test_rows_that_err_together_count_as_fewer():
    rng, which = np.random.default_rng(1), np.repeat(np.arange(50), 10)
    counts = [independent(grouped(rng, 50, 10, share).ravel(), which) for share in (0, 0.5, 1)]
    assert counts[0] > 300
    assert counts[1] == pytest.approx(500 / (1 + 9 * 0.5), rel=0.3)
    assert counts[2] == pytest.approx(50)
    assert independent(np.array([1.0, 2.0]), np.array([0, 0])) == 1
    assert independent(np.ones(6), np.array([0, 0, 0, 1, 1, 1])) == 2


def mean_rate(rows):
    """Fit one rate."""
    rate = np.mean([one.size / one.seconds for one in rows])
    return lambda some: np.array([one.size for one in some]) / rate


def test_no_row_is_predicted_by_a_fit_that_saw_its_group():
    rows = [row(1.0 + i, 1.0, "abcd"[i % 4]) for i in range(12)]
    held = np.array([one.group == "d" for one in rows])
    seen = []

    def fit(some):
        seen.append({one.group for one in some})
        return mean_rate(some)

    times, groups = cross_validated(rows, held, fit)
    assert groups == [one.group for one in rows]
    assert seen == [{"a", "b", "c"}, {"b", "c"}, {"a", "c"}, {"a", "b"}]
    for letter, used in zip("dabc", seen, strict=True):
        which = [one.group == letter for one in rows]
        expected = mean_rate([one for one in rows if one.group in used])
        chosen = [one for one, yes in zip(rows, which, strict=True) if yes]
        np.testing.assert_array_equal(times[which], expected(chosen))


def test_rows_of_one_group_are_left_out_one_by_one():
    rows = [row(1.0 + i) for i in range(4)]
    times, groups = cross_validated(rows, np.zeros(4, bool), mean_rate)
    assert len(set(groups)) == 4
    assert times[0] == pytest.approx(1 / 3)  # a rate of (2 + 3 + 4) / 3


def test_what_cannot_be_fitted_without_a_group_says_nothing_of_it():
    def fit(some):
        if all(one.group != "b" for one in some):
            raise SpecError("x.csv", Problem("", "more", "too few"))
        return mean_rate(some)

    rows = [row(1.0 + i, 1.0, "abc"[i % 3]) for i in range(9)]
    times, groups = cross_validated(rows, np.zeros(9, bool), fit)
    assert [name for name, time in zip(groups, times, strict=True) if math.isnan(time)] == ["b"] * 3
    (found,) = spreads(rows, times, groups, 0.0)
    assert (found["rows"], found["groups"], found["level"]) == (
        6,
        2,
        pytest.approx(0.3333, abs=0.4),
    )
    assert spreads(rows[:1], times[:1], groups[:1], 0.0) == []


def test_large_operations_reach_most_of_the_best_rate():
    latency, rate = 1e-5, 1e12
    half = latency * rate
    sizes = half * 2.0 ** np.arange(-8, 9)
    rows = [row(size, latency + size / rate) for size in sizes]
    best = sizes[-1] / (latency + sizes[-1] / rate)
    wanted = next(s for s in sizes if s / (latency + s / rate) >= NEAR_PEAK * best)
    assert large_size(rows) == large_size(rows[::-1]) == wanted
    slow = [row(one.size, one.seconds * (3 if i == 12 else 1)) for i, one in enumerate(rows)]
    assert large_size(slow) <= 16 * wanted  # a single slow row does not decide


def test_small_and_large_operations_are_told_apart():
    rows = [row(float(i), 2.0 if i <= 5 else 1.5, str(i)) for i in range(1, 13)]
    small, large = spreads(rows, np.ones(12), [one.group for one in rows], 6.0)
    assert (small["from"], small["below"], small["low"], small["rows"]) == (0.0, 6.0, 2.0, 5)
    assert (large["from"], large["below"], large["high"], large["rows"]) == (6.0, None, 1.5, 7)
    (whole,) = spreads(rows, np.ones(12), [one.group for one in rows], 12.0)
    assert (whole["below"], whole["low"], whole["high"]) == (None, 1.5, 2.0)


def halves(residuals, groups, seed):
    """Return the level of quantiles of half of the groups, and how much of the other half is inside."""
    names = np.random.default_rng(seed).permutation(sorted(set(groups)))
    mine = np.isin(groups, names[: len(names) // 2])
    low, high, level = quantiles(
        residuals[mine], [g for g, yes in zip(groups, mine, strict=True) if yes]
    )
    other = residuals[~mine]
    return level, float(((other >= low) & (other <= high)).mean())


@pytest.mark.parametrize("above", [0, 2**20])
def test_half_of_the_held_out_groups_covers_the_other_half_of_published_measurements(above):
    # the tolerance: 3 points below the level that is said, of 100 ways to halve them
    system = decode(System, BASE, "test.json", name="h100")
    rows, told = read_collectives(EXAMPLE, system)
    (part,) = calibrated(BASE, rows, told, hold_out=0.6, above=above).parts
    held = [one for one, out in zip(part.rows, part.held, strict=True) if out]
    residuals = np.log(
        np.array([one.seconds for one in held]) / part.time(np.array([one.size for one in held]))
    )
    results = np.array(
        [halves(residuals, [one.group for one in held], i) for i in range(draws(100))]
    )
    level, inside = results.mean(axis=0)
    assert level > 0.5
    assert level - 0.03 <= inside <= level + 0.15
