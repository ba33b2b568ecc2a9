"""Laws of whole runs: without failures days are steps, more is longer, and one row is as the same row of a table."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculon import inputs
from calculon.base.records import column, columns
from calculon.campaign.read import read_campaign
from calculon.campaign.record import DAY
from calculon.campaign.run_columns import steps_of, whole_runs
from calculon.campaign.whole_run import WholeRun
from calculon.declarations.run_figures import CampaignFigures, DaysByUse
from tests.cases import for_each
from tests.draws import draws

SYSTEM = inputs.system("h100_80g_sxm")
TOKENS_PER_STEP = 512 * 4096
QUIET = {"reliability.mtbf_processor": "never"}
FIGURES = {
    "num_procs": 1024,
    "data_par": 32,
    "parameters": 7e10,
    "total_time": 5.0,
    "fw_time": 1.2,
    "bw_time": 2.4,
    "recompute_time": 0.0,
    "optim_step_time": 0.1,
    "model_flops_per_second_per_proc": 4e14,
    "mfu": 0.4,
    "optimizer": "adam",
    "optimizer_state_dtype": "float32",
}
"""Columns of an execution."""

EVENTS = {
    "evaluate_every": 100,
    "evaluate_time": 60,
    "spikes": 20,
    "reliability.silent": 1e-8,
    "reliability.slow_share": 0.01,
    "reliability.slow_factor": 1.2,
    "reliability.spares": 1,
    "overhead_factor": 1.1,
    "fleet.price": 2.0,
}
"""A run with everything that takes time."""

USES = [one.name for one in columns(DaysByUse)]


def _value(figures: CampaignFigures, name: str):
    return column(CampaignFigures, name).of(figures)


def _lookup(**changes):
    return lambda name: np.asarray({**FIGURES, **changes}[name])


def _run(tokens: float, options=None, **changes) -> WholeRun:
    """Return the run of an execution with some columns changed."""
    campaign = read_campaign(None, options or {})
    return whole_runs(campaign, SYSTEM, "bfloat16", tokens, TOKENS_PER_STEP, _lookup(**changes))


@given(st.integers(1, 10**7), st.floats(1e-3, 1e3))
def test_without_failures_and_checkpoints_days_are_steps_times_their_time(steps, step_time):
    """C1."""
    found = _run(steps * TOKENS_PER_STEP, QUIET, total_time=step_time).figures()
    assert found.days * DAY == pytest.approx(steps * step_time, rel=1e-15)
    assert float(found.goodput) == 1.0
    assert float(found.failures) == 0.0
    assert float(found.days_p10) == float(found.days_p90) == float(found.days)


@given(st.integers(1, 10**12))
def test_tokens_are_seen_in_whole_steps(tokens):
    steps = float(steps_of(tokens, np.asarray(TOKENS_PER_STEP)))
    assert steps * TOKENS_PER_STEP >= tokens > (steps - 1) * TOKENS_PER_STEP


@for_each("extra", [{}, {"checkpoints.levels": 2}, {"reliability.elastic": True}])
def test_uses_of_days_sum_to_days(extra):
    found = _run(1e12, {**EVENTS, **extra}).figures()
    spent = {name: float(_value(found, name)) for name in USES}
    assert sum(spent.values()) == pytest.approx(float(found.days), rel=1e-12)
    assert min(spent.values()) >= 0
    named = {
        "useful_days",
        "evaluation_days",
        "repeated_days",
        "slowed_days",
        "lost_days",
        "other_days",
    }
    assert all(spent[name] > 0 for name in named)


def test_an_overhead_scales_the_whole_run():
    """Days, their quantiles, processor-hours and costs; not the failures of the steps."""
    plain, more = (
        _run(1e12, {"fleet.price": 2.0, "overhead_factor": factor}).figures()
        for factor in (1.0, 1.3)
    )
    for name in ("days", "days_p10", "days_p90", "processor_hours", "usd"):
        assert float(_value(more, name)) == pytest.approx(1.3 * float(_value(plain, name)))
    assert float(more.failures) == float(plain.failures)
    assert float(_value(plain, "other_days")) == 0


def test_evaluations_are_whole_ones():
    """One after every 100 steps: none in 99, one in 199."""
    for steps, evaluations in ((99, 0), (100, 1), (199, 1), (1000, 10)):
        found = _run(
            steps * TOKENS_PER_STEP, {**QUIET, "evaluate_every": 100, "evaluate_time": "2min"}
        )
        assert float(found.evaluation) == evaluations * 120
        assert float(found.days) * DAY == pytest.approx(steps * 5.0 + evaluations * 120)


def test_a_spike_repeats_steps_and_restarts():
    """Each of 3 spikes in 1e12 tokens takes 50 steps back, and loads a checkpoint."""
    options = {**QUIET, "spikes": 3, "rollback_steps": 50, "reliability.restart": "5min"}
    steps = round(1e12 / TOKENS_PER_STEP)
    plain, found = (_run(steps * TOKENS_PER_STEP, one) for one in (QUIET, options))
    spikes = 3 * steps * TOKENS_PER_STEP / 1e12
    extra = spikes * (50 * 5.0 + 300 + float(found.saves.load))
    assert (float(found.days) - float(plain.days)) * DAY == pytest.approx(extra, rel=1e-6)


ROWS = 20_000


def test_one_row_is_as_the_same_row_of_a_large_table():
    """Of random executions, every figure exactly."""
    draw = np.random.default_rng(7)
    table = {
        "num_procs": draw.integers(8, 100_000, ROWS),
        "data_par": draw.integers(1, 1000, ROWS),
        "total_time": draw.uniform(0.1, 100, ROWS),
        "optimizer": np.where(draw.random(ROWS) < 0.5, "adam", "muon"),
        "optimizer_state_dtype": np.where(draw.random(ROWS) < 0.5, "float32", "bfloat16"),
    }
    names = ("days", "days_p90", "goodput", "usd", "failures", "checkpoint_interval", "mwh")
    whole = _run(1e12, {"fleet.price": 2.0}, **table)
    found = {name: getattr(whole, name) for name in names}
    for row in draw.integers(0, ROWS, 8):
        own = {name: values[row : row + 1] for name, values in table.items()}
        one = _run(1e12, {"fleet.price": 2.0}, **own)
        for name, values in found.items():
            assert values[row] == getattr(one, name)[0], name


@settings(max_examples=draws(10))
@given(st.integers(2, 10), st.integers(1, 10**5))
def test_cutting_a_run_into_equal_parts_changes_nothing(parts, steps):
    """C5: the same steps as several stretches."""
    campaign = read_campaign(None, EVENTS)
    whole = _run(parts * steps * TOKENS_PER_STEP, EVENTS)
    cut = _run(steps * TOKENS_PER_STEP, EVENTS)
    together = WholeRun(campaign, cut.job, cut.segments * parts).figures()
    for name in (one.name for one in columns(CampaignFigures)):
        ours, theirs = (float(_value(run, name)) for run in (whole.figures(), together))
        assert ours == pytest.approx(theirs, rel=1e-11, nan_ok=True), name
