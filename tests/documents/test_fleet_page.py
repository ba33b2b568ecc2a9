"""The page of fleets: it says what is best, what misses the limits, and where every figure is from."""

from dataclasses import replace

import pytest

import calculon
from calculon.advise.in_words import plan_in_words
from calculon.base.units import chance
from calculon.campaign.assumed import assumed_defaults
from calculon.campaign.prices import carbon_of, price_range
from calculon.campaign.read import read_campaign
from calculon.documents.fleet_page import FRONT, fleet_page
from calculon.documents.run_defaults import defaults_line, price_words
from calculon.estimate.exceeded_runs import ExceededRun
from tests.documents.drawing import drawn, flat
from tests.store import cache


@cache
def fleets():
    """Return an answer about two counts of two machines, of which one has no price."""
    run = {"tokens": "1T", "deadline": "2000d"}
    machines = ["h100_80g_sxm", "gaudi3"]
    return calculon.plan(
        "llama3-8B", "1,16", machines, batch=32, campaign=run, objective="usd", seq=4096
    )


@cache
def shown(width):
    return text_of(fleets(), width)


def text_of(answer, width=160):
    return drawn(fleet_page(answer), width=width)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_line_is_wider_than_the_page(width):
    assert max(map(len, shown(width).splitlines())) <= width


def test_every_point_has_a_line():
    answer, text = fleets(), shown(160)
    lines = text[text.index("Days and money") : text.index("Prices and power")].splitlines()
    for one in answer.points:
        start = f"{one.system.name} {one.num_procs:,} "
        (line,) = (line for line in map(flat, lines) if start in f"{line} ")
        assert (FRONT in line.split()) == (one in answer.frontier)
        assert ("none fits" in line) == (one.plan is None)
    assert "No price is known for gaudi3" in text


def test_batches_that_differ_have_a_column():
    run = {"tokens": "1T", "reliability": {"spares": 3}}
    answer = calculon.plan("llama3-8B", "64,96", "h100_80g_sxm", campaign=run, objective="usd")
    text = text_of(answer)
    assert "a batch for each count" in text
    assert f": {answer.best.num_procs} x h100_80g_sxm + 3 spare nodes, " in text
    assert "spare nodes\n" in "\n".join(line.rstrip() for line in text.splitlines())
    assert "over limit" not in text  # there are no limits
    assert "1,024 for each processor (--batch)" in text
    rows = text[text.index("Days and money") :].splitlines()
    for one in answer.points:
        (line,) = (line for line in rows if f" {one.num_procs} " in line)
        assert f" {one.question.tokens_per_step / 1e6:.1f} M " in line
    stated = calculon.plan(
        "llama3-8B", "64,96", "h100_80g_sxm", campaign=run, objective="usd", batch=8
    )
    text = flat(text_of(stated))
    assert "On 96 processors few data-parallel degrees divide it" in text
    assert "On 96 processors it is small" in text


def test_a_plan_that_memory_may_not_suffice_for_says_so():
    found = replace(fleets().best, memory="1.0 GiB are left")
    answer = replace(fleets(), points=(found,))
    assert "Memory may not suffice: 1.0 GiB are left." in text_of(answer)
    assert "Memory may not suffice" not in text_of(
        replace(answer, points=(replace(found, memory=""),))
    )


def test_a_plan_that_exceeds_published_runs_says_so():
    best = fleets().best
    run = ExceededRun(
        **{"of": "model", "study": "a", "label": "b", "processor": "H100", "type": "bfloat16"},
        **{"relative": False, "num_procs": 8, "experts": 0, "mfu": 0.6},
        **{"measured_mfu": 0.4, "comparable_mfu": 0.4, "excess": 0.5},
    )
    text = flat(text_of(replace(fleets(), points=(replace(best, above=(run,)),))))
    words = "MFU 60 % causal, 50 % above the best published run on H100 in bfloat16: 40 % (a, b)."
    assert f"Above every measured run of this model: {words}" in text
    assert best.above == best.answer.best.belief.above


