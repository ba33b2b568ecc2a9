"""The time of the best plan over the capacity of memory, as a staircase."""

import math
from collections.abc import Sequence
from typing import Any

from calculon.advise.replanned import Step
from calculon.base.units import GIB
from calculon.render.bars import COLORS
from calculon.render.digits import Digits

WIDEST = 4.0
"""Multiple of the larger capacity of now and of the file up to which the chart goes."""

GREY = "#888888"  # on light and on dark alike

_TICKS = [2**power for power in range(14)]


def capacity_steps(
    points: Sequence[tuple[Step, str, str]], now: float, in_file: float, digits: Digits
) -> dict[str, Any]:
    """Return the staircase.

    Parameters
    ----------
    points : sequence of (Step, str, str)
        The steps, the least capacity first, each with the address of a page on it, and the words of its plan.
    now, in_file : float
        Capacity of the machine, and of that in its file, in bytes.
    digits : Digits
        How times are written.
    """
    first, last = min(now, in_file) / WIDEST, max(now, in_file) * WIDEST
    shown = [point for point in points if first <= point[0].capacity <= last] or list(points[:1])
    sizes = [step.capacity / GIB for step, _, _ in shown]
    times = [step.best.value for step, _, _ in shown]
    texts = digits.seconds(times, times[0])
    end = max(last / GIB, sizes[-1])
    line = {
        "type": "scatter",
        "mode": "lines",
        "x": [*sizes, end],
        "y": [*times, times[-1]],
        "line": {"shape": "hv", "color": COLORS["blue"]},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    marks = {
        "type": "scatter",
        "mode": "markers",
        "x": sizes,
        "y": times,
        "marker": {"color": COLORS["blue"], "size": 9},
        "text": [words for _, _, words in shown],
        "customdata": [
            [link, text, f"{step.capacity / GIB:,.1f} GiB"]
            for (step, link, _), text in zip(shown, texts, strict=True)
        ],
        "hovertemplate": "from %{customdata[2]}: %{customdata[1]}<br>%{text}<extra></extra>",
        "showlegend": False,
    }
    bars = [_mark("now", now, COLORS["vermilion"], "left" if now >= in_file else "right")]
    if in_file != now:
        bars.append(_mark("system file", in_file, GREY, "right" if now > in_file else "left"))
    layout = {
        "height": 340,
        "xaxis": {
            "title": {"text": "memory of a processor, GiB"},
            "type": "log",
            "tickvals": _TICKS,
            "ticktext": [f"{one:,}" for one in _TICKS],
        },
        "yaxis": {"title": {"text": "seconds a step"}, "automargin": True},
        "shapes": [shape for shape, _ in bars],
        "annotations": [text for _, text in bars],
        "margin": {"t": 24},
    }
    return {"data": [line, marks], "layout": layout}


def _mark(name: str, size: float, color: str, anchor: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a vertical line at a capacity, and its name; names of two lines go away from each other."""
    place = {"x": size / GIB, "xref": "x", "yref": "paper"}
    shape = {
        "type": "line",
        "x0": place["x"],
        "x1": place["x"],
        "y0": 0,
        "y1": 1,
        "xref": "x",
        "yref": "paper",
        "line": {"color": color, "dash": "dash" if color == GREY else "solid", "width": 1.5},
    }
    text = {
        "x": math.log10(size / GIB),
        "y": 1,
        "xref": "x",
        "yref": "paper",
        "yanchor": "bottom",
        "xanchor": anchor,
        "text": f"{size / GIB:,.5g} {name}",
        "showarrow": False,
    }
    return shape, text
