"""Deployments as columns: one row is the same deployment alone."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, strategies

from calculon import inputs
from calculon.serving.passes.replica import Replica
from calculon.serving.records.asked import read_deployment, read_workload
from calculon.serving.records.deployments import SIZES, Deployments, grouped
from calculon.serving.states.operating_point import Load
from calculon.serving_figures import SERVING_FIGURES
from tests.serving.given import H100, SMALL

MODELS = (SMALL, inputs.model("mixtral-8x7B"), inputs.model("gpt-oss-20b"))

LOADS = (
    {},
    {"ttft_limit": 1.0, "tpot_limit": 0.02},
    {"rate": 3.0, "ttft_limit": 1.0},
    {"users": 50},
    {"requests": 1000},
    {"prefix_hit": 0.5, "rate": 40.0},
)


@strategies.composite
def deployments(draw):
    """Draw a deployment of up to 32 processors."""
    split = draw(strategies.sampled_from([1, 2, 4]))
    stages, replicas = draw(strategies.sampled_from([1, 2, 4])), draw(strategies.integers(1, 2))
    apart = draw(strategies.sampled_from([0, 2, 4]))
    static = not apart and draw(strategies.booleans())
    divisors = strategies.sampled_from([one for one in (1, 2, 4) if split % one == 0])
    groups, experts = draw(divisors), draw(divisors)
    pool = {}
    if apart:
        data_par = draw(strategies.sampled_from([1, 2]))
        pool = {"prefill": {"num_procs": apart, "tensor_par": 2, "attn_data_par": data_par}}
    return read_deployment(
        {
            **pool,
            "num_procs": apart + split * stages * replicas,
            "tensor_par": split,
            "pipeline_par": stages,
            "attn_data_par": groups,
            "context_par": draw(strategies.sampled_from([1, split // groups])),
            "expert_par": experts,
            "redundant_experts": draw(strategies.sampled_from([0, 8])) if experts > 1 else 0,
            "routing": draw(strategies.sampled_from(["balanced", "power_law:1.2"])),
            "overlap": draw(strategies.sampled_from(["none", "two_batches", "shared_expert"])),
            "batching": "static" if static else "continuous",
            "token_budget": draw(strategies.sampled_from([0, 512, 4096])),
            "max_batch": draw(strategies.sampled_from([0, 7, 64])),
            "kv_block": draw(strategies.sampled_from([1, 16])),
            "weights_dtype": draw(strategies.sampled_from(["bfloat16", "float8"])),
            "admission": draw(strategies.sampled_from(["reserve", "mean"])),
        }
    )


def test_all_sizes_are_columns():
    assert tuple(one.name for one in fields(Deployments)) == ("record", *SIZES, "prefilling")


@given(
    strategies.lists(deployments(), min_size=2, max_size=6),
    strategies.sampled_from(MODELS),
    strategies.sampled_from(LOADS),
)
def test_one_is_the_same_among_many(records, model, stated):
    load = read_workload(None, {"prompt": 900, "output": 300, **stated})
    seen = []
    for group, places in grouped(records):
        seen += places
        many = Load(Replica(model, H100, group, load)).solve()
        for row, place in enumerate(places):
            assert group.one(row) == records[place]
            alone = Load(Replica(model, H100, Deployments.of(records[place]), load)).solve()
            assert many.batch[row] == alone.batch[0]
            assert many.cut[row] == alone.cut[0]
            assert many.feasible[row] == alone.feasible[0]
            for one in SERVING_FIGURES.values():
                values = one.of(many.figures)[row], one.of(alone.figures)[0]
                np.testing.assert_array_equal(*values, err_msg=one.name)
    assert sorted(seen) == list(range(len(records)))


def test_schedulers_with_and_without_a_budget_are_apart():
    with pytest.raises(ValueError, match="budget"):
        Deployments.of(read_deployment({"num_procs": 1}), token_budget=[0, 512])
