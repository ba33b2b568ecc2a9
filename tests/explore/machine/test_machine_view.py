"""The view of the machine: its numbers are those of the commands, and a reset gives the first state."""

import re
from dataclasses import replace
from html import unescape

import pytest

from calculon import inputs
from calculon.advise.answer import space_of
from calculon.advise.near_machines import memory_condition
from calculon.advise.space_fixes import BEST
from calculon.base.units import GIB
from calculon.cli.main import main
from calculon.declarations.statistics import RISK, TIER1
from calculon.explore.controls import adjusted_state
from calculon.explore.machine.both_machines import (
    best_plans,
    digits_of,
    same_plan,
    usable_memory,
)
from calculon.explore.machine.machine_controls import CAPACITY, figure_labels
from calculon.explore.machine.machine_view import CHANGED_MACHINE, _misfit
from calculon.explore.page_state import State
from calculon.explore.web.page_server import app
from calculon.hardware.figures import figures_of
from calculon.render.chart import Bars, Line
from calculon.search.driver import run
from calculon.search.ranking import Best
from tests.cases import for_each
from tests.documents.charts.reading import marks
from tests.draws import some
from tests.explore.asking import answers, asked, found, made, words

MODEL, SYSTEM, PROCS = "gpt3-13B", "a100_80g_sxm", 64

FIRST = State(model=MODEL, system=SYSTEM, procs=PROCS, view="machine")
SMALLER = replace(FIRST, machine={CAPACITY: 40})
MINE = {"tensor_par": 4, "pipeline_par": 2, "microbatch_size": 1, "pipeline_interleaving": 1}


@pytest.fixture(scope="module")
def site():
    return app(answers(), FIRST, ["localhost"])


def test_the_best_plan_is_that_of_the_plan_view_on_both_machines():
    both = best_plans(SMALLER, answers())
    for shown, state in ((both.before, FIRST), (both.after, SMALLER)):
        assert shown.fields == answers().plan(state).fields
        assert shown.estimate.stats == answers().plan(state).estimate.stats
    assert both.before.fields != both.after.fields


def test_the_same_plan_is_the_plan_of_the_file_on_the_changed_machine():
    faster = replace(FIRST, machine={"mem1.GBps": 4000})
    both = same_plan(faster, answers())
    assert both.after.fields == both.before.fields
    assert both.after.estimate.stats["total_time"] < both.before.estimate.stats["total_time"]
    mine = replace(faster, plan=MINE)
    assert same_plan(mine, answers()).after is answers().plan(mine)
    assert same_plan(FIRST, answers()).after is same_plan(FIRST, answers()).before


def path_of(label):
    """Return the path of the figure that a bar is labeled with."""
    machine = inputs.system(SYSTEM)
    known = figures_of(machine, points=True, whole_runs=True)
    paths = {name: path for path, name in figure_labels(machine, known).items()}
    return paths[label.replace("\n", " ")]


def test_bars_are_the_rows_of_the_sensitivity_and_lead_to_their_values():
    rows = {row["path"]: row for row in answers().sensitivity(FIRST).rows()}
    value = answers().sensitivity(FIRST).value
    drawn = {"low": {}, "high": {}}
    for panel in made("machine-effects", FIRST).chart.panels:
        for end, bars in zip(drawn, marks(panel, Bars), strict=True):
            paths = [path_of(panel.y.ticks[at][1]) for at in bars.at]
            drawn[end].update(zip(paths, bars.lengths, strict=True))
            for path, link in zip(paths, bars.links, strict=True):
                assert link == FIRST.link(machine={path: rows[path][end]})
    assert drawn["low"].keys() | drawn["high"].keys() <= rows.keys()
    assert "matrix.float16.tflops" in drawn["low"] or "matrix.bfloat16.tflops" in drawn["low"]
    for end, percents in drawn.items():
        for path, percent in percents.items():
            at = rows[path][f"at_{end}"]
            expected = 0 if at is None else 100 * (at / value - 1)
            assert percent == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("capacity", some([30, 40, 60, 160], 2))
def test_steps_of_capacity_are_the_best_plans_of_searches(capacity):
    state = replace(FIRST, machine={CAPACITY: capacity})
    likely = memory_condition(1 - RISK)
    found = run(space_of(answers().question(state), PROCS), Best(BEST, 1, likely))
    best = found[0] if len(found) else None
    step = answers().capacities(state).at(capacity * GIB)
    assert (best is None) == (step is None)
    assert best is None or step.value == best.stats["total_time"]


def test_steps_do_not_depend_on_the_capacity_of_now():
    steps = [answers().capacities(state).steps for state in (FIRST, SMALLER)]
    assert steps[0] == steps[1]
    assert answers().capacities(SMALLER).capacity == 40 * GIB
    none = answers().capacities(replace(FIRST, machine={CAPACITY: 0.5}))
    assert none.here is None
    assert none.steps == steps[0]


