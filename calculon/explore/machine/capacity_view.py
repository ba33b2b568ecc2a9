"""Benefit of more memory: the best plan for each capacity, as a chart and a table."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from calculon.advise.replanned import Step
from calculon.base.units import GIB
from calculon.declarations.plan_words import plan_words
from calculon.documents.charts.capacity_chart import capacity_chart
from calculon.documents.confidence import risk_words
from calculon.documents.sensitivity_page import memory_section
from calculon.explore.answers import Answers
from calculon.explore.machine.both_machines import digits_of
from calculon.explore.machine.machine_controls import CAPACITY
from calculon.explore.page_state import State
from calculon.explore.view_part import ViewPart
from calculon.render.digits import WITHOUT_INTERVAL, Digits
from calculon.render.document import dim

MOST = 10
"""Maximum number of listed steps to more memory."""


def capacity(state: State, answers: Answers) -> ViewPart | None:
    """Show the benefit of memory when the plan is searched again for each capacity."""
    found = answers.capacities(state)
    if found is None:
        return None
    preset, here = answers.question(replace(state, plan={})).preset, found.here
    best = answers.plan(replace(state, plan={})).estimate
    digits = Digits(WITHOUT_INTERVAL) if best is None else digits_of(best)
    in_file = answers.system(replace(state, machine={})).mem1.capacity

    def words(execution: Mapping[str, Any]) -> str:
        return plan_words(execution, preset.usual(execution))

    def link(size: float) -> str:
        return state.link(machine={**state.machine, CAPACITY: enough(size)})

    # If nothing fits now, compare with the first capacity at which a plan fits.
    first = found.steps[0] if here is None else here
    section = memory_section(found, first.best.value, words, link, MOST)
    size, plan = f"{found.capacity / GIB:,.5g} GiB", words(first.best.execution)
    said = (
        f"Nothing fits in {size}: the first plan needs {capacity_text(first.capacity)} ({plan})."
        if here is None
        else f"With {size} the fastest plan predicted to fit is {plan}{_risk(state, answers, first)}."
    )
    return ViewPart(
        title="The benefit of more memory",
        blocks=(
            said,
            dim("The plan is searched again for each capacity; change of the step time:"),
            *section.blocks,
        ),
        chart=capacity_chart(state.title, found, in_file, digits, link),
        summary="Time of a step of the fastest plan predicted to fit over the capacity of memory",
    )


def _risk(state: State, answers: Answers, step: Step) -> str:
    """Return a plan's out-of-memory risk on the page's machine in words; empty if unknown."""
    own = answers.stated_fields(state, step.best.execution)
    result = answers.plan(replace(state, plan=own)).brief
    return "" if result is None or result.fits is None else f", with an {risk_words(result.fits)}"


def enough(capacity: float) -> float:
    """Return the capacity in GiB, rounded up to one decimal.

    >>> enough(80 * GIB), enough(95.82 * GIB)
    (80.0, 95.9)
    """
    return math.ceil(round(capacity / GIB * 10, 9)) / 10


def capacity_text(capacity: float) -> str:
    """Format a sufficient capacity.

    >>> capacity_text(80 * GIB), capacity_text(95.82 * GIB)
    ('80 GiB', '95.9 GiB')
    """
    return f"{enough(capacity):,.5g} GiB"
