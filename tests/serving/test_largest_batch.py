"""The batch that is found for a limit or a rate is that which trying all batches finds."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from calculon import inputs
from calculon.serving.passes.replica import Replica
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.read_records import read_deployment, read_workload
from calculon.serving.serve import serve, solver_of
from calculon.serving.states.batch_search import largest, least
from calculon.serving.states.operating_point import OperatingPointSolver
from tests.cases import for_each
from tests.draws import draws

MOST = 1500
MODELS = [inputs.model(name) for name in ("llama3-8B", "gpt-oss-20b", "deepseek-v2-lite")]
SYSTEMS = [
    inputs.system(name)
    for name in ("a100_80g", "a100_80g_pcie", "h100_80g_sxm", "h200_141g_sxm", "mi300x")
]


@st.composite
def asked(draw):
    """A deployment of a model, and what is asked of it."""
    split, stages = draw(st.sampled_from((1, 2))), draw(st.sampled_from((1, 1, 2)))
    deployment = {
        "num_procs": split * stages,
        "tensor_par": split,
        "pipeline_par": stages,
        "weights_dtype": draw(st.sampled_from(("bfloat16", "float8", "int4_g128"))),
        "token_budget": draw(st.sampled_from((0, 512, 2048, 8192))),
        "batching": draw(st.sampled_from(("continuous", "continuous", "static"))),
    }
    load = {
        "prompt": draw(st.integers(20, 9000)),
        "output": draw(st.integers(2, 3000)),
        "prompt_cv": draw(st.sampled_from((0, 0, 0.5))),
    }
    return draw(st.sampled_from(MODELS)), deployment, draw(st.sampled_from(SYSTEMS)), load


def most_of(model, deployment, system, load):
    """Return the most sequences that there is room for."""
    asked_load = solver_of(model, system, read_deployment(deployment), read_workload(load))
    return int(asked_load.largest_batch()[0][0])


def every_batch(model, deployment, system, load):
    """Return all batches that there is room for, their states, and each of them with its load."""
    batches = np.arange(1.0, most_of(model, deployment, system, load) + 1)
    each = Deployments.of(read_deployment(deployment)).take(np.zeros(len(batches), int))
    every = OperatingPointSolver(Replica(model, system, each, read_workload(load)))
    return batches, every.state(batches)[0], every


@settings(max_examples=draws(3))
@given(question=asked(), where=st.floats(0, 1), name=st.sampled_from(("tpot", "ttft")))
def test_the_largest_that_keeps_a_limit(question, where, name):
    model, deployment, system, load = question
    assume(1 <= most_of(*question) < MOST)
    batches, _, every = every_batch(*question)
    figure = every.limited_time(name, batches)
    highest = np.maximum.accumulate(figure)
    fallen = np.flatnonzero(figure < highest * (1 - 1e-9))  # after a fall, where there is one
    picked = fallen if len(fallen) else np.arange(len(batches))
    limit = figure[picked[int(where * (len(picked) - 1))]]
    expected = batches[figure <= limit][-1]
    found = serve(model, deployment, system, load | {f"{name}_limit": float(limit)}).batch
    if name == "ttft" and found != expected:  # of more sequences fewer passes decode alone
        assert figure[found - 1] <= limit < figure[found]
    else:
        assert found == expected


@settings(max_examples=draws(3))
@given(question=asked(), where=st.floats(0, 1))
def test_the_smallest_that_keeps_up_with_a_rate(question, where):
    """Where rates rise with the batch; else one that does, up to the rate of the most sequences."""
    model, deployment, system, load = question
    assume(1 <= most_of(*question) < MOST)
    batches, state, _ = every_batch(*question)
    rate = float(min(state.rate[int(where * (len(batches) - 1))], state.rate[-1]))
    expected = batches[state.rate >= rate][0]
    found = serve(model, deployment, system, load | {"rate": rate}).batch
    assert state.rate[found - 1] >= rate
    if found != expected:  # a wave of tiles more may cost more than a sequence brings
        assert np.any(np.diff(state.rate[int(expected) - 1 : found]) < 0)


def test_a_batch_beside_which_prompts_are_cut_once_more():
    """With 213 sequences a prompt of 300 tokens is taken in two chunks, and tokens come sooner than with 212."""
    given_ = {"num_procs": 2, "tensor_par": 2, "weights_dtype": "int4_g128", "token_budget": 512}
    question = (MODELS[0], given_ | {"kv_dtype": "float8"}, SYSTEMS[1])
    load = {"prompt": 300, "output": 2000}
    _, state, _ = every_batch(*question, load)
    assert state.tpot[211] > state.tpot[212]
    found = serve(*question, load | {"tpot_limit": float(state.tpot[212])})
    assert found.batch == 213
    assert found["tpot"] == pytest.approx(state.tpot[212])


def test_the_next_batch_beside_which_a_prompt_has_one_more_chunk():
    """By trying one batch after the other, of several deployments in any order at once."""
    forms = [(1, 512), (1, 2048), (2, 512)]
    records = [
        read_deployment({"num_procs": stages, "pipeline_par": stages, "token_budget": budget})
        for stages, budget in forms
    ]
    load = read_workload({"prompt": 900, "output": 300})
    replica = Replica(MODELS[0], SYSTEMS[2], Deployments.of_records(records), load)
    places, batches = np.array([2, 0, 1, 0]), np.array([10.0, 10, 700, 300])
    found = replica.more_chunks(places, batches)

    def chunks(place, batch):
        stages, budget = forms[place]
        return math.ceil(900 / (budget - batch / stages))

    for place, batch, more in zip(places, batches, found, strict=True):
        following = itertools.count(int(batch) + 1)
        now = chunks(place, batch)
        assert more == next(one for one in following if chunks(place, one) > now), (place, batch)


BOUNDS = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(0, 6000)),
    min_size=1,
    max_size=20,
)
"""The most, and the batch up to which a condition holds, of several deployments."""


@given(BOUNDS)
def test_the_largest_and_the_least_of_all(bounds):
    most, bound = np.array(bounds, float).T
    tried = []

    def keeps(places, batches):
        assert np.all((batches >= 1) & (batches <= most[places]))
        tried.append(len(batches))
        return batches <= bound[places]

    np.testing.assert_array_equal(largest(most, keeps), np.minimum(most, bound))
    beyond = np.where(bound + 1 <= most, bound + 1, 0)
    found = least(most, lambda at, batches: batches > bound[at])
    np.testing.assert_array_equal(found, beyond)
    assert len(tried) <= 1 + 5  # gaps of up to 2048, of which an eighth is left each time


@for_each("most", [1, 2, 3, 1023, 1024, 1025, 2**20])
def test_all_powers_of_two_and_the_most_are_tried_first(most):
    seen = []

    def never(places, batches):
        seen.append(batches)
        return np.zeros(len(places), bool)

    assert largest(np.array([float(most)]), never).tolist() == [0]
    powers = {2.0**n for n in range(21) if 2**n <= most}
    assert set(seen[0]) == powers | {most}
    assert len(seen) == 1
