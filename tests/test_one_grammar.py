"""Public functions take MODEL, then PLAN or PROCS, then SYSTEM, and words of plans as keyword arguments."""

import json

import numpy as np
import pandas as pd
import pytest

import calculon
from calculon.declarations.statistics import FITS, RISK
from calculon.estimate.argument_order import is_system
from calculon.plan.plan import all_fields
from tests.cases import for_each
from tests.documents import results
from tests.store import cache

MODEL, SYSTEM = "llama3-8B", "h100_80g_sxm"
RUN = {"tokens": "1T"}
LOAD = {"prompt": 1000, "output": 200}
FEW = {"batch": 64, "tp": 2, "pp": 1}


def plan():
    return results.estimate_of().execution


@cache
def evaluated():
    return calculon.evaluate(MODEL, plan(), SYSTEM)


def address(*asked):
    with calculon.explore(*asked) as page:
        return page.url.partition("/?")[2]


CALLS = {
    "estimate": (calculon.estimate, plan, lambda found: found.stats),
    "evaluate": (calculon.evaluate, plan, lambda found: found["total_time"].tolist()),
    "bounds": (calculon.bounds, evaluated, lambda found: [*map(float, found["total_time_low"])]),
    "what_if": (
        lambda *asked: calculon.what_if(*asked, [{"mem1.GBps": 3000}]),
        plan,
        lambda found: found["total_time"].tolist(),
    ),
    "sweep": (
        lambda *asked: calculon.sweep(*asked, {"mbs": [1, 2]}),
        plan,
        lambda found: [*map(str, found["total_time"])],
    ),
    "why": (calculon.why, plan, lambda found: found.estimate.stats),
    "sensitivity": (calculon.sensitivity, plan, lambda found: found.elasticities),
    "campaign": (
        lambda *asked: calculon.campaign(*asked, RUN),
        plan,
        lambda found: found.figures,
    ),
    "plan": (
        lambda *asked: calculon.plan(*asked, **FEW),
        lambda: 8,
        lambda found: found.best.stats,
    ),
    "search": (
        lambda *asked: calculon.search(*asked, **FEW),
        lambda: 8,
        lambda found: found.best.stats,
    ),
    "executions": (
        lambda *asked: next(calculon.executions(*asked, **FEW)),
        lambda: 8,
        lambda found: found["total_time"].tolist(),
    ),
    "serve": (
        lambda *asked: calculon.serve(*asked, **LOAD),
        lambda: 1,
        lambda found: found.stats,
    ),
    "search_deployments": (
        lambda *asked: calculon.search_deployments(*asked, **LOAD),
        lambda: 1,
        lambda found: found.best.stats,
    ),
    "explore": (address, lambda: 8, str),
}
"""Each function with its second argument, and what its result is compared by."""


@pytest.mark.parametrize("name", CALLS)
def test_the_machine_comes_last_or_before_the_plan(name):
    call, asked, value = CALLS[name]
    assert value(call(MODEL, asked(), SYSTEM)) == value(call(MODEL, SYSTEM, asked()))


def test_every_function_with_a_machine_has_a_case():
    """A wrapped function takes either order; the largest model is no question about a model."""
    public = (getattr(calculon, name) for name in calculon.__all__)
    wrapped = {one.__name__ for one in public if hasattr(one, "__wrapped__")}
    assert wrapped == {*CALLS, "largest_model"}


def test_either_order_also_by_name():
    found = calculon.evaluate(MODEL, SYSTEM, plan=plan())["total_time"]
    assert found == calculon.evaluate(MODEL, plan=plan(), system=SYSTEM)["total_time"]
    days = [
        calculon.largest_model(*asked, days=30).days for asked in ((256, SYSTEM), (SYSTEM, 256))
    ]
    assert days == [30, 30]


