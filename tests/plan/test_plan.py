import math
import pickle

import numpy as np
import pandas as pd
import pytest

import calculon
from calculon.declarations.execution import Execution
from calculon.plan.columns import FIELDS, type_of
from calculon.plan.plan import NAMES, PUBLISHED_NAMES
from tests.helpers import document

RAW = document("examples", "3072_t4_p64_d12_mbs4_full")
OTHER = RAW | {"tensor_par": 8, "data_par": 6, "training": False, "activation_recompute": "none"}
Plan = calculon.Plan


def _equal(one, two):
    return (
        all((getattr(one, name) == getattr(two, name)).all() for name in NAMES)
        and (one.malformed == two.malformed).all()
    )


COLUMNS = {name: [RAW[name], OTHER[name]] for name in PUBLISHED_NAMES}
FORMS = {
    "mappings": lambda: Plan.from_records([RAW, OTHER]),
    "records": lambda: Plan.from_records([Execution(**RAW), Execution(**OTHER)]),
    "a generator": lambda: Plan.from_records(row for row in (RAW, OTHER)),
    "lists": lambda: Plan.from_columns(COLUMNS),
    "arrays": lambda: Plan.from_columns({n: np.array(v) for n, v in COLUMNS.items()}),
    "small arrays": lambda: Plan.from_columns(
        COLUMNS | {"tensor_par": np.array([4, 8], np.uint8), "data_par": np.array([12.0, 6.0])}
    ),
    "single values": lambda: Plan.from_columns(
        {n: v[0] if v[0] == v[1] else v for n, v in COLUMNS.items()}
    ),
    "a frame": lambda: Plan.from_frame(pd.DataFrame([RAW, OTHER]).assign(total_time=1.0)),
    "its own frame": lambda: Plan.from_frame(Plan.from_records([RAW, OTHER]).to_frame()),
    "parts": lambda: Plan.concatenate([Plan.from_records([RAW]), Plan.of(Execution(**OTHER))]),
    "a selection": lambda: Plan.from_records([OTHER, RAW]).take([1, 0]),
    "a pickle": lambda: pickle.loads(pickle.dumps(Plan.from_records([RAW, OTHER]))),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_table_is_the_same_from(form):
    plan = form()
    assert len(plan) == 2
    assert (plan.malformed == -1).all()
    assert [plan.row(i) for i in range(2)] == [Execution(**RAW), Execution(**OTHER)]
    for field in FIELDS:
        assert getattr(plan, field.name).dtype == type_of(field.name)


def test_named_values_are_codes_inside_and_text_outside():
    plan = Plan.from_records([RAW, OTHER])
    assert plan.activation_recompute.tolist() == [0, 2]
    assert plan.values("activation_recompute").tolist() == ["full", "none"]
    assert plan.is_choice("activation_recompute", "full").tolist() == [True, False]
    frame = plan.to_frame()
    assert tuple(frame.columns) == PUBLISHED_NAMES
    assert frame.to_dict("records") == [RAW, OTHER]


IMPOSSIBLE = (
    ("num_procs", 0),
    ("tensor_par", -3),
    ("pipeline_par", 2.5),
    ("data_par", math.nan),
    ("batch_size", math.inf),
    ("batch_size", 2**31),
    ("batch_size", 10**400),
    ("microbatch_size", "4"),
    ("tensor_par_net", None),
    ("pipeline_interleaving", [1]),
    ("pipeline_par_net", True),
    ("datatype", "float64"),
    ("attention_type", 1),
    ("activation_recompute", None),
    ("training", 1),
    ("weight_offload", "true"),
    ("fused_activation", None),
)


def test_an_impossible_value_marks_its_row_and_no_other():
    fields = [field for field, _ in IMPOSSIBLE]
    rows = [RAW | {field: value} for field, value in IMPOSSIBLE]
    plan = Plan.from_records([RAW, *rows, RAW])
    assert plan.malformed.tolist() == [-1, *map(NAMES.index, fields), -1]
    assert plan.row(0) == plan.row(len(plan) - 1) == Execution(**RAW)
    result = calculon.evaluate("megatron-1T", "a100_80g", plan)
    assert result.reason.tolist() == ["", *(f"invalid_{field}" for field in fields), ""]
    assert np.isnan(result["total_time"]).tolist() == [False, *[True] * len(rows), False]
    for number, (field, row) in enumerate(zip(fields, rows, strict=True), 1):
        with pytest.raises(calculon.SpecError) as error:
            plan.row(number)
        assert (error.value.file, error.value.field) == (f"row {number}", field)
        assert _equal(Plan.from_records([row]), plan.take([number]))
        with pytest.raises(calculon.SpecError):
            calculon.estimate("megatron-1T", row, "a100_80g")


def test_the_first_impossible_field_of_a_row_counts():
    plan = Plan.from_records([RAW | {"training": None, "tensor_par": 0}])
    assert NAMES[plan.malformed[0]] == "tensor_par"


def test_records_have_exactly_the_published_fields():
    short = {name: value for name, value in RAW.items() if name != "training"}
    with pytest.raises(calculon.SpecError, match="row 1: training") as error:
        Plan.from_records([RAW, short])
    assert error.value.field == "training"
    with pytest.raises(calculon.SpecError, match="row 0: color"):
        Plan.from_records([RAW | {"color": "red"}])


@pytest.mark.parametrize(
    ("columns", "field", "hint"),
    [
        ({n: v for n, v in COLUMNS.items() if n != "data_par"}, "data_par", ""),
        (COLUMNS | {"tensor_parr": [1, 2]}, "tensor_parr", "did you mean 'tensor_par'?"),
        (COLUMNS | {"data_par": [1, 2, 3]}, "", ""),
        (COLUMNS | {"data_par": np.ones((2, 2))}, "", ""),
    ],
    ids=["missing column", "unknown column", "longer column", "table for a column"],
)
def test_columns_that_make_no_table_are_refused(columns, field, hint):
    with pytest.raises(calculon.SpecError) as error:
        Plan.from_columns(columns)
    assert (error.value.file, error.value.field, error.value.hint) == ("plan", field, hint)


def test_a_table_knows_its_size_and_its_columns():
    assert repr(Plan.from_records([RAW] * 1200)) == "<Plan of 1,200 executions>"
    assert len(Plan.from_records([])) == 0
    with pytest.raises(AttributeError, match="no column 'color'"):
        _ = Plan.from_records([RAW]).color
