"""Replays of deployments: tables of pass times, loads, latencies, limits, and the record of a result."""

import json

import numpy as np
import pytest

from calculon.base.errors import Infeasible, SpecError
from calculon.serving.default_deployment import solver_of
from calculon.serving.replay.pass_table import PassTable
from calculon.serving.serve import serve
from calculon.serving.served_record import read_served
from tests.serving.given import small

REQUESTS = 150

SINGLE = {"tensor_par": 1, "pipeline_par": 1}
"""A replica on one processor."""


def solver(served):
    """Return the solver of a result."""
    return solver_of(served.model, served.system, served.deployment, served.workload)


@pytest.mark.parametrize(
    ("model", "deployment", "system"),
    [("llama-3.1-70b", "tp=8", "h100"), ("gpt-oss-120b", "tp=4", "b200")],
)
def test_interpolated_passes_differ_little_from_computed_ones(model, deployment, system):
    replica = solver(serve(model, deployment, system, prompt=2000, output=500)).replica
    table = PassTable.of(replica, 512, 8000, 8192, 8192)
    generator, count = np.random.default_rng(1), 2000
    many = replica.take(np.zeros(count, int))

    def between(low, high):
        return np.exp(generator.uniform(np.log(low), np.log(high), count))

    sequences, context = np.rint(between(1, 512)), between(50, 8000)
    low, slope = table.decode_line(sequences.astype(int), cell := table.cell(context))
    decode = low + slope * (context - table.contexts[cell])
    prompts = np.rint(between(1, 8))
    tokens = np.ceil(between(16, 7600) / prompts) * prompts
    cached = generator.choice([0, 1000, 4000], count)
    decoded = np.where(generator.random(count) < 0.2, 0, sequences)
    mixed = table.mixed(
        decoded.astype(int), context, tokens, cached + (tokens / prompts + 1) / 2, prompts
    )
    chunks = {"prompts": prompts, "chunk": tokens / prompts, "cached": cached}
    computed = many.spans(many.sizes(decoded=decoded, context=context, **chunks)).time
    for found, exact in ((decode, many.decode(sequences, context)), (mixed, computed)):
        errors = np.abs(found / exact - 1)
        assert errors.mean() < 2e-4
        assert np.quantile(errors, 0.99) < 5e-3


def test_a_lone_request_takes_its_passes():
    found = small(users=1)
    replay = found.replay(requests=3, overhead=0.25)
    replica = solver(found).replica
    prefill, _ = replica.prefill(np.ones(1))
    assert replay.ttft == pytest.approx(np.full(3, 0.25 + float(prefill[0])), rel=5e-3)
    contexts = 900 + 1 + np.arange(299.0)
    decode = replica.take(np.zeros(299, int)).decode(np.ones(299), contexts)
    assert replay.tpot == pytest.approx(np.full(3, decode.mean()), rel=2e-3)
    np.testing.assert_allclose(replay.latency, replay.ttft + 299 * replay.tpot)
    # the next request of the user arrives with the last token
    np.testing.assert_allclose(np.diff(replay.arrival), replay.latency[:-1])