def test_a_step_of_the_chart_is_a_capacity_at_which_its_plan_fits():
    found_steps = answers().capacities(SMALLER)
    (panel,) = made("machine-capacity", SMALLER).chart.panels
    _, points = marks(panel, Line)
    for size, time, link in zip(points.x, points.y, points.links, strict=True):
        set_to = float(re.search(r"system\.mem1\.GiB=([\d.]+)", link)[1])
        assert size <= set_to < size + 0.1 + 1e-9
        assert found_steps.at(size * GIB * (1 + 1e-12)).value == pytest.approx(time)


def test_a_reset_gives_the_first_state(site):
    state = replace(FIRST, machine={CAPACITY: 40, "mem1.GBps": 3000})
    html = found(site, state.query)["main"]
    links = re.findall(r'href="([^"]*)"[^>]*>reset', html, re.IGNORECASE)
    addresses = {link.replace("&amp;", "&") for link in links}
    assert FIRST.link() in addresses
    for path in state.machine:
        left = {name: one for name, one in state.machine.items() if name != path}
        assert state.link(machine=left) in addresses


def test_the_value_of_the_file_is_no_change():
    in_file = answers().figures(FIRST)[CAPACITY].value
    same = replace(FIRST, machine={CAPACITY: in_file, "mem1.GBps": 3000})
    assert adjusted_state(same, answers(), f"system.{CAPACITY}").machine == {"mem1.GBps": 3000}


def test_what_is_changed_is_said_on_every_other_view(site):
    state = replace(SMALLER, view="plan")
    assert CHANGED_MACHINE.make(replace(state, machine={}), answers()) is None
    said = CHANGED_MACHINE.make(state, answers())
    assert "Memory capacity 80 GiB → 40 GiB" in words(said)
    assert found(site, state.query)["main"].count("part-machine-changed") == 1


@for_each("change", ["mem1.GiBB=3", "mem1.GiB=-3", "networks[0].size=2.5", "networks[9].size=2"])
def test_what_is_no_figure_is_refused_with_the_words_of_the_command(site, capsys, change):
    answer = asked(site, f"/parts?{FIRST.query}&system.{change}")
    assert answer.status_code == 400
    assert main(["plan", MODEL, str(PROCS), SYSTEM, "--set", f"system.{change}"]) != 0
    told = " ".join(capsys.readouterr().err.split()).partition(f"{SYSTEM}: ")[2]
    page = " ".join(re.sub(r"<[^>]*>", " ", answer.json()["main"]).split())
    assert told
    assert told in unescape(page)


def test_a_machine_without_a_plan_says_so():
    state = replace(FIRST, machine={CAPACITY: 1})
    for name in ("machine", "machine-best", "machine-capacity"):
        assert made(name, state) is not None
    assert made("machine-effects", state) is None
    assert "othing fits" in made("machine-best", state).html


def test_a_figure_that_does_as_much_alone_makes_the_step_as_long():
    state = replace(FIRST, machine={"mem1.GBps": 4000})
    wanted = same_plan(state, answers())
    even = answers().as_fast_as_changed(state, wanted.before.estimate).break_evens
    known_values = {one.figure.path: one.value for one in even if one.value is not None}
    assert len(known_values) > 1
    assert known_values["mem1.GBps"] == pytest.approx(4000)
    for path, value in some(known_values.items(), 3):
        alone = same_plan(replace(FIRST, machine={path: value}), answers())
        assert alone.after.estimate.stats["total_time"] == pytest.approx(
            wanted.after.estimate.stats["total_time"]
        )


def test_what_has_no_break_even_says_why():
    assert "Change the machine" in made("machine-even", FIRST).html
    more = replace(FIRST, machine={CAPACITY: 90})
    assert "neither faster nor slower" in made("machine-even", more).html
    assert "does not run" in made("machine-even", SMALLER).html


def test_a_plan_that_does_not_fit_says_from_which_capacity_on_it_does():
    state = replace(FIRST, plan=MINE, machine={CAPACITY: 10})
    told = made("machine", state).html
    (enough,) = re.findall(r"Your plan does not fit.*with a capacity of ([\d.]+) GiB or more", told)
    enough = float(enough)
    for capacity, fits in ((enough, True), (enough - 0.2, False)):
        found = answers().plan(replace(state, machine={CAPACITY: capacity})).estimate
        assert (found.stats[TIER1] <= usable_memory(found)) is fits


def test_a_plan_that_does_not_fit_needs_what_it_needs_where_it_runs():
    state = replace(FIRST, plan=MINE, machine={CAPACITY: 10})
    both = same_plan(state, answers())
    there = both.before.estimate
    needed, text = there.stats["proc_mem_tier1_cap_req"], digits_of(there).gib
    withheld = answers().system(FIRST).mem1.capacity - usable_memory(there)
    told = f"it needs {text(needed)}, {text(needed + withheld - 10 * GIB)} more than the "
    assert told in _misfit(state, answers(), both)


def test_a_plan_that_cannot_run_has_the_slider_of_its_precision():
    state = replace(FIRST, plan={**MINE, "tensor_par": 1, "pipeline_par": 1, "microbatch_size": 4})
    assert answers().plan(state).estimate is None
    told = made("machine", state).html
    kind = answers().question(state).arithmetic["datatype"]
    assert re.findall(r'<label for="slider-[^>]*>Matrix rate, (\w+)', told) == [kind]
