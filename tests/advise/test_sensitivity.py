"""Elasticities follow from shares of a time, replanned gains from searches, and break-even from equal times."""

import math

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.advise.elasticities import Case, Range, effects
from calculon.advise.replanned import Replanner
from calculon.advise.sensitivity import sensitivity
from calculon.advise.sensitivity_of_case import read_range
from calculon.base.units import GIB
from calculon.declarations.statistics import TIER1
from calculon.hardware.figures import figures_of, with_figures
from calculon.inputs import Changed
from tests.advise import by_hand
from tests.cases import for_each
from tests.store import stored

MODEL, SYSTEM = "llama3-8B", "h100_80g_sxm"
PLAN = {"base": "megatron-lm", "num_procs": 8, "tensor_par": 2, "pipeline_par": 1}
PLAN |= {"batch_size": 32}
SEARCHED = PLAN | {"base": "torchtitan", "tensor_par": 1}
PUBLISHED = ("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
SMALL = ("mlp-4x1024", "mlp-4x1024_x2_ddp", "a100_80g_sxm")
RUN = {"tokens": "1T", "fleet": {"price": 2.5}}
OWN_LATENCIES = {"ext.networks[0].step_latency": 3e-6, "ext.networks[1].step_latency": 1e-5}
"""With these nothing of the time follows from the kind of a network."""


@stored
def published():
    return sensitivity(*PUBLISHED)


@stored
def searched():
    told = []
    found = sensitivity(MODEL, SEARCHED, SYSTEM, replan=True, seen=told.append)
    assert told == [len(told)] * len(told)  # each search says how many there are
    return found


@stored
def whole():
    return sensitivity(*SMALL, campaign=RUN, of="usd", replan=True)


class Analytic(Case):
    """A time of three parts: one over a rate, one over another, and a latency."""

    A, B = 3e3, 2e2

    def values(self, changes):
        known = figures_of(self.system)
        return np.array([self._time(known, change) for change in changes])

    def _time(self, known, change):
        peak, rate, latency = (
            change.get(path, known[path].value)
            for path in ("matrix.float16.tflops", "mem1.GBps", "networks[0].latency")
        )
        return self.A / peak + self.B / rate + latency


def test_elasticities_are_shares_of_the_time():
    case = Analytic(*_specs(*PUBLISHED), "total_time")
    now, found = effects(case, Range())
    known = figures_of(case.system)
    parts = {
        "matrix.float16.tflops": -case.A / known["matrix.float16.tflops"].value,
        "mem1.GBps": -case.B / known["mem1.GBps"].value,
        "networks[0].latency": known["networks[0].latency"].value,
    }
    for one in found:
        share = parts.get(one.figure.path, 0.0) / now
        assert one.elasticity is None or math.isclose(one.elasticity, share, abs_tol=1e-7)
        assert one.matters(now) == (one.figure.path in parts)
    peak = next(one for one in found if one.figure.path == "matrix.float16.tflops")
    rest = now - case.A / peak.figure.value
    assert math.isclose(peak.at_low, rest + case.A / peak.low)
    assert math.isclose(peak.at_high, rest + case.A / peak.high)
    assert peak.low == 0.75 * peak.figure.value


@pytest.mark.parametrize(
    ("model", "plan", "system"),
    [
        PUBLISHED,
        (MODEL, "llama3-8B_h100x64_p4", Changed(SYSTEM, OWN_LATENCIES)),
        *(
            pytest.param(*case, marks=pytest.mark.large)
            for case in (
                (*PUBLISHED[:2], "a100_80e"),
                (MODEL, PLAN, "tpu_v5p"),
                (MODEL, "llama3-8B_h100x64_128k", Changed(SYSTEM, OWN_LATENCIES)),
                ("mixtral-8x7B", "mixtral-8x7B_h100x64", Changed(SYSTEM, OWN_LATENCIES)),
            )
        ),
    ],
    ids=["published", "pipeline", "other memory", "torus", "long sequences", "experts"],
)
def test_elasticities_of_time_add_up_to_minus_one(model, plan, system):
    found = sensitivity(model, plan, system)
    rates = [e for e in found.effects if e.figure.unit in ("TFLOP/s", "GB/s")]
    times = [e for e in found.effects if e.figure.unit == "s"]
    stated = sum(e.elasticity for e in rates) - sum(e.elasticity for e in times)
    assert math.isclose(stated, found.total.stated, abs_tol=1e-9)
    assert abs(found.total.together + 1) < 1e-9
    assert abs(found.total.sum + 1) < 1e-6


def test_what_the_sum_lacks_are_latencies_that_are_not_stated():
    found = sensitivity(MODEL, "llama3-8B_h100x64", SYSTEM)
    assert 1e-4 < found.total.unstated < 0.1
    assert abs(found.total.sum - found.total.together) < 1e-6
    assert found.total.lists < 0  # ramps of measured collectives


def test_a_longer_launch_that_binds_is_a_threshold():
    """A kernel that takes just as long as its launch gets no faster, and gets slower."""
    case = Analytic(*_specs(*PUBLISHED), "total_time")
    least = case.values([{}])[0]

    class Bound(Analytic):
        def values(self, changes):
            return np.maximum(super().values(changes), least)

    _, found = effects(Bound(*_specs(*PUBLISHED), "total_time"), Range())
    peak = next(one for one in found if one.figure.path == "matrix.float16.tflops")
    share = case.A / figures_of(case.system)[peak.figure.path].value / least
    assert math.isclose(peak.kink, share, rel_tol=1e-2)
    assert math.isclose(peak.elasticity, -share / 2, rel_tol=1e-2)


def test_figures_without_effect_change_nothing():
    for figure in (one.figure for one in published().idle):
        path = figure.path
        machine = with_figures(published().system, {path: 2 * figure.value})
        again = calculon.evaluate(PUBLISHED[0], machine, [published().execution])
        assert again["total_time"][0] == published().value
    every = (*published().idle, *published().effects)
    assert {one.figure.path for one in every} == {*figures_of(published().system)}


@pytest.mark.parametrize("which", ["searched", "whole"])
def test_replanned_is_never_worse_than_the_same_plan(which):
    """C7 of a step, and of a whole run."""
    same = {"searched": searched, "whole": whole}[which]()
    found = same.searched
    assert found.now.value <= same.value
    known = {one.figure.path: one for one in same.effects}
    assert len(found.ends) > 4
    for path in found.ends.keys() & known.keys():
        stays = known[path].at_low, known[path].at_high
        for best, value in zip(found.ends[path], stays, strict=True):
            assert best is None or value is None or best.value <= value
    for value, best in found.sizes.values():
        assert best.value <= value


def test_replanned_is_what_a_search_finds():
    found = searched().searched
    path = "networks[0].bandwidth"
    for value, best in zip((337.5, 562.5), found.ends[path], strict=True):
        machine = Changed(SYSTEM, {path: value})
        fields = searched().execution
        again = by_hand.searched(MODEL, fields, machine).best.stats["total_time"]
        same = calculon.evaluate(MODEL, machine, [fields])["total_time"][0]
        assert best.value == min(again, same)


def test_the_staircase_is_the_best_of_each_capacity():
    stairs = searched().searched.staircase
    model, execution, system = _specs(MODEL, SEARCHED, SYSTEM)
    replanner = Replanner(Case(model, execution, system, "total_time"), searched().preset)
    for gib in (20, 60):
        same = _time(execution, {"mem1.GiB": gib})
        own = same if math.isfinite(same) else None
        best = replanner.with_figures({"mem1.GiB": gib}, own)
        known = stairs.at(gib * GIB)
        assert (best is None) == (known is None)
        assert best is None or best.value == known.value
    assert stairs.here.best.value == searched().searched.now.value
    values = [step.best.value for step in stairs.steps]
    assert values == sorted(values, reverse=True)


def test_a_step_needs_its_capacity():
    """With less the plan of the step is no longer predicted to fit, and may only be estimated with its risk."""
    stairs = searched().searched.staircase
    for step in stairs.steps[-5:]:
        enough = {"mem1.GiB": step.capacity / GIB * (1 + 1e-12)}
        less = {"mem1.GiB": step.capacity / GIB * (1 - 1e-9)}
        assert _time(step.best.execution, enough) == step.best.value
        with_less = calculon.estimate(
            "llama3-8B", step.best.execution, Changed("h100_80g_sxm", less)
        )
        assert with_less.stats[TIER1] > with_less.system.usable[0]


def test_the_shadow_price_is_0_where_memory_does_not_bind():
    stairs = searched().searched.staircase
    before, after = stairs.at(stairs.capacity), stairs.at(stairs.capacity + GIB)
    assert stairs.shadow_price == before.value - after.value >= 0
    specs = _specs(MODEL, SEARCHED, Changed(SYSTEM, {"mem1.GiB": 4000}))
    smaller, stairs = (
        stairs,
        Replanner(Case(*specs, "total_time"), searched().preset).capacity_sweep(),
    )
    assert stairs.steps == smaller.steps  # of every capacity, whatever this machine has
    assert stairs.shadow_price == 0
    assert stairs.up == ()
    assert stairs.down.best.value > stairs.here.best.value


@pytest.mark.parametrize(
    "changes",
    [
        {"tensor_par": 8, "pipeline_par": 32},
        pytest.param(
            {"num_procs": 6144, "tensor_par": 8, "pipeline_par": 32, "data_par": 24},
            marks=pytest.mark.large,
        ),
    ],
    ids=["as many processors", "twice as many"],
)
def test_plans_are_equal_at_the_break_even(changes):
    """By the time of a step, or where counts of processors differ by that of a processor."""
    other = inputs.execution(PUBLISHED[1]).to_dict() | changes
    found = sensitivity(*PUBLISHED, against=other)
    back = sensitivity(PUBLISHED[0], other, PUBLISHED[2], against=PUBLISHED[1])
    assert (found.rival, back.rival) == ("the other plan", PUBLISHED[1])
    assert back.compared == f"this plan against {PUBLISHED[1]}"
    values = {one.figure.path: one.value for one in found.break_evens}
    assert values == pytest.approx({one.figure.path: one.value for one in back.break_evens})
    known = [one for one in (*found.break_evens, *back.break_evens) if one.value is not None]
    assert known
    for one in known:
        assert abs(one.ratio - 1) < 1e-9
        assert one.factor > 0
        machine = with_figures(found.system, {one.figure.path: one.value})
        plans = [found.execution, inputs.execution(other)]
        first, second = calculon.evaluate(found.model, machine, plans)["total_time"]
        assert math.isclose(first * 3072, second * other["num_procs"], rel_tol=1e-9)


def test_where_nothing_is_equal_it_is_never():
    smaller = inputs.execution(PUBLISHED[1]).to_dict() | {"microbatch_size": 2}
    found = sensitivity(*PUBLISHED, of="sample_rate", against=smaller)
    assert found.break_evens
    assert all(one.value is None for one in found.break_evens)
    now = sensitivity(*PUBLISHED, against=PUBLISHED[1])  # and a plan is equal to itself as it is
    assert {one.factor for one in now.break_evens} == {1.0}


def test_machines_are_equal_at_the_break_even():
    found = sensitivity(*PUBLISHED, against_system="h100_80g_sxm")
    level = calculon.estimate(*PUBLISHED[:2], "h100_80g_sxm").stats["total_time"]
    assert found.rival == found.to_dict()["break_even"]["with"] == "h100_80g_sxm"
    assert found.compared == "this plan on both machines"
    known = {one.figure.path: one for one in found.break_evens}
    peak = known["matrix.float16.tflops"]
    changed = Changed(PUBLISHED[2], {"matrix.float16.tflops": peak.value})
    time = calculon.estimate(*PUBLISHED[:2], changed).stats["total_time"]
    assert math.isclose(time, level, rel_tol=1e-9)
    assert peak.factor == peak.value / peak.figure.value
    never = known["networks[1].bandwidth"]
    assert never.value is None
    assert never.factor is None
    furthest = Changed(PUBLISHED[2], {"networks[1].bandwidth": 16 * never.figure.value})
    assert calculon.estimate(*PUBLISHED[:2], furthest).stats["total_time"] > level


def test_any_statistic():
    found = sensitivity(*PUBLISHED, of="sample_rate")
    for one in found.effects:
        if one.elasticity is not None:
            time = published()[one.figure.path].elasticity
            assert math.isclose(one.elasticity, -time, abs_tol=1e-6)
    assert found.total is None


def test_calibrated_ranges_are_those_of_their_parts():
    spreads = [{"low": 0.8, "high": 1.5, "level": 0.9}]
    fits = {"fits": [{"part": "mem1", "spreads": spreads}]}
    system = Changed(PUBLISHED[2], {"calibration": fits})
    found = sensitivity(*PUBLISHED[:2], system, spread="calibrated")["mem1.GBps"]
    assert math.isclose(found.low, found.figure.value / 1.5)
    assert math.isclose(found.high, found.figure.value / 0.8)


@for_each(
    ("options", "text"),
    [
        ({"of": "total_tim"}, "did you mean 'total_time'"),
        ({"of": "mfu"}, "a statistic of edition sc23, found 'mfu'"),
        ({"spread": "much"}, "expected a share between 0 and 1"),
        ({"spread": 25}, "write 25%"),
        ({"spread": "120%"}, "expected a share between 0 and 1"),
        ({"against": PUBLISHED[1], "against_system": "h100_80g_sxm"}, "found both"),
    ],
)
def test_mistakes_are_told(options, text):
    with pytest.raises(calculon.SpecError, match=text):
        sensitivity(*PUBLISHED, **options)


def test_plans_of_inference_are_not_searched():
    execution = inputs.execution(
        PUBLISHED[1], changes={"training": False, "pipeline_interleaving": 1}
    )
    plan = execution.to_dict() | {"optimizer_sharding": False, "activation_recompute": "none"}
    with pytest.raises(calculon.SpecError, match="a plan of training"):
        sensitivity(PUBLISHED[0], plan, PUBLISHED[2], replan=True)


def test_plans_that_cannot_run_are_no_plans():
    with pytest.raises(calculon.Infeasible, match="calculon why") as caught:
        sensitivity(*PUBLISHED[:2], Changed(PUBLISHED[2], {"mem1.GiB": 10}))
    assert (caught.value.reason, caught.value.tier) == ("mem1_capacity", 1)
    assert caught.value.needed > caught.value.available


@for_each(("spread", "share"), [("10%", 0.1), ("0.3", 0.3), (0.5, 0.5)])
def test_ranges(spread, share):
    assert math.isclose(read_range(spread).share, share)


def _specs(model, plan, system):
    found = calculon.estimate(model, plan, system)
    return found.model, found.execution, found.system


def _time(execution, change):
    return calculon.evaluate(MODEL, Changed(SYSTEM, change), [execution])["total_time"][0]


def test_a_replanned_run_is_that_of_the_best_plan():
    for path, (_, high) in whole().searched.ends.items():
        if high is None or high.kept:
            continue
        now = figures_of(whole().system)[path].value
        machine = Changed(SMALL[2], {path: 2 * now if path.endswith("size") else 1.25 * now})
        again = calculon.campaign(SMALL[0], inputs.execution(high.execution), machine, RUN)
        assert again.figures["usd"] == pytest.approx(high.value, rel=1e-12)


@pytest.mark.large
def test_a_price_makes_machines_equal():
    """Where both cost as much for the same tokens, the price follows from what each takes for a dollar an hour."""
    found = sensitivity(*SMALL, campaign=RUN, of="usd", against_system=SYSTEM)
    here, there = (calculon.campaign(*SMALL[:2], one, RUN) for one in (SMALL[2], SYSTEM))
    price = there.figures["usd"] / here.figures["processor_hours"]
    known = {one.figure.path: one for one in found.break_evens}
    assert known["fleet.price"].value == pytest.approx(price, rel=1e-9)
    for one in found.break_evens:
        assert one.value is None or one.ratio == pytest.approx(1.0, abs=1e-6)


@for_each(
    ("options", "text"),
    [
        ({"of": "day"}, "did you mean 'days'"),
        ({"of": "total_time"}, "leave out the campaign"),
        ({"edition": "sc23"}, "expected corrected"),
        ({"of": "goodput", "replan": True}, "improves with a shorter step"),
        ({"of": "t_co2"}, "--carbon 400"),
        ({"of": "days", "campaign": None}, "add --tokens 15T"),
        ({"campaign": {"tokens": "1T", "fleet": {"prise": 2}}}, "fleet.prise"),
    ],
)
def test_mistakes_of_runs_are_told(options, text):
    with pytest.raises(calculon.SpecError, match=text):
        sensitivity(MODEL, PLAN, SYSTEM, **{"campaign": RUN, **options})
