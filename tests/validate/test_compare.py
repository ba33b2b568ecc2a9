"""Rows become executions, executions become errors."""

import dataclasses
import json

import pytest

import calculon
from calculon.validate.compare import compare
from tests.validate.conftest import EXECUTION

FULL = {
    "num_procs": 8,
    "tensor_par": 8,
    "data_par": 1,
    "batch_size": 4,
    "activation_recompute": "full",
}


def _estimate(system="a100_80g", **changes):
    fields = EXECUTION | FULL | changes
    return calculon.estimate("megatron-22B", fields, system).stats


def test_a_row_is_estimated_as_the_execution_it_stands_for(result, content):
    (one,) = result(content).own.comparisons
    expected = [_estimate()["total_time"], None]
    assert one.estimated[0] == expected[0]
    assert one.errors[0] == pytest.approx(100 * (expected[0] / 1.42 - 1))
    assert [row.label for row in one.rows] == ["a", "b"]


def test_rows_that_the_model_thinks_too_large_are_compared_and_counted(result, content):
    found = result(content)
    assert found.own.too_large == 1  # without recomputation 48 blocks do not fit into 80 GiB
    assert found.own.comparisons[0].score.n == 2


def test_rows_that_the_model_cannot_represent_are_counted_by_reason(result, content):
    table = "id,gpus,tp,batch,mode,seconds\na,8,8,4,full,1.42\nb,3,3,4,full,1.9\n"
    found = result(content, table)
    assert found.own.unrepresented == {"network_filled": 1}
    assert [row.label for row in found.own.comparisons[0].rows] == ["a"]


def test_a_blank_measurement_is_not_compared(result, content):
    content["quantities"][0] |= {
        "measured": "gigabytes", "unit": "GB", "estimate": "proc_mem_tier1_cap_req"
    }  # fmt: skip
    (one,) = result(content).own.comparisons
    assert [row.label for row in one.rows] == ["a"]
    assert one.estimated[0] == _estimate()["proc_mem_tier1_cap_req"] / 1e9


def test_an_alternative_changes_only_what_it_says(result, content):
    content["alternatives"] = [
        {
            "name": "slow",
            "why": "to see",
            "override": {"networks[0].bandwidth": 30},
            "execution": {"activation_recompute": "none"},
            "model": {"num_blocks": 24},
        }
    ]
    found = result(content)
    (one,) = found.alternatives[0].comparisons
    model = dataclasses.replace(calculon.inputs.model("megatron-22B"), num_blocks=24)
    system = calculon.inputs.system("a100_80g")
    slow = dataclasses.replace(system.networks[0], bandwidth=30e9)
    system = dataclasses.replace(system, networks=(slow, system.networks[1]))
    fields = EXECUTION | FULL | {"activation_recompute": "none"}
    assert one.estimated[0] == calculon.estimate(model, fields, system).stats["total_time"]
    assert found.own.comparisons[0].estimated[0] == _estimate()["total_time"]


def test_derived_columns_and_files_of_the_study(library, content):
    content["derive"] = {"size": "batch / 4"}
    content["quantities"][0]["bound"] = 1000
    content["execution"] = "run.yaml"
    content["alternatives"] = [{"name": "x", "why": "y", "execution": {"batch_size": "4 * size"}}]
    execution = EXECUTION | FULL | {"batch_size": 8}
    place = library(content, **{"run.yaml": json.dumps(execution)})
    (study,) = place.studies()
    found = compare(study, place)
    times = [_estimate(batch_size=size)["total_time"] for size in (8, 4, 8)]
    assert found.own.comparisons[0].estimated.tolist() == [times[0]] * 2
    assert found.alternatives[0].comparisons[0].estimated.tolist() == times[1:]


def test_percent_of_another_row(result, content):
    content["quantities"][0] |= {
        "unit": "%", "estimate": "total_time", "relative_to": "mode == 'none'", "within": ["gpus"]
    }  # fmt: skip
    (one,) = result(content).own.comparisons
    assert one.estimated[1] == 100
    assert one.estimated[0] < 100


def test_excluded_rows_are_counted_by_reason(result, content):
    content["exclude"] = [{"when": "mode == 'none'", "reason": "a warm-up"}]
    found = result(content)
    assert (found.total, len(found.rows), found.excluded) == (2, 1, {"a warm-up": 1})


def test_a_mean_error_above_the_bound_does_not_pass(result, content):
    content["exclude"] = [{"when": "mode == 'none'", "reason": "a warm-up"}]
    assert result(content).passes
    content["quantities"][0]["bound"] = 1
    assert not result(content).passes


def test_a_study_that_compares_nothing_does_not_pass(result, content):
    table = "id,gpus,tp,batch,mode,seconds\nb,3,3,4,full,1.9\n"
    found = result(content, table)
    assert not found.passes
    assert found.own.comparisons[0].worst() == []
