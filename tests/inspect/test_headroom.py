"""The imbalance of experts at which tier 1 is full (memory is linear in it)."""

import pytest

import calculon
from calculon import inputs

RUN = {
    "num_procs": 64,
    "tensor_par": 2,
    "pipeline_par": 4,
    "data_par": 8,
    "expert_par": 8,
    "expert_tensor_par": 1,
    "batch_size": 256,
    "microbatch_size": 1,
    "seq_length": 4096,
    "datatype": "bfloat16",
    "edition": "corrected",
    "preset": "megatron-lm",
    "tensor_par_comm_type": "rs_ag",
}


def _estimate(model="mixtral-8x7B", system="h100_80g_sxm", **changes):
    return calculon.estimate(model, RUN | changes, system)


def _needed(percent):
    return _estimate(moe_imbalance_percent=percent).stats["proc_mem_tier1_cap_req"]


def test_it_is_where_the_line_of_memory_over_the_imbalance_meets_the_capacity():
    """Rows that are saved, at work and on both sides of the dispatch are proportional to it."""
    found = _estimate().imbalance_headroom
    one, two, three = (_needed(percent) for percent in (100, 150, 200))
    assert three - two == pytest.approx(two - one, rel=1e-9)
    capacity = inputs.system("h100_80g_sxm").usable[0]
    assert found == int(100 + 100 * (capacity - one) / (three - one)) / 100
    assert _needed(round(100 * found)) <= capacity
    with pytest.raises(calculon.Infeasible, match="tier-1 memory"):
        _estimate(moe_imbalance_percent=round(100 * found) + 1)


def test_it_does_not_depend_on_the_imbalance_that_is_stated():
    assert _estimate(moe_imbalance_percent=250).imbalance_headroom == _estimate().imbalance_headroom


def test_no_rank_has_more_than_all_rows_or_than_the_capacity():
    large = inputs.system({"base": "h100_80g_sxm", "mem1": {"GiB": 10_000}})
    assert _estimate(system=large).imbalance_headroom == RUN["expert_par"]
    assert _estimate(moe_capacity_percent=150).imbalance_headroom == 1.5


def test_there_is_none_where_all_ranks_have_as_many_rows():
    dense = {"expert_par": 1, "expert_tensor_par": 0}
    assert _estimate("llama2-7B", **dense).imbalance_headroom is None
    assert (
        _estimate(expert_par=1, expert_tensor_par=1, pipeline_par=8, data_par=4).imbalance_headroom
        is None
    )
    padded = {"moe_capacity_percent": 150, "moe_pad_to_capacity": True}
    assert _estimate(**padded).imbalance_headroom is None
