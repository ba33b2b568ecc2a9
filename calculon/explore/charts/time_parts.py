"""The parts of the time of an iteration as a waterfall."""

from typing import Any

from calculon.documents.page import GROUP_COLORS, PARTS
from calculon.documents.result import Result
from calculon.render.bars import COLORS


def time_parts(result: Result) -> dict[str, Any]:
    """Return the parts of the time, largest first, each bar where the one before ends."""
    times = {name: time for name, time in result.times().items() if time > 0}
    names = sorted(times, key=lambda name: -times[name])
    starts, end = [], 0.0
    for name in names:
        starts.append(end)
        end += times[name]
    texts = result.digits.seconds([times[name] for name in names], end)
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": [PARTS[name][0] for name in names],
        "x": [times[name] for name in names],
        "base": starts,
        "text": texts,
        "textposition": "auto",
        "cliponaxis": False,
        "hovertemplate": "%{y}: %{text}<extra></extra>",
        "marker": {"color": [COLORS[GROUP_COLORS[PARTS[name][1]]] for name in names]},
    }
    layout = {
        "height": 60 + 28 * len(names),
        "margin": {"r": 60},
        "xaxis": {"title": {"text": "seconds"}, "rangemode": "tozero"},
        "yaxis": {"autorange": "reversed", "automargin": True},
        "showlegend": False,
    }
    return {"data": [bars], "layout": layout}
