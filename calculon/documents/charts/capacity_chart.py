"""Step chart of the best plan's time by memory capacity."""

import math
from collections.abc import Callable, Sequence

from calculon.advise.replanned import CapacitySweep
from calculon.base.units import GIB
from calculon.declarations.plan_words import degrees_words
from calculon.render.chart import Axis, Chart, Line, Panel, Rule, dots
from calculon.render.chart_axes import time_unit, widened
from calculon.render.digits import Digits

WIDEST = 4.0
"""Upper end of the chart, as a multiple of the larger of the present capacity and the file's."""

_NEAR = 0.2
"""Relative spread of times below which the axis does not start at 0, because changes would be invisible."""


def capacity_chart(
    title: str,
    sweep: CapacitySweep,
    in_file: float,
    digits: Digits,
    link: Callable[[float], str] | None = None,
) -> Chart:
    """Return the time of the best plan by capacity.

    Args:
        title: Model and machine.
        in_file: Capacity of the machine in its file, in bytes.
        digits: Digits of the times.
        link: Function that returns the address of a page with another capacity of the machine.
    """
    now, every = sweep.capacity, sweep.steps
    first, last = min(now, in_file) / WIDEST, max(now, in_file) * WIDEST
    # Capacities far from the present one are not realistic alternatives.
    steps = [one for one in every if first <= one.capacity <= last] or list(every[:1])
    seconds = [one.best.value for one in steps]
    unit, factor = time_unit(max(seconds))
    sizes, times = [one.capacity / GIB for one in steps], [factor * time for time in seconds]
    words = [
        f"from {size:,.1f} GiB: {text}\n{degrees_words(one.best.execution)}"
        for size, text, one in zip(sizes, digits.seconds(seconds, seconds[0]), steps, strict=True)
    ]
    rules = _rules(now / GIB, in_file / GIB)
    end = max(last / GIB, sizes[-1])
    links = [link(one.capacity) if link else "" for one in steps]
    points = dots(zip(sizes, times, strict=True), words=words, links=links)
    panel = Panel(
        x=_sizes([*sizes, end, *(rule.at for rule in rules)]),
        y=_times(times, unit),
        marks=[Line(x=[*sizes, end], y=[*times, times[-1]], steps="after"), points, *rules],
        height=3.7,
    )
    return Chart(title=f"Best plans of {title}", rows=((panel,),))


def _rules(now: float, in_file: float) -> list[Rule]:
    """Return lines at both capacities in GiB."""
    rules = [Rule(name=f"now: {now:,.5g} GiB", at=now, color="vermilion")]
    if in_file != now:
        name = f"system file: {in_file:,.5g} GiB"
        rules.append(Rule(name=name, at=in_file, color="gray", dash="dash"))
    return rules


def _sizes(sizes: Sequence[float]) -> Axis:
    """Return the axis of capacities, with ticks at powers of two."""
    limits = widened(sizes, 0.03, log=True)
    powers = range(math.ceil(math.log2(limits[0])), math.floor(math.log2(limits[1])) + 1)
    return Axis(
        label="Memory per processor",
        unit="GiB",
        scale="log",
        limits=limits,
        ticks=[(2.0**power, f"{2.0**power:,.4g}") for power in powers],
    )


def _times(times: Sequence[float], unit: str) -> Axis:
    """Return the axis of times; its label says so if it does not start at 0."""
    if max(times) - min(times) < _NEAR * max(times):
        limits = widened(times, 0.08)
        return Axis(label="Time per step", unit=f"{unit}, not from 0", limits=limits)
    return Axis(label="Time per step", unit=unit, limits=(0.0, 1.08 * max(times)))