@for_each(
    ("value", "system"),
    [
        ("h100", True),
        ("h100,h200", True),
        (["h100", "a100"], True),
        ({"base": SYSTEM, "mem1": {"GiB": 100}}, True),
        ("64", False),
        ("1k", False),
        ("any", False),
        (64, False),
        ([8, 16], False),
        ([], False),
        ("tp=4 pp=2", False),
        (results.ONE, False),
        ({"base": "megatron-lm", "num_procs": 8}, False),
        ("-", False),
        ("", False),
    ],
)
def test_a_machine_is_recognized(value, system):
    assert is_system(value) == system


def test_files_are_told_by_what_they_hold(tmp_path):
    machine, other, broken = (tmp_path / name for name in ("one.json", "two.json", "three.json"))
    machine.write_text(json.dumps({"base": SYSTEM, "mem1": {"GiB": 100}}))
    other.write_text(json.dumps(plan().to_dict()))
    broken.write_text("{")
    assert [is_system(path) for path in (machine, other, broken)] == [True, False, False]
    assert calculon.estimate(MODEL, machine, other).system.mem1.capacity == 100 * 2**30


@for_each("source", ["words", "mapping", "result", "script", "name"])
def test_plans_may_be(source, tmp_path):
    one = results.estimate_of()
    best = tmp_path / "best.json"
    best.write_text(json.dumps({"0": {"execution": one.execution.to_dict(), "stats": one.stats}}))
    script = tmp_path / "run.sh"
    script.write_text(calculon.export_flags(one, "megatron-lm"))
    asked = {
        "words": "tp=1 pp=4 procs=64",
        "mapping": {"tp": 1, "pp": 4, "procs": 64},
        "result": f"{best}#0",
        "script": str(script),
        "name": results.OTHER,
    }[source]
    found = calculon.estimate(MODEL, asked, SYSTEM)
    assert found.execution.pipeline_par == 4
    step = found.stats["total_time"]
    assert calculon.evaluate(MODEL, asked, SYSTEM)["total_time"].tolist() == [step]
    assert calculon.sweep(MODEL, asked, SYSTEM)["total_time"].tolist() == [step]


TABLES = {
    "columns": {"tp": [1, 2, 2], "dp": [8, 4, 32], "batch": "1M"},
    "rows": [
        {"tp": 1, "dp": 8, "batch": "1M"},
        {"tensor_par": 2, "procs": 8, "batch": "1M"},
        {"tp": 2, "dp": 32, "gbs": 128},
    ],
    "frame": pd.DataFrame({"tp": [1, 2, 2], "dp": [8, 4, 32], "gbs": 128, "total_time": np.nan}),
    "fields": {
        "tensor_par": [1, 2, 2],
        "data_par": [8, 4, 32],
        "pipeline_par": 1,
        "batch_size": 128,
    },
}


@for_each("form", TABLES)
def test_rows_of_tables_of_degrees_are_what_the_plans_are_alone(form):
    table = calculon.evaluate(MODEL, TABLES[form], SYSTEM)
    plans = ("tp=1 dp=8", "tp=2 dp=4", "tp=2 dp=32")
    alone = [calculon.estimate(MODEL, plan, SYSTEM, batch="1M").execution for plan in plans]
    assert [table.plan.row(i) for i in range(len(table))] == alone


def test_words_fix_fields_of_a_search():
    words = calculon.search(MODEL, 8, SYSTEM, batch=64, tp=[2, 4], sp=True, pp=1, risk=1)
    fixed = {"tensor_par": [2, 4], "tensor_par_comm_type": "rs_ag", "pipeline_par": 1}
    fields = calculon.search(MODEL, 8, SYSTEM, batch=64, fix=fixed, risk=1)
    assert words.best.execution == fields.best.execution
    assert words.counts == fields.counts
    answer = calculon.plan(MODEL, 8, SYSTEM, batch=64, tp=[2, 4], sp=True, pp=1, risk=1)
    assert answer.best.stats["total_time"] == words.best.stats["total_time"]


