"""Measurements of users: each row is an estimate, however its columns are named, and bad cells are named."""

import csv
import itertools

import numpy as np
import pytest

import calculon
from calculon import SpecError
from calculon.base.units import GIB
from calculon.validate.user_rows import FURTHER, TEMPLATE, compare_rows, evidence_of

ROW = {
    "id": "a", "model": "llama-3.1-8b", "system": "h100", "preset": "megatron-lm", "num_gpus": 64, "tp": 2, "pp": 1,
    "vp": 1, "gbs": 128, "mbs": 1, "precision": "bf16", "zero": 1, "recompute": "none",
    "iter_time_s": 4.0, "mem_bytes": 60e9,
}  # fmt: skip


@pytest.fixture
def compare(tmp_path):
    """Write rows with the columns of the first into a file; return their comparisons by quantity."""

    def run(*rows):
        file = tmp_path / "mine.csv"
        with file.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        return compare_rows(str(file))

    return run


def estimated(result):
    return {one.quantity.name: one.estimated for one in result.own.comparisons}


def renamed(row, **names):
    """Return a row with other names of its columns."""
    return {names.get(name, name): value for name, value in row.items()}


def test_a_row_is_estimated_as_its_execution(compare):
    draws = itertools.product((2, 4, 8), (1, 2), (64, 128), ("none", "full"))
    rows = [
        ROW | {"id": str(i), "tp": tp, "pp": pp, "gbs": gbs, "recompute": recompute}
        for i, (tp, pp, gbs, recompute) in enumerate(draws)
    ]
    found = estimated(compare(*rows))
    for i, row in enumerate(rows):
        execution = {
            "preset": "megatron-lm",
            "num_procs": 64,
            "tensor_par": row["tp"],
            "pipeline_par": row["pp"],
            "batch_size": row["gbs"],
            "microbatch_size": 1,
            "activation_recompute": row["recompute"],
        }
        stats = calculon.estimate("llama3-8B", execution, "h100_80g_sxm").stats
        assert found["time"][i] == pytest.approx(stats["total_time"])
        assert found["memory"][i] * GIB == pytest.approx(stats["proc_mem_tier1_cap_req"])


@pytest.mark.parametrize(
    "names",
    [
        {"num_gpus": "num_procs", "tp": "tensor_par", "pp": "pipeline_par", "vp": "vpp"},
        {"gbs": "batch_size", "mbs": "microbatch_size", "zero": "zero_stage", "id": "name"},
    ],
)
def test_a_column_may_have_any_name_of_its_field(compare, names):
    usual, other = (estimated(compare(one)) for one in (ROW, renamed(ROW, **names)))
    assert usual == other


def test_a_blank_cell_is_what_the_preset_says(compare):
    blank = ROW | dict.fromkeys(("preset", "vp", "precision", "zero", "recompute"), "")
    assert estimated(compare(blank)) == estimated(compare(ROW))


def test_columns_of_published_measurements_mean_what_they_say_there(compare):
    long = compare(ROW | {"seq": 16384, "seq_parallel": 0})
    (case,) = long.own.prediction.cases
    assert (case.execution["seq_length"], case.execution["tensor_par_comm_type"]) == (16384, "ar")


def test_a_rate_is_a_time(compare):
    tokens = 128 * 8192
    rates = {"tokens_per_s": tokens / 4.0, "tokens_per_s_per_gpu": tokens / 4.0 / 64}
    times = [ROW, *(renamed(ROW, iter_time_s=name) | {name: rate} for name, rate in rates.items())]
    for row in times:
        (measured,) = compare(row).steps.measured
        assert measured == pytest.approx(4.0)


def test_a_file_is_a_source_of_its_own(compare):
    result = compare(ROW)
    assert result.study.origin == "mine.csv"
    assert result.passes


def test_models_and_systems_may_lie_next_to_the_table(compare, tmp_path):
    for kind, name, file in (
        ("model", "llama3-8B", "m.json"),
        ("system", "h100_80g_sxm", "s.json"),
    ):
        text = calculon.declarations.catalog.names(kind)[name].read_text()
        (tmp_path / file).write_text(text)
    own = ROW | {"model": "m.json", "system": "s.json"}
    assert np.isfinite(estimated(compare(own))["time"]).all()
    assert estimated(compare(own)) == estimated(compare(ROW))


def test_a_row_that_cannot_run_is_skipped_with_the_rule(compare):
    result = compare(ROW, ROW | {"id": "b", "num_gpus": 60, "tp": 3, "gbs": 120})
    assert [one.label for one in result.steps.rows] == ["a"]
    ((row, reason),) = result.skipped
    assert row.label == "b"
    assert "tensor_par: expected a divisor" in reason


def test_a_file_of_which_no_row_can_run_has_no_bound_to_exceed(compare):
    result = compare(ROW | {"num_gpus": 60, "tp": 3, "gbs": 120})
    assert result.steps is None
    assert result.passes


def test_columns_of_the_help_are_known_and_suffice(compare):
    header = [*TEMPLATE.split(","), *FURTHER]
    stated = {name: ROW.get(name, "") for name in header}
    assert estimated(compare(stated)) == estimated(compare(ROW))


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"model": "llama-3.1-9b"}, "line 2, model", "did you mean llama3-8B"),
        ({"system": ""}, "line 2, system", "a blank cell"),
        ({"tp": "x"}, "line 2, tp", "a whole number of at least 1, found 'x'"),
        ({"gbs": ""}, "line 2, gbs", "nothing"),
        ({"zero": "7"}, "line 2, zero", "found '7'"),
        ({"preset": "megatron"}, "line 2, preset", "megatron-lm"),
        ({"precision": "bf61"}, "line 2, precision", "did you mean 'bf16'"),
        ({"iter_time_s": -1}, "line 2, iter_time_s", "a number above 0"),
        ({"iter_time_s": "", "mem_bytes": ""}, "line 2, iter_time_s", "a measured value"),
        ({"cpp": 1}, "column cpp", "did you mean 'pp'"),
        ({"tensor_par": 2}, "column tensor_par", "tp states it"),
    ],
)
def test_a_bad_cell_is_named(compare, change, field, words):
    with pytest.raises(SpecError) as caught:
        compare(ROW | change)
    assert caught.value.file.endswith("mine.csv")
    assert caught.value.field == field
    assert words in str(caught.value)


def test_steps_of_a_file_are_evidence_of_intervals(compare, tmp_path):
    compare(ROW, ROW | {"id": "b", "iter_time_s": 4.4})
    one = evidence_of(str(tmp_path / "mine.csv"))
    assert one.name == "mine.csv"
    assert [(step.label, step.measured) for step in one.steps] == [("a", 4.0), ("b", 4.4)]


@pytest.mark.parametrize(
    ("change", "words"),
    [({"iter_time_s": ""}, "no step time"), ({"tp": 3, "num_gpus": 60, "gbs": 120}, "a divisor")],
)
def test_a_file_without_a_step_is_no_evidence(compare, tmp_path, change, words):
    compare(ROW | change)
    with pytest.raises(SpecError, match=words):
        evidence_of(str(tmp_path / "mine.csv"))
