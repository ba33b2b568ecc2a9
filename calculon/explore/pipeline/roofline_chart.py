"""Operators on the roofline: arithmetic intensity against the achieved rate, below the roofs of the machine."""

import math
from collections.abc import Iterator, Mapping, Sequence

from calculon.base.units import TERA, duration, scaled, significant
from calculon.documents.charts.operator_chart import WORK_COLORS
from calculon.documents.operator_page import PASSES
from calculon.estimate.operator_passes import OperatorPass, roofs
from calculon.explore.pipeline.operator_words import BOUND
from calculon.render.chart import DASHES, Chart, Line, Panel
from calculon.render.chart_axes import log_axis
from calculon.render.texts import percent

LEAST_INTENSITY = 0.01
"""FLOP for each byte below which a pass only moves data: it is not drawn."""

_MARKERS = {"matrix": "circle", "attention": "diamond", "vector": "square"}

LEAST, LARGEST = 4.5, 22.0
"""Widths of points."""


def drawn(passes: Sequence[OperatorPass]) -> list[OperatorPass]:
    """Return the passes that have a place: with arithmetic and traffic."""
    return [one for one in passes if (one.intensity or 0.0) >= LEAST_INTENSITY]


def roofline(
    title: str,
    terms: str,
    passes: Sequence[OperatorPass],
    names: Mapping[str, str],
    links: Mapping[str, str],
    selected: str,
) -> Chart:
    """Return the chart.

    Parameters
    ----------
    title, terms : str
        Model, machine and plan, and the edition with its preset.
    passes : sequence of OperatorPass
        Passes over the operators of a block of one kind.
    names, links : mapping
        The name of each operator, and the address to which a click on it leads.
    selected : str
        The operator that is marked.
    """
    shown, total = drawn(passes), sum(one.time for one in passes)
    lines = list(_roofs(shown))
    marks = [*lines, *_points(shown, total, names, links), *_ring(shown, total, selected)]
    x = [value for mark in marks for value in mark.x]
    y = [value for mark in marks for value in mark.y]
    panel = Panel(
        x=log_axis("Arithmetic intensity", "FLOP/byte", x or [1.0], room=0.04),
        y=log_axis("Rate", "TFLOP/s", y or [1.0], room=0.04),
        marks=marks,
        height=5.0,
    )
    return Chart(title=title, terms=[terms], rows=((panel,),))


def _size(one: OperatorPass, total: float) -> float:
    """Return the width of a point, whose area grows with the share of the time."""
    return LEAST + (LARGEST - LEAST) * math.sqrt(one.time / total)


def _points(
    passes: Sequence[OperatorPass],
    total: float,
    names: Mapping[str, str],
    links: Mapping[str, str],
) -> Iterator[Line]:
    """Yield the points of each pass, with a marker for each engine."""
    for work, word in PASSES.items():
        for engine, marker in _MARKERS.items():
            inside = [one for one in passes if (one.work, one.engine) == (work, engine)]
            if not inside:
                continue
            yield Line(
                name=word,
                x=[one.intensity or 0.0 for one in inside],
                y=[one.achieved / TERA for one in inside],
                dash="none",
                marker=marker,
                color=WORK_COLORS[work],
                sizes=[_size(one, total) for one in inside],
                words=[_words(one, word, names[one.operator], total) for one in inside],
                links=[links[one.operator] for one in inside],
            )


def _words(one: OperatorPass, word: str, name: str, total: float) -> str:
    rate, intensity = significant(one.achieved / TERA, 3), significant(one.intensity or 0.0, 3)
    return (
        f"{name}, {word}: {duration(one.time)}, {percent(one.time / total)} of the block\n"
        f"{rate} TFLOP/s at {intensity} FLOP/byte: {percent(one.share_of_roof)} of the roof\n"
        f"bound by {BOUND[one.bound]}"
    )


def _ring(passes: Sequence[OperatorPass], total: float, selected: str) -> Iterator[Line]:
    """Yield rings around the points of the operator that is marked."""
    chosen = [one for one in passes if one.operator == selected]
    if chosen:
        yield Line(
            name="selected",
            x=[one.intensity or 0.0 for one in chosen],
            y=[one.achieved / TERA for one in chosen],
            dash="none",
            marker="circle",
            color="vermilion",
            hollow=True,
            sizes=[_size(one, total) + 3 for one in chosen],
        )


def _roofs(passes: Sequence[OperatorPass]) -> Iterator[Line]:
    """Yield the roofs: the bandwidth up to the highest peak, and each peak from there on."""
    peaks = roofs(passes)
    if not peaks:
        return
    intensities, bandwidth = [one.intensity or 0.0 for one in passes], passes[0].bandwidth
    highest = max(peaks.values())
    first, last = min(intensities) / 2, max(*intensities, highest / bandwidth) * 2
    yield Line(
        name=f"memory, {scaled(bandwidth, 'B/s', digits=2)}",
        x=[first, highest / bandwidth],
        y=[first * bandwidth / TERA, highest / TERA],
        color="grey",
        width=2.0,
    )
    for number, ((engine, datatype), peak) in enumerate(peaks.items(), 1):
        yield Line(
            name=f"{engine} {datatype}, {scaled(peak, 'FLOP/s', digits=0)}",
            x=[peak / bandwidth, last],
            y=[peak / TERA] * 2,
            color="grey",
            width=2.0,
            dash=DASHES[number % len(DASHES)],
        )
