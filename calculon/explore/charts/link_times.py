"""Traffic of each kind of parallelism: what is exposed, and what hides behind work."""

from collections.abc import Sequence
from typing import Any

from calculon.render.bars import COLORS


def link_times(
    names: Sequence[str], links: Sequence[float], exposed: Sequence[float]
) -> dict[str, Any]:
    """Return times on the link (s) as bars, the exposed part first."""
    hidden = [max(0.0, link - out) for link, out in zip(links, exposed, strict=True)]
    bars = (("exposed", exposed, COLORS["vermilion"]), ("hidden", hidden, "#8a8f98"))
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": list(names),
            "x": list(times),
            "marker": {"color": colour},
            "hovertemplate": f"%{{y}}: %{{x:.3g}} s {name}<extra></extra>",
        }
        for name, times, colour in bars
    ]
    layout = {
        "barmode": "stack",
        "height": 110 + 32 * len(names),
        "xaxis": {"title": {"text": "seconds of a step"}, "rangemode": "tozero"},
        "yaxis": {"autorange": "reversed", "automargin": True},
        "legend": {
            "orientation": "h",
            "y": 1.02,
            "yanchor": "bottom",
            "x": 0,
            "traceorder": "normal",
        },
        "margin": {"t": 32},
    }
    return {"data": data, "layout": layout}
