"""The parts of the view of a plan: the numbers of the command, and links that lead where they say."""

import re
from contextlib import redirect_stdout
from dataclasses import replace
from html import unescape
from io import StringIO

import pytest

from calculon.base.units import GIB
from calculon.cli.main import main
from calculon.documents.confidence import WHY_TIED, chance
from calculon.documents.why_page import percent_more
from calculon.explore.page_state import State
from calculon.explore.plan.plan_view import PARTS
from calculon.explore.search.searches import best_of_all, with_opened
from calculon.render.chart import Bars
from tests.documents.charts.reading import marks, tick_texts
from tests.draws import some
from tests.explore.asking import answers, at, made, words
from tests.store import cache

BEST = State(model="gpt3-13B", system="a100_80g_sxm", procs=64)
OWN = replace(
    BEST,
    plan={"tensor_par": 4, "pipeline_par": 2, "microbatch_size": 1, "pipeline_interleaving": 1},
)
LARGE = replace(BEST, plan={**OWN.plan, "tensor_par": 1, "microbatch_size": 16})
ILLEGAL = replace(OWN, plan={**OWN.plan, "tensor_par": 3})
NONE = State(
    model="mlp-2x1024", system="a100_80g_sxm", procs=1, machine={"mem1.GiB": 1}, batch="4096"
)


def links(part):
    """Return the states that the links of a part lead to."""
    tags = re.findall(r"<a\b[^>]*\bdata-state\b[^>]*>", str(part.html))
    return [at(unescape(re.search(r'href="([^"]*)"', tag)[1])) for tag in tags]


@cache
def command():
    """Return the page of ``calculon plan`` for a plan of one's own in one line."""
    options = ("--mine", "tp=4,pp=2,mbs=1", "--tokens", "15T", "-v")
    with redirect_stdout(StringIO()) as text:
        assert main(["plan", BEST.model, "64", BEST.system, *options]) == 0
    return " ".join(text.getvalue().split())


def test_the_key_figures_of_ones_own_plan_are_those_of_the_command():
    answers().best_plans(OWN)
    mine = command().partition("Mine: ")[2]
    shown = words(made("figures", replace(OWN, tokens="15T")))
    time = re.search(r"Time per iteration ([\d.]+ s) 90 %: ([\d.]+ to [\d.]+ s)", shown)
    assert f"{time[1]} ({time[2]}) per step" in mine.replace(" s to ", " to ")
    for pattern, text in {
        r"MFU, causal (\d+ %)": "MFU {}",
        r"Risk of running out of memory (<?\d+ %)": "OOM risk {}",
        r"([\d.]+ GiB) of [\d.]+ GiB usable": "{}",
        r"Tokens/s per processor ([\d,]+)": "{} tokens/s per processor",
        r"Days for 15 T tokens ([\d,]+)": "{} days for 15 T tokens",
        r"Against the best (\+\d+ %)": "{} compared with the best",
    }.items():
        assert text.format(re.search(pattern, shown)[1]) in mine
    split = re.match(r".*?(?= Risk of running out)", shown)[0]
    assert mine.startswith(split)


def test_the_key_figures_of_the_best_plan_are_those_of_the_command():
    told = command()
    answers().best_plans(BEST)
    shown = words(made("figures", BEST))
    assert f"Best: {re.match('.*?(?= Risk of running out)', shown)[0]}" in told
    plans, fit = re.search(r"Plans compared ([\d,]+) ([\d,]+) fit", shown).groups()
    assert f"{plans} plans, of which {fit} fit" in told
    assert re.search(r"Time per iteration ([\d.]+ s)", shown)[1] in told
    for label, option in (("days", "days"), ("US dollars", "USD")):
        shown = words(made("figures", replace(BEST, tokens="15T")))
        figure = re.search(rf"{label} for 15 T tokens (\S+)", shown, re.IGNORECASE)[1]
        assert re.search(rf"{option}[^0-9]*(15 T tokens +)?{figure} ", told)
    used = words(made("memory", BEST))
    assert re.search(r"([\d.]+ GiB) of ([\d.]+ GiB) usable", used)[0] in told


def test_the_changes_to_the_best_are_those_of_the_command():
    told = command().partition("From mine to the best")[2]
    part = made("against", OWN)
    _, notes = part.chart.panels[0].marks[1:3]
    texts = notes.texts
    for text in texts:
        assert text in told
    assert float(texts[-1].split()[0]) < float(texts[0].split()[0])
    for _, change in part.chart.panels[0].y.ticks[1:-1]:
        assert change.split("\n")[0] in told


@pytest.mark.parametrize("state", [OWN, LARGE], ids=["runs", "too large"])
def test_buttons_towards_the_best_take_one_change_over(state):
    part = made("against", state)
    best, *alone = links(part)
    assert not best.plan
    text = str(part.html).replace("\N{NO-BREAK SPACE}", " ")
    effects = re.findall(r'<td class="number"><a [^>]*class="button"[^>]*>([^<]*)</a>', text)
    assert len(alone) == len(effects) > 0
    now = answers().plan(state)
    for then, effect in some(zip(alone, effects, strict=True), 3):
        shown = answers().plan(then)
        assert shown.fields != now.fields
        if shown.estimate is None:
            assert effect.endswith("too much")
        elif now.estimate is not None:
            times = (one.estimate.stats["total_time"] for one in (shown, now))
            new, old = times
            assert effect == percent_more(new / old - 1)


