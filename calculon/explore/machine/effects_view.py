"""Sensitivity of the plan to each machine figure: elasticities, a tornado chart, and equivalent changes."""

from collections.abc import Iterator
from functools import partial

from calculon.advise.elasticities import STEADY
from calculon.advise.replanned import CapacitySweep
from calculon.advise.sensitivity_of_case import CALIBRATED
from calculon.advise.sensitivity_result import Sensitivity
from calculon.base.units import GIB
from calculon.documents.charts.tornado_chart import kinds_shown, tornado
from calculon.documents.sensitivity_page import break_even_section, change, sensitivity_page, stated
from calculon.explore.answers import TIME, Answers
from calculon.explore.machine.both_machines import same_plan, time_of
from calculon.explore.machine.capacity_view import capacity_text
from calculon.explore.machine.machine_controls import CAPACITY, figure_labels, labels
from calculon.explore.page_state import State
from calculon.explore.view_part import ViewPart, html
from calculon.render.document import Grid, Section, dim

STATISTICS = {
    "total_time": "time of a step",
    "mfu": "MFU",
    "proc_mem_tier1_cap_req": "memory needed",
    "tp_comm_exposed_time": "exposed communication, tensor parallel",
    "pp_comm_exposed_time": "exposed communication, pipeline",
    "dp_comm_exposed_time": "exposed communication, data parallel",
    "bubble_time": "pipeline bubble",
}
"""Statistics on offer, with labels; an address may name any other statistic."""

RANGES = ("10%", "25%", "50%", CALIBRATED)

LEAST = 0.005
"""Smallest relative effect that is reported."""

MOST = 5
"""Maximum number of figures described in words."""

EVEN = "Equivalent single changes"
"""Title of the part that compares a machine change with changes of single figures."""


def effects(state: State, answers: Answers) -> ViewPart | None:
    """Show the effect of each figure on a statistic of the plan."""
    found = answers.sensitivity(state)
    if found is None:
        return None
    document = found.to_dict()
    form = html(
        "machine_effects.html",
        statistics=[
            (name, STATISTICS.get(name, name), chosen)
            for name, chosen in _choices(tuple(STATISTICS), state.option("of"))
        ],
        ranges=_choices(
            RANGES if found.system.calibration.spreads else RANGES[:-1], state.option("spread")
        ),
        again=bool(state.option("replan")),
        switch=state.with_options(replan="" if state.option("replan") else "on"),
    )
    paths = figure_labels(found.system, answers.figures(state))
    names = {**paths, **STATISTICS}
    shown = document["value"] and kinds_shown(document)
    everything = sensitivity_page(found)
    return ViewPart(
        title="Sensitivity to each figure",
        blocks=(
            form,
            dim(found.statistic.help),
            Grid(("left", "left", "text"), tuple(_worth(found, answers.capacities(state)))),
            Section("Every figure, as a table", (everything,)),
        ),
        chart=tornado(document, names, partial(_link, state)) if shown else None,
        summary=f"{_called(found)} with each figure of the machine lower and higher, as bars",
        names=paths,
    )


def _called(analysis: Sensitivity) -> str:
    return STATISTICS.get(analysis.statistic.name, analysis.statistic.name)


def _choices(names: tuple[str, ...], chosen: str) -> list[tuple[str, bool]]:
    every = names if chosen in names else (*names, chosen)
    return [(name, name == chosen) for name in every]


def _link(state: State, path: str, value: float) -> str:
    return state.link(machine={**state.machine, path: value})


def _worth(analysis: Sensitivity, stairs: CapacitySweep | None) -> Iterator[tuple[str, str, str]]:
    """Yield the hardware figures with the largest effect: label, current value, and the effect of an increase."""
    names = labels(analysis.system)
    statistic = "time a step" if analysis.statistic.name == TIME else _called(analysis)
    rows = [row for row in analysis.rows() if row["hardware"]]
    rates = [row for row in rows if abs(row["elasticity"] or 0.0) >= LEAST]
    # Largest effects first, regardless of sign.
    rates.sort(key=lambda row: -abs(row["elasticity"]))
    effects = [(row, f"1 % more gives {_less(row['elasticity'], 2)}") for row in rates[:MOST]]
    for row in rows:
        if row["elasticity"] is None and row["at_high"] is not None:
            share = row["at_high"] / analysis.value - 1
            if abs(share) >= LEAST:
                effects.append((row, f"{row['high']:,} would give {_less(100 * share, 1)}"))
    for row, effect in effects:
        name = names.get(row["path"], row["path"])
        yield name, stated(row["value"], row["unit"]), f"{effect} {statistic}"
    if analysis.statistic.name == TIME and stairs is not None:
        yield names[CAPACITY], stated(stairs.capacity / GIB, "GiB"), _of_memory(stairs)


def _less(percent: float, decimals: int) -> str:
    return f"{abs(percent):.{decimals}f} % {'less' if percent < 0 else 'more'}"


def _of_memory(stairs: CapacitySweep) -> str:
    """Describe the effect of more memory: none for the same plan, until a better plan fits."""
    if not stairs.up:
        return "more makes no plan faster"
    step = stairs.up[0]
    text = f"more changes nothing until a better plan fits, from {capacity_text(step.capacity)} on"
    if stairs.here is None:
        return text
    return f"{text} ({change(step.best.value, stairs.here.best.value)})"


def break_even(state: State, answers: Answers) -> ViewPart:
    """Compare the change of the machine with changes of single figures."""
    both = same_plan(state, answers)
    before, after = both.before.estimate, both.after.estimate
    if not state.machine:
        return _said("Change the machine to see which single figures would have the same effect.")
    if before is None or after is None:
        return _said("The plan does not run on both machines, so there is nothing to compare.")
    if abs(time_of(after) / time_of(before) - 1) < STEADY:
        return _said("The change makes the same plan neither faster nor slower.")
    even = answers.as_fast_as_changed(state, before)
    section = break_even_section(
        even,
        figure_labels(before.system, answers.figures(state)),
        lambda path, value: state.link(machine={path: float(f"{value:.6g}")}),
    )
    said = "With the same plan, each of these single changes gives the step time of the changed machine."
    return ViewPart(title=EVEN, blocks=(said, *section.blocks[1:]))


def _said(text: str) -> ViewPart:
    return ViewPart(title=EVEN, blocks=(text,))
