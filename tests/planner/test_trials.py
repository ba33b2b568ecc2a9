"""Trials of tables: the codes and times of an evaluation, and the memory of what does not fit, too."""

import numpy as np

from calculon import inputs
from calculon.evaluate import evaluate
from calculon.plan.plan import Plan
from calculon.plan.rules.check import check
from calculon.planner.trials import NOT_TRIED, trials
from tests.helpers import document

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
