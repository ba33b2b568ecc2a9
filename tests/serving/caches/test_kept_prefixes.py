"""Lengths and prefixes on replicas: what they do to times, batches and memory."""

from dataclasses import replace

import numpy as np
import pytest

import calculon
from calculon.base.errors import SpecError
from calculon.serving.passes.replica import Replica
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.read_records import read_workload
from tests.serving.given import H100, LLAMA_70B, SMALL

LOAD = {"prompt": 4000, "output": 500}
EIGHT = Deployment(num_procs=8, tensor_par=8)


def served(load, model=LLAMA_70B, system=H100, **changes):
    return calculon.serve(model, replace(EIGHT, **changes), system, LOAD | load)


def replica(load, **changes):
    deployments = Deployments.of(replace(EIGHT, **changes))
    return Replica(LLAMA_70B, H100, deployments, read_workload(LOAD | load))


@pytest.mark.parametrize("admission", ["reserve", "mean"])
def test_long_outputs_fill_the_cache(admission):
    equal, varied = served({}, admission=admission), served({"output_cv": 1}, admission=admission)
    load = varied.workload
    share = 1.0 if admission == "reserve" else 0.5
    each = [4000 + share * one for one in (500, load.running_output)]
    assert varied.batch / equal.batch == pytest.approx(each[0] / each[1], rel=0.01)
    assert varied["mem_cache"] / varied.batch > equal["mem_cache"] / equal.batch


def test_prompts_of_different_lengths_take_as_their_mean_and_the_square_of_attention():
    """Times of whole prompts are a polynomial of the second degree far from floors and small products."""
    equal, varied = replica({}), replica({"prompt_cv": 0.4})
    one = np.ones(1)
    times = [equal.prefill_of(one, tokens, 0.0)[0][0] for tokens in (2400.0, 4000.0, 5600.0)]
    curve = times[0] - 2 * times[1] + times[2]
    assert curve > 0
    assert varied.prefill(one)[0][0] - equal.prefill(one)[0][0] == pytest.approx(curve / 2)


@pytest.mark.parametrize("budget", [0, 2048])
def test_prompts_that_vary_wait_longer(budget):
    equal, varied = (
        served({"prompt_cv": cv, "rate": 2.0}, token_budget=budget) for cv in (0.0, 1.0)
    )
    assert varied["queue_time"] > 1.2 * equal["queue_time"]
    # at the percentile the wait and the prompt are long
    longer = varied["ttft_p"] - varied["ttft"] > 2 * (equal["ttft_p"] - equal["ttft"])
    assert longer
    assert varied["itl_max"] > equal["itl_max"]


def test_a_static_batch_waits_for_its_longest_output():
    loads = ({"prompt": 50, "users": 16, "output_cv": cv} for cv in (0, 1))
    equal, varied = (served(load, batching="static") for load in loads)
    harmonic = sum(1 / n for n in range(1, 17))
    ratio = equal["output_rate"] / varied["output_rate"]
    assert ratio == pytest.approx(harmonic, rel=0.01)


def test_a_shared_prefix_is_what_its_share_was():
    shared, share = served({"shared_prefix": 3000}), served({"prefix_hit": 0.75})
    for name in ("ttft", "tpot", "output_rate", "mem_cache", "hit_rate", "max_concurrency"):
        assert shared[name] == share[name]


def test_turns_compute_their_messages_and_keep_their_conversations():
    single, turns = served({}), served({"turns": 4})
    # a conversation at hand has its whole context for itself
    assert turns.batch == single.batch
    assert turns["mem_cache"] == single["mem_cache"]
    assert turns["prefill_time"] < single["prefill_time"]
    # prompts of u, 2 u + o, 3 u + 2 o, 4 u + 3 o, of which u is new
    message = (4000 - 1.5 * 500) / 2.5
    assert turns["hit_rate"] == pytest.approx(1 - message / 4000)
    assert turns["hit_offloaded"] == 0


def test_a_prefix_from_tier_2_is_no_memory_of_others():
    once, fetched = served({"prefix_hit": 0.75}), served({"prefix_hit": 0.75}, cache_offload="host")
    assert fetched.batch == served({}).batch < once.batch
    assert fetched["hit_offloaded"] == 0.75
    size = fetched["hit_time"] * H100.mem2.bandwidth * 0.88
    assert size / fetched["hit_break_even"] == pytest.approx(fetched["recompute_time"])
    alone = served({})["prefill_time"] - once["prefill_time"]
    assert fetched["recompute_time"] == pytest.approx(alone)