def test_the_fastest_of_all_is_named_and_what_is_above_the_risk_is_marked():
    asked = {"campaign": {"tokens": "1T"}, "objective": "usd", "batch": 512}
    answer = calculon.plan("llama3-8B", "64", "h100_80g_sxm", **asked)
    best = answer.best.plan
    anyway = calculon.search(
        "llama3-8B", 64, "h100_80g_sxm", batch=512, preset="megatron-lm", risk=1
    ).best
    assert answer.fastest.stats["fits"] == anyway.stats["fits"] < 0.9 <= best.stats["fits"]
    assert answer.fastest.time == anyway.stats["total_time"]
    words = f"Fastest that is predicted to fit: {plan_in_words(anyway.execution)}"
    assert words in flat(text_of(answer))
    recommended = calculon.estimate("llama3-8B", best.execution, "h100_80g_sxm").execution
    assert f"in expectation: 64 x h100_80g_sxm, {plan_in_words(recommended)}" in flat(
        text_of(answer)
    )
    every = calculon.plan("llama3-8B", "64", "h100_80g_sxm", risk="100%", **asked)
    assert every.best.plan.execution == answer.fastest.execution
    assert every.fastest is None
    marked = f"(OOM risk {chance(1 - anyway.stats['fits'])})"
    assert marked not in flat(text_of(every))
    question = replace(every.questions[0], risk=0.1)
    points = (replace(every.points[0], question=question),)
    assert marked in flat(text_of(replace(every, points=points, questions=(question,))))


def test_carbon_has_its_grams_and_its_source():
    grid = carbon_of("us-va")
    run = read_campaign({"tokens": "1T"}, {"fleet.g_co2_per_kwh": "us-va"})
    answer = replace(fleets(), campaign=run)
    text = flat(text_of(answer))
    assert f"{grid.g_co2_per_kwh:g} g CO2/kWh {grid.name}, {grid.source}" in text
    assert "g CO2/kWh" not in shown(160)


def test_every_default_price_and_power_has_its_source():
    answer, text = fleets(), flat(shown(160))
    for one in assumed_defaults(answer.campaign, ["h100_80g_sxm", "gaudi3"]):
        assert (one["field"] in text) == one["counts"]
        if one["counts"]:
            assert flat(one["source"]) in text
    for one in answer.to_dict()["prices"]:
        if one["usd"] is not None:
            assert f"{one['usd']:.2f} USD/h" in text
            assert flat(price_words(one)) in text
        assert f"{one['power']['watts']:,.0f} W" in text
    assert "PUE 1" in text
    assert "also assumed for gaudi3, without a source" in text
    assert price_range("h100_80g_sxm", "on_demand").in_words in text


def test_a_line_has_all_defaults_that_nobody_stated():
    stated = read_campaign({"tokens": "1T", "reliability": {"restart": "10min"}})
    price = {"usd": 2.5, "kind": "on_demand", "source": "a list", "date": "2025-10"}
    text = defaults_line(assumed_defaults(stated, []), [price])
    assert "restart" not in text
    assert "detect 60 s (assumption" in text
    assert "price 2.50 USD/h (on demand, 2025-10, old, a list)" in text
    given = price | {"kind": "given", "source": "", "date": ""}
    assert "price" not in defaults_line(assumed_defaults(stated, []), [given])


def test_a_short_page_has_the_best_the_frontier_and_few_lines():
    answer = fleets()
    text = drawn(fleet_page(answer, short=True), width=160)
    assert len(text.splitlines()) <= 25
    listed = {flat(line) for line in text.splitlines() if flat(line).startswith(FRONT)}
    assert len(listed) == len(answer.frontier)
    assert f": {answer.best.num_procs} x {answer.best.system.name}" in text
    assert "-v: sources, assumptions, everything." in text
    assert "Prices and power" not in text
