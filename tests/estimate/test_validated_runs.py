"""What measured runs say about a prediction: the file, the interval, the nearest runs, and what is outside of them."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

import calculon
from calculon.declarations import catalog
from calculon.declarations.machine_provenance import Provenance
from calculon.declarations.named_values import ENGINE_BYTES
from calculon.declarations.presets import COMMON
from calculon.declarations.statistics import LEVEL
from calculon.documents.validation_tables import RUNS, runs_file
from calculon.estimate import interval, nearest_runs, run_table, validated_runs
from calculon.estimate.evaluate import evaluate
from calculon.estimate.exceeded_runs import FASTEST, exceeded_runs
from calculon.estimate.interval import COLLECTIVES, PRODUCTS, kernel_sides
from calculon.estimate.nearest_runs import fitted
from calculon.estimate.run_table import FILE, Runs, about, kind, runs
from calculon.estimate.validated_runs import AT_PEAK, belief, factors
from calculon.plan.columns import DEFAULTS
from calculon.plan.plan import Plan
from calculon.render.text_tables import Table
from calculon.validate.run_rows import csv_rows
from scripts.fastest_runs import fastest_file, rows
from tests.cases import for_each
from tests.draws import some
from tests.helpers import ROOT, document
from tests.shipped_studies import compared, shipped

CASE = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")
REFRESH = f"it is stale: scripts/render, or calculon lv --edition corrected --runs {FILE}"
OFFLOADED = ("weight", "activations", "optimizer")
SAMPLE = ("mt_nlg", "megatron_2020", "sc21/table1", "seqsel/steps", "dgxc/gpt3_5b", "nemo/bridge")
"""Small studies of six sources, on A100, H100 and B200."""

SOURCES_OF_H100 = sorted(
    {run.source for run in map(runs().__getitem__, range(len(runs()))) if "H100" in run.accelerator}
)


def asked(case=CASE):
    """Return the estimate of a case."""
    return calculon.estimate(*case)


def pretend(monkeypatch, change):
    """Let the measured runs be others: each as ``change`` returns it, or none where that returns nothing."""
    every = map(runs().__getitem__, range(len(runs())))
    others = Runs.of([other for run in every if (other := change(run))])
    monkeypatch.setattr(validated_runs, "runs", lambda: others)


def like(**changes):
    """Return a run of a dense model in 16 bits with some changes."""
    return dataclasses.replace(runs()[0], **{"type": "bfloat16", "experts": 0} | changes)


def facts_of(estimate):
    return about(estimate.model, estimate.system, estimate.execution)


def limits_of(estimate, errors):
    """Return the limits of the logarithm of measured over predicted time for the estimate of the case."""
    facts = facts_of(estimate)["preset"], "NVIDIA Hopper", "bfloat16", 8e9
    return errors.limits(runs().context(*facts, splits_weights=False, experts=False))


def evident(name):
    """Return how many different values a column has among the runs that intervals rest on."""
    return len(set(np.array(runs().columns[name])[runs().evidence]))


# -- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", some(SAMPLE, 1))
def test_the_file_is_current(name):
    study = shipped()[name]
    found = runs_file([compared(name, "corrected")])
    lines = (ROOT / FILE).read_text().splitlines()
    kept = [line for line in lines if line.startswith(f"{study.origin},{name},")]
    assert found.splitlines() == [lines[0], *kept], REFRESH


def test_the_file_has_the_studies_of_whole_steps_and_no_others():
    known = {name for name, study in shipped().items() if study.whole_steps}
    assert set(runs().columns["study"]) == known, REFRESH


def test_a_file_is_read_as_it_was_written(monkeypatch, tmp_path):
    some = [runs()[number] for number in (0, 40, -1)]
    odd = dataclasses.replace(
        some[0], label='TP 8, "PP" 4', citation='A "quoted", long one', fitted="a b"
    )
    plain = dataclasses.replace(some[1], citation="short")
    citations = ('A title, "in quotes"', '"A title", in quotes')
    every = [odd, plain, *(dataclasses.replace(some[2], citation=one) for one in citations)]
    path = tmp_path / FILE
    path.parent.mkdir()
    path.write_text(Table(RUNS, csv_rows(every)).csv(), encoding="utf-8")
    monkeypatch.setattr(catalog, "root", lambda: tmp_path)
    again = runs.__wrapped__()
    assert [again[i] for i in range(len(every))] == every
    assert Runs.of([odd, plain])[1] == plain


def test_types_of_one_width_are_alike():
    assert kind("float16") == kind("bfloat16") != kind("float8")
    assert len({kind(one) for one in ("float8", "float16", "float32", "tfloat32")}) == 4


# -- the interval -----------------------------------------------------------------------------------------------------


def test_the_published_edition_has_none():
    old = asked(("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g"))
    assert old.edition == "sc23"
    assert old.belief is None
    low, high = factors(old.model, old.system, Plan.of(old.execution), old.stats)
    assert np.isnan([low, high]).all()


def test_without_runs_or_their_file_there_is_none(monkeypatch, tmp_path):
    estimate = asked()
    monkeypatch.setattr(validated_runs, "runs", lambda: Runs.of([]))
    assert belief(estimate.model, estimate.system, estimate.execution, estimate.stats) is None
    monkeypatch.setattr(catalog, "root", lambda: tmp_path)
    assert len(runs.__wrapped__()) == 0


def test_it_is_that_of_the_sources():
    estimate = asked()
    found = estimate.belief
    low, _, high = limits_of(estimate, runs().by_source)
    time = estimate.stats["total_time"]
    assert (found.low, found.high) == pytest.approx((time * math.exp(low), time * math.exp(high)))
    assert found.level == LEVEL
    assert f"of {evident('source')} sources" in found.basis


def test_it_is_relative_to_the_prediction(monkeypatch):
    """Twice the measured and the predicted times are the same evidence, and twice the time twice the interval."""
    estimate = asked()
    found = estimate.belief
    pretend(
        monkeypatch,
        lambda r: dataclasses.replace(r, measured=2 * r.measured, predicted=2 * r.predicted),
    )
    slow = dict(estimate.stats, total_time=2 * estimate.stats["total_time"])
    again = belief(estimate.model, estimate.system, estimate.execution, slow)
    assert (again.low, again.high) == pytest.approx((2 * found.low, 2 * found.high))


def test_sources_that_are_missed_make_it_wider(monkeypatch):
    found = asked().belief
    pretend(monkeypatch, lambda run: dataclasses.replace(run, measured=2 * run.measured))
    again = asked().belief
    assert again.low == pytest.approx(2 * found.low)  # a bias is not corrected away
    assert again.high == pytest.approx(2 * found.high)


def test_runs_that_a_fit_saw_are_no_evidence(monkeypatch):
    plain = asked().belief
    pretend(monkeypatch, lambda r: dataclasses.replace(r, fitted="x" if r.source == "sc21" else ""))
    found = asked().belief
    pretend(
        monkeypatch, lambda r: dataclasses.replace(r, fitted="") if r.source != "sc21" else None
    )
    again = asked().belief
    assert (found.low, found.high, found.basis) == (again.low, again.high, again.basis)
    assert (found.low, found.high) != (plain.low, plain.high)


def test_a_row_of_a_table_has_that_of_the_execution_alone():
    base = asked().execution
    changes = ({}, {"matmul_dtype": "float8"}, {"microbatch_size": 2}, {"edition": "sc23"})
    plan = Plan.from_records([dataclasses.replace(base, **change) for change in changes])
    model, system = calculon.inputs.model(CASE[0]), calculon.inputs.system("h200_141g_sxm")
    system = dataclasses.replace(system, mem1=dataclasses.replace(system.mem1, bandwidth=9e12))

    def ends(some):
        found = evaluate(model, system, some)
        return factors(model, system, some, {name: found[name] for name in found.names})

    low, high = ends(plan.take(np.arange(3)))
    for i in range(3):
        alone = ends(plan.take(np.array([i])))
        assert (low[i], high[i]) == (alone[0][0], alone[1][0])
    old = factors(model, system, plan.take(np.array([3])), {})
    assert np.isnan(old).all()


@pytest.mark.parametrize("utilization", [0.1, 0.9, 0.99])
def test_no_time_means_more_than_the_peak(utilization):
    """The faster end alone moves, to the time of the model's arithmetic at the peak."""
    model, system = (calculon.inputs.model(CASE[0]), calculon.inputs.system(CASE[2]))
    plan = Plan.of(asked().execution)
    low, high = factors(model, system, plan, {})
    found = factors(model, system, plan, {AT_PEAK: np.array([utilization])})
    assert found == (max(low, utilization), high)


