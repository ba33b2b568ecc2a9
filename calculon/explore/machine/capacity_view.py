"""What more memory buys: the best plan of each capacity, as a chart, in words and as a table."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from calculon.advise.replanned import Staircase, Step
from calculon.base.units import GIB
from calculon.declarations.plan_words import degrees_words, plan_words
from calculon.declarations.presets import Preset
from calculon.documents.sensitivity_page import change
from calculon.explore.answers import Answers
from calculon.explore.charts.capacity_steps import capacity_steps
from calculon.explore.machine.both_machines import digits_of
from calculon.explore.machine.capacities import rungs
from calculon.explore.machine.knobs import CAPACITY
from calculon.explore.page_state import State
from calculon.explore.part import Part
from calculon.render.digits import WITHOUT_INTERVAL, Digits
from calculon.render.document import Line, Styled, dim, headed


def capacity(state: State, answers: Answers) -> Part | None:
    """Show what memory buys when the plan is searched again."""
    found = answers.capacities(state)
    if found is None:
        return None
    question = answers.question(replace(state, plan={}))

    def link(step: Step) -> str:
        return state.link(machine={**state.machine, CAPACITY: enough(step.capacity)})

    in_file = answers.system(replace(state, machine={})).mem1.capacity
    shown = rungs(found)
    longest = max(step.best.value for step in shown)
    digits = _digits(state, answers)
    times = digits.seconds([step.best.value for step in shown], longest)
    rows = [
        (_size(step, link(step), found), time, _change(step, found), _words(step, question.preset))
        for step, time in zip(shown, times, strict=True)
    ]
    return Part(
        title="What more memory buys",
        blocks=(
            *_lines(found, question.preset),
            dim("The plan is searched again for each capacity."),
            headed(
                ("left", "right", "right", "text"),
                ("memory from", "a step", "change", "best plan"),
                rows,
            ),
        ),
        figure=steps_chart(found, in_file, digits, link),
        summary="Time of a step of the best plan over the capacity of memory; each step is a better plan that fits",
    )


def steps_chart(
    found: Staircase, in_file: float, digits: Digits, link: Callable[[Step], str]
) -> dict[str, Any]:
    """Return the steps as a chart.

    Parameters
    ----------
    found : Staircase
        The steps, of the time of a step.
    in_file : float
        Capacity of the machine in its file, in bytes.
    digits : Digits
        How times are written.
    link : callable
        Returns the address of a page on a step.
    """
    points = [(step, link(step), degrees_words(step.best.execution)) for step in found.steps]
    return capacity_steps(points, found.capacity, in_file, digits)


def _digits(state: State, answers: Answers) -> Digits:
    """Return the digits of the best plan, which those of the others are like."""
    best = answers.plan(replace(state, plan={})).estimate
    return Digits(WITHOUT_INTERVAL) if best is None else digits_of(best)


def enough(capacity: float) -> float:
    """Return the least capacity in GiB, with one decimal, that is at least as many bytes.

    >>> enough(80 * GIB), enough(95.82 * GIB)
    (80.0, 95.9)
    """
    return math.ceil(round(capacity / GIB * 10, 9)) / 10


def capacity_text(capacity: float) -> str:
    """Write a capacity that suffices.

    >>> capacity_text(80 * GIB), capacity_text(95.82 * GIB)
    ('80 GiB', '95.9 GiB')
    """
    return f"{enough(capacity):,.5g} GiB"


def _words(step: Step, preset: Preset) -> str:
    return plan_words(step.best.execution, preset.usual(step.best.execution))


def _size(step: Step, link: str, found: Staircase) -> Line:
    """Return the capacity of a step, with a link; the step of now is marked."""
    here = step is found.here
    size = Styled(capacity_text(step.capacity), "current" if here else "", link=link)
    return (size, ", now") if here else size


def _change(step: Step, found: Staircase) -> str:
    if found.here is None or step is found.here:
        return ""
    return change(step.best.value, found.here.best.value)


def _lines(found: Staircase, preset: Preset) -> list[str]:
    """Say what memory is worth where the machine stands."""
    size = f"{found.capacity / GIB:,.5g} GiB"
    if found.here is None:
        first = found.steps[0]
        return [
            f"Nothing fits in {size}: the first plan needs {capacity_text(first.capacity)} "
            f"({_words(first, preset)})."
        ]
    lines = [f"With {size} the best plan is {_words(found.here, preset)}."]
    price = found.shadow_price
    if price:
        said = change(found.here.best.value - price, found.here.best.value)
        lines.append(f"One GiB more changes the time of a step by {said}.")
    elif found.up:
        up = found.up[0]
        more = round(enough(up.capacity) - found.capacity / GIB, 1)
        lines.append(
            f"A little more memory changes nothing: the next better plan needs a capacity of "
            f"{capacity_text(up.capacity)}, {more:,.5g} GiB more, and is faster by "
            f"{change(up.best.value, found.here.best.value).lstrip('-')}."
        )
    else:
        lines.append("More memory changes nothing: no faster plan needs more.")
    return lines
