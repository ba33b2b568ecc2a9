"""Latency and bandwidth from times: the parameters that made the times come back, and nothing is better."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.calibrate import networks
from calculon.calibrate.networks import (
    HUBER,
    IMPLAUSIBLE,
    LONGER,
    RAMP_SIZES,
    RAMP_SPAN,
    Line,
    disturbed,
    fit_line,
    fit_link,
    fit_network,
)
from calculon.calibrate.readers import Row
from tests.cases import for_each
from tests.helpers import refusal

SIZES = 2.0 ** np.arange(3, 34)
PEAK = 450e9

latencies = st.floats(1e-7, 1e-3)
efficiencies = st.floats(0.01, 1.0)
ramps = st.floats(1e-7, 1e-3)


def loss(line, sizes, seconds):
    """Return the sum of the Huber losses of the logarithmic errors of a line, or of each of several lines."""
    error = np.abs(np.log(line.at(sizes) / seconds))
    return np.where(error <= HUBER, error**2 / 2, HUBER * (error - HUBER / 2)).sum(axis=-1)


def ramped(latency, efficiency, ramp):
    slope = 1 / (PEAK * efficiency)
    return Line(latency, slope, 2 * np.sqrt(ramp * slope))


@given(st.just(0.0) | latencies, efficiencies)
def test_a_line_comes_back(latency, efficiency):
    made = Line(latency, 1 / (PEAK * efficiency))
    found = fit_line(SIZES, made.at(SIZES), 1 / PEAK)
    least = float(made.at(SIZES).min())
    assert found.latency == pytest.approx(latency, rel=1e-6, abs=0 if latency else 1e-6 * least)
    assert found.slope == pytest.approx(made.slope, rel=1e-6)


@given(latencies)
def test_a_bound_on_the_slope_is_kept_and_the_latency_still_fits(latency):
    made = Line(latency, 0.9 / PEAK)  # faster than the link
    found = fit_line(SIZES, made.at(SIZES), 1 / PEAK)
    assert found.slope == pytest.approx(1 / PEAK, rel=1e-12)
    near = Line(latency * np.linspace(0.5, 1.5, 1001)[:, None], 1 / PEAK)
    best = loss(near, SIZES, made.at(SIZES)).min()
    assert loss(found, SIZES, made.at(SIZES)) <= best * (1 + 1e-6)


@given(latencies, efficiencies, ramps)
def test_a_line_with_a_ramp_comes_back(latency, efficiency, ramp):
    made = ramped(latency, efficiency, ramp)
    found = fit_link(SIZES, made.at(SIZES), 1 / PEAK)
    assert found.at(SIZES) == pytest.approx(made.at(SIZES), rel=1e-3)
    shown = (ramp > 0.01 * latency) and (ramp < 100 * latency)  # each parameter decides some times
    if shown:
        assert found.latency == pytest.approx(latency, rel=1e-2)
        assert found.slope == pytest.approx(made.slope, rel=1e-2)
        assert found.ramp == pytest.approx(ramp, rel=1e-2)


@given(latencies, efficiencies)
def test_no_ramp_is_found_where_there_is_none(latency, efficiency):
    made = Line(latency, 1 / (PEAK * efficiency))
    assert fit_link(SIZES, made.at(SIZES), 1 / PEAK) == fit_line(SIZES, made.at(SIZES), 1 / PEAK)


@pytest.mark.parametrize(
    ("sizes", "has_ramp"),
    [
        (np.geomspace(1e6, 1e6 * RAMP_SPAN, RAMP_SIZES), True),
        (np.geomspace(1e6, 1e6 * RAMP_SPAN, RAMP_SIZES - 1), False),
        (np.geomspace(1e6, 0.99e6 * RAMP_SPAN, 20), False),
    ],
)
def test_a_ramp_needs_enough_sizes(sizes, has_ramp):
    made = ramped(1e-5, 0.8, 2e-5)
    found = fit_link(sizes, made.at(sizes), 1 / PEAK)
    assert (found.root > 0) == has_ramp
    assert has_ramp or found == fit_line(sizes, made.at(sizes), 1 / PEAK)
    told = networks._chosen_form(len(sizes), sizes[-1] / sizes[0], ramp=False)
    needed = (
        f"a ramp needs {RAMP_SIZES} sizes over a ratio of {RAMP_SPAN:,.0f}, not {len(sizes)} over"
    )
    assert ("the data show no ramp" in told, needed in told) == (has_ramp, not has_ramp)


@given(st.booleans(), st.integers(0, 2**32 - 1), latencies, efficiencies, ramps)
def test_no_line_near_is_better(has_ramp, seed, latency, efficiency, ramp):
    noise = np.random.default_rng(seed).lognormal(0, 0.1, len(SIZES))
    seconds = ramped(latency, efficiency, ramp if has_ramp else 0).at(SIZES) * noise
    found = fit_line(SIZES, seconds, 1 / PEAK, ramp=has_ramp)
    reached = loss(found, SIZES, seconds)
    assert reached <= loss(fit_line(SIZES, seconds, 1 / PEAK), SIZES, seconds) * (1 + 1e-9)
    for shares in np.random.default_rng(seed).choice((0.97, 0.999, 1.0, 1.001, 1.03), (30, 3)):
        near = np.array([found.latency, found.slope, found.root]) * shares
        near = Line(near[0], max(near[1], 1 / PEAK), near[2])
        assert reached <= loss(near, SIZES, seconds) * (1 + (1e-6 if has_ramp else 1e-9))


def test_an_outlier_counts_by_its_size_not_its_square():
    made = Line(1e-5, 2 / PEAK)
    seconds = made.at(SIZES)
    seconds[2] *= 5
    assert abs(fit_line(SIZES, seconds, 1 / PEAK).latency / made.latency - 1) < 0.02


def rows_of(sizes, seconds):
    """Return rows of a network, each in a file of its own."""
    pairs = enumerate(zip(sizes, seconds, strict=True))
    return [Row("networks[0]", f"{s:g}", s, t, "", s, f"{i}.csv", "line 2") for i, (s, t) in pairs]


def test_an_implausible_efficiency_is_remarked_upon():
    """Bits taken for bytes: an eighth of the bandwidth."""
    sizes = 2.0 ** np.arange(10, 31)
    for rate, remarked in ((100e9, False), (100e9 / 8, True), (IMPLAUSIBLE * 110e9, False)):
        rows = rows_of(sizes, 1.2345678e-5 + sizes / rate)
        values, _, notes = fit_network(rows, 110e9, ramp=False)
        assert values == {"efficiency": float(f"{rate / 110e9:.6g}"), "latency": 1.23457e-5}
        assert any("11% of the bandwidth" in note for note in notes) == remarked
        assert len(notes) == remarked


@for_each(
    ("sizes", "seconds", "message"),
    [
        ([4.0, 8.0, 63.6], [1.0, 2.0, 9.0], "expected at least 16 as the ratio"),
        ([1.0, 16.0], [1.0, 9.0], "expected at least 3 different sizes whose times rise, to fit"),
        ([1.0, 1.0, 16.0], [1.0, 1.0, 9.0], "expected at least 3 different sizes whose times"),
        ([1.0, 4.0, 16.0], [9.0, 1.0, 1.0], "expected at least 3 different sizes whose times"),
    ],
)
def test_rows_that_are_too_few_name_the_file_of_the_first(sizes, seconds, message):
    found = refusal(fit_network, rows_of(sizes, seconds), 1.0, ramp=False)
    assert found.startswith(f"0.csv: networks[0]: {message}")


def test_one_row_that_took_longer_than_two_larger_ones_is_said():
    sizes, seconds = [1.0, 2.0, 4.0, 16.0], [1.2, 1.0, 1.0, 1.0]
    _, slow, notes = fit_network(rows_of(sizes, seconds), 1.0, ramp=False)
    assert slow.tolist() == [True, False, False, False]
    what = "networks[0]: 1 row took longer than two larger messages and were left out"
    assert f"{what} (first: 1, line 2)" in notes
    assert not disturbed(np.array(sizes), np.array([1 + LONGER, 1.0, 1.0, 1.0])).any()


@given(st.lists(st.tuples(st.integers(1, 6), st.floats(1e-6, 1e-3)), min_size=1, max_size=30))
def test_rows_slower_than_two_larger_messages_are_found(rows):
    sizes, seconds = np.array(rows, dtype=float).T
    larger = sizes > sizes[:, None]
    faster = seconds * (1 + LONGER) < seconds[:, None]
    assert (disturbed(sizes, seconds) == ((larger & faster).sum(axis=1) >= 2)).all()


def test_many_rows_take_little_memory():
    sizes = np.arange(1.0, 100_001)
    assert not disturbed(sizes, 1e-6 + sizes * 1e-9).any()
