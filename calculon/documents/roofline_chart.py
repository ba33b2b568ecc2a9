"""Roofline of operators: arithmetic intensity and achieved rate, below the roofs of the machine."""

import math
from collections.abc import Mapping, Sequence
from itertools import product

from calculon.base.units import TERA, duration, scaled
from calculon.documents.charts.breakdown import result_chart
from calculon.documents.charts.operator_chart import WORK_COLORS
from calculon.documents.operator_page import PASS_WORDS
from calculon.documents.result import Result
from calculon.estimate.operator_passes import (
    ARITHMETIC,
    COLLECTIVE,
    LAUNCH,
    MEMORY,
    OperatorPass,
    roofs,
)
from calculon.render.chart import Chart, Line, Panel, dots
from calculon.render.chart_axes import log_axis
from calculon.render.texts import percent

BOUND = {
    ARITHMETIC: "arithmetic",
    MEMORY: "memory traffic",
    LAUNCH: "kernel launches",
    COLLECTIVE: "the overlapping collective",
}
"""Labels of the limits of a pass."""

MIN_INTENSITY = 0.01
"""FLOP/B below which a pass is considered data movement and not drawn."""

_MARKERS = {"matrix": "circle", "attention": "diamond", "vector": "square"}
_DASHES = ("solid", "dash", "dot", "dashdot")
_LEAST, _LARGEST = 4.7, 22.7
"""Widths of points."""


def drawn(passes: Sequence[OperatorPass]) -> list[OperatorPass]:
    """Return the passes that can be drawn: with arithmetic and traffic."""
    return [one for one in passes if (one.intensity or 0.0) >= MIN_INTENSITY]


def roofline_chart(
    result: Result,
    passes: Sequence[OperatorPass],
    names: Mapping[str, str],
    links: Mapping[str, str],
    selected: str = "",
) -> Chart:
    """Return the chart; circles are matrix products, diamonds attention, squares the vector engine.

    Args:
        result: The plan.
        passes: Passes over the operators of a block of one kind.
        names, links: Name of each operator, and the address that a click opens.
        selected: Operator whose points are ringed.
    """
    shown, total = drawn(passes), sum(one.time for one in passes)
    tops, points = _roofs(shown), []
    for work, engine in product(PASS_WORDS, _MARKERS):
        inside = [one for one in shown if (one.work, one.engine) == (work, engine)]
        if inside:
            points.append(_points(inside, total, names, links))
    rings = [_ring(one, total) for one in shown if one.operator == selected]
    lines = [*tops, *rings, *points]
    x, y = ([value for line in lines for value in getattr(line, along)] for along in "xy")
    panel = Panel(
        x=log_axis("Arithmetic intensity", "FLOP/B", x),
        y=log_axis("Rate", "TFLOP/s", y),
        marks=lines,
        height=5.2,
    )
    return result_chart(result, panel)


def _width(one: OperatorPass, total: float) -> float:
    return _LEAST + (_LARGEST - _LEAST) * math.sqrt(one.time / total)


def _points(
    passes: Sequence[OperatorPass],
    total: float,
    names: Mapping[str, str],
    links: Mapping[str, str],
) -> Line:
    """Return the points of one pass over operators of one engine; areas grow with times."""
    work = passes[0].work
    words = [
        f"{names[one.operator]}, {PASS_WORDS[work]}: {duration(one.time)}, {percent(one.time / total)} of the block"
        f"\n{scaled(one.achieved, 'FLOP/s', digits=1)} at {one.intensity or 0.0:,.3g} FLOP/B: "
        f"{percent(one.share_of_roof)} of the roof\nbound by {BOUND[one.bound]}"
        for one in passes
    ]
    return dots(
        [(one.intensity or 0.0, one.achieved / TERA) for one in passes],
        _MARKERS[passes[0].engine],
        name=PASS_WORDS[work],
        sizes=[_width(one, total) for one in passes],
        color=[WORK_COLORS[work]] * len(passes),
        words=words,
        links=[links[one.operator] for one in passes],
    )


def _ring(one: OperatorPass, total: float) -> Line:
    """Return a ring around a point."""
    at, size = (one.intensity or 0.0, one.achieved / TERA), _width(one, total) + 3
    return dots([at], _MARKERS[one.engine], sizes=[size], hollow=True, color="vermilion")


def _roofs(passes: Sequence[OperatorPass]) -> list[Line]:
    """Return the roofs: the bandwidth up to the highest peak, and each peak from its ridge point on."""
    peaks = roofs(passes)
    if not peaks:
        return []
    intensities, bandwidth = [one.intensity or 0.0 for one in passes], passes[0].bandwidth
    highest = max(peaks.values())
    first, last = min(intensities) / 2, max(*intensities, highest / bandwidth) * 2
    slope = (first, highest / bandwidth), (first * bandwidth, highest)
    roof = f"memory, {scaled(bandwidth, 'B/s', digits=2)}"
    ends = {roof: slope} | {
        f"{engine} {datatype}, {scaled(peak, 'FLOP/s', digits=0)}": (
            (peak / bandwidth, last),
            (peak, peak),
        )
        for (engine, datatype), peak in peaks.items()
    }
    return [
        Line(
            name=name,
            x=x,
            y=[rate / TERA for rate in y],
            color="gray",
            width=2,
            dash=_DASHES[number % len(_DASHES)],
        )
        for number, (name, (x, y)) in enumerate(ends.items())
    ]
