"""Where a load leads to: waits, gaps, and finite runs."""

from itertools import pairwise

import numpy as np
import pytest

from calculon.serving.passes.replica import Replica
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.load import PromptLength
from calculon.serving.records.read_records import read_deployment, read_workload
from calculon.serving.states.served_points import Limit
from tests.cases import for_each
from tests.serving import given
from tests.serving.given import H100, SMALL

ONE = {"tensor_par": 1, "max_batch": 64}


def small(changes=None, procs=1, **load):
    return given.small(ONE | (changes or {}), procs, **load)


@pytest.mark.parametrize(
    ("changes", "procs"), [({}, 4), ({"token_budget": 0}, 1), ({"batching": "static"}, 2)]
)
def test_waits_grow_with_the_rate_from_none_to_no_end(changes, procs):
    most = small(changes, procs)["capacity_rate"]
    rates = [share * most for share in (1e-6, 0.6, 0.9999, 1.01)]
    found = [small(changes, procs, rate=rate) for rate in rates]
    waits = [one["queue_time"] for one in found]
    assert waits[0] < 1e-4 * found[0]["prefill_time"]
    assert waits == sorted(waits)
    assert waits[-2] > found[-2]["request_latency"] / 4  # for a place among the sequences
    assert np.isinf(waits[-1])
    assert all(one["ttft_p"] >= one["ttft"] for one in found)
    for rate, one in zip(rates[:-1], found[:-1], strict=True):
        assert one.cut == "rate"
        assert one["request_rate"] == rate
        assert one["utilization"] == pytest.approx(rate / most)
        assert one["concurrency"] <= one.batch * (1 + 1e-12)
        assert one["tpot_p"] >= one["tpot"]
    for name in ("ttft", "tpot", "utilization", "concurrency"):
        values = [one[name] for one in found[:-1]]
        assert values == sorted(values), name


def test_a_static_batch_ends_before_the_next_begins():
    """A random request has half a batch before it, and at the percentile nearly all of one."""
    most = small({"batching": "static"})["capacity_rate"]
    found = small({"batching": "static"}, rate=0.6 * most)
    alone = small({"batching": "static", "max_batch": found.batch})
    lasts = found.batch / alone["capacity_rate"]
    assert found["queue_time"] == pytest.approx(lasts / 2, rel=1e-3)
    assert found["ttft_p"] == pytest.approx(0.99 * lasts + alone["ttft"], rel=1e-3)


@pytest.mark.parametrize(("budget", "output"), [(0, 300), (1024, 2)])
def test_more_users_get_no_less(budget, output):
    """Prompts that a pass takes together are in the latency of a request, and not among those of others."""
    changes = {"token_budget": budget}
    found = [small(changes, output=output, users=users) for users in (1, 2, 3, 9, 60)]
    rates = [one["request_rate"] for one in found]
    assert all(more >= less * (1 - 1e-9) for less, more in pairwise(rates))
    assert found[0]["queue_time"] == 0
    alone = found[0]["ttft"] + (output - 1) * found[0]["tpot"]
    assert rates[0] == pytest.approx(1 / alone)


def test_the_longest_gap_has_the_last_chunk():
    """Which sees all chunks before it; a single request has nobody's prompts between its tokens."""
    long = {"prompt": 60_000, "output": 200}
    found = small({"token_budget": 2048}, **long, users=4)
    replica = small_replica(2048, long)
    batch, length = np.full(1, 4.0), PromptLength(1.0, 60_000, 60_000)
    count, together = replica._chunking(batch, length)
    chunk = 60_000 / count
    sizes = {"decoded": batch, "context": replica.workload.context, "prompts": together}
    last = replica.passes(replica.sizes(**sizes, chunk=chunk, cached=60_000 - chunk))
    assert found["itl_max"] == pytest.approx(last.time[0], rel=1e-12)
    for alone in ({"users": 1}, {"users": 3, "requests": 1}, {"requests": 1}):
        one = small({"token_budget": 2048}, **long, **alone)
        assert one["itl_max"] == one["tpot"]


def small_replica(budget, load):
    """Return a replica of a deployment that mixes."""
    record = read_deployment({"num_procs": 1, "token_budget": budget})
    return Replica(SMALL, H100, Deployments.of(record), read_workload(load))


def test_a_run_of_users_ends_with_the_answer_to_the_last():
    alone = small(users=1)
    assert small(users=8, requests=1).run_time == pytest.approx(alone["request_latency"])
    assert small(users=8, requests=1).batch == 1
    whole = small(users=8)["request_latency"]
    for requests, turns in ((8, 1), (9, 2), (17, 3)):
        assert small(users=8, requests=requests).run_time == pytest.approx(turns * whole)
    thinking = small(users=8, think=3, requests=16)
    cycle = thinking["request_latency"] + 3
    assert thinking.run_time == pytest.approx(2 * cycle - 3, rel=0.02)
    one = small(rate=0.1, requests=1)
    assert one.run_time == pytest.approx(one["request_latency"])
    assert small(rate=0.1, requests=11).run_time == pytest.approx(100 + one["request_latency"])


@for_each(
    ("found", "most", "words"),
    [
        (3.0, 2.0, "ttft: 3 s, 1.5 times the limit of 2 s"),
        (7.6, 7.57, "ttft: 7.6 s, 0.4 % over the limit of 7.57 s"),
        (7.5701, 7.57, "ttft: 7.5701 s, 0.0013 % over the limit of 7.57 s"),
        (1.0, 2.0, "ttft: 1 s, limit 2 s"),
        (float("inf"), 2.0, "ttft: unbounded, limit 2 s"),
    ],
)
def test_a_limit_in_words(found, most, words):
    assert Limit(name="ttft", unit="s", most=most, found=found).in_words.lower() == words
