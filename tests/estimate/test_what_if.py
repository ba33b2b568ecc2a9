"""Executions on variants of a system: each row is the changed system alone."""

import importlib

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.estimate import what_if
from calculon.inputs import Changed
from tests.helpers import table_bits

MODEL, EXECUTION, SYSTEM = "llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm"
CHANGES = [
    {},
    {"mem1.GBps": 5000},
    {"mem1.GiB": 10},
    {"networks[0].size": 4, "matrix.bfloat16.tflops": 500},
    {"mem1.MB_efficiency[0][1]": 0.5},
    {"mem1.MB_efficiency[0][0]": 1000},
    {"ext.processing_mode": "no_overlap", "mem1.GBps": 3000},
    {"mem1.GBps": 5000, "ext.launch.kernel": 0},
]


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
    ("module", "name"),
    [("calculon.estimate.evaluate", "CHUNK_ROWS"), ("calculon.cost.block_tables", "BLOCK_ROWS")],
)
def test_the_size_of_chunks_does_not_show(module, name, monkeypatch):
    changes = [{"mem1.GBps": 3000 + i, "networks[0].latency": i * 1e-6} for i in range(8)]
    whole = table_bits(calculon.what_if(MODEL, EXECUTION, SYSTEM, changes))
    assert len({row.tobytes() for row in whole}) == len(changes)
    monkeypatch.setattr(importlib.import_module(module), name, 3)
    assert (table_bits(calculon.what_if(MODEL, EXECUTION, SYSTEM, changes)) == whole).all()


def test_machines_that_differ_only_in_terms_are_evaluated_together(monkeypatch):
    """However many there are: one evaluation of each way in which they are built."""
    columns = []

    def counted(model, plan, system):
        columns.append((system.variants, len(plan)))
        return evaluate(model, plan, system)

    evaluate = what_if.evaluate
    monkeypatch.setattr(what_if, "evaluate", counted)
    known = calculon.figures(SYSTEM)
    terms = [
        one for one in known.values() if not one.builds and one.problem(0.9 * one.value) is None
    ]
    changes = [{one.path: 0.9 * one.value} for one in terms if one.kind is float]
    calculon.what_if(MODEL, EXECUTION, SYSTEM, [*changes, {"networks[0].size": 4}])
    assert columns == [(len(changes), len(changes)), (0, 1)]
    assert len(changes) > 150


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


def test_figures_vary_where_no_execution_can_run():
    changes = [{"ext.ep_library.num_sms": n} for n in (20, 24)]
    rows = [inputs.execution(EXECUTION).to_dict() | {"num_procs": 7}] * 2
    assert [*calculon.what_if(MODEL, rows, SYSTEM, changes).reason] == ["degrees_product"] * 2


def test_figures_that_do_not_go_together_are_named_by_their_row():
    library = "ext.ep_library"
    changes = [{f"{library}.num_sms": n} for n in (20, 24, 132)]
    with pytest.raises(calculon.SpecError, match=r"^changes\[2\]: num_sms: expected less than"):
        calculon.what_if(MODEL, EXECUTION, SYSTEM, changes)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mem1.GBps": [1, 2]}, "changes: expected a list with a mapping for each row"),
        (3, "found 3"),
        ([{}, "mem1.GBps=3"], r"changes\[1\]: expected a mapping from paths to values"),
        ([{3: 4}], r"changes\[0\]"),
    ],
)
def test_changes_are_a_list_of_mappings(changes, text):
    with pytest.raises(calculon.SpecError, match=text):
        calculon.what_if(MODEL, EXECUTION, SYSTEM, changes)
