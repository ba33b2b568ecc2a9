"""Sweeps: every row is the estimate of its specs, in the order that was asked for."""

import re
from itertools import product

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.base.errors import SpecError
from calculon.inputs import Changed
from calculon.search.sweep.sweep_driver import sweep
from tests.draws import some

MODEL, SYSTEM, EXECUTION = "llama3-8B", "h100_80g_sxm", "llama3-8B_h100x64"


def alone(model, execution, system, changes):
    """Return statistics and reason of one combination, estimated by itself."""
    own = {kind: {} for kind in ("model", "execution", "system")}
    for path, value in changes.items():
        kind, inside = inputs.owner(path, tuple(own), "test")
        own[kind][inside] = value
    specs = {"model": model, "execution": execution, "system": system}
    changed = {kind: Changed.of(specs[kind], own[kind]) for kind in specs}
    whole = inputs.execution(changed["execution"])
    reason = calculon.evaluate(changed["model"], changed["system"], [whole]).reason[0]
    return (None, reason) if reason else (calculon.estimate(**changed).stats, "")


def check(swept, models, systems, executions, values):
    """Assert that there is a row for each combination, and that those of a sample are as each is alone."""
    combinations = list(product(models, systems, executions, *values.values()))
    assert len(swept) == len(combinations)
    for row, (model, system, execution, *own) in some(enumerate(combinations), 5):
        changes = dict(zip(values, own, strict=True))
        stats, reason = alone(model, execution, system, changes)
        assert swept["reason"][row] == reason, changes
        for path, value in changes.items():
            assert swept[path][row] == value
        for name in swept.stats:
            expected = np.nan if stats is None or stats[name] is None else stats[name]
            assert swept[name][row] == pytest.approx(expected, rel=1e-12, nan_ok=True), name


