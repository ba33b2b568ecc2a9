"""Search from Python: results, tables, and what is refused before any work."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calculon
from calculon.base.activity import listening
from calculon.search.driver import (
    executions,
    feasible_tables,
    make_ranking,
    make_space,
    no_winners,
    rechunked,
    run,
    search,
)
from tests.helpers import NAMES, bits, table_bits
from tests.search.brute import CONDITIONS, OBJECTIVES, same_rows
from tests.search.pool import on_pool, several_parts

SPACE = ("megatron-126M", "a100_80g", 8, 8)
FEW = {"fix": {"tensor_par_comm_type": "ar", "weight_offload": False, "optimizer_offload": False}}


@on_pool(2, 6)
def test_tables_of_a_space_are_its_feasible_rows_in_order(case, draw):
    where, size = draw.choice(CONDITIONS), draw.randint(50, 300)
    mask = case.table.feasible
    if where is not None:
        mask = mask & where.mask(case.table.column)
    seen = []
    parts = list(feasible_tables(case.space, where, chunk=size, seen=seen.append))
    assert sum(seen) == case.table.feasible.sum()
    assert all(len(part) <= size and part.feasible.all() for part in parts)
    tables = [no_winners(case.space), *parts]
    found = [row.tobytes() for table in tables for row in table_bits(table)]
    wanted = [row.tobytes() for row in table_bits(case.table)[mask]]
    if several_parts(case):
        assert sorted(found) == sorted(wanted)
        return
    assert found == wanted
    rows = calculon.Plan.concatenate([t.plan for t in tables])
    assert same_rows(rows, case.plan.take(mask))


@on_pool(3, 8)
def test_winners_are_evaluated_to_what_the_search_saw(case, draw):
    result = run(case.space, make_ranking(3, draw.choice(OBJECTIVES)))
    assert len(result) == min(3, result.counts.good)
    table = result.evaluation  # raises where search and evaluation differ
    assert table.feasible.all()
    for i, estimate in enumerate(result.estimates()):
        assert (table_bits(table)[i] == bits(estimate.stats)).all()


def test_tokens_per_second_are_found_without_trying_all():
    options = {"edition": "corrected", "preset": "published", "add": {"seq_length": [512, 2048]}}
    fix = FEW["fix"] | {"activations_offload": False}
    space = make_space(*SPACE, "float16", **options, fix=fix)
    found = run(space, make_ranking(3, "tokens_per_second", edition="corrected"))
    tables = list(feasible_tables(space))
    rates = np.concatenate([table["tokens_per_second"] for table in tables])
    assert found.counts.good == len(rates)
    assert found.scores[0].tolist() == np.sort(rates)[::-1][:3].tolist()


def test_a_search_is_announced_before_its_first_plan():
    said = []
    with listening(said.append):
        search(*SPACE, **FEW)
    assert said[0].endswith(": listing plans")
    assert said[-1].endswith(" plans tried")


def test_a_result_as_records_and_as_a_frame():
    result = search(*SPACE, top=3, **FEW)
    assert len(result) == len(result.plan) == len(result.estimates()) == 3
    frame = result.to_frame()
    assert len(frame) == 3
    assert frame.columns[-1] == NAMES[-1] == "sample_rate"
    assert frame.shape[1] == 23 + 96
    assert (np.diff(frame["sample_rate"]) <= 0).all()
    assert result.estimates(layers=True)[0].layers
    assert f"best sample_rate {frame['sample_rate'][0]:.6g}" in repr(result)


@pytest.mark.parametrize("call", [search, executions], ids=["search", "executions"])
@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"num_procs": 0}, "num_procs"),
        ({"num_procs": 2**31}, "num_procs"),
        ({"max_batch_size": 0}, "max_batch_size"),
        ({"max_batch_size": 10**12}, "max_batch_size"),
        ({"datatype": "float8"}, "float16"),
        ({"model": "no such model"}, "model"),
        ({"where": "totl_time < 1"}, "total_time"),
        ({"fix": {"tensr_par": 1}}, "tensor_par"),
        ({"fix": {"tensor_par": 0}}, "tensor_par"),
        ({"fix": {"activation_recompute": "some"}}, "attn_only"),
        ({"add": {"pipeline_par": (-1,)}}, "pipeline_par"),
        ({"add": {"tensor_par": 3}}, "tensor_par"),
    ],
    ids=str,
)
def test_bad_input_is_refused_before_any_work(call, change, word):
    names = ("model", "system", "num_procs", "max_batch_size")
    arguments = dict(zip(names, SPACE, strict=True))
    with pytest.raises(calculon.SpecError, match=word):
        call(**(arguments | change))


@given(
    sizes=st.lists(st.integers(0, 9), max_size=12),
    chunk=st.integers(1, 11),
)
def test_rechunked_parts_are_of_one_size(sizes, chunk):
    numbers = np.arange(sum(sizes))
    parts = list(rechunked(np.split(numbers, np.cumsum(sizes)[:-1]) if sizes else [], chunk))
    assert [n for part in parts for n in part.tolist()] == numbers.tolist()
    assert all(len(part) == chunk for part in parts[:-1])
    assert all(0 < len(part) <= chunk for part in parts)


@pytest.mark.parametrize("preset", ["megatron-lm", "huggingface"])
def test_no_overlap_is_tried_where_a_framework_has_it_on(preset):
    asked = ("megatron-126M", "a100_80g_sxm", 8, 16, "float16")
    without = calculon.search(*asked, preset=preset, data_overlap=False)
    fixed = calculon.search(*asked, preset=preset, fix={"data_par_overlap": False})
    assert not without.best.execution.data_par_overlap
    assert without.best.stats["sample_rate"] == fixed.best.stats["sample_rate"]