def test_a_malformed_row_has_none():
    model, system = (calculon.inputs.model(CASE[0]), calculon.inputs.system(CASE[2]))
    plan = Plan.from_records([asked().execution] * 2)
    plan.malformed[1] = 0
    low, high = factors(model, system, plan, {})
    assert np.isfinite([low[0], high[0]]).all()
    assert np.isnan([low[1], high[1]]).all()


def calibrated(part, **spread):
    """Return a system file with residuals of one part."""
    fits = [{"part": part, "spreads": [spread]}]
    return document("systems", CASE[2]) | {"calibration": {"fits": fits}}


def test_whole_iterations_that_a_user_measured_come_first():
    own = calibrated("training", low=0.9, high=1.2, level=0.8)
    estimate = asked((*CASE[:2], own))
    found, time = estimate.belief, estimate.stats["total_time"]
    assert (found.low, found.high) == pytest.approx((0.9 * time, 1.2 * time))
    assert found.level == 0.8
    assert "calibrated" in found.basis


def test_those_of_the_other_edition_do_not():
    own = calibrated("training", low=0.9, high=1.2, level=0.8, edition="sc23")
    assert asked((*CASE[:2], own)).belief.level == LEVEL


# -- processors without a validated run -------------------------------------------------------------------------------


def test_kernels_join_in_quadrature_where_no_step_was_validated(monkeypatch):
    estimate = asked()
    known = estimate.belief
    monkeypatch.setattr(
        validated_runs, "same_processor", lambda some, *_: np.zeros(len(some), bool)
    )
    found = asked().belief
    stats, stated = estimate.stats, document("systems", CASE[2])["about"]["kernels"]
    exposed = sum(
        stats[f"{axis}_exposed_time"] for axis in ("tp_comm", "pp_comm", "dp_comm", "recomm")
    )
    total, optimizer = stats["total_time"], stats["optim_step_time"]
    sizes = {
        "16-bit products, m, n, k from 1,024": total - exposed - optimizer,
        "memory-bound, all": optimizer,
        "collectives, all": exposed,
    }
    extra = math.hypot(
        *(math.log1p(stated[name]["p90"] / 100) * size / total for name, size in sizes.items())
    )
    low, middle, high = limits_of(estimate, runs().by_processor)
    assert math.log(found.high / total) == pytest.approx(middle + math.hypot(high - middle, extra))
    assert math.log(found.low / total) == pytest.approx(middle - math.hypot(middle - low, extra))
    assert found.low < known.low < known.high < found.high
    assert f"the spread between {evident('accelerator')} processors" in found.basis
    assert "residuals of kernels of h100_80g_sxm" in found.basis


