"""Workloads: lengths of prompts and outputs, and what of prompts the cache has."""

import math

import numpy as np
import pytest

from calculon.base.errors import SpecError
from calculon.declarations import catalog
from calculon.serving.records.read_records import read_workload
from tests.cases import for_each


def asked(**fields):
    return read_workload({"prompt": 2000, "output": 500} | fields)


def test_a_sequence_at_hand_is_longer_than_the_average():
    """Contexts and outputs of all decode passes of requests with two lengths, one after the other."""
    short, long, prompt = 100, 900, 2000
    contexts = [prompt + step for output in (short, long) for step in range(1, output)]
    outputs = [output for output in (short, long) for _ in range(1, output)]
    found = asked(output_cv=400 / 500)
    assert found.context == pytest.approx(np.mean(contexts))
    assert found.running_output == pytest.approx(np.mean(outputs))


def test_equal_lengths_are_as_they_were():
    found = asked()
    assert found.context == 2000 + 500 / 2
    assert found.running_output == 500
    assert found.lengths == ((1.0, 2000, 2000),)
    assert (found.computed, found.cached, found.shared(), found.hit) == (2000, 0, 0, 0)
    assert asked(prefix_hit=0.3).computed == math.ceil(2000 * 0.7)


@for_each("variation", [0.2, 0.9, 1.0, 3.0])
@for_each("prefix", [{}, {"prefix_hit": 0.6}, {"shared_prefix": 1500}, {"turns": 3}])
def test_lengths_of_prompts_have_their_mean_and_variance(variation, prefix):
    load = asked(prompt_cv=variation, **prefix)
    lengths = load.lengths
    shares = np.array([one.share for one in lengths])
    tokens = np.array([one.tokens for one in lengths])
    computed = np.array([one.computed for one in lengths])
    assert shares.sum() == pytest.approx(1)
    assert shares @ tokens == pytest.approx(2000)
    assert shares @ (tokens - 2000) ** 2 == pytest.approx((variation * 2000) ** 2)
    assert shares @ computed == pytest.approx(load.computed)
    assert np.all(computed >= 1 - 1e-9)
    assert np.all(tokens - computed >= load.common - 1e-9)


def test_a_prompt_at_a_percentile():
    """Of exponential prompts, which have a standard deviation as large as their mean."""
    load = asked(prompt_cv=1, shared_prefix=100)
    assert load.prompt_at(0.9).tokens == pytest.approx(2000 * math.log(10))
    assert load.prompt_at(0.9).cached == pytest.approx(100)
    assert load.prompt_at(1e-9).computed == pytest.approx(1)
    half = asked(prompt_cv=1, prefix_hit=0.5).prompt_at(1e-9)
    assert (half.tokens, half.computed) == pytest.approx((2, 1))  # one token is new at least
    assert asked().prompt_at(0.99) == asked().lengths[0]


@for_each(("turns", "common"), [(2, 0), (5, 100), (1, 700)])
def test_turns_have_all_before_them_in_their_prompt(turns, common):
    output, message = 120, 60
    prompts = [common + turn * message + (turn - 1) * output for turn in range(1, turns + 1)]
    mean = sum(prompts) / turns
    assert mean == int(mean)
    fields = {"shared_prefix": common} if common else {}
    load = read_workload({"prompt": int(mean), "output": output, "turns": turns, **fields})
    assert load.message == pytest.approx(message)
    assert load.computed == message
    assert load.cached == sum(one - message for one in prompts) / turns
    assert load.shared() == load.shared(fetched=True) == common
    own = [one - message - common for one in prompts]
    assert load.kept * load.followed == pytest.approx(sum(own) / turns)
    assert load.hit == pytest.approx(1 - message / mean)


@for_each(
    ("fields", "message"),
    [
        ({"prefix_hit": 0.5, "turns": 2}, "0 together with these"),
        ({"prefix_hit": 0.5, "shared_prefix": 5}, "0 together with these"),
        ({"shared_prefix": 2000}, "less than prompt=2,000"),
        ({"turns": 9}, "at least 2,005"),
        ({"think": 5}, "no users who think"),
    ],
)
def test_contradictions(fields, message):
    with pytest.raises(SpecError, match=message):
        asked(**fields)


def test_the_least_prompt_of_a_conversation_is_one():
    assert read_workload({"prompt": 2005, "output": 500, "turns": 9}).message == 1
    assert asked(turns=2, think=5).think == 5


@for_each("name", catalog.names("workload"))
def test_workloads_of_the_catalog(name):
    found = read_workload(name)
    assert found.document["about"]
    assert read_workload(found.to_dict()) == found
    assert 0 <= found.hit < 1


def test_turns_of_the_catalog_are_those_of_their_sources():
    agent, document = read_workload("coding-agent"), read_workload("long-document")
    assert agent.message == pytest.approx(5283, rel=0.01)
    assert agent.prompt == 116_623 + 5_283
    assert document.hit == pytest.approx(0.5, abs=0.02)


def test_examples_of_latency_limits_are_latencies():
    for wrong in ("soon", 0):
        with pytest.raises(SpecError, match="such as 1s or 50ms"):
            read_workload({"prompt": 2000, "output": 500, "tpot_limit": wrong})
