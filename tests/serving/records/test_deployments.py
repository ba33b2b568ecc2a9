"""Deployments as columns: one row is the same deployment alone."""

from dataclasses import fields, replace
from itertools import product
from random import Random

import numpy as np
import pytest

from calculon import inputs
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.serving.passes.replica import Replica
from calculon.serving.records.deployments import SIZES, Deployments, grouped
from calculon.serving.records.read_records import read_deployment, read_workload
from calculon.serving.states.operating_point import OperatingPointSolver
from tests.draws import SEED, draws
from tests.serving.given import H100, SMALL

MODELS = (replace(SMALL, mtp_layers=2), inputs.model("mixtral-8x7B"))

LOADS = (
    {"ttft_limit": 1.0, "tpot_limit": 0.02},
    {"rate": 3.0, "ttft_limit": 1.0},
    {"users": 50},
    {"requests": 1000, "prefix_hit": 0.5},
)


def drafting(record, draft):
    """Return a deployment without other processors that prefill, which drafts two tokens in a step."""
    own = {name: value for name, value in record.to_dict().items() if name != "prefill"}
    drafts = {"batching": "continuous", "draft": draft, "draft_tokens": 2, "acceptance": 0.5}
    return read_deployment(own | {"num_procs": record.own_procs} | drafts)


def drawn(random):
    """Draw a deployment of up to 32 processors."""
    split, stages, replicas = (random.choice([1, 2, 4]) for _ in range(3))
    apart = random.choice([0, 2, 4])
    divisors = [one for one in (1, 2, 4) if split % one == 0]
    groups, experts = random.choice(divisors), random.choice(divisors)
    pool = {}
    if apart:
        data_par = random.choice([1, 2])
        pool = {"prefill": {"num_procs": apart, "tensor_par": 2, "attn_data_par": data_par}}
    return read_deployment(
        {
            **pool,
            "num_procs": apart + split * stages * replicas,
            "tensor_par": split,
            "pipeline_par": stages,
            "attn_data_par": groups,
            "context_par": random.choice([1, split // groups]),
            "expert_par": experts,
            "redundant_experts": random.choice([0, 8]) if experts > 1 else 0,
            "routing": random.choice(["balanced", "power_law:1.2"]),
            "overlap": random.choice(["none", "two_batches", "shared_expert"]),
            "batching": "continuous" if apart else random.choice(["continuous", "static"]),
            "token_budget": random.choice([0, 512, 4096]),
            "max_batch": random.choice([0, 7, 64]),
            "kv_block": random.choice([1, 16]),
            "weights_dtype": random.choice(["bfloat16", "float8"]),
            "admission": random.choice(["reserve", "mean"]),
        }
    )


def test_all_sizes_are_columns():
    assert tuple(one.name for one in fields(Deployments)) == (
        "record",
        *SIZES,
        "prefill_deployments",
    )


def test_one_is_the_same_among_many():
    """For each load, of two deployments that share their choices; every other load has drafts."""
    random = Random(SEED)
    for number, (stated, _) in enumerate(product(LOADS, range(draws(1)))):
        load = read_workload(None, {"prompt": 900, "output": 300, **stated})
        record, model = drawn(random), random.choice(MODELS)
        if number % 2:
            record = drafting(record, "mtp" if model.mtp_layers else "ngram")
        split = {"tensor_par": 4, "attn_data_par": 2, "context_par": 1, "expert_par": 4}
        procs = record.num_procs - record.own_procs + 4 * record.pipeline_par
        records = [record, replace(record, num_procs=procs, **split, kv_block=64, max_batch=20)]
        many = OperatingPointSolver(
            Replica(model, H100, Deployments.of_records(records), load)
        ).solve()
        row = number // 2 % 2
        alone = OperatingPointSolver(
            Replica(model, H100, Deployments.of(records[row]), load)
        ).solve()
        assert many.batch[row] == alone.batch[0]
        assert many.cut[row] == alone.cut[0]
        assert many.feasible[row] == alone.feasible[0]
        for figure in SERVING_FIGURES.values():
            values = figure.of(many.figures)[row], figure.of(alone.figures)[0]
            np.testing.assert_array_equal(*values, err_msg=f"{figure.name}: {records[row]}")


def test_deployments_are_grouped_by_their_choices():
    random = Random(SEED)
    first, *others = (drawn(random) for _ in range(6))
    records = [first, *others, replace(first, kv_block=64, max_batch=20)]
    seen = []
    for group, places in grouped(records):
        seen += places
        assert [group.one(row) for row in range(len(places))] == [records[n] for n in places]
        assert (0 in places) == (6 in places)
    assert sorted(seen) == [*range(7)]


def test_schedulers_with_and_without_a_budget_are_apart():
    with pytest.raises(ValueError, match="budget"):
        Deployments.of(read_deployment({"num_procs": 1}), token_budget=[0, 512])
