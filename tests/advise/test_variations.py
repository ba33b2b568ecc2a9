"""Variations of an execution as columns: each row is the one that its changes make by hand."""

from itertools import combinations
from random import Random

import numpy as np
import pytest

from calculon import inputs
from calculon.advise.neighborhood import (
    NOT_TRIED,
    choices_of,
    distances_of,
    parts_of,
    subsets,
    trials,
)
from calculon.advise.neighbors import FieldChange
from calculon.advise.variations import Variations, varied
from calculon.estimate.evaluate import evaluate
from calculon.plan.plan import NAMES, Plan
from calculon.plan.rules.all_rules import check
from tests.advise import by_hand
from tests.advise.by_hand import PLAIN, PLANS
from tests.cases import for_each
from tests.draws import draws
from tests.helpers import document

CASES = {
    **PLANS,
    "experts": ("mixtral-8x7B", document("examples", "mixtral-8x7B_h100x64")),
    "published": ("megatron-1T", "3072_t4_p64_d12_mbs4_full"),
    "user buffers": (
        "llama3-8B",
        PLAIN | {"preset": "megatron-lm-ub", "num_procs": 8, "tensor_par": 4, "batch_size": 8},
    ),
    "torchtitan": (
        "llama3-8B",
        PLAIN | {"preset": "torchtitan", "num_procs": 16, "tensor_par": 4, "batch_size": 8},
    ),
}


def _read(name):
    model, execution = CASES[name]
    return inputs.model(model), inputs.execution(execution)


@for_each("name", CASES)
def test_what_changes_nothing_is_the_same(name):
    model, execution = _read(name)
    assert varied(model, execution, {}) == by_hand.fields_of(execution)
    assert Variations(model, execution).broken == frozenset()


@pytest.mark.parametrize("name", CASES)
def test_rows_of_a_table_are_what_each_change_makes_by_hand(name):
    model, execution = _read(name)
    system, random = inputs.system("h100_80g_sxm"), Random(name)
    singles = by_hand.single_changes(model, execution, system)
    several = [dict(random.sample(singles, random.choice((1, 2, 3)))) for _ in range(draws(40))]
    table = Variations(model, execution).of_rows(several)
    for row, changes in enumerate(several):
        expected = by_hand.followed(model, execution, changes)
        assert (expected is None) == (table.malformed[row] >= 0)
        if expected is not None:
            assert {name: table.values(name)[row].item() for name in NAMES} == expected


def test_what_is_broken_follows_only_where_it_is_asked_to():
    changes = {"num_procs": 48, "tensor_par": 2, "data_par": 30, "p2p_overlap": True}
    execution = inputs.execution(PLAIN | changes | {"batch_size": 480, "microbatch_size": 1})
    variations = Variations(inputs.model("llama3-8B"), execution)
    assert variations.broken == {"data_par", "p2p_overlap"}
    [held] = variations.of_rows([{"tensor_par": 4}]).data_par
    assert held == 30
    rows, empty = 1, {}
    free = variations.table(
        rows, empty, {"data_par": np.zeros(1, int), "p2p_overlap": np.zeros(1, int)}
    )
    assert (free.data_par[0], free.p2p_overlap[0]) == (24, False)


def test_what_nobody_stated_follows_though_it_is_broken():
    changes = {"num_procs": 48, "tensor_par": 5, "data_par": 9, "batch_size": 480}
    execution = inputs.execution(PLAIN | changes | {"microbatch_size": 1})
    variations = Variations(inputs.model("llama3-8B"), execution, ("data_par",))
    table = variations.of_rows([{"tensor_par": 4}, {"tensor_par": 7}])
    assert table.data_par[0] == 12
    assert table.malformed.tolist() == [-1, NAMES.index("data_par")]


CHANGES = tuple(
    FieldChange(name, value, distance)
    for name, value, distance in (
        *(("tensor_par", 2, 1.0), ("tensor_par", 8, 3.0), ("pipeline_par", 4, 2.0)),
        *(("tp_async", 1, 1.0), ("zero_stage", 3, 1.0), ("zero_stage", 4, 1.0)),
    )
)


@for_each("size", [0, 1, 2, 3, 4])
def test_every_set_of_different_fields_is_there_once(size):
    fields = [one.field for one in CHANGES]
    expected = {
        some
        for some in combinations(range(len(CHANGES)), size)
        if len({fields[number] for number in some}) == size
    }
    found = choices_of(CHANGES, size, 0)
    assert {tuple(sorted(row)) for row in found.tolist()} == expected
    assert len(found) == len(expected)
    distances = distances_of(CHANGES, found).tolist()
    assert distances == sorted(distances)


def test_one_of_the_first_changes_is_in_each_where_it_is_needed():
    found = choices_of(CHANGES, 3, 2).tolist()
    everything = choices_of(CHANGES, 3, 0).tolist()
    needed = {tuple(sorted(row)) for row in everything if {*row} & {0, 1}}
    assert {tuple(sorted(row)) for row in found} == needed
    assert len(found) == len(needed)


def test_parts_are_the_whole_in_order():
    found = subsets(np.arange(80), 3, 0)
    assert len(found) == 80 * 79 * 78 // 6
    parts = [*parts_of(found)]
    assert len(parts) > 1
    np.testing.assert_array_equal(np.concatenate(parts), found)


MODEL, SYSTEM = inputs.model("llama3-8B"), inputs.system("h100_80g_sxm")
FIELDS = document("examples", "llama3-8B_h100x64")
FIELDS = {name: one for name, one in FIELDS.items() if name != "base"} | {"preset": "megatron-lm"}
ROWS = [
    FIELDS | {"edition": "corrected", "microbatch_size": size, "activation_recompute": again}
    for size in (1, 2, 3, 8, 16)
    for again in ("none", "full")
]


def test_they_are_what_an_evaluation_says():
    plan = Plan.from_records(ROWS)
    found, table = trials(MODEL, SYSTEM, plan), evaluate(MODEL, SYSTEM, plan)
    assert found.codes.tolist() == table.codes.tolist()
    assert 0 < found.runs.sum() < found.legal.sum() < len(plan)
    np.testing.assert_array_equal(found.time, table["total_time"])
    needed = table["proc_mem_tier1_cap_req"]
    np.testing.assert_array_equal(found.memory[0, found.runs], needed[found.runs])
    short = found.legal & ~found.runs
    assert (found.memory[0, short] > SYSTEM.usable[0]).all()
    assert np.isnan(found.memory[:, ~found.legal]).all()


def test_rows_that_are_left_out_stay_so():
    plan = Plan.from_records(ROWS)
    codes = check(MODEL, SYSTEM, plan)
    codes[::2] = NOT_TRIED
    found = trials(MODEL, SYSTEM, plan, codes)
    assert not found.legal[::2].any()
    assert np.isnan(found.time[::2]).all()
    np.testing.assert_array_equal(found.time[1::2], trials(MODEL, SYSTEM, plan).time[1::2])