def test_words_change_a_plan_or_are_one():
    known = calculon.estimate(MODEL, "tp=4 pp=2 mbs=2 procs=64 batch=1M", SYSTEM)
    for asked in (
        calculon.estimate(MODEL, SYSTEM, tp=4, pp=2, mbs=2, procs=64, batch="1M"),
        calculon.estimate(MODEL, "tp=4 pp=2", SYSTEM, mbs=2, procs=64, batch="1M"),
        calculon.estimate(
            MODEL, {**known.execution.to_dict(), "batch_size": 64}, SYSTEM, batch="1M"
        ),
        calculon.estimate(
            MODEL,
            calculon.estimate(MODEL, "tp=4 pp=2 procs=64 batch=1M", SYSTEM).execution,
            SYSTEM,
            mbs=2,
        ),
    ):
        assert asked.execution == known.execution


@for_each(
    ("call", "words", "field", "hint"),
    [
        (calculon.plan, {"ttp": 4}, "ttp", "did you mean 'tp'?"),
        (calculon.plan, {"gbs": 4}, "gbs", "write batch=4"),
        (calculon.search, {"ttp": 4}, "ttp", "did you mean 'tp'?"),
        (calculon.search, {"tp": 4, "fix": {"tensor_par": 2}}, "tp", ""),
        (calculon.search, {"batch": 4, "max_batch_size": 4}, "batch", ""),
        (calculon.search, {"dtype": "bf16", "datatype": "float16"}, "dtype", ""),
    ],
)
def test_an_argument_is_refused(call, words, field, hint):
    with pytest.raises(calculon.SpecError) as error:
        call(MODEL, 8, SYSTEM, **words)
    assert error.value.field == field
    assert error.value.hint == hint


def test_an_unknown_word_of_an_estimate_is_refused():
    with pytest.raises(calculon.SpecError, match=r"ttp: .*did you mean 'tp'"):
        calculon.estimate(MODEL, SYSTEM, ttp=4)


def test_a_search_prefers_plans_within_the_risk():
    free = calculon.search(MODEL, 64, SYSTEM, preset="megatron-lm", risk=1)
    usual = calculon.search(MODEL, 64, SYSTEM, preset="megatron-lm")
    assert free.best.stats[FITS] < 1 - RISK <= usual.best.stats[FITS]
    assert all_fields(usual.best_of_all.execution) == all_fields(free.best.execution)
    assert (free.risk, usual.risk) == (1, RISK)
    assert calculon.search(MODEL, 64, SYSTEM, pareto=["sample_rate", "fits"], tp=1).risk is None


def test_the_published_edition_has_no_risk():
    with pytest.raises(calculon.SpecError, match=r"risk: expected edition corrected"):
        calculon.search("megatron-126M", 8, "a100_80g", 8, risk=0.5)


def test_a_sweep_takes_words():
    words = calculon.sweep(
        MODEL, ["tp=4 procs=64", "tp=2 procs=64"], SYSTEM, {"mbs": [1, 2], "sp": [True, False]}
    )
    paths = {"microbatch_size": [1, 2], "tensor_par_comm_type": ["rs_ag", "ar"]}
    fields = [calculon.estimate(MODEL, SYSTEM, tp=tp, procs=64).execution for tp in (4, 2)]
    assert [*dict.fromkeys(words["execution"])] == ["tp=4 procs=64", "tp=2 procs=64"]
    assert (words["mbs"] == words["microbatch_size"]).all()
    found = calculon.sweep(MODEL, fields, SYSTEM, paths)
    np.testing.assert_array_equal(words["mbs"], found["microbatch_size"])
    one = calculon.sweep(MODEL, "tp=4 procs=64", SYSTEM, {"mbs": [2]})["total_time"][0]
    assert one == calculon.estimate(MODEL, SYSTEM, tp=4, procs=64, mbs=2).stats["total_time"]


def test_words_that_mean_several_plans_are_refused():
    with pytest.raises(calculon.SpecError, match=r"^sweep: .*state batch, seq and preset"):
        calculon.sweep([MODEL, "llama3.1-8B"], "tp=4", [SYSTEM, "tpu_v5p"])
