"""The steady state: laws of the formulas, whatever the times."""

import numpy as np
import pytest

from calculon.serving.states.steady import (
    at_rate,
    budget_batch,
    chunked_prefill,
    chunks,
    concurrency,
    mixture,
    of_users,
    pass_at_work,
    prompts_together,
    queue_of_users,
    run_time,
    saturated,
    separate_prefill,
    static_rate,
    users_of,
)
from tests.cases import for_each

RANDOM = np.random.default_rng(7)
MANY = 1000
BATCH = RANDOM.integers(1, 500, MANY).astype(float)
OUTPUT = RANDOM.integers(2, 4000, MANY).astype(float)
DECODE = RANDOM.uniform(1e-3, 0.2, MANY)
PREFILL = RANDOM.uniform(1e-3, 3.0, MANY)
ALONE = separate_prefill(PREFILL, PREFILL, DECODE)


def test_littles_law_holds_identically():
    state = saturated(BATCH, DECODE, ALONE, OUTPUT)
    np.testing.assert_allclose(concurrency(state, OUTPUT), BATCH, rtol=1e-12)
    assert np.all((state.prefill_share >= 0) & (state.prefill_share < 1))
    assert np.all(state.tpot >= DECODE)
    # the same as the prompts of all that follow, spread over the tokens of one
    np.testing.assert_allclose(state.tpot, DECODE + BATCH * PREFILL / (OUTPUT - 1), rtol=1e-9)


def test_mixed_passes_save_the_fixed_part():
    """With ``A + c T`` for a pass of T tokens, and the prompt in one chunk, a request takes A less."""
    fixed, each, prompt = 0.02, 1e-5, 3000.0
    batch, output = np.array([4.0, 32, 100]), np.full(3, 500.0)
    decode = fixed + each * batch
    own = separate_prefill(*2 * (fixed + each * prompt + 0 * batch,), decode)
    whole, one = fixed + each * (batch + prompt), np.ones(3)
    mixed = chunked_prefill(one, one, whole, decode, whole)
    difference = (
        1 / saturated(batch, decode, own, output).rate
        - 1 / saturated(batch, decode, mixed, output).rate
    )
    np.testing.assert_allclose(difference, fixed, rtol=1e-9)


def test_users_are_all_somewhere():
    users = BATCH
    state = of_users(users, DECODE, ALONE, OUTPUT)
    queue = queue_of_users(users, DECODE, ALONE, OUTPUT)
    there = state.rate * (queue + PREFILL + (OUTPUT - 1) * state.tpot)
    np.testing.assert_allclose(there, users, rtol=1e-12)
    np.testing.assert_allclose(state.rate, saturated(users, DECODE, ALONE, OUTPUT).rate, rtol=1e-9)
    alone = of_users(np.ones(MANY), DECODE, ALONE, OUTPUT)
    np.testing.assert_allclose(alone.tpot, DECODE)
    thinking = of_users(users, DECODE, ALONE, OUTPUT, think=5.0)
    assert np.all(thinking.rate < state.rate)


def test_users_who_think_are_elsewhere():
    """Those at hand and those who think are all users, and fewer at hand wait for fewer prompts."""
    users = users_of(BATCH, DECODE, ALONE, OUTPUT, 5.0)
    state = of_users(users, DECODE, ALONE, OUTPUT, 5.0, BATCH)
    np.testing.assert_allclose(state.rate * 5.0 + BATCH, users, rtol=1e-9)
    np.testing.assert_array_equal(state.tpot, of_users(BATCH, DECODE, ALONE, OUTPUT).tpot)
    np.testing.assert_array_equal(users_of(BATCH, DECODE, ALONE, OUTPUT, 0.0), BATCH)


