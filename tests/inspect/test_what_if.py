"""Executions on variants of a system: each row is the changed system alone."""

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.inputs import Changed
from tests.helpers import table_bits

MODEL, EXECUTION, SYSTEM = "llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm"
CHANGES = [
    {},
    {"mem1.GBps": 5000},
    {"mem1.GiB": 10},
    {"networks[0].size": 4, "matrix.bfloat16.tflops": 500},
    {"mem1.MB_efficiency[0][1]": 0.5},
]


def test_each_row_is_the_changed_system():
    found = calculon.what_if(MODEL, EXECUTION, SYSTEM, CHANGES)
    for i, change in enumerate(CHANGES):
        system = Changed.of(SYSTEM, change)
        alone = calculon.evaluate(MODEL, system, inputs.execution(EXECUTION))
        assert found.reason[i] == alone.reason[0]
        assert (table_bits(found)[i] == table_bits(alone)[0]).all()
    assert list(found.reason) == ["", "", "mem1_capacity", "", ""]


def test_records_and_changed_systems_are_changed_further():
    source = Changed.of(SYSTEM, {"mem1.GBps": 3000})
    of_source = calculon.what_if(MODEL, EXECUTION, source, CHANGES)
    of_record = calculon.what_if(MODEL, EXECUTION, inputs.system(source), CHANGES)
    assert (table_bits(of_source) == table_bits(of_record)).all()
    plain = calculon.what_if(MODEL, EXECUTION, SYSTEM, [{"mem1.GBps": 3000}])
    assert of_source["total_time"][0] == plain["total_time"][0]


def test_a_table_has_an_execution_for_each_row():
    execution = inputs.execution(EXECUTION)
    plan = calculon.Plan.from_records(
        [execution, inputs.execution(EXECUTION, changes={"tensor_par": 2})]
    )
    found = calculon.what_if(MODEL, plan, SYSTEM, [{}, {"mem1.GBps": 5000}])
    assert found.plan.values("tensor_par").tolist() == plan.values("tensor_par").tolist()
    with pytest.raises(calculon.SpecError, match="one for each of the 3 changes, found 2"):
        calculon.what_if(MODEL, plan, SYSTEM, [{}] * 3)
    assert len(calculon.what_if(MODEL, EXECUTION, SYSTEM, [])) == 0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"mem1.GBp": 1}, "mem1.GBp: .*did you mean 'GBps'"),
        ({"mem1.GBps": -1}, r"changes\[1\]: mem1.GBps: expected a number above 0 .*found -1"),
        ({"mem1.GBps": np.nan}, "a finite number is needed"),
        ({"mem1.MB_efficiency[0][1]": 5.0}, "of at most 1, found 5.0"),
    ],
)
def test_what_cannot_be_is_named(change, text):
    with pytest.raises(calculon.SpecError, match=text):
        calculon.what_if(MODEL, EXECUTION, SYSTEM, [{}, change])


def test_figures_that_do_not_go_together_are_named_by_their_row():
    library = "ext.ep_library"
    changes = [{f"{library}.num_sms": n} for n in (20, 24, 132)]
    with pytest.raises(calculon.SpecError, match=r"^changes\[2\]: num_sms: expected less than"):
        calculon.what_if(MODEL, EXECUTION, SYSTEM, changes)
