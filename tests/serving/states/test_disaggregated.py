"""Prefill and decode in processors of their own."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies

from calculon.base.errors import Infeasible, SpecError
from calculon.hardware.system import System
from calculon.serving.serve import serve
from calculon.serving.states.disaggregated import balanced
from calculon.serving.states.steady import saturated, separate_prefill
from tests.cases import for_each
from tests.serving.given import H100, LLAMA_70B, LOAD, SMALL

POOLS = {"num_procs": 12, "tensor_par": 8, "prefill": {"num_procs": 4, "tensor_par": 2}}


def apart(changes=None, system: System = H100, model=SMALL, **load):
    return serve(model, POOLS | (changes or {}), system, LOAD | load)


@given(
    strategies.floats(1e-3, 1.0),
    strategies.floats(1e-3, 0.1),
    strategies.integers(1, 500),
    strategies.integers(2, 2000),
)
def test_balanced_pools_have_the_rate_of_passes_of_their_own(prefill, decode, batch, output):
    """With the same splits and batch, for each processor; and tokens that no prompt delays."""
    one = np.ones(1)
    together = saturated(
        one * batch,
        one * decode,
        separate_prefill(one * prefill, one * prefill, one * decode),
        output,
    )
    share = balanced(one * prefill, one * decode, one * batch, output)
    decodes = batch / ((output - 1) * decode)
    assert share / prefill == pytest.approx(decodes)  # replicas that prefill keep up
    assert decodes / (1 + share) == pytest.approx(together.rate)
    assert decode / (1 - together.prefill_share) == pytest.approx(together.tpot)


def test_the_slower_pool_decides():
    few = apart()
    assert few.cut == "prefill"
    assert few["prefill_busy"] == pytest.approx(1)
    assert few["request_rate"] == pytest.approx(2 / few["prefill_time"])
    many = apart({"num_procs": 72, "prefill": {"num_procs": 64}, "max_batch": 8})
    assert many.cut == "max_batch"
    assert many["prefill_busy"] < 1
    assert many["decode_busy"] == pytest.approx(1)
    assert many["request_rate"] == pytest.approx(8 / (299 * many["tpot"]))
    for one in (few, many):
        assert one["tpot"] == one["decode_time"]
        assert one["concurrency"] == pytest.approx(one["request_rate"] * 299 * one["tpot"])
        assert one["ttft"] == pytest.approx(one["prefill_time"] + one["transfer_time"])
        assert one["output_rate_per_proc"] == pytest.approx(
            one["output_rate"] / one.deployment.num_procs
        )
    assert few["balanced_prefill"] == pytest.approx(2, rel=0.05)  # as there are; batches are whole
    assert many["balanced_prefill"] < 64


def test_requests_at_a_rate_wait_for_the_processors_that_prefill():
    most = apart()["capacity_rate"]
    found = [apart(rate=share * most) for share in (0.3, 0.6, 0.9)]
    waits = [one["queue_time"] for one in found]
    assert waits == sorted(waits)
    assert waits[0] > 0
    assert all(one.limits[0].met for one in found)
    beyond = apart(rate=1.01 * most)
    assert next(one.name for one in beyond.limits if not one.met) == "rate"
    assert beyond["ttft"] == np.inf


def test_users_queue_for_the_processors_that_prefill():
    """More of them wait longer and get no less; one never waits; all are somewhere, and a pool is at most busy."""
    found = [apart(users=users) for users in (1, 2, 60, 4000)]
    waits, rates = ([one[name] for one in found] for name in ("queue_time", "request_rate"))
    assert waits[0] == pytest.approx(0, abs=1e-12)
    assert waits == sorted(waits)
    assert waits[1] > 0
    assert found[-1].cut == "prefill"
    assert rates[-1] == pytest.approx(apart()["request_rate"])
    assert all(more >= less * (1 - 1e-9) for less, more in pairwise(rates))
    for one in (*found, apart({"num_procs": 4 + 2 * 8}, users=60)):
        assert one["prefill_busy"] <= 1 + 1e-12
        whole = one["ttft"] + 299 * one["tpot"]
        assert one.workload.users == pytest.approx(one["request_rate"] * whole, rel=1e-9)
        assert one["concurrency"] <= one.batch * (1 + 1e-9) < one["concurrency"] + 1


def test_a_slow_network_delays_the_first_token():
    inner, outer = H100.networks[:2]
    slow = replace(
        H100, networks=(inner, replace(outer, bandwidth=outer.bandwidth / 1e5), *H100.networks[2:])
    )
    fast, late = apart(), apart(system=slow)
    assert late["transfer_time"] > 10 * fast["transfer_time"]
    assert late["ttft"] > fast["ttft"]
    assert late["tpot"] == fast["tpot"]


@for_each(
    ("changes", "message"),
    [
        ({"num_procs": 4}, "num_procs: expected more than prefill.num_procs=4"),
        ({"num_procs": 13}, "num_procs: expected a multiple"),
        ({"prefill": {"num_procs": 4, "tensor_par": 3}}, "prefill.num_procs: expected a multiple"),
        ({"num_procs": 11, "prefill": {"num_procs": 3, "tensor_par": 3}}, "prefill.tensor_par"),
        ({"prefill": {"num_procs": 4, "token_budget": 3}}, "prefill.token_budget"),
        ({"prefill": {}}, "prefill.num_procs"),
        ({"batching": "static"}, "batching: expected continuous"),
    ],
)
def test_bad_input(changes, message):
    with pytest.raises(SpecError, match=message):
        apart(changes)


def test_each_pool_has_room_for_the_weights():
    with pytest.raises(Infeasible, match="prefill: a sequence of 900 tokens does not fit"):
        apart({"prefill": {"num_procs": 4, "tensor_par": 1}}, model=LLAMA_70B)


def test_a_number_of_processors_of_which_some_prefill():
    found = serve(SMALL, 12, H100, LOAD, changes={"prefill.num_procs": 4})
    assert found.deployment.prefill.to_dict()["tensor_par"] == 4
    assert found.deployment.own_procs == 8
    assert found.deployment.tensor_par == 8
    with pytest.raises(SpecError, match=r"prefill.num_procs: expected 1 to 11"):
        serve(SMALL, 12, H100, LOAD, changes={"prefill.num_procs": 12})