@pytest.mark.parametrize("sources", [1, 2])
def test_a_processor_of_one_source_is_not_validated(monkeypatch, sources):
    others = SOURCES_OF_H100[sources:]
    pretend(monkeypatch, lambda r: None if r.source in others and "H100" in r.accelerator else r)
    assert ("spread between" in asked().belief.basis) == (sources < 2)


def test_kernels_not_measured_are_as_uncertain_as_any_and_their_share_of_the_peak_is_assumed():
    stated = {name: document("systems", name) for name in interval.MEASURED}
    names = {PRODUCTS: "16-bit products, m, n, k from 1,024", COLLECTIVES: "collectives, all"}
    largest = {
        kind: max(
            math.log1p(one["about"]["kernels"].get(name, {"p90": 0})["p90"] / 100)
            for one in stated.values()
        )
        for kind, name in names.items()
    }
    shares = [
        one["ext"]["kernels"]["product"]["bfloat16"]["max_efficiency"] for one in stated.values()
    ]
    found = interval.assumed_sides()
    assert found.up == found.down
    assert found.up[COLLECTIVES] == pytest.approx(largest[COLLECTIVES])
    spread = math.log(max(shares) / min(shares)) / 2
    assert found.up[PRODUCTS] == pytest.approx(math.hypot(largest[PRODUCTS], spread))
    own = {
        name
        for name in catalog.names("system")
        if "kernels" in document("systems", name).get("about", {})
    }
    # The processor of a100_80g_sxm, and those whose laws are fitted together with b200_sxm.
    assert own - set(interval.MEASURED) == {
        "a100_40g_sxm",
        "gb200_nvl72",
        "gb300_nvl72",
        "b300_sxm",
    }


