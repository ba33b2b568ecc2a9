"""Rows become executions, executions become errors."""

import dataclasses
import json

import pytest

import calculon
from calculon.base.errors import SpecError
from calculon.validate.measured_and_predicted import compare
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


def test_memory_of_the_last_stage(library, content):
    """Its ranks log in Megatron-LM, and hold fewer microbatches than those of the first, the fullest here."""
    content["execution"] |= {
        "tensor_par": 4,
        "pipeline_par": 2,
        "data_par": 1,
        "microbatch_size": 1,
    }
    memory = {"name": "memory", "measured": "gigabytes", "unit": "GB", "bound": 100}
    last = {"name": "state", "estimate": "weight_space + optimizer_space", "stage": "last"}
    content["quantities"] = [
        memory | {"estimate": "proc_mem_tier1_cap_req"},
        memory | {"name": "last", "estimate": "proc_mem_tier1_cap_req", "stage": "last"},
        memory | last,
    ]
    place = library(content)
    (study,) = place.studies()
    found = compare(study, place, "corrected").own
    (case, _) = found.prediction.cases
    execution = case.execution | {"edition": "corrected"}
    first, end = calculon.estimate(case.model, execution, case.system).stages
    of_stages = [one["proc_mem_tier1_cap_req"] for one in (first, end)]
    state = end["weight_space"] + end["optimizer_space"]
    expected = [max(of_stages), of_stages[1], state]
    assert of_stages[0] > of_stages[1]
    assert [one.estimated[0] * 1e9 for one in found.comparisons] == pytest.approx(expected)


def test_rows_may_be_excluded_under_one_edition(result, content):
    content["exclude"] = [{"when": "mode == 'none'", "reason": "not known", "edition": "sc23"}]
    old, new = (result(content, edition=name) for name in ("sc23", "corrected"))
    assert (old.total, len(old.rows), old.excluded) == (2, 1, {"not known": 1})
    assert (len(new.rows), new.excluded) == (2, {})


def test_a_study_whose_rows_are_all_excluded_waits(result, content):
    content["exclude"] = [{"when": "tp == 8", "reason": "not yet"}]
    content["alternatives"] = [{"name": "x", "why": "y", "derive": {"z": "tp"}}]
    found = result(content)
    (one,) = found.own.comparisons
    assert (found.rows, found.excluded, one.score) == ((), {"not yet": 2}, None)
    assert found.passes


def test_a_measured_value_may_be_derived(result, content):
    content["quantities"][0]["measured"] = "whole"
    content["derive"] = {"whole": "2 * seconds"}
    (one,) = result(content).own.comparisons
    assert one.measured.tolist() == [2 * 1.42, 2 * 1.9]


MODERN = {
    "hidden": 6144, "feedforward": 24576, "seq_size": 2048, "attn_heads": 64, "attn_size": 96,
    "num_blocks": 48,
}  # fmt: skip
OPTIONAL = {"kv_heads": "tp", "vocab": 51200}


def test_an_edition_sees_the_fields_that_it_knows(result, content):
    """The catalog's megatron-22B has this shape: edition sc23 must not see more of it."""
    content["model"] = MODERN | OPTIONAL
    content["execution"]["attn_impl"] = "flash"
    published, corrected = (
        result(content, edition=edition).own.comparisons[0] for edition in ("sc23", "corrected")
    )
    assert published.estimated[0] == _estimate()["total_time"]
    model = MODERN | OPTIONAL | {"kv_heads": 8}
    fields = EXECUTION | FULL | {"attn_impl": "flash"}
    expected = calculon.estimate(model, fields, "a100_80g", edition="corrected").stats
    assert corrected.estimated[0] == expected["total_time"]


def test_an_alternative_that_an_edition_cannot_tell_apart_is_left_out(result, content):
    content["alternatives"] = [
        {"name": "vocabulary", "why": "a", "model": {"vocab": 51200}},
        {"name": "kernel", "why": "b", "execution": {"attn_impl": "flash"}},
        {"name": "half", "why": "c", "execution": {"batch_size": 4, "attn_impl": "flash"}},
    ]
    names = {
        edition: [one.name for one in result(content, edition=edition).alternatives]
        for edition in ("sc23", "corrected")
    }
    assert names == {"sc23": ["half"], "corrected": ["vocabulary", "kernel", "half"]}


def _alternative(**changes):
    return {"name": "other", "why": "to see", **changes}


