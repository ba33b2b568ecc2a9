"""The best rate, and the efficiency that goes with it, over numbers of processors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from calculon.base.frozen import dataclass
from calculon.declarations.named_values import PUBLISHED
from calculon.render.canvas import (
    GREY,
    MARKERS,
    SERIES,
    STYLES,
    count_axis,
    drawing,
    figure,
    note_edition,
    plain_ticks,
)
from calculon.render.chart_axes import Quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Point:
    """The best execution on a number of processors: its rate (samples/s) and efficiency, or None twice."""

    num_procs: int
    rate: float | None
    efficiency: float | None


@dataclass(frozen=True, slots=True)
class Series:
    """One model on one system in one edition of the cost model, over ascending numbers of processors."""

    label: str
    points: Sequence[Point]
    edition: str = PUBLISHED


_PROPORTIONAL: dict[str, Any] = {"linestyle": (0, (1, 2)), "linewidth": 1.0}


def draw(series: Sequence[Series], title: str = "") -> "Figure":
    """Draw rates above and efficiencies below; dotted lines are proportional to the processors."""
    rate, efficiency = Quantity("sample_rate"), Quantity("total_efficiency")
    counts = [point.num_procs for one in series for point in one.points]
    with drawing():
        picture = figure(6.4, 5.2)
        upper, lower = picture.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        for number, one in enumerate(series):
            color = SERIES[number % len(SERIES)]
            look = {
                "color": color,
                "marker": MARKERS[number % len(MARKERS)],
                "linestyle": STYLES[number % len(STYLES)] if len(series) > 1 else "-",
            }
            found = [p for p in one.points if p.rate is not None]
            x = [p.num_procs for p in found]
            upper.plot(x, [p.rate or 0.0 for p in found], label=one.label, **look)
            shares = [(p.efficiency or 0.0) * efficiency.factor for p in found]
            lower.plot(x, shares, **look)
            _ideal(upper, one, color)
        upper.plot([], [], color=GREY, label="proportional to the processors", **_PROPORTIONAL)
        if any(point.rate is None for one in series for point in one.points):
            _missing(upper, series)
        count_axis(upper, counts)
        if upper.get_xscale() == "log":
            upper.set_yscale("log", base=10)
            plain_ticks(upper)
        else:
            upper.set_ylim(bottom=0)
        lower.set_ylim(0, max(100.0 if _high(series) else 0.0, lower.get_ylim()[1]))
        upper.set_ylabel(rate.label)
        lower.set_ylabel(efficiency.label)
        lower.set_xlabel("Processors")
        upper.set_title(title)
        note_edition(lower, [one.edition for one in series])
        columns = 1 if max(len(one.label) for one in series) > 30 else 2
        picture.legend(loc="outside lower center", ncols=columns)
    return picture


def _high(series: Sequence[Series]) -> bool:
    """Tell whether some efficiency is above one half, so that the axis should end at 100 %."""
    return any((point.efficiency or 0.0) > 0.5 for one in series for point in one.points)


def _ideal(axes: "Axes", one: Series, color: str) -> None:
    """Draw the rate that grows in proportion to the processors from the first count that can run."""
    found = [(p.num_procs, p.rate) for p in one.points if p.rate is not None]
    if len(found) < 2:
        return
    (first, rate), last = found[0], found[-1][0]
    ideal = [rate, rate * last / first]
    axes.plot([first, last], ideal, color=color, **_PROPORTIONAL)


def _missing(axes: "Axes", series: Sequence[Series]) -> None:
    """Mark counts on which nothing can run, at the foot of the axes."""
    x = sorted({p.num_procs for one in series for p in one.points if p.rate is None})
    axes.plot(
        x,
        [0.03] * len(x),
        transform=axes.get_xaxis_transform(),
        color=GREY,
        marker="x",
        linestyle="none",
        label="no execution can run",
    )