def test_fetching_is_hidden_until_the_link_is_full():
    """With a tier 2 a hundred times slower a replica answers no more than its link brings."""
    slow = replace(H100, mem2=replace(H100.mem2, bandwidth=H100.mem2.bandwidth / 300))
    load = {"prefix_hit": 0.75}
    fast = served(load, cache_offload="host")
    late = served(load, system=slow, cache_offload="host")
    assert late["request_rate"] == pytest.approx(1 / late["hit_time"])
    alone, fetched = (one["ttft"] - one["queue_time"] for one in (fast, late))
    assert fetched == pytest.approx(max(late["hit_time"], alone), rel=1e-12)
    assert fast["request_rate"] < 1 / fast["hit_time"]
    free = served(load)  # as if all of them were the same, and there
    users = {"users": 32}
    assert served(load | users, cache_offload="host")["tpot"] == served(load | users)["tpot"]
    assert free["prefill_time"] == fast["prefill_time"]


def test_conversations_that_nobody_has_room_for_are_computed_again():
    load = {"turns": 4, "rate": 2.0}
    kept = served(load)
    few, many, offloaded = (
        served(load | {"think": think}, cache_offload=place)
        for think, place in ((1.0, "none"), (3000.0, "none"), (3000.0, "host"))
    )
    assert few["hit_rate"] == pytest.approx(kept["hit_rate"])
    assert few["ttft"] == pytest.approx(kept["ttft"])
    assert many["waiting_prefixes"] == pytest.approx(2.0 * 3000 * 3 / 4)
    assert many["kept_prefixes"] < many["waiting_prefixes"]
    assert many["hit_rate"] < offloaded["hit_rate"] < few["hit_rate"]
    assert many["ttft"] > offloaded["ttft"] > few["ttft"]
    assert many["hit_rate"] > 0
    # without any of it prompts are whole, and differ by their turn
    assert many["prefill_share"] < 1.1 * served({"rate": 2.0})["prefill_share"]
    assert offloaded["hit_offloaded"] + many["hit_rate"] == pytest.approx(
        offloaded["hit_rate"], rel=0.02
    )


def test_where_nobody_says_how_long_they_think_tier_2_has_the_hits():
    found = served({"turns": 4}, cache_offload="host")
    assert found["hit_offloaded"] == pytest.approx(found["hit_rate"])
    assert np.isnan(found["waiting_prefixes"])


def test_caches_weigh_as_much_as_weights():
    found = served({})
    size = np.full(1, float(found.batch))
    times = replica({}).decode_pass(size, context=np.full(1, found["even_context"]))
    assert times.total("cache")[0] == pytest.approx(times.total("weights")[0])


def test_a_window_has_a_longest_context():
    windowed = replace(SMALL, sliding_window=128)
    found = calculon.serve(windowed, 1, H100, {"prompt": 1000, "output": 10, "users": 1})
    assert found["even_context"] == np.inf


def test_a_tier_that_is_not_there():
    with pytest.raises(SpecError, match="cache_offload"):
        served({"prefix_hit": 0.5}, cache_offload="disk")
    with pytest.raises(SpecError, match="cache_offload"):
        served({}, cache_offload="host", prefill=calculon.serving.records.pool.Pool(num_procs=1))


def test_users_who_think_fill_a_smaller_batch():
    busy, thinking = served({"users": 30}), served({"users": 30, "think": 20})
    assert busy.batch == 30
    each = thinking["request_latency"]
    # by Little's law, to a whole sequence
    assert thinking.batch - 1 < 30 * each / (each + 20) <= thinking.batch + 0.5
    assert thinking["request_rate"] == pytest.approx(30 / (each + 20), rel=1e-3)
    assert thinking["tpot"] < busy["tpot"]
    crowd = served({"users": 5000, "think": 20})
    assert crowd.cut == "memory"
    assert crowd["queue_time"] > 0


def test_a_run_of_different_outputs_ends_with_the_longest():
    """All at once it lasts as long as its longest output; of many requests the end matters less and less."""
    equal, varied = (served({"requests": 64, "output_cv": cv}) for cv in (0, 1))
    harmonic = sum(1 / n for n in range(1, 65))
    least = 499 * harmonic * replica({}).decode(np.ones(1), 4000.0)[0]
    assert varied.batch == equal.batch == 64
    assert varied.run_time > max(least, 1.5 * equal.run_time)
    full = served({"output_cv": 1})["request_rate"]
    ends = [served({"requests": n, "output_cv": 1}).run_time - n / full for n in (5_000, 50_000)]
    assert ends[0] > 0
    assert ends[1] == pytest.approx(ends[0], rel=0.01)
    assert served({"requests": 64, "output_cv": 0.01}).run_time == pytest.approx(
        equal.run_time, rel=0.01
    )
