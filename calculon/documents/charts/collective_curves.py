"""Time and bus bandwidth of a collective over message sizes, by algorithm."""

import math
from collections.abc import Iterator, Mapping, Sequence

from calculon.base.units import duration, scaled
from calculon.render.chart import Axis, Chart, Floats, Line, Panel, line_look
from calculon.render.chart_axes import log_axis, time_unit, value_axis

_FAR = 10  # ratio of times from which their axis is logarithmic
_MARKED = 8  # markers on a line
_MOST_SIZES = 7  # ticks of sizes


def collective_curves(
    title: str,
    sizes: Floats,
    seconds: Mapping[str, Floats],
    bus: Mapping[str, Floats],
    fastest: Sequence[str],
) -> Chart:
    """Return a line for each algorithm, bold where it is the one that is used.

    Parameters
    ----------
    title : str
        The operation and its group.
    sizes : sequence of float
        Bytes, ascending.
    seconds, bus : mapping of str to sequences of float
        Times, and bus bandwidths in GB/s, of each algorithm at these sizes.
    fastest : sequence of str
        The algorithm that is used at each size.
    """
    times = [time for line in seconds.values() for time in line]
    unit, factor = "", 1.0
    if max(times) < _FAR * min(times):
        unit, factor = time_unit(max(times))
        axis = value_axis("Time", unit, [time * factor for time in times])
    else:
        axis = log_axis("Time", "", times, form=_short)
    scaled_times = {name: [time * factor for time in line] for name, line in seconds.items()}
    rates = value_axis("Bus bandwidth", "GB/s", [rate for line in bus.values() for rate in line])
    across = _size_axis(sizes)
    panels = [
        Panel(x=across, y=y, marks=[*_lines(sizes, lines, fastest)], height=3.6)
        for y, lines in ((axis, scaled_times), (rates, bus))
    ]
    return Chart(title=title, subtitle="bold: the algorithm used", rows=(panels,), width=9.0)


def _lines(sizes: Floats, lines: Mapping[str, Floats], fastest: Sequence[str]) -> Iterator[Line]:
    """Yield a thin line for each algorithm, over a bold one where it is used."""
    for number, (name, values) in enumerate(lines.items()):
        color, marker, dash = line_look(number)
        if name in fastest:
            used = [y if one == name else math.nan for y, one in zip(values, fastest, strict=True)]
            yield Line(x=sizes, y=used, color=color, width=3.2)
        yield Line(
            name=name,
            x=sizes,
            y=values,
            color=color,
            width=1.0,
            dash=dash,
            marker=marker,
            most=_MARKED,
        )


def _size_axis(sizes: Floats) -> Axis:
    """Return the axis of sizes with ticks at powers of two, or at its ends when it contains fewer than two."""
    low, high = math.ceil(math.log2(sizes[0])), math.floor(math.log2(sizes[-1]))
    step = max(1, -(-(high - low) // (_MOST_SIZES - 1)))
    powers = [2.0**power for power in range(low, high + 1, step)]
    places, digits = (powers, 0) if len(powers) > 1 else ((sizes[0], sizes[-1]), 1)
    ticks = [(size, scaled(size, "B", binary=True, digits=digits)) for size in places]
    return Axis(label="Size", scale="log", limits=(sizes[0], sizes[-1]), ticks=ticks)


def _short(seconds: float) -> str:
    """Write a time on an axis.

    >>> _short(1e-5), _short(2e-3), _short(1.0)
    ('10 us', '2 ms', '1 s')
    """
    number, unit = duration(seconds).split()
    return f"{float(number):g} {unit}"
