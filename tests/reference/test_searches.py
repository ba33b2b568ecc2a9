"""The reference searches: counts, best executions, and complete dumps."""

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import calculon
from calculon.plan.plan import PUBLISHED_NAMES as FIELDS
from tests.helpers import NAMES, REFERENCE, RELATIVE, differences, floor, reference_system

with gzip.open(REFERENCE / "searches.json.gz", "rt") as _file:
    SEARCHES = json.load(_file)

FUSED = {"true": (True,), "false": (False,), "both": (False, True), "all": (False, True)}


def _arguments(case):
    """Read the published command line: options of ours, and whether larger microbatches are given up."""
    words = iter(case["arguments"][1:])
    options, positional = {"top": 1}, []
    for word in words:
        if word == "-t":
            options["top"] = int(next(words))
        elif word == "-f":
            options["fused"] = FUSED[next(words).lower()]
        elif word == "-m":
            options["mbs_break"] = True
        elif word == "--no-tp-overlap":
            options["tensor_overlap"] = False
        elif word == "--no-dp-overlap":
            options["data_overlap"] = False
        else:
            positional.append(word)
    model, num_procs, batch, datatype, system = positional
    inputs = (Path(model).stem, reference_system(Path(system).stem), int(num_procs), int(batch))
    return (*inputs, datatype), options


@pytest.mark.parametrize("case", SEARCHES, ids=lambda case: case["name"])
def test_counts_and_best_executions_of_a_published_search(case):
    arguments, options = _arguments(case)
    found = calculon.search(*arguments, **options)
    counts = found.counts
    assert [counts.total, counts.good, counts.bad] == [case["total"], case["good"], case["bad"]]
    estimates = found.estimates()
    wanted = np.array([one["stats"]["sample_rate"] for one in case["best"]])
    rates = np.array([one.stats["sample_rate"] for one in estimates])
    assert rates == pytest.approx(wanted, rel=RELATIVE)
    assert len(rates) == min(options["top"], counts.good)
    settled = 0
    for rank, (ours, theirs) in enumerate(zip(estimates, case["best"], strict=True)):
        if _is_settled(wanted, rank):
            settled += 1
            assert ours.execution.to_dict() == theirs["execution"]
            assert differences(ours.stats, theirs["stats"]) == []
    assert settled >= 4


def _is_settled(rates, rank):
    """Return True if neighbors differ enough for the rank to be defined, or tie exactly."""
    neighbors = [rates[i] for i in (rank - 1, rank + 1) if 0 <= i < len(rates)]
    last = rank == len(rates) - 1  # what follows is not known
    return not last and all(
        rate == rates[rank] or abs(rate - rates[rank]) > RELATIVE * rates[rank]
        for rate in neighbors
    )


def _dump(name):
    """Read a published dump: executions as keys, statistics as numbers."""
    with gzip.open(REFERENCE / f"{name}.csv.gz", "rt", newline="") as lines:
        reader = csv.reader(lines)
        header = next(reader)
        assert header == [*FIELDS, *NAMES]
        rows = list(reader)
    keys = [tuple(row[: len(FIELDS)]) for row in rows]
    values = np.array([[float(cell) for cell in row[len(FIELDS) :]] for row in rows])
    return keys, values


@pytest.mark.parametrize(
    ("name", "arguments", "total"),
    [
        ("turing530B_5128_a100", ("turing-530B", "a100_80g", 5128, 2520, "float16"), 1080),
        ("megatron22B_9_big", ("megatron-22B", "big_domain", 9, 3, "float8"), 6080),
    ],
)
def test_a_dump_is_the_published_one_in_the_order_of_the_loops(name, arguments, total):
    model, system, *others = arguments
    tables = list(calculon.executions(model, reference_system(system), *others, chunk=500))
    assert all(len(table) == 500 for table in tables[:-1])
    plan = calculon.Plan.concatenate([table.plan for table in tables])
    keys = list(zip(*([str(v) for v in plan.values(n).tolist()] for n in FIELDS), strict=True))
    found = np.concatenate([np.stack([t[n] for n in NAMES], axis=1) for t in tables])
    published, wanted = _dump(name)
    assert len(keys) == len(published) == len(set(keys)) == total
    assert set(keys) == set(published)
    place = {key: i for i, key in enumerate(keys)}
    found = found[[place[key] for key in published]]
    for column, statistic in enumerate(NAMES):
        np.testing.assert_allclose(
            found[:, column],
            wanted[:, column],
            rtol=RELATIVE,
            atol=floor(statistic),
            err_msg=statistic,
        )
