"""The wall time of a run: its mean and variance against simulated runs, its quantiles, its limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.campaign import end_of_run
from calculon.campaign.end_of_run import SHARES, failures, mean, quantiles, variance
from calculon.campaign.goodput import best_interval, wall_per_useful
from calculon.campaign.job_failures import job_mtbf
from calculon.campaign.published import published_failures
from tests.campaign.simulation import segments
from tests.cases import for_each

MTBF = float(job_mtbf(16384, published_failures()[0].mtbf_processor))
SAVE = 30.0
CASES = pytest.mark.parametrize(
    ("interval", "restart", "mtbf"),
    [
        (float(best_interval(SAVE, MTBF)), 300.0, MTBF),
        (float(best_interval(SAVE, MTBF)), 1800.0, MTBF),
        (1000.0, 0.0, 2000.0),
        (1000.0, 900.0, 1000.0),
    ],
)
RUNS = (st.floats(1e4, 1e7), st.floats(10.0, 1e4), st.floats(0.0, 600.0), st.floats(0.0, 3600.0))
MEAN_TIMES = st.floats(2e3, 1e9)


@CASES
def test_mean_and_variance_of_10_000_renewals(interval, restart, mtbf):
    times = segments(np.random.default_rng(4), 10_000, interval + SAVE, restart, mtbf)
    figures = (interval, interval, SAVE, restart, mtbf)
    spread = np.sqrt(variance(*figures))
    assert abs(times.mean() - mean(*figures)) < 3 * spread / np.sqrt(len(times))
    squares = (times - mean(*figures)) ** 2
    assert abs(squares.mean() - spread**2) < 3 * squares.std() / np.sqrt(len(times))


@for_each("number", [4, 20, 60])
@CASES
def test_quantiles_of_simulated_runs(interval, restart, mtbf, number):
    runs = 2500
    times = segments(np.random.default_rng(8), runs * number, interval + SAVE, restart, mtbf)
    times = times.reshape(runs, number).sum(axis=1)
    found = quantiles(number * interval, interval, SAVE, restart, mtbf)
    for share, time in zip(SHARES, found, strict=True):
        error = 3 * np.sqrt(share * (1 - share) / runs) + 0.005
        assert (times < time * (1 - 1e-9)).mean() < share + error
        assert (times <= time * (1 + 1e-9)).mean() > share - error


@given(*RUNS, MEAN_TIMES)
def test_failures_are_those_of_the_wall_time(work, interval, save, restart, mtbf):
    figures = (work, interval, save, restart, mtbf)
    assert failures(*figures) == pytest.approx(mean(*figures) / mtbf)
    assert mean(*figures) == work * wall_per_useful(min(interval, work), *figures[2:])


@given(*RUNS, st.floats(1e9, 1e15))
def test_the_variance_of_rare_failures_is_that_of_a_poisson_law(
    work, interval, save, restart, mtbf
):
    s = min(work, interval) + save
    wall = mean(work, interval, save, restart, mtbf)
    poisson = wall / mtbf * (s**2 / 12 + (restart + s / 2) ** 2)
    found = variance(work, interval, save, restart, mtbf)
    assert found == pytest.approx(poisson, rel=10 * (s + restart) / mtbf + 1e-12)
    assert found >= poisson * (1 - 1e-12)


@given(*RUNS, MEAN_TIMES)
def test_quantiles_rise_and_none_is_before_the_undisturbed_end(work, interval, save, restart, mtbf):
    found = quantiles(work, interval, save, restart, mtbf, (0.01, 0.1, 0.5, 0.9, 0.99))
    assert np.all(np.diff(found) >= 0)
    assert found[0] >= work * (1 + save / min(work, interval)) * (1 - 1e-9)


def test_both_ways_to_quantiles_agree_where_they_meet(monkeypatch):
    figures = (np.geomspace(2e5, 2e6, 20), 800.0, SAVE, np.array([[0.0], [300.0], [3000.0]]), MTBF)
    lost = mean(*figures) - figures[0] * (1 + SAVE / 800.0)
    spread = np.sqrt(variance(*figures))
    monkeypatch.setattr(end_of_run, "MANY_LOSSES", 0.0)
    normal = quantiles(*figures)
    monkeypatch.setattr(end_of_run, "MANY_LOSSES", np.inf)
    exact = quantiles(*figures)
    many = lost**2 >= 30 * spread**2
    assert 5 < many.sum() < many.size
    assert np.abs((normal - exact) / spread)[:, many].max() < 0.01


def test_a_quantile_may_be_a_run_without_failures():
    figures = (9000.0, 900.0, 100.0, 300.0, 1e5)
    none = np.exp(-10_000 / 1e5)
    found = quantiles(*figures, shares=(0.99 * none, 1.01 * none))
    assert found[0] == 10_000
    assert 10_000 < found[1] <= 11_400


def test_limits_of_the_time_of_a_run():
    assert (mean(0.0, 500.0, 5.0, 300.0, 1e4), variance(0.0, 500.0, 5.0, 300.0, 1e4)) == (0, 0)
    assert quantiles(0.0, 500.0, 5.0, 300.0, 1e4).tolist() == [0, 0, 0]
    assert mean(5000.0, 500.0, 5.0, 300.0, 0.1) == np.inf
    assert quantiles(5000.0, 500.0, 5.0, 300.0, 0.1).tolist() == [np.inf] * 3
    never_saved = mean(5000.0, np.inf, 30.0, 0.0, 5000.0)
    assert never_saved == pytest.approx(5000 * (np.e - 1))


def test_without_failures_a_run_is_certain():
    assert quantiles(5000.0, 500.0, 5.0, 300.0, np.inf).tolist() == [5050.0] * 3
    assert mean(5000.0, np.inf, 5.0, 300.0, np.inf) == 5000
    assert variance(5000.0, np.inf, 5.0, 300.0, np.inf) == 0
    assert quantiles(5000.0, np.inf, 5.0, 300.0, np.inf).tolist() == [5000.0] * 3
    assert failures(5000.0, 500.0, 5.0, 300.0, np.inf) == 0
