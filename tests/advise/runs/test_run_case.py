"""Elasticities of whole runs follow from their laws, and variants of a run are runs of changed files."""

import numpy as np
import pytest

import calculon
from calculon.advise.elasticities import RUN, USE, Range, kind_of, slopes
from calculon.advise.runs.run_case import RunCase
from calculon.campaign.record import HOUR
from calculon.declarations.run_figures import RUN_FIGURES
from calculon.inputs import Changed
from tests.cases import for_each
from tests.draws import some
from tests.helpers import LLAMA_X64_P4
from tests.store import cache

MODEL, SYSTEM, UNPRICED = "llama3-8B", "h100_80g_sxm", "mi355x"
MONEY = {"price": 2.5, "pue": 1.2, "g_co2_per_kwh": 400, "tdp": 700}
OFTEN = {"mtbf_processor": 500, "repair": 0}
"""Many failures, and nobody waits for nodes: the law of failures alone."""

OWN_LATENCIES = {"ext.networks[0].step_latency": 3e-6, "ext.networks[1].step_latency": 1e-5}
"""With these nothing of the time follows from the kind of a network."""

RUNS = {
    "often": {"tokens": "1T", "reliability": OFTEN},
    "stated": {"tokens": "1T", "reliability": OFTEN, "checkpoints": {"interval": "1h"}},
    "sync": {"tokens": "1T", "reliability": OFTEN, "checkpoints": {"mode": "sync"}},
    "slow storage": {"tokens": "1T", "checkpoints": {"bandwidth": 0.02}},
    "rich": {
        "tokens": "1T",
        "spikes": 2,
        "evaluate_every": 1000,
        "evaluate_time": 60,
        "batch_ramp": [{"from": 0, "batch": 64}, {"from": "100B", "batch": 128}],
        "reliability": {**OFTEN, "mtbf_common": 300, "slow_share": 0.01, "slow_factor": 1.2},
    },
}


@cache
def run(name="often"):
    return calculon.campaign(MODEL, LLAMA_X64_P4, SYSTEM, {**RUNS[name], "fleet": MONEY})


@for_each(
    ("of", "path"),
    [
        ("usd", "fleet.price"),
        ("mwh", "fleet.pue"),
        ("t_co2", "fleet.pue"),
        ("t_co2", "fleet.g_co2_per_kwh"),
        ("mwh", "fleet.tdp"),
    ],
)
def test_money_and_energy_are_proportional(of, path):
    """C6: an elasticity of 1."""
    case = RunCase(run(), of)
    assert slopes(case, [case.figures[path]])[path] == pytest.approx(1.0, abs=1e-9)
    now, more = case.values([{}, {path: 1.25 * case.figures[path].value}])
    assert more == pytest.approx(1.25 * now)
    assert slopes(case.of("days"), [case.figures[path]])[path] == 0.0


def _slope_of_the_law(interval, whole, mtbf):
    """Of (M/τ) e^(R/M) (e^((τ+δ)/M) - 1) over M, as logarithms: 1 - R/M - x e^x / (e^x - 1)."""
    x, r = (interval + whole.saves.pause) / mtbf, whole.recovery / mtbf
    return float(1 - r - x * np.exp(x) / np.expm1(x))


@pytest.mark.parametrize("name", ["often", "stated"])
def test_the_elasticity_of_days_with_the_mtbf_is_the_derivative_of_the_law(name):
    """Daly's law at a fixed interval; at the best one its derivative with the interval is 0."""
    path, case = "reliability.mtbf_processor", RunCase(run(name), "days")
    e = slopes(case, [case.figures[path]])[path]
    whole = run(name).whole
    interval = HOUR if name == "stated" else whole.best_interval
    law = _slope_of_the_law(interval, whole, 500 * HOUR / 64)
    assert e == pytest.approx(law, rel=1e-4)
    assert e < 0


@pytest.mark.parametrize(
    "name", ["rich", *(pytest.param(n, marks=pytest.mark.large) for n in ("sync", "slow storage"))]
)
def test_elasticities_of_times_add_up_to_minus_one(name):
    """C7: where all rates are twice as high, and all times half as long, a run takes half the time."""
    machine = Changed(SYSTEM, OWN_LATENCIES)
    one = calculon.campaign(MODEL, LLAMA_X64_P4, machine, {**RUNS[name], "fleet": MONEY})
    times = one.sensitivity()
    felt = {one.figure.path for one in times.effects}
    assert {"matrix.bfloat16.tflops", "reliability.mtbf_processor"} <= felt
    assert abs(times.total.together + 1) < 1e-6
    assert abs(times.total.sum + 1) < 1e-5


def test_variants_are_runs_of_changed_files():
    """Each figure of the campaign, those of the machine that runs ask for, and some of both at once."""
    case = RunCase(run("rich"), "days")
    asked = {**RUNS["rich"], "fleet": MONEY}
    paths = [path for path, one in case.figures.items() if kind_of(one) == RUN]
    paths += ["matrix.bfloat16.tflops", "networks[1].bandwidth", "ext.host.GBps"]
    changes = []
    for path in some(paths, 8):
        one = case.figures[path]
        value = round(1.5 * one.value) if one.kind is int else 1.25 * one.value
        if case.possible(one, value):
            changes.append({path: value})
    changes += [one | other for one in changes[:2] for other in changes[-3:]]
    days, mwh = (case.of(name).values(changes) for name in ("days", "mwh"))
    assert len(changes) > 10
    for change, *values in zip(changes, days, mwh, strict=True):
        own = {path: new for path, new in change.items() if path in case.of_campaign}
        machine = Changed(SYSTEM, {path: change[path] for path in change.keys() - own})
        options = {path.replace(".", "__"): new for path, new in own.items()}
        again = calculon.campaign(MODEL, LLAMA_X64_P4, machine, asked, **options)
        known = [again.figures["days"], again.figures["mwh"]]
        assert values == pytest.approx(known, rel=1e-12), change


def test_what_no_file_can_state_is_no_run():
    case = RunCase(run(), "mwh")
    at = case.values([{"fleet.pue": 0.9}, {"reliability.hardware_share": 1.2}, {}])
    assert np.isnan(at).tolist() == [True, True, False]
    assert Range().ends(case, case.figures["fleet.pue"]) == (None, 1.5)
    never_ends, does_not_fit = {"reliability.mtbf_processor": 1e-6}, {"mem1.GiB": 1}
    assert np.isnan(case.of("days").values([never_ends, does_not_fit])).all()


def test_every_figure_is_that_of_the_run():
    case = RunCase(run("rich"), "days")
    for name in RUN_FIGURES:
        assert case.of(name).values([{}]) == [run("rich").figures[name]]


def test_the_largest_elasticities_are_those_of_the_whole_table():
    told = run().largest_elasticities
    assert told.keys() == {"days", "usd"}
    known = run().sensitivity("usd").effects
    bought = [one for one in known if kind_of(one.figure) != USE and one.elasticity is not None]
    bought.sort(key=lambda one: -abs(one.elasticity))
    assert [one["path"] for one in told["usd"]] == [one.figure.path for one in bought[:3]]
    assert told["usd"][0] == {"path": "fleet.price", "elasticity": bought[0].elasticity}
    bare = calculon.campaign(MODEL, LLAMA_X64_P4, UNPRICED, tokens="1T")
    assert bare.figures["usd"] is None
    assert bare.largest_elasticities.keys() == {"days"}
