"""Operators on the roofline: arithmetic intensity against the rate that is reached, below the roofs of the machine."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from calculon.base.units import TERA, duration, scaled
from calculon.documents.operator_page import PASSES
from calculon.estimate.operator_passes import OperatorPass, roofs
from calculon.explore.charts.operator_bars import WORK_COLORS
from calculon.explore.pipeline.operator_words import BOUND
from calculon.render.bars import COLORS
from calculon.render.texts import percent

LEAST_INTENSITY = 0.01
"""FLOP for each byte below which a pass only moves data: it is not drawn."""

_SYMBOLS = {"matrix": "circle", "attention": "diamond", "vector": "square"}
_LEAST, _LARGEST = 7.0, 34.0  # pixels of a point
_GREY = "#8a929c"


def drawn(passes: Sequence[OperatorPass]) -> list[OperatorPass]:
    """Return the passes that have a place: with arithmetic and traffic."""
    return [one for one in passes if (one.intensity or 0.0) >= LEAST_INTENSITY]


def roofline_chart(
    passes: Sequence[OperatorPass],
    names: Mapping[str, str],
    links: Mapping[str, str],
    selected: str,
) -> dict[str, Any]:
    """Return the chart.

    Parameters
    ----------
    passes : sequence of OperatorPass
        Passes over the operators of a block of one kind.
    names, links : mapping
        What each operator is called, and the address to which a click on it leads.
    selected : str
        The operator that is marked.
    """
    shown, total = drawn(passes), sum(one.time for one in passes)
    data = _roofs(shown)
    for work, word in PASSES.items():
        inside = [one for one in shown if one.work == work]
        if inside:
            data.append(_points(inside, word, total, names, links, selected))
    axes = {"type": "log", "dtick": 1, "exponentformat": "none", "zeroline": False}
    layout = {
        "height": 460,
        "hovermode": "closest",
        "xaxis": {**axes, "title": {"text": "arithmetic intensity in FLOP/byte"}},
        "yaxis": {**axes, "title": {"text": "TFLOP/s"}, "automargin": True},
        "legend": {"orientation": "h", "y": 1.01, "yanchor": "bottom", "x": 0},
    }
    return {"data": data, "layout": layout}


def _points(
    passes: Sequence[OperatorPass],
    word: str,
    total: float,
    names: Mapping[str, str],
    links: Mapping[str, str],
    selected: str,
) -> dict[str, Any]:
    """Return the points of one pass."""
    chosen = [one.operator == selected for one in passes]
    sizes = [_LEAST + (_LARGEST - _LEAST) * math.sqrt(one.time / total) for one in passes]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": word,
        "x": [one.intensity for one in passes],
        "y": [one.achieved / TERA for one in passes],
        "customdata": [
            [
                names[one.operator],
                duration(one.time),
                percent(one.time / total),
                percent(one.share_of_roof),
                BOUND[one.bound],
                links[one.operator],
            ]
            for one in passes
        ],
        "hovertemplate": f"%{{customdata[0]}}, {word}: %{{customdata[1]}}, %{{customdata[2]}} of the block"
        "<br>%{y:.3s} TFLOP/s at %{x:.3s} FLOP/byte: %{customdata[3]} of the roof"
        "<br>bound by %{customdata[4]}<extra></extra>",
        "marker": {
            "color": WORK_COLORS[passes[0].work],
            "size": sizes,
            "symbol": [_SYMBOLS[one.engine] for one in passes],
            "opacity": 0.8,
            "line": {
                "width": [3 if one else 0.5 for one in chosen],
                "color": [COLORS["vermilion"] if one else "white" for one in chosen],
            },
        },
    }


def _roofs(passes: Sequence[OperatorPass]) -> list[dict[str, Any]]:
    """Return the roofs: the bandwidth up to the highest peak, and each peak from there on."""
    peaks = roofs(passes)
    if not peaks:
        return []
    intensities, bandwidth = [one.intensity or 0.0 for one in passes], passes[0].bandwidth
    highest = max(peaks.values())
    first, last = min(intensities) / 2, max(*intensities, highest / bandwidth) * 2
    slope = {
        "x": [first, highest / bandwidth],
        "y": [first * bandwidth / TERA, highest / TERA],
        "name": f"memory, {scaled(bandwidth, 'B/s', digits=2)}",
    }
    lines = [slope] + [
        {
            "x": [peak / bandwidth, last],
            "y": [peak / TERA] * 2,
            "name": f"{engine} {datatype}, {scaled(peak, 'FLOP/s', digits=0)}",
        }
        for (engine, datatype), peak in peaks.items()
    ]
    styles = ("solid", "dash", "dot", "dashdot")
    return [
        {
            **line,
            "type": "scatter",
            "mode": "lines",
            "hoverinfo": "name",
            "line": {"color": _GREY, "width": 2, "dash": styles[number % len(styles)]},
        }
        for number, line in enumerate(lines)
    ]