def test_every_row_is_the_estimate_of_its_specs():
    values = {
        "model.seq_size": [2048, 8192],
        "microbatch_size": [3, 4],
        "system.mem1.GBps": [1000.0, 3350.0],
        "networks[0].bandwidth": [100.0],
    }
    models, systems = [MODEL, "llama2-7B"], ["a100_80g_sxm", SYSTEM]
    executions = [EXECUTION]
    swept = sweep(models, systems, executions, set=values)
    check(swept, models, systems, executions, values)
    assert 0 < swept.feasible.sum() < len(swept)
    assert swept.axes == ("model", "system", *list(values)[:3])
    assert swept["model"].tolist()[:: len(swept) // 2] == models


def test_what_a_preset_fills_in_follows_what_is_changed():
    """Degrees and framework change what is left out: each row as the file would be completed."""
    stated = {"num_procs": 64, "tensor_par": 2, "pipeline_par": 1, "microbatch_size": 1}
    stated |= {"batch_size": 512, "datatype": "bfloat16", "edition": "corrected"}
    values = {"preset": ["megatron-lm", "torchtitan"], "tensor_par": [1, 8], "pipeline_par": [1, 4]}
    check(sweep(MODEL, SYSTEM, stated, set=values), [MODEL], [SYSTEM], [stated], values)


def test_specs_of_two_kinds_go_together():
    paths = ("execution.tensor_par", "data_par", "system.mem1.GBps", "model.seq_size")
    rows = [(2, 32, 2000.0, 4096), (4, 16, 3000.0, 2048)]
    swept = sweep(MODEL, SYSTEM, EXECUTION, set={paths: rows, "mem1.GiB": [80]})
    assert len(swept) == len(rows)
    for row, values in enumerate(rows):
        stats, _ = alone(MODEL, EXECUTION, SYSTEM, dict(zip(paths, values, strict=True)))
        assert swept["total_time"][row] == pytest.approx(stats["total_time"], rel=1e-12)


def test_words_of_questions_are_fields():
    words = {"seq": ["4k", 2048], "batch": [64, 128], "dtype": ["bf16", "fp8"]}
    fields = {
        "seq_length": [4096, 2048],
        "batch_size": [64, 128],
        ("datatype", "fp8_recipe"): [("bfloat16", "none"), ("bfloat16", "delayed")],
    }
    plan = "tp=2 dp=4 preset=megatron-lm"
    worded, stated = (sweep(MODEL, plan, SYSTEM, set=one) for one in (words, fields))
    assert worded.feasible.any()
    assert worded.to_frame().equals(stated.to_frame())


def test_executions_come_in_any_form():
    estimate = calculon.estimate(MODEL, EXECUTION, SYSTEM)
    found = calculon.search(
        MODEL, SYSTEM, 8, 64, "bfloat16", top=3, preset="megatron-lm", fix={"tensor_par": 2}
    )
    forms = {
        "name": EXECUTION,
        "record": estimate.execution,
        "estimate": estimate,
        "fields": estimate.execution.to_dict(),
        "table": calculon.Plan.of(estimate.execution),
        "frame": calculon.Plan.of(estimate.execution).to_frame(),
        "row": calculon.Plan.of(estimate.execution).to_frame().iloc[0],
    }
    for form, plans in forms.items():
        swept = sweep(MODEL, SYSTEM, plans, set={"microbatch_size": [2, 1]})
        assert swept["total_time"][0] == estimate.stats["total_time"], form
        assert swept["total_time"][1] != swept["total_time"][0], form
    several = sweep(estimate.model, estimate.system, [EXECUTION, estimate, estimate.execution])
    assert several["execution"].tolist() == [EXECUTION, EXECUTION, "2"]
    assert len(set(several["total_time"].tolist())) == 1
    winners = sweep(MODEL, SYSTEM, found)
    assert winners["total_time"].tolist() == found.evaluation["total_time"].tolist()
    assert winners["execution"].tolist() == ["0", "1", "2"]


def test_an_edition_and_a_preset_are_for_all_rows():
    one = "3072_t4_p64_d12_mbs4_full"
    swept = sweep(
        "megatron-1T", "a100_80g", one, edition="corrected", set={"microbatch_size": [1, 2]}
    )
    assert set(swept.evaluation.plan.values("edition")) == {"corrected"}
    assert "mfu" in swept.stats
    framed = sweep(MODEL, SYSTEM, EXECUTION, preset="torchtitan")
    expected = calculon.estimate(MODEL, EXECUTION, SYSTEM, preset="torchtitan").stats["total_time"]
    assert framed["total_time"][0] == expected


def test_a_frame_has_what_was_asked_and_what_differs():
    swept = sweep(
        MODEL, SYSTEM, EXECUTION, set={"microbatch_size": [1, 3]}, stats=["total_time", "mfu"]
    )
    frame = swept.to_frame()
    assert frame.columns.tolist() == [
        "model",
        "system",
        "execution",
        "microbatch_size",
        "reason",
        "total_time",
        "mfu",
    ]
    assert frame["microbatch_size"].dtype.kind == "i"
    found = calculon.search("megatron-126M", "a100_80g", 8, 8, top=4)
    fields = sweep("megatron-126M", "a100_80g", found).fields
    plan = found.plan
    assert set(fields) == {name for name in plan.names if len(set(plan.values(name).tolist())) > 1}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"sytem.mem1.GBps": [1]}, "did you mean 'system'"),
        ({"system.mem1.GBp": [1]}, "did you mean 'GBps'"),
        ({"execution.tensor_pa": [1]}, "did you mean 'tensor_par'"),
        ({"seq_siz": [1]}, "did you mean 'seq_size'"),
        ({"mem1.GBps": [-1, 3]}, "mem1.GBps: expected a number above 0"),
        ({"system.processing_mode": ["foo"]}, "one of roofline, no_overlap"),
        ({"hidden": ["a"]}, "hidden"),
        ({"mem1.GBps": []}, "expected values to try"),
        ({"batch": ["4M"]}, "state it in sequences"),
        ({"procs": ["8-16"]}, "expected one number of processors"),
        ({"seq": 4096, "seq_length": 2048}, "one list of values for each path"),
        ({("tensor_par", "data_par"): [1, 2]}, "2 values at a time"),
        ({"tensor_par": 1, "execution.tensor_par": 2}, "one list of values for each path"),
        ({3: [1]}, "a path such as"),
        (5, "values by path"),
        ({"mem1.GBps": range(1, 10**4), "mem1.GiB": range(1, 10**4)}, "at most 20,000,000 rows"),
    ],
)
def test_what_is_no_change_says_why(values, said):
    with pytest.raises(SpecError, match=re.escape(said)):
        sweep(MODEL, SYSTEM, EXECUTION, set=values)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("llama3-8", SYSTEM, EXECUTION), "llama3-8"),
        ((MODEL, SYSTEM, "nope"), "nope"),
        ((MODEL, SYSTEM, []), "an empty list"),
        (([], SYSTEM, EXECUTION), "an empty list"),
        ((MODEL, 5, EXECUTION), "system"),
        (
            (MODEL, SYSTEM, {"tensor_parr": 2, "preset": "megatron-lm", "num_procs": 8}),
            "did you mean 'tensor_par'",
        ),
    ],
)
def test_what_is_not_there_says_what_is(arguments, said):
    with pytest.raises(SpecError, match=re.escape(said)):
        sweep(*arguments)


def test_unknown_columns_and_statistics_name_the_nearest():
    swept = sweep(MODEL, SYSTEM, EXECUTION)
    with pytest.raises(KeyError, match="did you mean 'total_time'"):
        swept["total_tim"]
    with pytest.raises(SpecError, match="did you mean 'total_time'"):
        sweep(MODEL, SYSTEM, EXECUTION, stats="total_tim")
    with pytest.raises(SpecError, match="its edition does not have"):
        sweep("megatron-1T", "a100_80g", "3072_t4_p64_d12_mbs4_full", stats="mfu")