def test_an_alternative_that_changes_no_row_is_an_error(result, content):
    idle = {"override": {"networks[1].bandwidth": 1}, "execution": {"grad_flat": False}}
    content["alternatives"] = [
        _alternative(**idle),
        _alternative(execution={"attn_impl": "flash"}),
        {"name": "no such heads", "why": "to see", "model": {"attn_heads": 12}},
    ]
    found = result(content, edition="corrected")
    with pytest.raises(SpecError) as caught:
        _ = found.alternatives
    idle, unrunnable = caught.value.problems
    assert caught.value.file.endswith("small/study.yaml")
    assert str(idle) == (
        "alternatives.other: expected a row that changes with override.networks[1].bandwidth, "
        "execution.grad_flat, found the study's own value in every row"
    )
    assert unrunnable.field == "alternatives.no such heads"
    assert unrunnable.found == "none (attn_heads_split)"


def test_an_alternative_that_changes_one_of_its_rows_is_none(result, content):
    content["alternatives"] = [
        _alternative(execution={"activation_recompute": "'full' if tp == 4 else mode"}),
        _alternative(execution={"activation_recompute": "full"}),
    ]
    with pytest.raises(SpecError) as caught:
        _ = result(content, edition="corrected").alternatives
    assert [one.field for one in caught.value.problems] == ["alternatives.other"]
    assert len(result(content).alternatives) == 2  # edition sc23 may know nothing of a change


PRESET = {
    "preset": "megatron-lm", "num_procs": "gpus", "tensor_par": "tp", "pipeline_par": 1, "batch_size": "batch",
    "microbatch_size": 4, "activation_recompute": "mode", "data_par_net": 1, "pipeline_par_net": 1,
}  # fmt: skip


def test_choices_agree_with_what_a_preset_fills_in(result, content):
    content |= {
        "execution": PRESET,
        "choices": {"grad_dtype, zero_stage": "4 bytes; no replicas", "rows": "all"},
        "chosen": {"grad_dtype": "float32", "zero_stage": "'1' if gpus > tp else '0'"},
    }
    for edition in ("sc23", "corrected"):
        assert len(result(content, edition=edition).rows) == 2
        with pytest.raises(
            SpecError, match=r"chosen\.grad_dtype: expected float32, .*found bfloat16"
        ):
            result(
                content | {"chosen": content["chosen"] | {"grad_dtype": "bfloat16"}},
                edition=edition,
            )


def test_an_alternative_need_not_be_what_the_framework_of_the_preset_runs(result, content):
    content |= {"system": "a100_80g_sxm", "execution": PRESET}
    content["alternatives"] = [_alternative(execution={"optimizer_impl": "loop"})]
    found = result(content, edition="corrected")
    (other,) = found.alternatives
    assert other.unrepresented == {}
    assert (other.comparisons[0].estimated > found.own.comparisons[0].estimated).all()


def test_each_edition_has_its_bound(result, content):
    content["exclude"] = [{"when": "mode == 'none'", "reason": "a warm-up"}]
    errors = {
        edition: result(content, edition=edition).own.comparisons[0].score.mean
        for edition in ("sc23", "corrected")
    }
    content["quantities"][0]["bound"] = {"sc23": errors["sc23"] * 1.1, "corrected": 1e-3}
    assert result(content).passes
    found = result(content, edition="corrected")
    assert not found.passes
    assert (found.edition, found.own.comparisons[0].bound) == ("corrected", 1e-3)


def test_a_study_that_compares_nothing_does_not_pass(result, content):
    table = "id,gpus,tp,batch,mode,seconds\nb,3,3,4,full,1.9\n"
    found = result(content, table)
    assert not found.passes
    assert found.own.comparisons[0].worst() == []


def test_a_figure_of_a_run_is_its_steps_times_their_time(result, content):
    content["quantities"][0] |= {"unit": "h", "times": "3 * gpus"}
    found = result(content)
    (one,) = found.own.comparisons
    assert one.estimated[0] == pytest.approx(_estimate()["total_time"] * 3 * 8 / 3600)
    assert (one.quantity.is_step, one.quantity.is_run) == (False, True)
    assert found.steps is None


def test_parts_of_a_run_add_up_to_what_one_of_them_has_measured(result, content):
    content["quantities"][0] |= {"times": "batch", "parts_of": ["run"]}
    table = (
        "id,run,gpus,tp,batch,mode,seconds\na,x,8,8,4,full,\nb,x,8,8,8,full,9\nc,y,8,8,4,full,9\n"
    )
    (one,) = result(content, table).own.comparisons
    small, large = (_estimate(batch_size=n)["total_time"] * n for n in (4, 8))
    assert [row.label for row in one.rows] == ["b", "c"]
    assert one.estimated == pytest.approx([small + large, small])


def test_parts_are_of_a_column_that_is_there(result, content):
    content["quantities"][0] |= {"parts_of": ["ran"]}
    with pytest.raises(SpecError, match="no column ran"):
        result(content)
