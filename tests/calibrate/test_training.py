"""Steps that a system makes give its parameters back; what steps do not tell is refused."""

import csv
import dataclasses
import json
import math
from contextlib import nullcontext

import numpy as np
import pytest

import calculon
from calculon.base.errors import SpecError
from calculon.calibrate.fit import calibrate
from calculon.calibrate.fit_result import Measurements
from calculon.calibrate.logs import read_training
from calculon.calibrate.parts import quietly_decoded
from calculon.calibrate.readers import read_memory
from calculon.calibrate.training import Training, chosen, predicted
from tests.helpers import LLAMA_X64, document, refusal

BASE = "h100_80g_sxm"
EXECUTION = LLAMA_X64 | {
    "num_procs": 1,
    "tensor_par": 1,
    "data_par": 1,
    "batch_size": 16,
    "tensor_par_comm_type": "ar",
    "tensor_par_overlap": "none",
    "data_par_overlap": False,
    "optimizer_sharding": False,
    "grad_buffer": "sharded",
}
RUNS = [
    ("megatron-126M", EXECUTION | {"batch_size": batch, "microbatch_size": size})
    for batch in (16, 64)
    for size in (1, 2, 16, 8)
]
LONG_KERNELS = [("llama3.2-1B", run) for _, run in RUNS[:4]]
"""Steps whose kernels all take longer than their launches."""


def base():
    raw = document("systems", BASE)
    del raw["ext"]["kernels"], raw["ext"]["processing_mode"]
    return raw


def system(raw=None):
    return quietly_decoded(raw or base(), "test.json", BASE)


def changed(truth):
    raw = base()
    for factor in chosen(list(truth), system()):
        factor.change(raw, truth[factor.name])
    return raw


