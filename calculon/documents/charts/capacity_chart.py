"""The time of the best plan over the capacity of memory, as a staircase."""

import math
from collections.abc import Callable

from calculon.advise.replanned import Staircase, Step
from calculon.base.units import GIB
from calculon.declarations.plan_words import degrees_words
from calculon.render.chart import Axis, Chart, Line, Panel, Rule
from calculon.render.chart_axes import time_unit, widened
from calculon.render.digits import Digits

WIDEST = 4.0
"""Multiple of the larger capacity of now and of the file up to which the chart goes."""

_NEAR = 0.2
"""Share of the time below which changes are so small that the axis does not start at 0."""


def machine_title(model: str, system: str, step: Step) -> str:
    """Return the title: model, processors and system."""
    return f"Best plans of {model} on {step.best.execution['num_procs']:,} x {system}"


def capacity_chart(
    title: str, found: Staircase, in_file: float, digits: Digits, link: Callable[[Step], str]
) -> Chart:
    """Return the staircase.

    Parameters
    ----------
    title : str
        Model and machine.
    found : Staircase
        Steps of the time of a step.
    in_file : float
        Capacity of the machine in its file, in bytes.
    digits : Digits
        Digits of the times.
    link : callable
        Returns the address of a page on a step.
    """
    now = found.capacity
    first, last = min(now, in_file) / WIDEST, max(now, in_file) * WIDEST
    steps = [one for one in found.steps if first <= one.capacity <= last] or list(found.steps[:1])
    seconds = [one.best.value for one in steps]
    unit, factor = time_unit(max(seconds))
    sizes, times = [one.capacity / GIB for one in steps], [factor * time for time in seconds]
    texts = digits.seconds(seconds, seconds[0])
    end = max(last / GIB, sizes[-1])
    words = [
        f"from {size:,.1f} GiB: {text}\n{degrees_words(one.best.execution)}"
        for size, text, one in zip(sizes, texts, steps, strict=True)
    ]
    rules = [Rule(name=f"now: {now / GIB:,.5g} GiB", at=now / GIB, color="vermilion")]
    if in_file != now:
        name = f"system file: {in_file / GIB:,.5g} GiB"
        rules.append(Rule(name=name, at=in_file / GIB, color="grey", dash="dash"))
    small = max(times) - min(times) < _NEAR * max(times)
    limits = widened([*sizes, end, *(rule.at for rule in rules)], 0.03, log=True)
    powers = range(math.ceil(math.log2(limits[0])), math.floor(math.log2(limits[1])) + 1)
    panel = Panel(
        x=Axis(
            label="Memory of a processor",
            unit="GiB",
            scale="log",
            limits=limits,
            ticks=[(2.0**power, f"{2.0**power:,.4g}") for power in powers],
        ),
        y=Axis(
            label="Time of a step",
            unit=f"{unit}, not from 0" if small else unit,
            limits=widened(times, 0.08) if small else (0.0, 1.08 * max(times)),
        ),
        marks=[
            Line(x=[*sizes, end], y=[*times, times[-1]], steps="after"),
            Line(
                x=sizes,
                y=times,
                dash="none",
                marker="circle",
                words=words,
                links=[link(one) for one in steps],
            ),
            *rules,
        ],
        height=3.7,
    )
    return Chart(title=title, rows=((panel,),))