@pytest.mark.parametrize("name", ["gh200_96g", "gh200_144g", "mi300x", "mi355x", "tpu_v6e", "l40s"])
def test_intervals_on_unmeasured_machines_are_wider_than_on_h100(name):
    """At least 1.3 times as wide, of logarithms; 1.25 on the L40S, whose kernels were measured."""
    one, plan = asked(), Plan.of(asked().execution)

    def width(system):
        low, high = factors(one.model, calculon.inputs.system(system), plan, one.stats)
        return math.log(high[0] / low[0])

    assert width(name) > (1.25 if name == "l40s" else 1.3) * width(CASE[2])


def test_residuals_of_a_calibration_go_before_those_of_the_catalog():
    spread = {"low": 0.8, "high": 1.5, "level": 0.9}
    system = calculon.inputs.system(calibrated("matrix.bfloat16", **spread))
    sides = kernel_sides(system, "bfloat16")
    assert sides.up == pytest.approx({PRODUCTS: math.log(1.5)})
    assert sides.down == pytest.approx({PRODUCTS: -math.log(0.8)})
    assert kernel_sides(calculon.inputs.system(calibrated("mem2", **spread)), "float8") is None
    links = kernel_sides(calculon.inputs.system(calibrated("networks[1]", **spread)), "float8")
    assert set(links.up) == {COLLECTIVES}


@pytest.mark.parametrize("name", ["h100_80g_sxm", "gb200_nvl72", "tpu_v5e"])
def test_residuals_of_products_are_those_of_the_width_of_their_type(name):
    stated = interval._stated(name)
    for datatype, size in ENGINE_BYTES.items():
        known = f"{8 * size:.0f}-bit products, m, n, k from 1,024" in stated
        assert (kernel_sides(calculon.inputs.system(name), datatype) is not None) == known


def test_a_part_that_is_never_wrong_on_a_side_does_not_move_it():
    system = calculon.inputs.system(calibrated("mem1", low=1.1, high=1.2, level=0.9))
    sides = kernel_sides(system, "bfloat16")
    assert list(sides.down.values()) == [0]


def test_a_system_of_ones_own_has_no_measured_kernels():
    found = asked((*CASE[:2], {"base": CASE[2], "mem1": {"GBps": 9000}})).belief
    assert "no validated run on this system" in found.outside
    assert "kernels of this system were not measured, assumed within: products " in found.basis
    assert interval._stated("nothing of the catalog") == {}


# -- nearest, outside, remark -----------------------------------------------------------------------------------------


def test_a_measured_run_is_nearest_to_itself_and_inside():
    execution, here = asked().execution, np.ones(len(runs()), bool)
    for number in (0, 200, 300, 900):
        facts = dataclasses.asdict(runs()[number])
        assert nearest_runs.distance(runs(), facts)[number] == 0
        assert not [*nearest_runs.outside(runs(), facts, execution, here)]


@for_each(
    ("change", "expected"),
    [
        *(({"parameters": 2.0}, 1), ({"tensor_par": 2.0}, 0.5), ({"pipeline_par": 4.0}, 0.5)),
        *(({"bandwidth": 1 / 2}, 1), ({"peak": 2.0}, 4), ({"batch_size": 8.0}, 3 * 0.5)),
        ({"num_procs": 1 / 4, "batch_size": 1 / 4}, 2 * 0.5),
        ({"seq_size": 2.0, "batch_size": 1 / 2}, 0.5),
        *(({"type": "float8"}, 2), ({"type": "float16"}, 0)),
        *(({"preset": "nemo"}, 1), ({"experts": 1}, 4)),
    ],
)
def test_distances_count_factors_of_two_and_other_kinds(change, expected):
    facts = dataclasses.asdict(like())
    other = {n: v * facts[n] if isinstance(v, float) else v for n, v in change.items()}
    found = nearest_runs.distance(Runs.of([like()]), facts | other)
    assert found == pytest.approx([expected])


@for_each(("third", "order"), [(4.9, "acb"), (5.1, "abc")])
def test_a_second_run_of_a_source_counts_as_farther_by_4(third, order):
    some = [like(label=label, source=s) for label, s in ("ax", "bx", "cy", "dz")]
    found = nearest_runs.nearest(Runs.of(some), np.array([0.5, 1.0, third, 9.0]))
    assert "".join(run.label for run in found) == order


