"""Row i of a table equals that row alone, bit for bit, whatever stands around it."""

import importlib

import numpy as np
import pytest
from hypothesis import given, settings

import calculon
from tests.draws import draws
from tests.helpers import bits, document, table_bits
from tests.strategies import tables


@settings(max_examples=draws(8))
@given(table=tables())
def test_rows_of_a_mixed_table_equal_the_rows_alone(table):
    model, system, rows = table
    model, system = calculon.inputs.model(model), calculon.inputs.system(system)
    many = calculon.evaluate(model, system, calculon.Plan.from_records(rows))
    found = table_bits(many)
    for i, row in enumerate(rows):
        one = calculon.evaluate(model, system, calculon.Plan.from_records([row]))
        assert many.reason[i] == one.reason[0]
        assert (found[i] == table_bits(one)[0]).all()
        if many.feasible[i]:
            assert (found[i] == bits(calculon.estimate(model, row, system).stats)).all()


@pytest.mark.parametrize(
    ("module", "name"),
    [("calculon.evaluate", "CHUNK_ROWS"), ("calculon.cost.block_tables", "BLOCK_ROWS")],
    ids=["rows of the batch formulas", "blocks of a layer table"],
)
def test_the_size_of_chunks_does_not_show(module, name, monkeypatch):
    row = document("examples", "3072_t4_p64_d12_mbs4_full") | {"batch_size": 12 * 64}
    rows = [row | {"microbatch_size": size} for size in (1, 2, 4, 8, 16, 32, 64)]
    plan = calculon.Plan.from_records(rows)
    whole = table_bits(calculon.evaluate("megatron-1T", "a100_80e", plan))
    assert np.isfinite(whole.view(float)).all()
    monkeypatch.setattr(importlib.import_module(module), name, 3)
    assert (table_bits(calculon.evaluate("megatron-1T", "a100_80e", plan)) == whole).all()


def test_an_empty_table_has_no_rows():
    result = calculon.evaluate("megatron-1T", "a100_80g", calculon.Plan.from_records([]))
    assert len(result) == 0
    assert len(result["total_time"]) == 0