def logs(folder, runs=RUNS, seconds=None, made=None, **columns):
    """Write runs with times, those that a system gives them if none are stated, and read them."""
    header = ["model", "execution", "seconds", *columns]
    rows = []
    for i, (model, execution) in enumerate(runs):
        (folder / f"run{i}.json").write_text(json.dumps(execution))
        own = [values[i] for values in columns.values()]
        rows.append([model, f"run{i}.json", seconds[i] if seconds else 1.0, *own])

    def read():
        with (folder / "steps.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([header, *rows])
        return read_training({str(folder / "steps.csv"): "steps.csv"}, system())

    if seconds is None:
        steps = {step.row.place: step for step in read().steps.values()}
        times = predicted([steps[f"line {i + 2}"] for i in range(len(rows))], made or system())[0]
        for row, time in zip(rows, times.tolist(), strict=True):
            row[2] = repr(time)
    return read()


def fit(found, *names, hold_out=0.0, raw=None):
    return calibrate(
        raw or base(),
        "test.json",
        [],
        hold_out=hold_out,
        date="2026-01-02",
        name=BASE,
        training=Training(found, names),
    )


@pytest.mark.parametrize("hold_out", [pytest.param(0, marks=pytest.mark.large), 0.4])
def test_factors_and_launches_come_back(tmp_path, hold_out):
    truth = {"mem1": 0.8, "matrix": 0.9, "launch.kernel": 1.2e-5}
    steps = logs(tmp_path, made=system(changed(truth)), group="abcabdad")
    found = fit(steps, *truth, hold_out=hold_out)
    (record,) = found.document["calibration"]["fits"]
    assert record["parameters"] == pytest.approx(truth, rel=1e-4)
    assert (record["part"], record["rows"], record["files"]) == ("training", 8, ["steps.csv"])
    assert record["held_out_rows"] == (3 if hold_out else 0)  # two of the groups
    assert all(one["mape"] < 0.01 for one in found.residuals())
    wanted, new = system(changed(truth)), system(found.document)
    assert new.mem1.efficiency.efficiencies == pytest.approx(wanted.mem1.efficiency.efficiencies)
    assert new.ext.launch.kernel == pytest.approx(1.2e-5, rel=1e-4)
    assert found.document["vector"] == base()["vector"]


def test_the_time_without_kernels_and_the_vector_engine_come_back(tmp_path):
    truth = {"vector": 0.5, "launch.step": 0.02}
    model, run = RUNS[3]
    runs = [*RUNS[:3], (model, run | {"activation_recompute": "full"})]
    steps = logs(tmp_path, runs, made=system(changed(truth)), group="abbb")
    found = fit(steps, *truth)
    assert found.document["calibration"]["fits"][0]["parameters"] == pytest.approx(truth, rel=1e-4)


def test_efficiencies_end_at_one_and_stay_monotone(tmp_path):
    raw = changed({"mem1": 1.5, "matrix": 1.2, "networks[0]": 2.0})
    assert raw["networks"][0]["efficiency"] == 1
    values = [value for _, value in raw["mem1"]["MB_efficiency"]]
    assert values == [1, 1, pytest.approx(0.9), pytest.approx(0.45)]
    assert [value for _, value in raw["matrix"]["bfloat16"]["gflops_efficiency"]] == [
        pytest.approx(0.9636),
        pytest.approx(0.72),
        pytest.approx(0.12),
    ]


def test_one_slow_step_does_not_decide(tmp_path):
    found = logs(tmp_path, RUNS[:6], made=system(changed({"matrix": 0.9})), group="aaabbb")
    name = sorted(found.steps)[3]
    step = found.steps[name]
    slow = dataclasses.replace(step.row, seconds=2 * step.row.seconds)
    steps = dict(found.steps) | {name: dataclasses.replace(step, row=slow)}
    record = fit(dataclasses.replace(found, steps=steps), "matrix").document["calibration"]
    assert record["fits"][0]["parameters"]["matrix"] == pytest.approx(0.9, rel=0.05)


def test_steps_are_fitted_after_everything_else_and_their_residuals_give_the_interval(tmp_path):
    rng = np.random.default_rng(1)
    exact = logs(tmp_path, RUNS[:4], made=system(changed({"mem1": 0.8})))
    times = [step.row.seconds * math.exp(rng.normal(0, 0.05)) for step in exact.steps.values()]
    runs = [(step.model.name, step.execution.to_dict()) for step in exact.steps.values()]
    groups = [str(i) for i in range(len(runs))]
    found = fit(logs(tmp_path, runs, times, group=groups), "mem1", hold_out=0.3)
    (spread,) = found.document["calibration"]["fits"][0]["spreads"]
    assert spread["low"] < 1 < spread["high"]
    assert (spread["rows"], spread["groups"]) == (4, 4)
    assert spread["level"] == pytest.approx(3 / 5, abs=1e-3)
    assert [one.part for one in system(found.document).calibration.spreads] == ["training"]


def test_few_steps_say_nothing_of_new_ones(tmp_path):
    found = fit(logs(tmp_path, RUNS[:1]), "mem1")
    assert found.document["calibration"]["fits"][0]["spreads"] == []
    assert any("as many parameters as fitted steps" in note for note in found.notes)
    two = fit(logs(tmp_path, RUNS[:2]), "mem1")
    (spread,) = two.document["calibration"]["fits"][0]["spreads"]
    assert spread["level"] == pytest.approx(1 / 3, abs=1e-3)
    assert not any("as many parameters" in note for note in two.notes)


def test_peak_memory_is_compared_and_not_fitted(tmp_path):
    exact = list(logs(tmp_path, RUNS[:4]).steps.values())
    needed = predicted(exact, system())[1]
    runs = [(step.model.name, step.execution.to_dict()) for step in exact]
    memory = [repr(float(one / 1.25)) for one in needed]
    steps = logs(tmp_path, runs, memory_bytes=["", *memory[1:]], group="abbb")
    found = fit(steps, "mem1")
    record = found.residuals()[-1]
    assert record["rows"] == "peak memory, not fitted"
    assert (record["n"], record["mape"], record["bias"]) == (3, 25, 25)
    assert found.document["calibration"]["fits"][0]["residuals_percent"][-1]["mape"] == 25
    assert found.document["mem1"] == base()["mem1"]


def test_repeated_steps_are_averaged_and_one_name_is_one_run(tmp_path):
    runs = [RUNS[0], RUNS[0], RUNS[1]]
    found = logs(tmp_path, runs, [0.05, 0.07, 0.06], memory_bytes=["", 4e9, ""])
    assert "2 rows repeat 1 measurement and are averaged" in found.notes[0]
    assert [step.row.seconds for step in found.steps.values()] == [pytest.approx(0.06), 0.06]
    assert next(iter(found.steps.values())).memory == 4e9
    with pytest.raises(
        SpecError, match="a different name for each model and execution, found 'x' for two"
    ):
        logs(tmp_path, RUNS[:2], [0.05, 0.07], name=["x", "x"])


def test_a_later_fit_of_a_part_ends_what_was_said_of_steps(tmp_path):
    steps = logs(tmp_path, RUNS[:2])
    first = fit(steps, "mem1").document
    again = fit(steps, "matrix", raw=first)
    assert [one["part"] for one in again.document["calibration"]["fits"]] == ["training"]
    lines = [f"{2**i},{2**i / 2e12 + 1e-6}" for i in range(12, 30)]
    (tmp_path / "m.csv").write_text("\n".join(["bytes,seconds", *lines]))
    rows, _ = read_memory(str(tmp_path / "m.csv"), system())
    measured = [Measurements("m.csv", rows)]
    later = calibrate(first, "test.json", measured, hold_out=0, date="2026-01-02", name=BASE)
    assert [one["part"] for one in later.document["calibration"]["fits"]] == ["mem1"]
    assert "training: the record of the base is dropped" in later.notes[-1]


PUBLISHED = {key: value for key, value in EXECUTION.items() if key not in ("edition", "attn_impl")}


def test_what_steps_do_not_tell_is_refused(tmp_path):
    for runs, names, message in [
        (RUNS[:2], ["mem1", "matrix", "vector"], "at least 3 fitted steps, one for each parameter"),
        (RUNS[:4], ["networks[1]"], "not networks[1], found it changes no step time"),
        (
            [
                ("megatron-126M", PUBLISHED | {"ce_impl": "eager", "microbatch_size": size})
                for size in (1, 2)
            ],
            ["mem1", "launch.step"],
            "not launch.step, found edition sc23 ignores ext",
        ),
        (
            [(model, run | {"batch_size": size}) for model, run in RUNS[:1] for size in (16, 64)],
            ["matrix", "mem1"],
            "expected steps that separate matrix from mem1, found they change all times in",
        ),
        (
            RUNS[:4],
            ["mem"],
            "parameters of h100_80g_sxm: mem1, matrix, tensor_cores, vector, launch.",
        ),
        (RUNS[:4], ["mem1", "mem1"], "each parameter once, found mem1 twice"),
        (RUNS[:4], [""], "parameters of h100_80g_sxm"),
    ]:
        found = logs(tmp_path, runs)
        assert message in refusal(fit, found, *names), (runs, names)


def test_a_launch_that_steps_do_not_see_is_refused(tmp_path):
    with pytest.raises(SpecError, match=r"steps that determine launch\.kernel"):
        fit(logs(tmp_path, LONG_KERNELS), "matrix", "launch.kernel")


@pytest.mark.parametrize("factor", [1000, 1 / 1000])
def test_times_of_another_unit_are_refused(tmp_path, factor):
    times = [step.row.seconds * factor for step in logs(tmp_path, RUNS[:3]).steps.values()]
    with pytest.raises(SpecError, match=r"line 2, seconds: expected a time within 100 times"):
        fit(logs(tmp_path, RUNS[:3], times), "mem1")


def test_what_is_wrong_with_a_line_is_told(tmp_path):
    wide = EXECUTION | {"num_procs": 16, "tensor_par": 16, "tensor_par_net": 0}
    files = {"ok": EXECUTION, "bad": EXECUTION | {"tensor_par": 0}, "wide": wide}
    for name, execution in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(execution))
    path = tmp_path / "steps.csv"
    for line, message in [
        ("gpt2-124M,none.json,1", "line 2, execution none.json: expected a readable file"),
        ("gpt2,ok.json,1", "line 2, model gpt2: expected a model file"),
        ("gpt2-124M,bad.json,1", "line 2, execution bad.json: tensor_par: expected a whole number"),
        ("gpt2-124M,wide.json,1", "line 2, execution: expected an execution that runs on"),
        ("gpt2-124M,ok.json,0", "line 2, seconds: expected a number above 0"),
        ("gpt2-124M,,1", "line 2, execution: expected the name or the file"),
        ("gpt2-124M,ok.json", "line 2: expected 3 columns"),
        ("", "no rows"),
    ]:
        path.write_text(f"model,execution,seconds\n{line}\n")
        said = refusal(read_training, {str(path): "steps.csv"}, system())
        assert (str(path) in said, message in said) == (True, True), line