@for_each(
    ("peak", "bandwidth", "same"),
    [(0.0, 0.0, True), (0.019, -0.24, True), (-0.021, 0.0, False), (0.0, 0.26, False)],
)
def test_a_processor_with_other_figures_is_another_machine(peak, bandwidth, same):
    """The figures are logarithms of a run's figure over the one in the system file."""
    system = calculon.inputs.system(CASE[2])
    rates = np.exp([peak, bandwidth]) * (run_table.peak(system), system.mem1.bandwidth)
    figures = dict(zip(("peak", "bandwidth"), rates.tolist(), strict=True))
    names = (system.provenance.processor, "", "x")
    some = Runs.of([like(accelerator=one, **figures) for one in names])
    assert nearest_runs.same_processor(some, system).tolist() == [same, False, False]
    unnamed = dataclasses.replace(system, provenance=Provenance(processor=""))
    assert not nearest_runs.same_processor(some, unnamed).any()


@pytest.mark.parametrize(
    ("system", "lender"), [("h100_80g_sxm", ""), ("gh200_96g", "h100_80g_sxm")]
)
def test_the_basis_counts_the_sources_of_each_kind(system, lender):
    machine, other = (calculon.inputs.system(one) for one in (system, lender or system))
    here = nearest_runs.same_processor(runs(), machine)
    related = runs().where("accelerator", other.provenance.processor) & bool(lender)
    assert (nearest_runs.relatives(runs(), machine) == related).all()

    def count(rows):
        return len(set(np.array(runs().columns["source"])[rows & runs().evidence]))

    def basis(here, **changes):
        facts = {"preset": "megatron-lm", "type": "float8", "system": system, "experts": 0}
        facts |= changes
        return validated_runs._basis(runs(), machine, facts, here, related)

    counts = [f"{count(runs().of_framework('megatron-lm'))} of megatron-lm"]
    counts += [f"{count(here)} on {system}"]
    counts += [f"{count(related)} on its relative {lender}"] if lender else []
    counts += [f"{count(runs().where('type', 'float8'))} in float8"]
    counts += [f"{count(runs().where('experts', '0'))} of dense models"]
    assert f"({', '.join(counts)})" in basis(here)
    assert f"({', '.join(counts[1:])})" in basis(here, preset="published")
    assert " in 16 bits, " in basis(here, type="float16")
    moe = count(~runs().where("experts", "0"))
    assert f", {moe} of MoE models)" in basis(here, experts=8)
    kernels = f"; residuals of kernels of {lender or system}: products "
    assert (kernels in basis(here)) == bool(lender)


@for_each(
    ("change", "sentences"),
    [
        *(({}, []), ({"num_procs": 16}, [])),
        ({"num_procs": 17_000}, ["17,000 processors (validated up to 16)"]),
        ({"num_procs": 7}, ["7 processors (validated from 8)"]),
        ({"seq_size": 4095}, ["sequences of 4,095 tokens (validated from 4,096)"]),
        ({"parameters": 5e12}, ["5e+03 billion parameters (validated up to 8)"]),
        ({"domain": 9}, ["9 processors on the fastest network (validated up to 8)"]),
        ({"schedule": "zb_h1"}, ["pipeline schedule zb_h1 never validated"]),
        *(({"preset": "nemo"}, ["preset nemo never validated"]), ({"preset": COMMON}, [])),
        ({"type": "float32"}, ["no validated run in float32 on mine"]),
        ({"training": False}, ["inference (validated runs are training steps)"]),
        *(({f"{name}_offload": True}, ["offloading never validated"]) for name in OFFLOADED),
    ],
)
def test_what_lies_outside_is_said(change, sentences):
    sizes = {"seq_size": 4096, "parameters": 8 * 10**9, "domain": 8, "preset": "megatron-lm"}
    one, other = like(num_procs=8, **sizes), like(num_procs=16, **sizes)
    some = Runs.of([one, dataclasses.replace(other, experts=8)])
    flags = {"training": True, **{f"{name}_offload": False for name in OFFLOADED}} | change
    facts = dataclasses.asdict(one) | {"system": "mine"} | change

    def outside(experts, *here):
        asked = facts | {"experts": experts}
        return [*nearest_runs.outside(some, asked, SimpleNamespace(**flags), np.array(here))]

    assert outside(0, True, True) == outside(8, True, True) == sentences
    assert "no validated run of a model with experts on mine" in outside(8, True, False)
    assert "no validated run on mine" in outside(0, False, False)


