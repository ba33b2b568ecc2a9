"""Goodput: the exact law, its first order, its limits, and the interval that makes it best."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import lambertw

from calculon.campaign.goodput import (
    best_interval,
    best_steps,
    best_two_levels,
    daly,
    first_order,
    two_levels,
    wall_per_useful,
    young,
)
from calculon.campaign.job_failures import job_mtbf
from calculon.campaign.published import published_failures
from tests.campaign.simulation import two_level_runs

LLAMA_3 = float(job_mtbf(16384, published_failures()[0].mtbf_processor))
MEAN_TIMES = st.floats(1e2, 1e9)
INTERVALS = st.floats(1.0, 1e5)
TIMES = st.floats(0.0, 3600.0)


@given(INTERVALS, TIMES, TIMES, MEAN_TIMES)
def test_fewer_failures_and_shorter_times_are_never_worse(interval, save, restart, mtbf):
    cost = wall_per_useful(interval, save, restart, mtbf)
    assert cost >= first_order(interval, save, restart, mtbf) * (1 - 1e-14) >= 1 - 1e-14
    assert wall_per_useful(interval, save, restart, 1.01 * mtbf) <= cost
    assert wall_per_useful(interval, save + 1, restart, mtbf) >= cost
    assert wall_per_useful(interval, save, restart + 1, mtbf) >= cost
    if np.isfinite(cost):
        assert wall_per_useful(interval, save + 1, restart, mtbf) > cost


@given(st.floats(1.0, 3600.0), st.floats(0.0, 10.0), TIMES, st.floats(1e5, 1e12))
def test_the_first_order_is_the_limit_of_rare_failures(interval, save, restart, mtbf):
    difference = wall_per_useful(interval, save, restart, mtbf) - first_order(
        interval, save, restart, mtbf
    )
    held_up = save / interval
    lost = (interval + save + restart) / mtbf
    save_and_failure = (save / 2 + held_up * (interval / 2 + save / 2 + restart)) / mtbf
    assert difference == pytest.approx(save_and_failure, abs=(1 + held_up) * lost**2 + 1e-13)


def test_without_failures_only_saves_cost():
    assert wall_per_useful(np.inf, 30.0, 300.0, np.inf) == 1
    assert wall_per_useful(100.0, 0.0, 300.0, np.inf) == 1
    assert wall_per_useful(100.0, 10.0, 300.0, np.inf) == 1.1
    assert wall_per_useful(100.0, 0.0, 0.0, 1e300) == 1
    assert wall_per_useful(0.0, 0.0, 10.0, 20.0) == pytest.approx(np.exp(0.5))


def test_hopeless_runs_never_end():
    assert wall_per_useful(100.0, 1.0, 1.0, np.array([0.0, 1e-300, 0.1])).tolist() == [np.inf] * 3
    assert wall_per_useful(np.inf, 1.0, 1.0, 1e6) == np.inf
    assert wall_per_useful(0.0, 1.0, 1.0, 1e6) == np.inf


@given(st.floats(1e-4, 20.0))
def test_newton_is_lambert(share):
    mtbf = 1e4
    by_lambert = mtbf * (1 + lambertw(-np.exp(-1 - share)).real)
    assert best_interval(share * mtbf, mtbf) == pytest.approx(by_lambert, rel=1e-9)


def test_known_approximations_are_its_expansion():
    mtbf, save = 1e6, np.geomspace(1e-6, 10.0, 15)
    w = np.sqrt(2 * save / mtbf)
    assert best_interval(save, mtbf) == pytest.approx(young(save, mtbf), rel=1e-2)
    assert np.all(np.abs(young(save, mtbf) / best_interval(save, mtbf) - 1 - w / 3) < w**2)
    assert np.all(np.abs(daly(save, mtbf) / best_interval(save, mtbf) - 1) < w**3 + 1e-12)
    assert daly(save=3.0, mtbf=1.0) == 1


def test_limits_of_the_best_interval():
    assert best_interval(0.0, 3600.0) == 0
    assert best_interval(np.array([0.0, 30.0]), np.inf).tolist() == [np.inf, np.inf]
    assert best_interval(1e9, 1.0) == 1
    assert best_interval(1e-12, 1e12) == pytest.approx(np.sqrt(2), rel=1e-12)
    assert young(np.array([0.0, 2.0]), 4.0).tolist() == [0, 4]
    assert best_steps(2.0, 30.0, np.inf) == np.inf


@given(st.floats(0.1, 1e3), st.floats(0.0, 600.0), MEAN_TIMES, st.floats(0.0, 3600.0))
def test_no_other_whole_number_of_steps_is_better(step, save, mtbf, shortest):
    best = best_steps(step, save, mtbf, shortest)
    assert best == round(best) >= 1
    assert best * step >= shortest * (1 - 1e-12)
    others = np.array([best - 1, best + 1, 2 * best, np.ceil(best / 2)])
    others = others[(others >= 1) & (others * step >= shortest)]
    cost = wall_per_useful(best * step, save, 0.0, mtbf)
    assert np.all(wall_per_useful(others * step, save, 0.0, mtbf) >= cost * (1 - 1e-12))


@given(INTERVALS, st.integers(1, 50), TIMES, TIMES, TIMES, TIMES, st.floats(1e4, 1e9))
def test_two_levels_are_one_where_all_or_no_failures_need_storage(
    interval, copies, save, storing, restart, loading, mtbf
):
    intervals, saves, restarts = (interval, copies * interval), (save, storing), (restart, loading)
    memory = two_levels(intervals, (save, 0.0), restarts, mtbf, 0.0)
    assert memory == pytest.approx(wall_per_useful(interval, save, restart, mtbf), rel=1e-9)
    storage = two_levels(intervals, saves, restarts, mtbf, 1.0)
    both = copies * save + storing
    alone = wall_per_useful(copies * interval, both, loading, mtbf)
    assert storage == pytest.approx(alone, rel=1e-9)
    slower = (restart, restart + loading)
    some, more = (two_levels(intervals, saves, slower, mtbf, share) for share in (0.1, 0.2))
    assert some <= more * (1 + 1e-12)


def test_two_levels_as_simulated():
    arguments = ((100.0, 1000.0), (5.0, 60.0), (150.0, 400.0), 2000.0, 0.3)
    patterns = two_level_runs(np.random.default_rng(22), 2000, *arguments) / 1000.0
    error = patterns.std() / np.sqrt(len(patterns))
    assert abs(patterns.mean() - two_levels(*arguments)) < 3 * error


def test_a_single_copy_by_what_may_happen_in_a_restart():
    """Of restarts from memory some fail, and of these a share needs storage; then the interval begins anew."""
    interval, memory, storage, mtbf, beyond = 1000.0, 150.0, 400.0, 500.0, 0.3
    survives = np.exp(-memory / mtbf)
    attempts = 1 / (survives + (1 - survives) * beyond)  # until one ends, or storage is needed
    from_memory = attempts * mtbf * (1 - survives)
    from_storage = mtbf * np.expm1(storage / mtbf)
    to_storage = beyond + (1 - beyond) * attempts * (1 - survives) * beyond
    restart = (1 - beyond) * from_memory + to_storage * from_storage
    expected = np.expm1(interval / mtbf) * (mtbf + restart) / interval
    found = two_levels((interval, interval), (0.0, 0.0), (memory, storage), mtbf, beyond)
    assert found == pytest.approx(expected, rel=1e-12)


def test_two_levels_have_limits():
    assert two_levels((np.inf, np.inf), (1.0, 9.0), (60.0, 600.0), np.inf, 0.1) == 1
    assert two_levels((100.0, 200.0), (1.0, 8.0), (60.0, 600.0), np.inf, 0.1) == 1.05
    assert two_levels((100.0, 200.0), (1.0, 8.0), (60.0, 600.0), 0.01, 0.1) == np.inf


@given(st.floats(0.5, 30.0), st.floats(30.0, 300.0), st.floats(0.01, 0.5))
def test_intervals_of_two_levels_are_nearly_the_best(save, storing, beyond):
    def cost(intervals):
        return two_levels(intervals, (save, storing), (60.0, 600.0), LLAMA_3, beyond)

    inner, outer = best_two_levels((save, storing), LLAMA_3, beyond)
    factors = np.geomspace(0.5, 2.0, 21)
    others = cost((inner * factors[:, None], outer * factors))
    assert cost((inner, outer)) <= others.min() * (1 + 3e-4)
