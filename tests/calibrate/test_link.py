"""Latency and bandwidth from times: the parameters that made the times come back, and nothing is better."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.calibrate.link import HUBER, Line, fit_line, loss

SIZES = 2.0 ** np.arange(3, 34)
PEAK = 450e9

latencies = st.floats(1e-7, 1e-3)
efficiencies = st.floats(0.01, 1.0)


@given(latencies, efficiencies)
def test_a_line_comes_back(latency, efficiency):
    made = Line(latency, 1 / (PEAK * efficiency))
    found = fit_line(SIZES, made.at(SIZES), 1 / PEAK)
    assert found.latency == pytest.approx(latency, rel=1e-6)
    assert found.slope == pytest.approx(made.slope, rel=1e-6)


@given(efficiencies)
def test_no_latency_stays_none(efficiency):
    made = Line(0.0, 1 / (PEAK * efficiency))
    found = fit_line(SIZES, made.at(SIZES), 1 / PEAK)
    assert found.latency == pytest.approx(0.0, abs=1e-6 * float(made.at(SIZES).min()))
    assert found.slope == pytest.approx(made.slope, rel=1e-6)


@given(latencies)
def test_a_bound_on_the_slope_is_kept_and_the_latency_still_fits(latency):
    made = Line(latency, 0.9 / PEAK)  # faster than the link
    found = fit_line(SIZES, made.at(SIZES), 1 / PEAK)
    assert found.slope == pytest.approx(1 / PEAK, rel=1e-12)
    best = min(
        loss(Line(latency * share, 1 / PEAK), SIZES, made.at(SIZES))
        for share in np.linspace(0.5, 1.5, 1001)
    )
    assert loss(found, SIZES, made.at(SIZES)) <= best * (1 + 1e-6)


@given(st.integers(0, 2**32 - 1), latencies, efficiencies)
def test_no_line_near_is_better(seed, latency, efficiency):
    noise = np.random.default_rng(seed).lognormal(0, 0.2, len(SIZES))
    seconds = Line(latency, 1 / (PEAK * efficiency)).at(SIZES) * noise
    found = fit_line(SIZES, seconds, 1 / PEAK)
    reached = loss(found, SIZES, seconds)
    for first in (0.97, 0.999, 1.0, 1.001, 1.03):
        for second in (0.97, 0.999, 1.0, 1.001, 1.03):
            near = Line(found.latency * first, max(found.slope * second, 1 / PEAK))
            assert reached <= loss(near, SIZES, seconds) * (1 + 1e-9)


def test_an_outlier_counts_by_its_size_not_its_square():
    made = Line(1e-5, 2 / PEAK)
    seconds = made.at(SIZES)
    seconds[2] *= 5
    found = fit_line(SIZES, seconds, 1 / PEAK)
    squares = fit_line(SIZES, seconds, 1 / PEAK, delta=np.inf)
    assert abs(found.latency / made.latency - 1) < 0.02
    assert abs(squares.latency / made.latency - 1) > 0.05


@pytest.mark.parametrize("error", [0.05, HUBER, 0.5])
def test_the_loss_is_hubers(error):
    made = Line(1e-5, 2 / PEAK)
    seconds = made.at(SIZES[:1]) * np.exp(error)
    expected = error**2 / 2 if error <= HUBER else HUBER * (error - HUBER / 2)
    assert loss(made, SIZES[:1], seconds) == pytest.approx(expected)
