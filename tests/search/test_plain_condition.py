"""Conditions in short names and units mean the same as those in full names and bytes."""

import numpy as np
import pytest

from calculon.base.errors import SpecError
from calculon.search.conditions import Condition
from calculon.search.objective import Objective
from calculon.search.overrides import parse

ROWS = {
    "total_time": np.array([3.0, 4.5, 60.0, 0.2]),
    "proc_mem_tier1_cap_req": np.array([20.0, 59.0, 61.0, 90.0]) * 2**30,
    "mfu": np.array([0.3, 0.4, 0.45, 0.5]),
    "tensor_par": np.array([1, 2, 8, 16]),
    "batch_size": np.array([7, 8, 9, 14]),
}


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("GiB < 60", "proc_mem_tier1_cap_req < 60 * GiB"),
        ("60 > GiB", "proc_mem_tier1_cap_req < 60 * GiB"),
        ("30 < GiB <= 61", "30 * GiB < proc_mem_tier1_cap_req <= 61 * GiB"),
        ("mem < 60GiB", "proc_mem_tier1_cap_req < 60 * GiB"),
        ("Memory < 60 * GiB", "proc_mem_tier1_cap_req < 60 * GiB"),
        ("MFU > 42 %", "mfu > 0.42"),
        ("(mfu > 42%) and TP <= 8", "mfu > 0.42 and tensor_par <= 8"),
        ("time < 4.5 s or time > 60", "total_time < 4.5 or total_time > 60"),
        ("time <= 300 ms", "total_time <= 0.3"),
        ("tp in (2, 16)", "tensor_par in (2, 16)"),
        ("batch_size % 7 == 0", "batch_size // 7 == batch_size / 7"),
        ("64 % 7 == tp", "tensor_par == 1"),
    ],
)
def test_a_condition_in_short_words_is_that_in_full_names(short, full):
    given, meant = (Condition.parse(one).mask(ROWS.__getitem__).tolist() for one in (short, full))
    assert given == meant
    assert 0 < sum(meant) < len(meant)


@pytest.mark.parametrize(
    "text", ["total_time < 60 and tensor_par <= 8", "block_dp_size > GiB", "pp_schedule == '1f1b'"]
)
def test_what_needs_no_translation_is_kept_as_it_is_written(text):
    assert Condition.parse(text).expression.text == text


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("time", "total_time"),
        ("Memory", "proc_mem_tier1_cap_req"),
        ("GiB:min", "proc_mem_tier1_cap_req"),
        ("MFU", "mfu"),
        ("seq/s:max", "sample_rate"),
        ("Memory needed", "proc_mem_tier1_cap_req"),
    ],
)
def test_an_objective_has_the_words_of_tables(short, full):
    assert Objective.parse(short) == Objective.parse(full)


def test_values_are_held_by_short_names():
    assert parse("fix", ["TP=4,8", "sp=on", "zero=1"]) == parse(
        "fix", ["tensor_par=4,8", "tensor_par_comm_type=rs_ag", "zero_stage=1"]
    )
    with pytest.raises(SpecError, match="did you mean"):
        parse("fix", ["mbz=1"])
    switches = ["weight_offload=t, False", "weight_offload=1,F,TRUE,0"]
    assert parse("fix", switches) == {"weight_offload": (True, False, True, False, True, False)}