def test_a_gain_that_the_search_did_not_try_is_added_to_it():
    state = State(model="llama3-8B", system="h100_80g_sxm", procs=16)
    part = made("changes", state)
    (add,) = (one for one in links(part) if one.view == "search")
    assert add.option("open") == "ce_impl"
    assert "does not try Cross-entropy fused" in words(part)
    found = best_of_all(add, answers())
    assert found[0].execution.ce_impl == "fused"

    best = answers().best_plans(state)[0]
    ahead = replace(state, plan={**answers().stated(state), "ce_impl": "fused"})
    time = answers().plan(ahead).estimate.stats["total_time"]
    assert found[0].stats["total_time"] <= time < best.stats["total_time"]
    told = made("against", ahead)
    assert "Use the best plan" not in words(told)
    assert [one.option("open") for one in links(told) if one.view == "search"] == ["ce_impl"]
    assert "the best that the search tried takes" in words(made("figures", ahead))


def test_a_field_that_no_search_opens_leads_nowhere():
    assert with_opened(BEST, answers(), ["tensor_par"]) == ""
    both = replace(BEST, options={"open": "pp_layout"})
    assert at(with_opened(both, answers(), ["ce_impl"])).option("open") == "pp_layout,ce_impl"


def test_it_says_why_a_slower_plan_may_tie():
    order = answers().answer(OWN).order_of_mine
    told = words(made("against", OWN))
    assert f"in {chance(max(order.probability, 1 - order.probability))} of cases" in told
    assert WHY_TIED in told


def test_the_best_plan_leads_nowhere_better():
    assert made("against", BEST) is None
    assert made("mend", BEST) is None
    assert made("problem", BEST) is None


def test_the_best_plan_stated_as_ones_own_is_the_best():
    own = replace(BEST, plan=answers().stated(BEST))
    part = made("against", own)
    assert "Your plan is the best plan." in words(part)
    assert part.chart is None


@pytest.mark.parametrize("state", [LARGE, ILLEGAL], ids=["memory", "rule"])
def test_what_mends_a_plan_runs(state):
    problem = made("problem", state)
    assert problem.title == "This plan cannot run"
    assert made("figures", state) is None
    part = made("mend", state)
    found = links(part)
    assert found
    times = re.findall(r"GiB, ([\d.]+ m?s) a step", words(part))
    assert len(times) == len(found)
    for then, time in zip(found, times, strict=True):
        brief = answers().plan(then).brief
        assert brief.digits.duration(brief.value("total_time")) == time


def test_a_memory_that_is_too_small_is_told_by_stage():
    part = made("memory", LARGE)
    stages = answers().stages(LARGE)
    worst = max(one.over(1) for one in stages)
    assert worst > 0
    assert f"{worst / GIB:.1f} GiB too much" in words(part)
    fits = [one["proc_mem_tier1_cap_req"] for one in answers().plan(OWN).estimate.stages]
    for state, needed in ((LARGE, [one.needed[0] for one in stages]), (OWN, fits)):
        (panel,) = made("memory", state).chart.panels
        bars = zip(*(one.lengths for one in marks(panel, Bars)), strict=True)
        assert [sum(sizes) * GIB for sizes in bars] == pytest.approx(needed)


def test_what_would_do_where_nothing_fits():
    assert made("problem", NONE).title == "No plan fits"
    part = made("mend", NONE)
    found = links(part)
    assert found
    for then in found:
        assert answers().plan(then).estimate is not None
    assert made("changes", NONE) is None


def test_links_of_single_changes_lead_to_the_effect_that_they_tell():
    part = made("changes", OWN)
    chips = re.findall(r'class="chip (\w+)"[^>]*>[^<]* <span>([^<]*)</span>', str(part.html))
    found = links(part)
    assert len(found) == len(chips) > 20
    now = answers().plan(OWN).estimate.stats["total_time"]
    for then, (kind, effect) in some(zip(found, chips, strict=True), 6):
        shown = answers().plan(then)
        if kind == "over":
            assert shown.estimate is None
            assert effect.endswith("GiB too much")
        else:
            longer = shown.estimate.stats["total_time"] / now - 1
            assert unescape(effect) == percent_more(longer)
            assert (kind == "better") == (longer < -0.0005)


def test_traffic_is_that_of_the_statistics():
    part = made("traffic", OWN)
    stats = answers().plan(OWN).estimate.stats
    (panel,) = part.chart.panels
    assert panel.x.unit == "s"
    exposed, hidden = (
        dict(zip(tick_texts(panel.y), one.lengths, strict=True)) for one in panel.marks
    )
    assert exposed["tensor-parallel"] == stats["tp_comm_exposed_time"]
    assert exposed["pipeline-parallel"] + hidden["pipeline-parallel"] == pytest.approx(
        stats["pp_comm_link_time"]
    )


def test_every_part_says_what_its_chart_shows():
    for state in (BEST, OWN, LARGE):
        for kind in PARTS:
            part = made(kind.name, state)
            if part is not None and part.chart is not None:
                assert part.summary.endswith("."), kind.name
                assert "<table" in part.html + part.more


@pytest.mark.parametrize(
    ("system", "tensor_par", "noted"),
    [("a100_80g_pcie", 4, True), ("a100_80g_pcie", 1, False), ("a100_80g_sxm", 4, False)],
)
def test_tensor_parallelism_over_pcie_has_a_note(system, tensor_par, noted):
    plan = {**OWN.plan, "tensor_par": tensor_par}
    part = made("traffic", State(model="gpt2-124M", system=system, procs=8, plan=plan))
    assert ("over PCIe" in words(part)) is noted