def exceeded(some, mfu, **facts):
    """Return the kinds of runs that a prediction on H100 exceeds, the numbers in their labels, and if on a relative."""
    machine = calculon.inputs.system(CASE[2])
    facts = {"type": "bfloat16", "experts": 0, "hidden": 1, "parameters": 1e9, "family": ""} | facts
    found = exceeded_runs(Runs.of(some), machine, facts, mfu)
    for one in found:
        assert one.excess == pytest.approx(mfu / one.comparable_mfu - 1)
    return [(one.of, int(one.label), one.relative) for one in found]


def fast(*figures, **changes):
    """Return runs of a model with 1 billion parameters on H100 with some utilizations, numbered in their labels."""
    machine = calculon.inputs.system(CASE[2])
    own = {"accelerator": machine.provenance.processor, "bandwidth": machine.mem1.bandwidth}
    own |= {"peak": run_table.peak(machine), "hidden": 1, "parameters": 10**9, "family": ""}
    own |= changes
    return [like(mfu_causal=mfu, label=str(i), **own) for i, mfu in enumerate(figures)]


def test_a_prediction_exceeds_the_fastest_run_of_its_model_and_of_its_class():
    other = dataclasses.replace(fast(0.5)[0], hidden=2, label="2")
    some = [*fast(0.3, 0.4), other]
    assert exceeded(some, 0.4) == []
    assert exceeded(some, 0.41) == [("model", 1, False)]
    assert exceeded(some, 0.51) == [("model", 1, False), ("class", 2, False)]
    for change in ({"hidden": 3}, {"parameters": 1.02e9}):
        assert exceeded(some, 0.51, **change) == [("class", 2, False)]
    assert exceeded(some, 0.51, experts=8) == []


def test_runs_of_the_processor_and_width_are_compared_first_then_other_widths_then_its_generation():
    """Runs are labeled by their number: of the same width, of another one, and on another processor."""
    changes = ({}, {"type": "float8"}, {"accelerator": "other", "family": "f"})
    runs_of = zip(fast(0.2, 0.2, 0.2), changes, strict=True)
    some = [dataclasses.replace(run, **change) for run, change in runs_of]
    for first in range(3):
        assert exceeded(some[first:], 0.9, family="f")[0] == ("model", first, first == 2)
    assert exceeded(some[2:], 0.9, family="g") == exceeded(some[2:], 0.9) == []


@for_each(("own", "theirs", "factor"), [("bfloat16", "float8", 2), ("float8", "bfloat16", 1)])
def test_narrower_runs_are_compared_by_rate_and_wider_ones_by_utilization(own, theirs, factor):
    some = fast(0.2, type=theirs)
    assert exceeded(some, 0.2 * factor + 0.004, type=own) == []
    assert exceeded(some, 0.2 * factor + 0.006, type=own)


@for_each(
    ("mfu", "best", "said"),
    [(0.604, 0.6, 0), (0.606, 0.6, 1), (0.0604, 0.06, 0), (0.061, 0.06, 1)],
)
def test_a_prediction_exceeds_a_run_if_their_displayed_utilizations_differ(mfu, best, said):
    assert len(exceeded(fast(best), mfu)) == 2 * said


def test_facts_of_published_rates_are_those_of_the_catalog():
    assert (ROOT / FASTEST).read_text(encoding="utf-8") == fastest_file()


def test_pages_of_plans_that_are_much_faster_than_published_runs_say_so():
    """The stored plans were searched by ``scripts/render --plans``."""
    for row in rows():
        published, best = float(row["tokens_per_second_per_proc"]), float(row["best"] or 0)
        assert best < 1.25 * published or row["said"], row["model"]


# -- cost -------------------------------------------------------------------------------------------------------------


@for_each(
    ("parameters", "value", "said"),
    [
        *((9.89e9, 7000, True), (9.91e9, 7000, False)),
        *((2.019e10, 7000, False), (2.021e10, 7000, True)),
        *((9.89e9, DEFAULTS["stage_stop_us"], False), (9.89e9, None, False)),
    ],
)
def test_what_was_fitted_to_models_of_another_size_is_said(parameters, value, said):
    one = like(parameters=10**10, source="one", fitted="x stage_stop_us")
    two = like(parameters=2 * 10**10, source="two", fitted="stage_stop_us")
    some, execution = Runs.of([one, two, like(fitted="")]), SimpleNamespace(stage_stop_us=value)
    found = fitted(some, {"parameters": parameters}, execution)
    wanted = ["stage_stop_us 7,000, on 10 to 20 billion parameters (one, two)"]
    assert list(found) == (wanted if said else [])
