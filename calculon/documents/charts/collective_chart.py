"""Chart of time and bus bandwidth of a collective by message size; the chosen algorithm is bold."""

import math
from collections.abc import Iterator, Mapping, Sequence

from calculon.base.units import duration, scaled
from calculon.render.chart import Axis, Chart, Line, Panel, line_look
from calculon.render.chart_axes import log_axis, time_unit, value_axis, widened

THIN, BOLD = 1.0, 3.2
_MAX_MARKERS = 16
"""Number of sizes up to which each has a marker."""

_WIDE = 10
"""Ratio of times from which on their axis is logarithmic."""


Lines = Mapping[str, Sequence[float]]
"""Values by algorithm and size."""


def collective(
    title: str, sizes: Sequence[float], seconds: Lines, bus: Lines, taken: Sequence[str]
) -> Chart:
    """Return a panel of times and a panel of bus bandwidths.

    Args:
        title: Operation and group.
        sizes: Bytes, ascending.
        seconds, bus: Times, and bus bandwidths in GB/s.
        taken: Chosen algorithm at each size.
    """
    x = _size_axis(sizes)
    y, factor = _time_axis([time for line in seconds.values() for time in line])
    times = {name: [time * factor for time in line] for name, line in seconds.items()}
    rates = value_axis("Bus bandwidth", "GB/s", [rate for line in bus.values() for rate in line])
    panels = [
        Panel(x=x, y=axis, marks=list(_lines(sizes, lines, taken)), height=3.6)
        for axis, lines in ((y, times), (rates, bus))
    ]
    return Chart(title=f"{title}; bold: chosen", rows=(panels,), width=9.0)


def _lines(sizes: Sequence[float], values: Lines, taken: Sequence[str]) -> Iterator[Line]:
    """Yield a bold line for each algorithm at the sizes at which it is chosen, and a thin one at all sizes."""
    few = len(sizes) <= _MAX_MARKERS
    for i, (name, line) in enumerate(values.items()):
        color, marker, dash = line_look(i)
        if name in taken:
            # NaN interrupts the bold line at sizes with another algorithm.
            own = [y if who == name else math.nan for y, who in zip(line, taken, strict=True)]
            yield Line(x=sizes, y=own, color=color, width=BOLD)
        yield Line(
            name=name,
            x=sizes,
            y=line,
            color=color,
            width=THIN,
            dash=dash,
            marker=marker if few else "",
            sizes=(4.0,),
            words=[
                f"{name}, {scaled(size, 'B', binary=True, digits=1)}: {y:.3g}"
                for size, y in zip(sizes, line, strict=True)
            ],
        )


def _size_axis(sizes: Sequence[float]) -> Axis:
    """Return the axis of sizes: at most seven powers of two, or the ends if fewer than two are in range."""
    low, high = math.ceil(math.log2(sizes[0])), math.floor(math.log2(sizes[-1]))
    step = max(1, -(-(high - low) // 6))
    powers = [2.0**n for n in range(low, high + 1, step)]
    places, digits = (powers, 0) if len(powers) > 1 else ([sizes[0], sizes[-1]], 1)
    return Axis(
        label="Size",
        scale="log",
        limits=widened(sizes, 0.05, log=True),
        ticks=[(size, scaled(size, "B", binary=True, digits=digits)) for size in places],
    )


def _time_axis(times: Sequence[float]) -> tuple[Axis, float]:
    """Return the axis of times, and the factor to its unit; if times differ widely, ticks have their own units."""
    if max(times) < _WIDE * min(times):
        unit, factor = time_unit(max(times))
        return value_axis("Time", unit, [time * factor for time in times]), factor
    return log_axis("Time", "", times, form=_short), 1.0


def _short(seconds: float) -> str:
    """Write a time on an axis.

    >>> _short(1e-5), _short(2e-3), _short(1.0)
    ('10 us', '2 ms', '1 s')
    """
    number, unit = duration(seconds).split()
    return f"{float(number):g} {unit}"