@pytest.mark.parametrize("options", [{"rate": 40}, {"users": 20}, {}])
def test_a_replay_is_repeatable_and_answers_every_request(options):
    found = small({"max_batch": 30}, prompt_cv=0.5, output_cv=1, **options)
    one, same, other = (found.replay(requests=REQUESTS, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_equal(one.table(), same.table())
    assert one.latency.tolist() != other.latency.tolist()
    assert np.all(one.ttft > 0)
    assert np.all(one.latency >= one.ttft)
    r = one.record
    assert r.requests == REQUESTS == len(one.to_frame())
    assert r.output_rate == pytest.approx(one.output.sum() / r.duration)
    assert r.ttft.median <= r.ttft.p90 <= r.ttft.p99
    assert r.ttft.mean == pytest.approx(one.ttft.mean())


def test_more_load_waits_longer():
    rates = [small({"max_batch": 20}, rate=rate).replay(requests=600) for rate in (5, 20, 80, 320)]
    means = [one.record.ttft.mean for one in rates]
    assert means == sorted(means)
    more_memory = small({"max_batch": 40}, rate=320).replay(requests=600)
    assert more_memory.record.ttft.mean < means[-1]


def test_an_open_loop_agrees_with_its_closed_form():
    found = small({"max_batch": 64}, rate=30)
    replay = found.replay(requests=2000).record
    assert found["ttft"] == pytest.approx(replay.ttft.mean, rel=0.1)
    assert found["tpot"] == pytest.approx(replay.tpot.mean, rel=0.05)


def test_replicas_share_a_load():
    """A replica of several equal ones behaves like a single one with its share."""
    both, single = small(SINGLE, procs=2, users=20), small(users=10)
    many, one = (found.replay(requests=REQUESTS).record for found in (both, single))
    assert many.ttft == one.ttft
    assert many.output_rate == pytest.approx(2 * one.output_rate)
    random = small(SINGLE, procs=2, rate=30).replay(requests=REQUESTS, route="random")
    assert random.record.load == "30 requests/s, at random"


def test_a_prefill_pool_prefills_elsewhere():
    pool = {f"prefill.{name}": 1 for name in ("num_procs", *SINGLE)}
    found = small(SINGLE | pool, procs=2, rate=30)
    replay = found.replay(requests=600).record
    assert replay.ttft.mean == pytest.approx(found["ttft"], rel=0.1)
    assert replay.tpot.mean == pytest.approx(found["tpot"], rel=0.05)
    with pytest.raises(SpecError, match="prefill pool"):
        found.replay(preempt=True)


def test_preempted_requests_start_again():
    changes = {"memory_fraction": 5e-4, "token_budget": 512}  # for a few sequences
    found = small(changes, prompt=900, output=3000, users=60)
    optimistic = found.replay(requests=60, preempt=True).record
    careful = found.replay(requests=60).record
    assert optimistic.preempted > 0 == careful.preempted
    with pytest.raises(Infeasible, match="KV cache"):
        small({"memory_fraction": 2e-5}, prompt=30, output_cv=3).replay(requests=400)


def test_the_highest_rate_meets_the_limits():
    found = small({"max_batch": 64}, rate=20, tpot_limit=0.002, ttft_limit=0.05)
    replay = found.replay(requests=400).record
    assert replay.highest_rate > 0
    shares = []
    for factor in (0.97, 1.1):
        one = small(
            {"max_batch": 64},
            rate=factor * replay.highest_rate,
            tpot_limit=0.002,
            ttft_limit=0.05,
        ).replay(requests=400)
        r = one.record
        good = (one.ttft <= 0.05) & (one.tpot <= 0.002)
        assert r.good_share == pytest.approx(good.mean())
        assert r.goodput == pytest.approx(r.good_share * r.request_rate)
        shares.append(r.good_share)
    assert shares[0] >= 0.99 > shares[1]


def test_a_trace_is_replayed_as_recorded(tmp_path):
    path = tmp_path / "trace.jsonl"
    rows = [{"arrival": 0.1 * n, "prompt": 100 + n, "output": 10} for n in range(40)]
    path.write_text("\n".join(map(json.dumps, rows)))
    replay = small().replay(path)
    np.testing.assert_allclose(replay.arrival, 0.1 * np.arange(40))
    assert replay.prompt.tolist() == [row["prompt"] for row in rows]
    fast = small(rate=20).replay(path)
    np.testing.assert_allclose(fast.arrival, replay.arrival / 2)
    half = small(SINGLE, procs=2).replay(path)
    assert half.prompt.tolist() == replay.prompt[::2].tolist()
    users = small(users=4).replay(path)
    assert np.count_nonzero(users.arrival == 0) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"request": 3}, "request"),
        ({"requests": 0}, "requests"),
        ({"seed": -1}, "seed"),
        ({"range_ratio": 1}, "range_ratio"),
        ({"route": "alphabetical"}, "route"),
        ({"ramp": 1}, "ramp"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(SpecError, match=message):
        small(rate=3).replay(**options)


def test_static_batches_are_not_replayed():
    with pytest.raises(SpecError, match="batching"):
        small({"batching": "static"}).replay()


def test_files_keep_the_replay():
    found = small(users=4, ttft_limit=1).with_replay(requests=20)
    assert read_served(found.to_dict(), "file").replay == found.replayed
    assert "replay" not in small().to_dict()
