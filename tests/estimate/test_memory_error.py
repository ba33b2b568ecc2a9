"""Measured over predicted memory: its error over sources, and whether a prediction leaves as much room."""

import dataclasses

import numpy as np
import pytest

import calculon
from calculon.base.units import GIB
from calculon.documents.how_sure import TIGHT, memory_text, remarks
from calculon.estimate.group_conformal import LEVEL
from calculon.estimate.memory_error import memory_error
from calculon.estimate.run_table import Runs, runs

CASE = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")


def measured(*pairs):
    """Runs with a source and measured over predicted memory each; nothing is one that was not measured."""
    return Runs.of(
        [
            dataclasses.replace(
                runs()[0],
                source=source,
                study=source,
                measured_memory=ratio and ratio * GIB,
                predicted_memory=GIB,
            )
            for source, ratio in pairs
        ]
    )


def test_sources_count_alike_and_rows_without_memory_do_not():
    some = measured(*[("a", 1 + i / 100) for i in range(1, 9)], ("b", 0.5), ("b", 0.9), ("c", None))
    found = memory_error(some, 10 * GIB, 30 * GIB)
    assert (found.runs, found.sources, found.level) == (10, 2, LEVEL)
    # a: 1/16 each up to 8 %; b: 1/4 at 10 %, 1/4 at 50 %: nine tenths are reached in the last
    assert found.error == pytest.approx(0.5)
    assert found.headroom == pytest.approx(2.0)
    assert found.remark == ""


@pytest.mark.parametrize(("usable", "tight"), [(11.01, False), (10.99, True), (9.0, True)])
def test_a_headroom_below_the_error_is_remarked(usable, tight):
    found = memory_error(measured(("a", 1.1)), 10 * GIB, usable * GIB)
    assert (found.remark != "") == tight
    if tight:
        free = max(0.0, usable - 10)
        assert found.remark.startswith(f"{free:.1f} GiB are left, {10 * free:.0f} % of what is")
    exactly = memory_error(measured(("a", 1.5)), 2 * GIB, 3 * GIB)
    assert (exactly.headroom, exactly.error, exactly.remark) == (0.5, 0.5, "")


def test_without_measured_memory_there_is_nothing():
    assert memory_error(measured(("a", None)), GIB, GIB) is None


def test_an_estimate_says_it_on_its_page_and_in_its_document():
    estimate = calculon.estimate(*CASE)
    needed, usable = estimate.stats["proc_mem_tier1_cap_req"], estimate.system.usable[0]
    memory = estimate.belief.memory
    assert memory == memory_error(runs(), needed, usable)
    assert estimate.to_dict()["belief"]["memory"] == dataclasses.asdict(memory)
    known = [run for run in map(runs().__getitem__, range(len(runs()))) if run.memory_error]
    errors = [run.measured_memory / run.predicted_memory - 1 for run in known]
    assert memory.runs == len(errors)
    assert np.quantile(np.abs(errors), 0.5) < memory.error <= np.abs(errors).max()
    words = (
        f"as measured within {100 * memory.error:.0f} % in 9 of 10 of {len(errors)} measured rows"
    )
    assert memory_text(dataclasses.asdict(memory)).startswith(words)


def test_a_full_memory_is_a_remark_of_a_prediction():
    estimate = calculon.estimate(*CASE)
    belief, memory = estimate.belief, estimate.belief.memory
    tight = dataclasses.replace(memory, remark="0.1 GiB are left")
    document = dataclasses.replace(belief, memory=tight).to_dict()
    assert (TIGHT, "0.1 GiB are left") in list(remarks(document))
    assert TIGHT not in dict(remarks(belief.to_dict()))
