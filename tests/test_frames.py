"""Every result has a data frame with documented, stable columns, and an MFU if it predicts a step."""

import json
import re
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import calculon
from calculon.base.display import Tabular, WithMfu
from calculon.declarations.fields import spec_fields
from calculon.declarations.statistics import MFU
from calculon.documents.result_pages import DOCUMENTS
from calculon.inputs import NAMED
from calculon.plan.plan import NAMES
from calculon.render.frames import units
from calculon.serving.records.deployment import Deployment
from tests.cases import for_each
from tests.documents import results
from tests.helpers import ROOT
from tests.store import cache

LLAMA = ("llama3-8B", results.OTHER, "h100_80g_sxm")
SERVED = ("llama3-8B", 1, "h100_80g_sxm")
LOAD = {"prompt": 1000, "output": 200}
SCRIPT = next((ROOT / "tests/launch/scripts/deepspeed").glob("*zero3.json"))
LARGE = {**results.estimate_of().execution.to_dict(), "microbatch_size": 128}


@cache
def served():
    return calculon.serve(*SERVED, **LOAD)


@cache
def deployments():
    return calculon.search_deployments(*SERVED, **LOAD, top=2)


@cache
def predicted():
    """Write a prediction to a file, and return its name."""
    file = Path(tempfile.mkdtemp()) / "prediction.json"
    file.write_text(json.dumps(served().to_dict()))
    return str(file)


RESULTS = {
    "estimate": results.estimate_of,
    "estimate of the published edition": lambda: calculon.estimate(
        "megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g"
    ),
    "plan": results.answer,
    "fleets": results.fleets,
    "search": lambda: calculon.search(
        "llama3-8B", "h100_80g_sxm", 8, 64, "bfloat16", top=3, edition="corrected"
    ),
    "search of the published edition": results.found,
    "evaluation": lambda: calculon.evaluate(
        "llama3-8B", "h100_80g_sxm", [results.estimate_of().execution, LARGE]
    ),
    "sweep": lambda: calculon.sweep(
        "llama3-8B", "h100_80g_sxm", results.OTHER, set={"microbatch_size": [1, 128]}
    ),
    "table of executions": lambda: results.found().plan,
    "sensitivity": lambda: calculon.sensitivity(*LLAMA),
    "waterfall": lambda: calculon.waterfall(*LLAMA[:1], results.ONE, *LLAMA[1:]),
    "why not": lambda: calculon.why("llama3-8B", LARGE, "h100_80g_sxm"),
    "why": lambda: calculon.why(*LLAMA),
    "campaign": lambda: calculon.campaign(*LLAMA, tokens="1T"),
    "largest model": lambda: calculon.largest_model("h100_80g_sxm", 256, days=30),
    "launch file": lambda: calculon.import_flags(SCRIPT, num_procs=8),
    "serve": served,
    "deployments": deployments,
    "batches": lambda: calculon.by_batch(served()),
    "replay": lambda: calculon.serve(*SERVED, **LOAD, users=4).replay(requests=8),
    "benchmark": lambda: calculon.check_benchmark(
        str(ROOT / "examples/measurements/llama3-8B_h100x2_served.json"), predicted()
    ),
    "comparison": lambda: calculon.compare(results.estimate_of(results.ONE), results.estimate_of()),
    "deployments side by side": lambda: calculon.compare(served(), deployments()[1]),
}

EMPTY = {
    "plan": results.no_answer,
    "search of the published edition": results.found_nothing,
    "deployments": lambda: calculon.search_deployments(*SERVED, **LOAD, tpot_limit="0.01ms"),
    "waterfall": lambda: calculon.waterfall(*LLAMA[:1], results.OTHER, *LLAMA[1:]),
}
"""Results of the same kinds without rows."""

OWN = {"sweep": lambda found: found.asked, "batches": lambda found: found.columns}
"""Columns that a result itself says."""

SCALAR = {
    *("estimate", "estimate of the published edition", "plan", "sensitivity", "why not", "why"),
    *("campaign", "largest model"),
}
"""Results of one plan."""


@pytest.fixture(params=RESULTS)
def name(request):
    return request.param


@cache
def made(name):
    return RESULTS[name]()


@pytest.fixture
def result(name):
    return made(name)


def test_every_result_has_a_case():
    kinds = {kind for kind in DOCUMENTS if issubclass(kind, Tabular)}
    assert kinds == {type(made(name)) for name in RESULTS}
    assert {kind.__name__ for kind in kinds} <= {*calculon.__all__}


def declared():
    """Return the names that ``calculon describe`` explains, and the parts of their paths."""
    return {*units(), *NAMES, *NAMED, *(one.key for one in spec_fields(Deployment))}


def test_columns_are_declared_or_described(name, result):
    frame, words = result.to_frame(), re.findall(r"[\w.]+", type(result).table.__doc__)
    known = {*declared(), *words, *OWN.get(name, lambda _: ())(result)}
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) > 0
    assert [one for one in frame if one not in known and not re.match(r"loss\.", one)] == []
    for one, unit in frame.attrs["units"].items():
        assert unit == {**units(), **getattr(result, "units", {})}[one]


def test_whole_statistics_begin_with_time_and_memory():
    frame = [*made("sweep").to_frame()]
    place = frame.index("total_time")
    assert set(frame[:place]) == {"model", "system", "execution", "microbatch_size", "reason"}
    assert frame[place : place + 4] == ["total_time", *MFU, "proc_mem_tier1_cap_req"]


def test_a_frame_without_rows_has_the_same_columns():
    for name, make in EMPTY.items():
        frame = make().to_frame()
        assert len(frame) == 0
        assert [*frame] == [*made(name).to_frame()], name


@for_each("share", MFU)
def test_the_utilization_is_the_statistic_of_this_name(name, result, share):
    if not isinstance(result, WithMfu):
        assert name == "table of executions" or share not in result.to_frame()
        return
    found, frame = getattr(result, share), result.to_frame()
    if name in SCALAR:
        assert found is None or 0 < found < 1
        assert (found is None) == (name in {"estimate of the published edition", "why not"})
    else:
        assert found.dtype == float
        assert len(found) == (2 if name == "comparison" else len(frame))
        if "feasible" not in dir(result):
            assert np.isnan(found).all() == ("published" in name)
    if share in frame:
        np.testing.assert_array_equal(np.atleast_1d(found), frame[share][: np.size(found)])


PLANS = ("estimate", "plan", "fleets", "search", "evaluation", "table of executions")
"""Results whose rows are plans of one model, which other functions take."""


def test_frames_of_plans_are_plans():
    for name in PLANS:
        frame = made(name).to_frame()
        model, system = ("megatron-22B", "a100_80g") if name == PLANS[-1] else LLAMA[::2]
        found = calculon.evaluate(model, frame, system)
        assert found.plan.to_frame().equals(calculon.Plan.from_frame(frame).to_frame())
        assert len(found) == len(frame)
