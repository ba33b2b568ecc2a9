"""Host time of passes, and fixed time of requests: formulas and laws."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.hardware.extension import Extension
from calculon.serving.passes.host_time import StepHost
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.passes.row_times import pass_times
from tests.draws import draws
from tests.serving.drawn import cases, served
from tests.serving.given import H100, PLAIN, SMALL, rows_of, small

pytestmark = pytest.mark.usefixtures("machine_list")

BATCHES = np.array([1.0, 8, 64, 512])
SECONDS = st.sampled_from((0.0, 1e-6, 1e-4, 1e-2))


def _times(host, machine=H100, **sizes):
    columns = PassSizes.of(**{"tensor_par": 1, "context": 500.0, **sizes})
    return pass_times(SMALL, machine, rows_of(**sizes), columns, host=host).time


@given(per_pass=SECONDS, per_sequence=SECONDS)
def test_a_pass_waits_for_its_host_or_for_what_is_left_of_it(per_pass, per_sequence):
    """Sequences are those that decode and those whose prompts are prefilled; graphs leave no other host time."""
    sizes = {"decoded": BATCHES, "context": 500.0, "prompts": 2, "chunk": 64}
    device = _times(StepHost(per_pass=0.0), **sizes)
    host = StepHost(per_pass=per_pass, per_sequence=per_sequence)
    taken = per_pass + per_sequence * (BATCHES + 2)
    np.testing.assert_allclose(_times(host, **sizes), device + taken, rtol=1e-12)
    hidden = _times(replace(host, overlaps=True), **sizes)
    np.testing.assert_allclose(hidden, np.maximum(device, taken), rtol=1e-12)


def test_without_a_time_of_its_own_an_engine_takes_that_of_the_machine():
    step = PLAIN.ext.serving
    machine = replace(PLAIN, ext=Extension(serving=replace(step, step_host=2e-3)))
    stated = _times(StepHost(per_pass=2e-3), PLAIN, decoded=BATCHES, context=500.0)
    own = _times(StepHost(), machine, decoded=BATCHES, context=500.0)
    np.testing.assert_array_equal(stated, own)


def test_groups_of_ranks_have_schedulers_of_their_own():
    host = StepHost(per_pass=0.0, per_sequence=1e-3)
    columns = PassSizes.of(tensor_par=4, attn_data_par=4, decoded=BATCHES, context=500.0)
    exposed = host.exposed(H100, columns, np.zeros(4))
    np.testing.assert_allclose(exposed, 1e-3 * np.maximum(BATCHES / 4, 1))


LATER = ("ttft", "ttft_p", "request_latency")
"""Figures that the fixed time of a request adds to."""


@settings(max_examples=draws(6))
@given(case=cases(), fixed=st.sampled_from((0.01, 0.2)))
def test_the_fixed_time_of_a_request_delays_its_first_token_and_nothing_else(case, fixed):
    model, deployment, system, load = case
    before = served(model, deployment | {"request_time": 0.0}, system, load)
    assume(before)
    after = served(model, deployment | {"request_time": fixed}, system, load)
    for name in SERVING_FIGURES:
        expected = before[name] + fixed * (name in LATER)
        assert after[name] == pytest.approx(expected, rel=1e-12, nan_ok=True), name


@settings(max_examples=draws(6))
@given(case=cases(batching="continuous"), users=st.integers(1, 300), fixed=SECONDS)
def test_users_wait_for_the_fixed_time_in_each_cycle(case, users, fixed):
    """Little's law of a closed loop, if all users are served: their requests per second times the time of one."""
    model, deployment, system, load = case
    asked = deployment | {"request_time": 20 * fixed}
    found = served(model, asked, system, load | {"users": users})
    assume(found)
    if found.cut == "users":
        assert found["request_rate"] * found["request_latency"] == pytest.approx(users, rel=1e-6)
    plain = served(model, deployment | {"request_time": 0.0}, system, load | {"users": users})
    assert found["request_rate"] <= plain["request_rate"] * (1 + 1e-9)
    assert found["ttft"] >= 20 * fixed


def test_a_limit_of_the_first_token_counts_the_fixed_time():
    limit = 0.1
    batches = [
        small({"request_time": fixed}, ttft_limit=limit).batch for fixed in (0.0, 0.05, 0.09)
    ]
    assert batches == sorted(batches, reverse=True)
    assert not all(one.met for one in small({"request_time": 2 * limit}, ttft_limit=limit).limits)
    assert small({"request_time": 0.09}, ttft_limit=limit)["ttft"] <= limit
