"""Time and bus bandwidth of a collective over sizes: a line for each algorithm, the one taken bold."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from calculon.base.frozen import dataclass
from calculon.base.units import duration, scaled
from calculon.render.canvas import (
    MARKERS,
    SERIES,
    STYLES,
    drawing,
    figure,
    logarithmic_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

THIN, BOLD = 1.0, 3.2
_MARKS = 8
"""Markers on a line, about."""

_WIDE = 10
"""Ratio of times from which on their axis is logarithmic."""


@dataclass(frozen=True, slots=True)
class Curves:
    """The content of the picture.

    Attributes
    ----------
    title : str
        The operation and its group.
    sizes : sequence of float
        Bytes, ascending.
    seconds, bus : mapping of str to sequences of float
        Times, and bus bandwidths in GB/s, of each algorithm at these sizes.
    taken : sequence of str
        The algorithm that is taken at each size.
    """

    title: str
    sizes: Sequence[float]
    seconds: Mapping[str, Sequence[float]]
    bus: Mapping[str, Sequence[float]]
    taken: Sequence[str]


def draw(one: Curves) -> "Figure":
    """Draw both panels."""
    with drawing():
        picture = figure(9.0, 4.0)
        left, right = picture.subplots(1, 2)
        for axes, values in ((left, one.seconds), (right, one.bus)):
            _lines(axes, one, values)
            axes.set_xlabel("size")
            _size_axis(axes, one.sizes)
        left.set_ylabel("time")
        _time_axis(left, [time for line in one.seconds.values() for time in line])
        right.set_ylabel("bus bandwidth, GB/s")
        right.set_ylim(bottom=0)
        picture.suptitle(f"{one.title}; bold: taken", fontsize=10, x=0.01, ha="left")
        handles = {line.get_label(): line for line in left.lines if line.get_linewidth() == THIN}
        picture.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles)
        )
    return picture


def _lines(axes: "Axes", one: Curves, values: Mapping[str, Sequence[float]]) -> None:
    """Draw a thin line for each algorithm, and a bold one where it is taken."""
    apart = max(1, len(one.sizes) // _MARKS)
    axes.set_xscale("log", base=2)
    for i, (name, line) in enumerate(values.items()):
        color = SERIES[i % len(SERIES)]
        taken = [y if who == name else math.nan for y, who in zip(line, one.taken, strict=True)]
        if name in one.taken:
            axes.plot(one.sizes, taken, color=color, linewidth=BOLD, solid_capstyle="butt")
        axes.plot(
            one.sizes,
            line,
            color=color,
            linewidth=THIN,
            linestyle=STYLES[i % len(STYLES)],
            marker=MARKERS[i % len(MARKERS)],
            markevery=(i * apart // max(1, len(values)), apart),
            markersize=4,
            label=name,
        )


def _size_axis(axes: "Axes", sizes: Sequence[float]) -> None:
    """Write at most seven powers of two, in binary units; the ends where there are no two of them."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = math.ceil(math.log2(sizes[0])), math.floor(math.log2(sizes[-1]))
    step = max(1, -(-(high - low) // 6))
    powers = [2.0**n for n in range(low, high + 1, step)]
    ends, digits = [sizes[0], sizes[-1]], 0 if len(powers) > 1 else 1
    axes.xaxis.set_major_locator(FixedLocator(powers if len(powers) > 1 else ends))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: scaled(value, "B", binary=True, digits=digits))
    )


def _time_axis(axes: "Axes", times: Sequence[float]) -> None:
    """Write times with their units; by powers of ten where they differ so much."""
    from matplotlib.ticker import FuncFormatter

    low, high = min(times), max(times)
    if high < _WIDE * low:
        axes.set_ylim(0, 1.08 * high)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    else:
        axes.set_yscale("log")
        several = (1.0, 2.0, 5.0) if high / low < _WIDE**2 else (1.0,)
        logarithmic_ticks(axes.yaxis, several, _short)


def _short(seconds: float) -> str:
    """Write a time on an axis.

    >>> _short(1e-5), _short(2e-3), _short(1.0)
    ('10 us', '2 ms', '1 s')
    """
    number, unit = duration(seconds).split()
    return f"{float(number):g} {unit}"