def test_steps_are_estimated_as_anywhere_else(tmp_path):
    for step in logs(tmp_path, [RUNS[3], LONG_KERNELS[0]]).steps.values():
        stats = calculon.estimate(step.model, step.execution, base()).stats
        time, memory = predicted([step], system())
        assert time[0] == stats["total_time"]
        assert memory[0] == stats["proc_mem_tier1_cap_req"]


def test_columns_named_as_fields_change_the_specs_row_by_row(tmp_path):
    model, run = RUNS[0]
    found = logs(
        tmp_path, [(model, run)] * 2, [0.1, 0.2], num_blocks=["", "3"], training=["", "true"]
    )
    plain_, changed = found.steps.values()
    assert plain_.model.num_blocks != 3
    assert changed.model == dataclasses.replace(plain_.model, num_blocks=3)
    assert changed.execution == plain_.execution
    assert changed.row.name.endswith(" run1 num_blocks=3 training=True")


@pytest.mark.parametrize(
    ("column", "text", "expected"),
    [
        ("num_blocks", "many", "a whole number of at least 1 and of at most 100000, found 'many'"),
        ("microbatch_size", "0", "a whole number of at least 1"),
        ("training", "maybe", "true or false"),
        ("fusion", "some", "one of published, none, compile, max"),
    ],
)
def test_a_column_with_an_impossible_value_is_told_with_its_line(tmp_path, column, text, expected):
    with pytest.raises(SpecError, match=f"line 2, .*{column}: expected {expected}"):
        logs(tmp_path, RUNS[:1], [0.1], **{column: [text]})


