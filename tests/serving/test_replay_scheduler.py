"""The replay of a scheduler: equal to a simulation of single requests, and laws of queues."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculon.serving.default_deployment import solver_of
from calculon.serving.replay.pass_table import PassTable
from calculon.serving.replay.scheduler import Loads, PoolTimes, Rules, replay
from tests.draws import draws
from tests.serving.given import small
from tests.serving.replay_twin import Job, Machine


@pytest.fixture(scope="module")
def table():
    """Pass times of the small model."""
    served = small()
    solver = solver_of(served.model, served.system, served.deployment, served.workload)
    return PassTable.of(solver.replica, 16, 900, 800, 4096)


def single(table):
    """Return a function that times one pass."""

    def time_of(sequences, context, tokens, keys, prompts):
        count, context = np.array([sequences]), np.array([float(context)])
        if not tokens:
            cell = table.cell(context)
            low, slope = table.decode_line(count, cell)
            return float((low + slope * (context - table.contexts[cell]))[0])
        rest = (np.array([float(one)]) for one in (tokens, keys / tokens, prompts))
        return float(table.mixed(count, context, *rest)[0])

    return time_of


@st.composite
def cases(draw):
    """Draw rules and a load of a few requests."""
    count = draw(st.integers(1, 14))

    def lengths(low, high):
        return np.array([draw(st.integers(low, high)) for _ in range(count)], float)

    prompt, output = lengths(1, 300), lengths(1, 60)
    cached = np.floor(prompt * draw(st.sampled_from((0.0, 0.4))) * (prompt > 1))
    prompts = draw(st.sampled_from(("mixed", "mixed", "separate", "remote")))
    grows = prompts != "remote" and draw(st.booleans())
    held = prompt + (0 if grows else output)
    groups = draw(st.sampled_from((1, 1, 2)))
    rules = Rules(
        prompts=prompts,
        budget=draw(st.sampled_from((8, 64, 512))),
        max_batch=draw(st.sampled_from((1, 3, 6, math.inf))),
        capacity=float((prompt + output).max() * draw(st.sampled_from((1, 1.5, 3, 50)))) + 2,
        groups=groups,
        stages=draw(st.sampled_from((1, 1, 2))),
        per_pass=1.0 if grows else draw(st.sampled_from((1.0, 1.0, 1.7))),
    )
    users = draw(st.sampled_from((None, 1, 2, 5)))
    ramp = draw(st.sampled_from((0.0, 0.02))) if prompts != "remote" else 0.0
    if users is None:
        gaps = [draw(st.sampled_from((0.0, 0.001, 0.003, 0.1))) for _ in range(count)]
        known = np.cumsum(gaps)
    else:
        known = ramp * np.arange(min(users, count))
    arrival = np.full(count, np.inf)
    arrival[: len(known)] = known
    pool = None
    if prompts == "remote":
        pool = PoolTimes(
            servers=draw(st.integers(1, 2)),
            busy=1e-5 * (prompt - cached)[None],
            latency=2e-5 * (prompt - cached)[None],
        )
    loads = Loads(
        arrival=arrival[None],
        prompt=prompt[None],
        cached=cached[None],
        output=output[None],
        held=held[None],
        growth=np.full((1, count), float(grows)),
        closed=users is not None,
        think=0.0 if users is None else draw(st.sampled_from((0.0, 0.0017))),
        overhead=draw(st.sampled_from((0.0, 0.0003))),
        pool=pool,
    )
    return rules, loads


def by_twin(table, rules, loads):
    """Return the result of the simulation."""
    busy = latency = np.zeros_like(loads.prompt)
    if loads.pool:
        busy, latency = loads.pool.busy, loads.pool.latency
    fields = (loads.prompt, loads.cached, loads.output, loads.held, loads.growth, busy, latency)
    jobs = [Job(*map(float, values)) for values in zip(*(one[0] for one in fields), strict=True)]
    known = loads.arrival[0][np.isfinite(loads.arrival[0])].tolist()
    rest = loads.closed, loads.think, loads.overhead
    servers = [0.0] * (loads.pool.servers if loads.pool else 0)
    return Machine(rules, single(table), jobs, known, *rest, servers).run()


@settings(max_examples=draws(100), deadline=None)
@given(cases())
def test_replay_equals_a_simulation_of_single_requests(table, case):
    rules, loads = case
    found, twin = replay(table, rules, loads), by_twin(table, rules, loads)
    for name in ("arrival", "first", "end"):
        expected = [getattr(job, name) for job in twin.jobs]
        np.testing.assert_allclose(
            getattr(found, name)[0], expected, rtol=1e-9, atol=1e-12, err_msg=name
        )
    assert found.preempted[0] == twin.preempted
