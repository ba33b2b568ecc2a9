"""An execution that is predicted to exceed its memory by less than the memory error: uncertain, and evaluated."""

import math

import numpy as np
import pytest

import calculon
from calculon.advise.neighborhood import trials
from calculon.base.units import GIB, chance
from calculon.declarations.statistics import FITS, MAY_FIT, RISK, TIER1
from calculon.estimate.memory_limit import errors_of
from calculon.inputs import Changed
from calculon.plan.plan import Plan

MODEL, PLAN, SYSTEM = "llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm"
WHOLE = calculon.estimate(MODEL, PLAN, SYSTEM)
ERRORS = errors_of(WHOLE.model, WHOLE.execution.preset, WHOLE.execution.zero_stage)
LEAST = ERRORS.capacity_ratio(MAY_FIT)
"""Usable over predicted memory with which it fits with the least probability."""


def machine(usable):
    """Return a system with a usable memory, as a share of what the execution needs."""
    withheld = WHOLE.system.mem1.capacity - WHOLE.system.usable[0]
    return Changed(SYSTEM, {"mem1.GiB": (WHOLE.stats[TIER1] * usable + withheld) / GIB})


@pytest.mark.parametrize("usable", [LEAST * 1.001, 0.97, 1.01])
def test_an_uncertain_execution_has_all_numbers(usable):
    found = calculon.estimate(MODEL, PLAN, machine(usable))
    fits = float(ERRORS.fits(np.array(1.0), usable))
    assert {**found.stats, FITS: None} == {**WHOLE.stats, FITS: None}
    assert found.stats[FITS] == pytest.approx(fits)
    over = found.stats[TIER1] - found.system.usable[0]
    said = f"it needs {over / GIB:.1f} GiB ({100 * (1 / usable - 1):.1f} %) more than the" in (
        found.belief.memory.remark
    )
    assert said == (usable < 1)
    assert f"it fits with a probability of {chance(fits)}" in found.belief.memory.remark


def test_an_execution_that_hardly_fits_is_infeasible_and_says_by_how_much():
    usable = LEAST * 0.999
    with pytest.raises(calculon.Infeasible) as error:
        calculon.estimate(MODEL, PLAN, machine(usable))
    assert error.value.needed == WHOLE.stats[TIER1]
    assert error.value.available == pytest.approx(WHOLE.stats[TIER1] * usable)
    over = (error.value.needed - error.value.available) / GIB
    assert f"({over:.2f} GiB too much); it fits with a probability of 5 %" in str(error.value)


@pytest.mark.parametrize("usable", [LEAST * 0.999, LEAST * 1.001, 0.97, 1.2])
def test_everything_that_evaluates_it_agrees(usable):
    system, runs = machine(usable), usable >= LEAST
    fits = float(ERRORS.fits(np.array(1.0), usable))
    table = calculon.evaluate(MODEL, system, [WHOLE.execution])
    assert table.feasible.all() == runs
    assert table[FITS][0] == pytest.approx(fits if runs else math.nan, nan_ok=True)
    capacity = system.changes["mem1.GiB"]
    column = calculon.what_if(MODEL, PLAN, SYSTEM, [{}, {"mem1.GiB": capacity}])
    assert column.feasible.tolist() == [True, runs]
    reason = calculon.why(MODEL, PLAN, system)
    assert reason.runs == runs == (reason.problem == "")
    assert reason.fits == pytest.approx(fits)
    plan = Plan.of(WHOLE.execution)
    near = trials(WHOLE.model, calculon.inputs.system(system), plan)
    assert (near.runs[0], near.uncertain[0]) == (runs, runs and usable < 1)
    answer = calculon.plan(MODEL, 64, system, batch=512, mine=PLAN)
    assert (answer.mine.estimate is not None) == runs
    assert (answer.order_of_mine is not None) == runs


@pytest.mark.parametrize("usable", [0.5, LEAST * 1.001])
def test_what_makes_it_run_is_predicted_to_fit(usable):
    """And a change that is proposed to be faster is no less likely to fit than now, or than recommended plans."""
    system = machine(usable)
    found = calculon.why(MODEL, PLAN, system)
    changes = found.better if found.runs else found.proposals
    assert changes
    there = calculon.inputs.system(system).usable[0]
    for one in changes:
        assert one.fits == pytest.approx(one.found.stats[FITS])
        if found.runs:
            assert one.fits >= min(1 - RISK, found.fits)
        else:
            assert one.memory[0] <= there
    if not found.runs:
        assert [one.risky for one in changes] == sorted(one.risky for one in changes)


def test_a_search_finds_what_is_predicted_to_fit_only():
    fields = WHOLE.execution.to_dict()
    fix = {name: fields[name] for name in ("tensor_par", "pipeline_par", "microbatch_size")}
    for usable in (0.99, 1.2):
        system = calculon.inputs.system(machine(usable))
        found = calculon.search(MODEL, system, 64, 512, "bfloat16", fix=fix, top=50)
        assert (found.evaluation[TIER1] <= system.usable[0]).all()


def test_the_published_edition_has_no_memory_error():
    args = "megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g"
    needed = calculon.estimate(*args).stats[TIER1]
    assert calculon.estimate(*args[:2], Changed(args[2], {"mem1.GiB": needed * 1.0001 / GIB})).stats
    with pytest.raises(calculon.Infeasible, match=r"too much\)$"):
        calculon.estimate(*args[:2], Changed(args[2], {"mem1.GiB": needed * 0.9999 / GIB}))