def test_a_misspelled_column_is_refused_and_a_foreign_one_is_told(tmp_path):
    with pytest.raises(SpecError, match="did you mean microbatch_size"):
        logs(tmp_path, RUNS[:2], [0.05, 0.06], microbatch_sizes=["1", "2"])
    found = logs(tmp_path, RUNS[:2], [0.05, 0.06], weather=["sun", "rain"], device=["", ""])
    assert found.notes == ["training: these columns are not read: weather"]


@pytest.mark.parametrize("factor", [0.0099, 0.0101, 99.0, 101.0])
def test_peak_memory_in_another_unit_is_refused(tmp_path, factor):
    exact = list(logs(tmp_path, RUNS[:2]).steps.values())
    memory = [repr(float(factor * one)) for one in predicted(exact, system())[1]]
    found = logs(tmp_path, RUNS[:2], memory_bytes=memory)
    within = (
        nullcontext() if 0.01 < factor < 100 else pytest.raises(SpecError, match="bytes within")
    )
    with within:
        fit(found, "mem1")


def test_steps_that_should_not_fit_are_told(tmp_path):
    model, run = RUNS[0]
    large = run | {"batch_size": 4096, "microbatch_size": 4096}
    notes = fit(logs(tmp_path, [(model, run), (model, large)]), "mem1").notes
    assert any("1 of 2 steps need more memory than" in note for note in notes)
