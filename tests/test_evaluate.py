import numpy as np
import pandas as pd
import pytest

import calculon
from tests.helpers import NAMES, document

RAW = document("examples", "3072_t4_p64_d12_mbs4_full")
ROWS = [RAW, RAW | {"pipeline_interleaving": 5}, RAW | {"num_procs": 5}, RAW | {"training": None}]
REASONS = ["", "interleaving_size", "degrees_product", "invalid_training"]


@pytest.fixture(scope="module")
def result():
    """A table with a feasible row and three that are not."""
    return calculon.evaluate("megatron-1T", "a100_80g", calculon.Plan.from_records(ROWS))


def test_rows_that_cannot_run_have_a_reason_and_no_numbers(result):
    assert result.reason.tolist() == REASONS
    assert result.feasible.tolist() == [True, False, False, False]
    for name in result.names:
        assert np.isnan(result[name][1:]).all()
        assert result[name].dtype == float


def test_columns_have_the_published_names_and_order(result):
    assert result.names == NAMES
    assert len(result) == 4
    for name, hint in (
        ("bubble", "bubble_time"),
        ("?", "names lists"),
        ("total_tim", "'total_time'"),
        (0, "take"),
    ):
        with pytest.raises(KeyError, match=hint):
            result[name]


def test_a_column_is_a_statistic_a_field_or_the_reason(result):
    assert result.column("reason").tolist() == REASONS
    assert result.column("activation_recompute")[0] == "full"
    np.testing.assert_array_equal(result.column("total_time"), result["total_time"])
    with pytest.raises(KeyError, match=r"column\('tensor_par'\)"):
        result["tensor_par"]
    with pytest.raises(KeyError, match="did you mean 'tensor_par'"):
        result.column("tensor_pa")


def test_a_frame_has_time_and_memory_then_executions_reason_and_statistics(result):
    frame = result.to_frame()
    first = ["total_time", "proc_mem_tier1_cap_req"]
    others = [name for name in NAMES if name not in first]
    assert list(frame.columns) == [*first, *RAW, "reason", *others]
    assert frame["reason"].tolist() == REASONS
    assert frame.loc[0, list(RAW)].to_dict() == RAW
    pd.testing.assert_series_equal(
        frame["total_time"], pd.Series(result["total_time"], name="total_time")
    )


def test_it_reads_as_how_many_of_how_many(result):
    assert repr(result) == "<Evaluation of 4 executions, 1 feasible>"


@pytest.mark.parametrize(
    ("model", "system"),
    [("megatron", "a100_80g"), ("megatron-1T", {"mem1": 1})],
    ids=["model", "system"],
)
def test_a_malformed_model_or_system_is_raised_even_for_no_rows(model, system):
    with pytest.raises(calculon.SpecError):
        calculon.evaluate(model, system, calculon.Plan.from_records([]))


def test_asking_does_not_change_the_plan():
    plan = calculon.Plan.from_records(ROWS)
    before = plan.malformed.copy(), plan.to_frame()
    calculon.evaluate("megatron-1T", "a100_80g", plan)
    assert (plan.malformed == before[0]).all()
    pd.testing.assert_frame_equal(plan.to_frame(), before[1])


def test_a_frame_that_joins_editions_has_blanks_for_defaults():
    published = pd.DataFrame([RAW])
    new = {
        "edition": "corrected",
        "preset": "published",
        "attn_impl": "flash",
        "latency_per_step": True,
    }
    mixed = pd.concat([published, pd.DataFrame([RAW | new])], ignore_index=True)
    table = calculon.evaluate("megatron-1T", "a100_80e", mixed)
    assert table.feasible.all()
    alone = [calculon.estimate("megatron-1T", row, "a100_80e").stats for row in (RAW, RAW | new)]
    assert table["total_time"].tolist() == [stats["total_time"] for stats in alone]
    rows = [row for _, row in mixed.iterrows()]
    again = calculon.evaluate("megatron-1T", "a100_80e", rows)
    assert (again["total_time"] == table["total_time"]).all()
    assert calculon.estimate("megatron-1T", rows[0], "a100_80e").edition == "sc23"
