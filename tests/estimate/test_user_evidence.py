"""Intervals with measured steps of a user: they move towards these, and shrink by what these say."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calculon
from calculon.estimate.run_table import runs
from calculon.estimate.user_evidence import (
    FACTORS,
    OwnEvidence,
    concatenated,
    current_evidence,
    likeness,
    narrowed,
    using_evidence,
    variances,
)

EXECUTION = {
    "preset": "megatron-lm",
    "num_procs": 64,
    "tensor_par": 2,
    "pipeline_par": 1,
    "batch_size": 128,
    "microbatch_size": 1,
}
CASE = ("llama3-8B", EXECUTION, "h100_80g_sxm")
ENDS = (-0.2, 0.05, 0.25)
CONTEXT = runs().contexts[:, -1]


def narrow(own, weights):
    return narrowed(ENDS, runs().by_source, CONTEXT, np.array(own), np.array(weights, float))


def width(ends):
    return ends[2] - ends[0]


errors = st.floats(-0.5, 0.5)


@given(errors, st.integers(1, 40), st.floats(0.01, 1))
def test_more_steps_narrow_more_and_pull_more(error, count, weight):
    few, many = (narrow([error] * n, [weight] * n) for n in (count, 2 * count))
    assert width(many) < width(few) < width(ENDS)
    apart = [abs(one[1] - error) for one in (ENDS, few, many)]
    assert apart == sorted(apart, reverse=True)


@given(errors)
def test_many_steps_leave_the_spread_within_a_source(error):
    between, within = variances(runs().by_source, CONTEXT)
    found = narrow([error] * 2, [1e9] * 2)
    assert found[1] == pytest.approx(error, abs=1e-6)
    assert width(found) == pytest.approx(width(ENDS) * math.sqrt(within / (between + within)))


@given(errors, st.floats(0.1, 10))
def test_an_interval_is_that_of_the_posterior(error, weight):
    between, within = variances(runs().by_source, CONTEXT)
    precision = 1 / between + weight / within
    center = (ENDS[1] / between + weight * error / within) / precision
    ratio = math.sqrt((1 / precision + within) / (between + within))
    ends = center - ratio * (ENDS[1] - ENDS[0]), center, center + ratio * (ENDS[2] - ENDS[1])
    assert narrow([error], [weight]) == pytest.approx(ends)


def test_without_a_step_nothing_changes():
    assert narrow([], []) == ENDS
    assert narrow([0.3], [0.0]) == ENDS


def test_variances_are_those_of_drawn_sources():
    rng, shipped = np.random.default_rng(7), runs()
    names = np.repeat([f"s{i}" for i in range(400)], 30)
    ratios = rng.normal(0, 0.1, 400).repeat(30) + rng.normal(0, 0.05, len(names))
    steps = [
        dataclasses.replace(
            shipped[0], source=name, study=name, measured=math.exp(ratio), predicted=1.0
        )
        for name, ratio in zip(names.tolist(), ratios.tolist(), strict=True)
    ]
    drawn = type(shipped).of(steps)
    between, within = variances(drawn.by_source, drawn.contexts[:, 0])
    assert math.sqrt(between) == pytest.approx(0.1, rel=0.1)
    assert math.sqrt(within) == pytest.approx(0.05, rel=0.05)


def test_each_difference_divides_the_weight_of_a_step():
    here = np.zeros(len(FACTORS), int)
    steps = np.array([here, *np.eye(len(FACTORS), dtype=int)]).T
    expected = [1, *(1 / factor for factor in FACTORS.values())]
    assert likeness(steps, here) == pytest.approx(expected)


# -- in estimates -----------------------------------------------------------------------------------------------------


def own(count, ratio):
    """Return own steps like the case, with a time that is longer by a factor."""
    one = calculon.estimate(*CASE)
    step = dataclasses.replace(
        runs()[0],
        preset="megatron-lm",
        family="NVIDIA Hopper",
        type="bfloat16",
        parameters=8_030_261_248,
        experts=0,
        zero_stage=one.execution.zero_stage,
        measured=ratio * one.stats["total_time"],
        predicted=one.stats["total_time"],
    )
    return OwnEvidence("mine.csv", (step,) * count)


def log_ends(found):
    return [
        math.log(end / found.stats["total_time"]) for end in (found.belief.low, found.belief.high)
    ]


def test_an_estimate_rests_on_them_while_they_are_held():
    alone = calculon.estimate(*CASE)
    before = log_ends(alone)
    with using_evidence(own(4, 1.1)):
        found = calculon.estimate(*CASE)
        low, high = log_ends(found)
        assert (
            found.belief.basis == f"{alone.belief.basis}; 4 measured steps of your own (mine.csv)"
        )
        assert found.stats == alone.stats
        assert found.belief.memory == alone.belief.memory
    assert high - low < before[1] - before[0]
    assert (low + high) / 2 > sum(before) / 2
    assert current_evidence() is None
    assert log_ends(calculon.estimate(*CASE)) == before


def test_steps_of_models_with_experts_say_little_of_dense_ones():
    def moved(**fields):
        one = own(4, 1.1)
        steps = tuple(dataclasses.replace(step, **fields) for step in one.steps)
        with using_evidence(OwnEvidence("mine.csv", steps)):
            return sum(log_ends(calculon.estimate(*CASE))) / 2

    alone = sum(log_ends(calculon.estimate(*CASE))) / 2
    assert alone < moved(experts=8) < moved(family="NVIDIA Ampere") < moved()


def test_on_a_processor_without_runs_they_narrow_the_interval_with_its_kernels():
    tpu = (CASE[0], EXECUTION | {"preset": "common"}, "tpu_v5p")
    before = log_ends(calculon.estimate(*tpu))
    with using_evidence(own(4, 1.0)):
        after = log_ends(calculon.estimate(*tpu))
    assert after[1] - after[0] < before[1] - before[0]


def test_joined_runs_end_with_the_steps():
    steps = own(3, 1.0).steps
    found = concatenated(runs(), steps)
    assert [found[i] for i in range(len(runs()), len(found))] == [*steps]
