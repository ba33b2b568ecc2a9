"""The time of the best plan over the capacity of memory, as a staircase."""

from collections.abc import Iterator, Sequence

from calculon.base.frozen import dataclass
from calculon.base.units import GIB
from calculon.render.chart import Axis, Chart, Line, Panel, Rule
from calculon.render.chart_axes import time_unit, widened
from calculon.render.digits import Digits

WIDEST = 4.0
"""Multiple of the larger capacity of the machine and of its file up to which the chart goes."""

_TICKS = [2**power for power in range(14)]


@dataclass(frozen=True, slots=True)
class CapacityStep:
    """A capacity in bytes from which a plan fits, the seconds of its step, its words, and the address of its page."""

    capacity: float
    seconds: float
    words: str
    link: str = ""


def capacity_steps(
    title: str,
    terms: str,
    steps: Sequence[CapacityStep],
    capacities: tuple[float, float],
    digits: Digits,
) -> Chart:
    """Return the staircase.

    Parameters
    ----------
    title, terms : str
        Model and machine, and the edition with its preset.
    steps : sequence of CapacityStep
        The least capacity first.
    capacities : tuple of float
        Capacity of the machine, and of the machine in its file, in bytes.
    digits : Digits
        Digits of the times.
    """
    first, last = min(capacities) / WIDEST, max(capacities) * WIDEST
    shown = [step for step in steps if first <= step.capacity <= last] or list(steps[:1])
    unit, factor = time_unit(max(step.seconds for step in shown))
    sizes = [step.capacity / GIB for step in shown]
    times = [step.seconds * factor for step in shown]
    texts = digits.seconds([step.seconds for step in shown], shown[0].seconds)
    end = max(last / GIB, sizes[-1])
    stairs = Line(x=[*sizes, end], y=[*times, times[-1]], steps="after")
    points = Line(
        x=sizes,
        y=times,
        dash="none",
        marker="circle",
        words=[
            f"from {step.capacity / GIB:,.1f} GiB: {text}\n{step.words}"
            for step, text in zip(shown, texts, strict=True)
        ],
        links=[step.link for step in shown],
    )
    limits = widened([*sizes, end, *(one / GIB for one in capacities)], 0.03, log=True)
    x = Axis(
        label="Memory of a processor",
        unit="GiB",
        scale="log",
        limits=limits,
        ticks=[(size, f"{size:,}") for size in _TICKS if limits[0] <= size <= limits[1]],
    )
    y = Axis(label="Time of a step", unit=unit, limits=widened(times, 0.08))
    panel = Panel(x=x, y=y, marks=[*_rules(*capacities), stairs, points], height=3.6)
    return Chart(title=title, terms=[terms], rows=((panel,),), width=6.4)


def _rules(now: float, in_file: float) -> Iterator[Rule]:
    """Yield a line at each capacity, with its name at the side that is away from the other one."""
    right = now >= in_file
    yield Rule(
        at=now / GIB,
        color="vermilion",
        text=f"{now / GIB:,.5g} now",
        side="left" if right else "right",
    )
    if in_file != now:
        yield Rule(
            at=in_file / GIB,
            color="grey",
            dash="dash",
            text=f"{in_file / GIB:,.5g} system file",
            side="right" if right else "left",
        )
