"""Tables of executions in any form."""

import numpy as np
import pandas as pd
import pytest

import calculon
from calculon.declarations.execution import Execution
from calculon.plan.plan import PUBLISHED_NAMES, as_plan
from tests.cases import for_each
from tests.helpers import document

RAW = document("examples", "3072_t4_p64_d12_mbs4_full")
FRAME = pd.DataFrame([RAW, RAW]).assign(total_time=1.0)
FORMS = {
    "a table": lambda: calculon.Plan.from_records([RAW, RAW]),
    "a frame": lambda: FRAME,
    "mappings": lambda: [RAW, RAW],
    "records": lambda: (Execution(**RAW), Execution(**RAW)),
    "a generator": lambda: (row for row in (RAW, RAW)),
    "rows of a frame": lambda: [FRAME.iloc[0], FRAME.iloc[1]],
    "columns": lambda: {name: [value, value] for name, value in RAW.items()},
}
ONE = {"a record": Execution(**RAW), "a mapping": RAW, "a row": FRAME.iloc[0]}


def _rows(plan):
    return [plan.row(i).to_dict() for i in range(len(plan))]


def test_a_table_has_several_forms_and_one_execution_or_none_is_a_table_too():
    found = {name: _rows(as_plan(form())) for name, form in FORMS.items()}
    assert found == {name: [RAW, RAW] for name in FORMS}
    assert {name: _rows(as_plan(one)) for name, one in ONE.items()} == {name: [RAW] for name in ONE}
    assert len(as_plan([])) == 0


@pytest.mark.parametrize("other", [None, 3, [3], [None], np.zeros((2, 2))], ids=repr)
def test_anything_else_is_refused_with_what_is_accepted(other):
    with pytest.raises(calculon.SpecError, match=r"^plan: expected a Plan, a DataFrame, a list of"):
        calculon.evaluate("megatron-1T", "a100_80g", other)


def test_a_result_is_told_to_pass_its_plan():
    result = calculon.evaluate("megatron-1T", "a100_80g", FRAME)
    with pytest.raises(calculon.SpecError, match="Hint: pass its plan"):
        calculon.evaluate("megatron-1T", "a100_80g", result)


@pytest.mark.parametrize("form", ["from_frame", "from_columns"])
def test_makers_refuse_other_forms(form):
    with pytest.raises(calculon.SpecError, match=r"^plan: expected a "):
        getattr(calculon.Plan, form)([3])


def test_a_row_that_is_no_mapping_is_named():
    with pytest.raises(calculon.SpecError, match=r"^row 1: expected an object"):
        calculon.Plan.from_records([RAW, 3])


def test_tables_are_joined_even_when_there_are_none():
    assert len(calculon.Plan.concatenate([])) == 0
    plan = as_plan([RAW])
    assert len(calculon.Plan.concatenate(table for table in (plan, plan))) == 2
    for wrong in (plan, [plan, 3]):
        with pytest.raises(calculon.SpecError, match=r"^plans: expected"):
            calculon.Plan.concatenate(wrong)


WRONG_COLUMNS = {
    "micro_batch_size": "did you mean 'microbatch_size'?",
    "total_tim": "did you mean 'total_time'?",
    "mem1.GBps": "mem1 belongs to the system, which is a separate argument",
    "hidden": "hidden belongs to the model, which is a separate argument",
    "color": "leave it out unless it is part of an execution",
}


@for_each(("column", "hint"), WRONG_COLUMNS.items())
def test_a_frame_has_no_unknown_columns(column, hint):
    frame = FRAME.assign(**{column: 8})
    calls = {
        "plan": lambda: calculon.evaluate("megatron-1T", "a100_80g", frame),
        "row 1": lambda: calculon.evaluate(
            "megatron-1T", "a100_80g", [FRAME.iloc[0], frame.iloc[1]]
        ),
        "execution": lambda: calculon.estimate("megatron-1T", frame.iloc[0], "a100_80g"),
    }
    for place, call in calls.items():
        with pytest.raises(calculon.SpecError) as error:
            call()
        assert (error.value.file, error.value.field) == (place, column)
        assert error.value.found == "an unknown column"
        assert error.value.hint == hint


def test_every_unknown_column_is_named_and_a_misspelled_one_before_it_is_missed():
    frame = FRAME.rename(columns={"microbatch_size": "micro_batch_size"}).assign(color="red")
    with pytest.raises(calculon.SpecError) as error:
        calculon.Plan.from_frame(frame)
    assert [p.field for p in error.value.problems] == ["micro_batch_size", "color"]


def test_mappings_have_no_unknown_fields_either():
    raw = RAW | {"micro_batch_size": 8}
    for form in (raw, {name: [value] for name, value in raw.items()}, [raw]):
        with pytest.raises(calculon.SpecError, match=r"micro_batch_size: .*'microbatch_size'\?"):
            calculon.evaluate("megatron-1T", "a100_80g", form)


def test_labels_of_rows_are_no_columns_of_their_own(tmp_path):
    found = calculon.evaluate("megatron-1T", "a100_80g", FRAME).to_frame()
    found.to_csv(tmp_path / "found.csv")
    for table in (pd.read_csv(tmp_path / "found.csv"), found.reset_index()):
        assert _rows(as_plan(table)) == [RAW, RAW]


def test_an_unknown_column_has_the_nearest_name():
    with pytest.raises(KeyError, match="did you mean 'tensor_par'"):
        as_plan(RAW).values("tensor_pa")
    assert set(PUBLISHED_NAMES) == set(RAW)