def test_requests_of_users_wait_for_those_of_others():
    """Half of a prompt in service for each that a request finds, by Pollaczek and Khinchine, and never all others'."""
    few, many = np.full(MANY, 2.0), BATCH + 1
    load = (DECODE, ALONE, OUTPUT)
    assert np.all(queue_of_users(np.ones(MANY), *load) == 0)
    assert np.all(pass_at_work(np.ones(MANY), *load) == 0)
    share = PREFILL / (2 * PREFILL + (OUTPUT - 1) * DECODE)
    np.testing.assert_allclose(queue_of_users(few, *load), PREFILL * share / (1 - share) / 2)
    np.testing.assert_allclose(pass_at_work(few, *load), (1 - share) * DECODE / 2)
    assert np.all(queue_of_users(many + 1, *load) > queue_of_users(many, *load))
    for variation in (0.0, 1.0, 3.0):
        varied = ALONE._replace(variation=variation)
        queue = queue_of_users(many, DECODE, varied, OUTPUT)
        assert np.all(queue <= (many - 1) * PREFILL * (1 + 1e-12))
        assert np.all(of_users(many, DECODE, varied, OUTPUT).tpot >= DECODE * (1 - 1e-9))
    np.testing.assert_allclose(
        queue_of_users(few, DECODE, ALONE._replace(variation=1.0), OUTPUT),
        2 * queue_of_users(few, *load),
    )


def test_below_saturation_tokens_come_sooner():
    full = saturated(BATCH, DECODE, ALONE, OUTPUT)
    half = at_rate(full.rate / 2, DECODE, ALONE)
    assert np.all(half.tpot < full.tpot)
    np.testing.assert_allclose(half.prefill_share, full.prefill_share / 2)
    np.testing.assert_allclose(at_rate(full.rate, DECODE, ALONE).tpot, full.tpot, rtol=1e-9)


def test_static_batches():
    rate = static_rate(BATCH, PREFILL, DECODE, OUTPUT)
    np.testing.assert_allclose(BATCH / rate, PREFILL + (OUTPUT - 1) * DECODE)


def test_finite_runs_are_waves():
    rate = saturated(np.full(MANY, 64.0), DECODE, ALONE, OUTPUT).rate
    whole = run_time(640, 64, rate, np.ones(MANY))
    np.testing.assert_allclose(whole, 640 / rate)
    small = saturated(np.full(MANY, 5.0), DECODE, ALONE, OUTPUT).rate
    more = run_time(645, 64, rate, small)
    np.testing.assert_allclose(more - whole, 5 * PREFILL + (OUTPUT - 1) * DECODE)


@for_each(("budget", "prompt", "output"), [(8192, 2000, 500), (512, 100, 20), (64, 9, 3)])
def test_a_pass_has_room_for_tokens_and_prompts(budget, prompt, output):
    most = budget_batch(budget, prompt, output)
    assert most * (1 + prompt / (output - 1)) == pytest.approx(budget)
    batch = np.arange(1.0, most)
    count = chunks(batch, budget, prompt)
    together = prompts_together(batch, count, output)
    assert np.all(together >= 1)
    # in the passes of one output as many chunks are taken as sequences end, or more
    assert np.all(together * (output - 1) >= count * batch * (1 - 1e-12))
    several = together > 1
    used = batch + together * prompt / count
    assert np.all(used[several] <= budget * (1 + 1e-12))


def test_kinds_of_prompts_mix_by_their_time():
    short, long = (
        separate_prefill(PREFILL, PREFILL, DECODE),
        separate_prefill(*2 * (3 * PREFILL,), DECODE),
    )
    both = mixture((0.75, 0.25), (short, long))
    np.testing.assert_allclose(both.busy, 1.5 * PREFILL)
    np.testing.assert_allclose(both.latency, 1.5 * PREFILL)
    np.testing.assert_array_equal(both.longest, long.longest)
    # work is conserved: a request takes as long as of each kind its share
    rates = [saturated(BATCH, DECODE, one, OUTPUT).rate for one in (short, long, both)]
    np.testing.assert_allclose(1 / rates[2], 0.75 / rates[0] + 0.25 / rates[1])
    assert mixture((1.0,), (short,)) is short
    # two values with these shares: a variance of 3/16 of the square of their distance
    np.testing.assert_allclose(both.variation * 1.5, 2 * np.sqrt(3 / 16))
    assert short.variation == 0


def test_prompts_taken_together_are_not_those_of_others():
    """All users in one pass do the same at the same time: each has it once, and nobody waits."""
    users = np.arange(1.0, 9)
    decode, whole = np.full(8, 0.01), 0.1 + 0.2 * users
    together = separate_prefill(whole, whole, decode, users)
    state = of_users(users, decode, together, 20.0)
    np.testing.assert_allclose(state.rate, users / (whole + 19 * decode))
    np.testing.assert_allclose(state.tpot, decode)
    np.testing.assert_array_equal(queue_of_users(users, decode, together, 20.0), 0)
